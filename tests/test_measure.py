"""Real measuring processes on the tiny geometry: rounds, gates at run time, and variants that misbehave."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llama_workbench import ROOT
from llama_workbench.datasets import geometries
from llama_workbench.datasets.cache import cache_directory
from llama_workbench.datasets.checkpoints import synthesize
from llama_workbench.harness import run as session
from llama_workbench.harness.measure import gating
from llama_workbench.harness.measure import measurement as measure
from llama_workbench.harness.measure.participants import Group
from llama_workbench.harness.measure.processes import WorkerProcess
from llama_workbench.harness.plan.selection import Request
from llama_workbench.harness.report.standings import read_standings
from llama_workbench.harness.store.folder import RunFolder

OUTSIDE = ROOT / "tests" / "outside_variants.py"


class Quiet:
    """Progress that is only remembered."""

    def __init__(self):
        self.notes = []

    def phase(self, text):
        pass

    def note(self, text):
        self.notes.append(text)

    def step(self, text, done, seconds_left):
        assert 0 <= done <= 1


def run(tmp_path: Path, request: Request, **options) -> tuple[session.Result, list[str]]:
    progress = Quiet()
    settings = session.Options(run_dir=tmp_path / "run", **{"budget_seconds": 20.0, **options})
    plan = session.plan_run(request, settings)
    return session.Run(plan, settings, progress).measure(), progress.notes


def test_a_comparison_end_to_end(tmp_path):
    request = Request(
        compare=("team006_before", "team006_after"), workloads=("mask-create-apply-t32", "prefill-tiny-t16")
    )
    result, _ = run(tmp_path, request, budget_seconds=16.0)
    samples = result.folder.read_samples()
    assert set(samples["workload"].unique()) == {"mask-create-apply-t32", "prefill-tiny-t16"}
    assert (samples[["cpu_ns", "wall_ns", "repeats"]] > 0).all().all()
    # Every variant once a sub-round, in all orders.
    key = ["workload", "process", "round", "sub_round"]
    assert not samples.duplicated([*key, "variant"]).any()
    first = samples[samples["position"] == 0]
    assert first.groupby("workload", observed=True)["variant"].nunique().min() > 1
    # A cached mask spares its creation: by far the largest effect of the micro-op.
    effect = next(e for e in result.verdicts[0].effects if e.workload == "mask-create-apply-t32")
    assert effect.verdict == "faster"
    assert effect.low > 1.1
    experiment = next(e for e in result.manifest["experiments"] if e["workload"]["name"] == "prefill-tiny-t16")
    assert set(experiment["gates"]) == {
        "team006_before", "team006_after", "team006_before@aa", "team006_after@copy", "yardstick",
    }  # fmt: skip
    assert all(gate["passed"] and gate["cases"] == 17 for gate in experiment["gates"].values())
    assert not experiment["trace_differences"][0]["same"]
    assert result.manifest["noise"]["controls"]
    assert not (result.folder.path / "samples.jsonl").exists()
    written = {"claims.json", "verdicts.json", "standings.json", "samples.parquet"}
    assert result.folder.read_manifest()["checksums"].keys() == {"run.json", *written}
    assert result.folder.changed() == []
    assert read_standings(result.folder).status == "complete"


def test_no_path_of_this_machine_gets_into_the_run(tmp_path):
    result, _ = run(
        tmp_path, Request(compare=("fast", "yardstick"), workloads=("decode-tiny-c16",)), budget_seconds=3.0
    )
    for name in ("run.json", "verdicts.json", "claims.json"):
        text = (result.folder.path / name).read_text()
        for place in (str(tmp_path), str(ROOT), str(Path.home())):
            assert place not in text, (name, place)


def test_architecture_claims_carry_their_traces(tmp_path):
    request = Request(claims=("single-file-faster",), workloads=("prefill-tiny-t16",))
    result, _ = run(tmp_path, request, budget_seconds=6.0)
    (experiment,) = result.manifest["experiments"]
    assert experiment["trace_differences"] == [
        {"baseline": "team005_hybrid", "variant": "team005_proposal", "same": True, "detail": "", "counts": []}
    ]
    assert experiment["traces"]["team005_hybrid"]["digest"] == experiment["traces"]["team005_proposal"]["digest"]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raises", "no such kernel here"),
        ("wrong", "off by"),
        ("nan", "NaN"),
        ("kills", "SIGKILL"),
        ("threads", "number of torch threads"),
        ("no_such_function", "no function 'no_such_function'"),
    ],
)
def test_a_bad_outside_variant_falls_out_and_the_run_goes_on(tmp_path, function, said):
    request = Request(
        variants=("yardstick", "fast", function), added=(f"{OUTSIDE}:{function}",), workloads=("decode-tiny-c16",)
    )
    result, notes = run(tmp_path, request, budget_seconds=6.0)
    (excluded,) = result.manifest["excluded"]
    assert excluded["variant"] == function
    assert said in excluded["reason"]
    assert [note for note in notes if function in note and said in note], notes
    samples = result.folder.read_samples()
    assert {"yardstick", "fast"} <= set(samples["variant"].unique())
    assert function not in set(samples["variant"].unique())
    verdicts = {verdict.title: verdict.verdict for verdict in result.verdicts}
    assert verdicts[f"{function} against yardstick"] == "not evidence"
    assert verdicts["fast against yardstick"] in {"faster", "slower", "same", "inconclusive"}


def test_importing_the_outside_file_may_fail(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("import nowhere_to_be_found\ndef mine(config, weights, *, max_length): ...\n")
    request = Request(variants=("yardstick", "fast", "mine"), added=(f"{file}:mine",), workloads=("decode-tiny-c16",))
    result, _ = run(tmp_path, request, budget_seconds=4.0)
    assert "nowhere_to_be_found" in result.manifest["excluded"][0]["reason"]
    assert any(book["rounds"] for book in result.manifest["experiments"])


def planned(tmp_path: Path, request: Request) -> measure.Measurement:
    """A Measurement of what is asked, whose gates nobody has passed yet."""
    plan = session.plan_run(request, session.Options(run_dir=tmp_path / "run"))
    names = {one.workload.geometry for one in plan.experiments if one.workload.kind != "component"}
    return measure.Measurement(
        plan.experiments, added=plan.added, device=plan.device,
        folders={name: synthesize(geometries.get(name), cache=cache_directory()) for name in names},
        parameters={}, cache=cache_directory(), logs=tmp_path, seed=0, progress=Quiet(),
    )  # fmt: skip


def spied(measurement: measure.Measurement, monkeypatch) -> list[tuple[WorkerProcess, Group, str, bool]]:
    """Every gate that was begun: in which process, for which group, of which variant, and if that had fallen out."""
    begun = []
    begin = measurement._begin_gate

    def spy(process, group, book, name):
        begun.append((process, group, name, name in measurement.excluded))
        return begin(process, group, book, name)

    monkeypatch.setattr(measurement, "_begin_gate", spy)
    return begun


@pytest.mark.parametrize("cores", [1, 2])
def test_gates_of_two_checkpoints_run_beside_each_other_where_there_are_cores(tmp_path, monkeypatch, cores):
    monkeypatch.setattr(gating, "granted_cores", lambda: cores)
    workloads = ("prefill-tiny-t16", "mask-create-apply-t32", "decode-width-256-c1")
    measurement = planned(tmp_path, Request(compare=("team006_before", "team006_after"), workloads=workloads))
    begun = spied(measurement, monkeypatch)
    with measurement.processes():
        measurement.pass_gates()
        standing = {group.process.pid for group in measurement.groups if group.process and group.process.alive()}
        assert len(standing) == len(measurement.groups) == 3
    assert all(book.gates and not book.excluded for book in measurement.books)
    order = [measurement.groups.index(group) for _, group, _, _ in begun]
    turns = [group for group, _ in itertools.groupby(order)]
    assert (len(turns) == 3) == (cores == 1)
    assert (len(set(order[:2])) == 2) == (cores == 2)
    # Nothing beside a component, which takes microseconds.
    [component] = [index for index, group in enumerate(measurement.groups) if group.folder is None]
    assert order.index(component) == len(order) - order.count(component)


@pytest.mark.parametrize("last", ["team006_after", "kills"])
def test_the_last_compiled_variant_is_gated_ahead_beside_the_others_and_counts_only_here(tmp_path, monkeypatch, last):
    """Two ordinary variants pass for compiled ones, which would take minutes; one kills the process it is gated in."""
    monkeypatch.setattr(gating, "granted_cores", lambda: 2)
    added = (f"{OUTSIDE}:kills",) if last == "kills" else ()
    variants = ("team006_before", last, "yardstick")
    measurement = planned(tmp_path, Request(variants=variants, added=added, workloads=("prefill-tiny-t16",)))
    monkeypatch.setattr(measurement, "_is_compiled", lambda name: name in ("team006_before", last))
    begun = spied(measurement, monkeypatch)
    with measurement.processes():
        measurement.pass_gates()
        (book,), (group,) = measurement.books, measurement.groups
        assert group.process is not None and group.process.alive()
        ahead = begun[0][0]
        assert not ahead.alive()
    assert begun[0][2] == last  # before all others, in a process of its own
    assert last in [name for _, _, name, _ in begun[1:]]  # and then as all others
    assert all(process is not ahead for process, *_ in begun[1:])
    assert book.gates["team006_before"]["passed"]
    if added:
        assert "kills its process" in measurement.excluded[last]
    else:
        assert book.gates[last]["passed"] and not book.excluded
    assert (tmp_path / "compiling-ahead.log").is_file()


def test_what_falls_out_of_one_gate_is_not_gated_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(gating, "granted_cores", lambda: 2)
    workloads = ("decode-tiny-c16", "decode-width-256-c1")
    measurement = planned(
        tmp_path, Request(variants=("yardstick", "fast", "kills"), added=(f"{OUTSIDE}:kills",), workloads=workloads)
    )
    begun = spied(measurement, monkeypatch)
    with measurement.processes():
        measurement.pass_gates()
    assert "SIGKILL" in measurement.excluded["kills"]
    assert begun and not any(fallen_out for *_, fallen_out in begun)
    for book in measurement.books:
        assert book.excluded["kills"] == measurement.excluded["kills"]
        assert book.gates["fast"]["passed"] and "kills" not in book.gates


def test_a_hanging_variant_is_given_up_wherever_it_is_gated(tmp_path, monkeypatch):
    monkeypatch.setattr(gating, "granted_cores", lambda: 2)
    monkeypatch.setattr(gating, "GATE_SECONDS", 15.0)
    request = Request(
        variants=("yardstick", "fast", "hangs"),
        added=(f"{OUTSIDE}:hangs",),
        workloads=("decode-tiny-c16", "decode-width-256-c1"),
    )
    result, _ = run(tmp_path, request, budget_seconds=18.0)
    assert "hangs" in result.manifest["excluded"][0]["reason"]
    for experiment in result.manifest["experiments"]:
        assert experiment["gates"]["fast"]["passed"] and "hangs" not in experiment["gates"]
    assert "fast" in set(result.folder.read_samples()["variant"].unique())


@pytest.mark.parametrize(("function", "said"), [("kills_later", "exit code 7"), ("wrong_later", "timed call")])
def test_a_variant_that_turns_bad_in_a_round_falls_out_then(tmp_path, monkeypatch, function, said):
    kept = []
    append = RunFolder.append_round

    def spy(folder, record):
        kept.append(({sample.variant for sample in record.samples}, folder.read_manifest()))
        append(folder, record)

    monkeypatch.setattr(RunFolder, "append_round", spy)
    request = Request(
        variants=("yardstick", "fast", function), added=(f"{OUTSIDE}:{function}",), workloads=("decode-tiny-c16",)
    )
    result, _ = run(tmp_path, request, budget_seconds=100.0)
    (excluded,) = result.manifest["excluded"]
    assert (excluded["variant"], said in excluded["reason"]) == (function, True), excluded
    assert any(book["rounds"] > 10 for book in result.manifest["experiments"])
    # A kill at any time leaves a manifest that knows how to judge the rounds of the journal.
    assert {function in names for names, _ in kept} == {True, False}
    for names, manifest in kept:
        assert (function in names) != (function in {item["variant"] for item in manifest["excluded"]})
        assert all(
            names <= experiment["gates"].keys() for experiment in manifest["experiments"][:1] if function in names
        )


def test_a_slower_variant_is_found_slower_and_a_copy_is_not(tmp_path):
    request = Request(
        variants=("fast", "good", "slow"),
        added=(f"{OUTSIDE}:good", f"{OUTSIDE}:slow"),
        workloads=("decode-tiny-c16",),
    )
    result, _ = run(tmp_path, request, budget_seconds=12.0)
    verdicts = {verdict.title: verdict.verdict for verdict in result.verdicts}
    assert verdicts["slow against fast"] == "slower"
    assert verdicts["good against fast"] in {"same", "inconclusive"}


def test_a_real_checkpoint_is_measured_in_place_of_the_synthetic_one(tmp_path):
    from llama_workbench.datasets import geometries
    from llama_workbench.datasets.checkpoints import synthesize

    folder = synthesize(geometries.get("tiny-gqa"), seed=3, cache=tmp_path / "cache")
    (tmp_path / "My Llama").symlink_to(folder)
    request = Request(compare=("fast", "yardstick"), workloads=("decode-tiny-c16",))
    result, _ = run(tmp_path, request, checkpoint=tmp_path / "My Llama", budget_seconds=4.0)
    assert list(result.manifest["checkpoints"]) == [result.manifest["experiments"][0]["workload"]["geometry"]]
    assert result.manifest["experiments"][0]["rounds"] > 0


def _command(run_dir: Path, *words: str) -> list[str]:
    return [
        sys.executable, "-m", "pytest", "--benchmark", "--compare", "team005_hybrid", "team005_proposal",
        "--workloads", "decode-tiny-c16,prefill-tiny-t16", f"--run-dir={run_dir}", "-p", "no:cacheprovider", *words,
    ]  # fmt: skip


def _wait_for_rounds(run_dir: Path, process: subprocess.Popen, rounds: int = 5) -> None:
    journal = run_dir / "samples.jsonl"
    end = time.monotonic() + 90
    while time.monotonic() < end and process.poll() is None:
        if journal.is_file() and journal.read_bytes().count(b"\n") >= rounds:
            return
        time.sleep(0.05)
    raise AssertionError(f"no {rounds} rounds; exit code {process.poll()}")


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def test_kill_minus_nine_keeps_every_finished_round_and_leaves_no_orphan(tmp_path):
    run_dir = tmp_path / "run"
    with subprocess.Popen(_command(run_dir, "--budget=60"), cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        _wait_for_rounds(run_dir, process)
        workers = _children(process.pid)
        process.send_signal(signal.SIGKILL)
    journal = (run_dir / "samples.jsonl").read_bytes().count(b"\n")
    samples = RunFolder(run_dir).read_samples()
    assert samples.groupby(["workload", "round"], observed=True).ngroups >= journal >= 5
    judged = subprocess.run(
        [sys.executable, "-m", "llama_workbench.commands.app", "judge", str(run_dir)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stderr
    assert "ad-hoc" in judged.stdout
    [verdict] = json.loads((run_dir / "verdicts.json").read_text())
    assert verdict["claim"] == "ad-hoc"
    assert sum(effect["rounds"] for effect in verdict["effects"]) >= 5
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < end:
        time.sleep(0.1)
    assert workers
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_ctrl_c_while_gates_run_beside_each_other_ends_all_of_them(tmp_path):
    run_dir = tmp_path / "run"
    command = [word.replace("decode-tiny-c16", "decode-width-256-c1") for word in _command(run_dir, "--budget=60")]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        logs = run_dir / "log"
        end = time.monotonic() + 90
        while len(list(logs.glob("worker-*.log"))) < 2 and time.monotonic() < end and process.poll() is None:
            time.sleep(0.02)
        workers = _children(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        output = process.stdout.read()
    assert process.returncode == 2, output
    assert json.loads((run_dir / "run.json").read_text())["status"] == "interrupted"
    assert json.loads((run_dir / "run.json").read_text())["sealed"] and RunFolder(run_dir).changed() == []
    assert workers
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_ctrl_c_keeps_and_judges_what_was_measured(tmp_path):
    run_dir = tmp_path / "run"
    with subprocess.Popen(
        _command(run_dir, "--budget=60"), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell ignores it in what it starts with &
    ) as process:  # fmt: skip
        _wait_for_rounds(run_dir, process)
        os.kill(process.pid, signal.SIGINT)
        assert process.stdout is not None
        output = process.stdout.read()
    assert process.returncode == 2, output
    assert "was interrupted" in output
    assert json.loads((run_dir / "run.json").read_text())["status"] == "interrupted"
    assert (run_dir / "samples.parquet").is_file()
    effects = json.loads((run_dir / "verdicts.json").read_text())[0]["effects"]
    assert sum(effect["rounds"] for effect in effects) >= 5  # chance decides which workload's rounds come first
