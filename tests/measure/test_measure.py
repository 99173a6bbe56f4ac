"""Real measuring processes on the tiny geometry: rounds, gates at run time, and variants that misbehave."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llama_workbench import ROOT
from llama_workbench.cache import cache_directory
from llama_workbench.datasets import geometries
from llama_workbench.datasets.checkpoints import synthesize
from llama_workbench.harness.measure import gating
from llama_workbench.harness.measure import measurement as measure
from llama_workbench.harness.measure.choosing import Remaining, Stopping
from llama_workbench.harness.measure.groups import Group
from llama_workbench.harness.measure.participants import ExperimentState, Tally
from llama_workbench.harness.measure.processes import PendingAnswer, WorkerFailed
from llama_workbench.harness.plan.options import Options, Request
from llama_workbench.harness.report.standings import read_standings
from llama_workbench.harness.session import run as session
from llama_workbench.harness.spec.comparison import Comparison
from llama_workbench.harness.spec.experiments import Experiment, Target
from llama_workbench.harness.spec.sample import Round
from llama_workbench.harness.spec.words import ARCHITECTURE
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import TraceDifference
from tests import kills
from tests.runs import Quiet, measurement_of, short_sessions
from tests.unchanged import SESSIONS

pytestmark = [pytest.mark.covers(*SESSIONS), pytest.mark.usefixtures("warm")]

OUTSIDE = ROOT / "tests" / "outside_variants.py"


class FixedRounds:
    """A stopping rule that asks for exactly so many rounds of a workload: no test depends on how busy the machine is,
    nor on how soon the verdicts are known. everyone: of all that take part, also of what is settled already."""

    def __init__(self, rule: Stopping, count: int, *, everyone: bool = False) -> None:
        self.rule, self.count, self.everyone = rule, count, everyone
        self.rounds: Counter[str] = Counter()

    def add(self, finished: Round) -> None:
        self.rounds[finished.workload] += 1
        self.rule.add(finished)

    def end_process(self, process: int | None = None) -> None:
        self.rule.end_process(process)

    def remaining(self, experiment: Experiment, is_apart: Any) -> Sequence[Remaining]:
        if self.rounds[experiment.workload.name] >= self.count:
            return []
        one_more = Remaining(experiment.entered(), early=False, rounds_next=1.0, rounds_all=1.0)
        return [one_more] if self.everyone else self.rule.remaining(experiment, is_apart) or [one_more]


def run(tmp_path: Path, request: Request, *, rounds: int, **options: Any) -> tuple[session.Result, list[str]]:
    """A real run that measures so many rounds of each workload, however long they take."""
    progress = Quiet()
    settings = Options(run_dir=tmp_path / "run", **{"budget_seconds": 600.0, **options})
    plan = session.plan_run(request, settings)
    real = measure.Schedule.run

    def fixed(self: measure.Schedule, rule: Stopping, keep: Any, *, seconds: float) -> None:
        real(self, FixedRounds(rule, rounds, everyone=True), keep, seconds=seconds)

    with short_sessions(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure.Schedule, "run", fixed)
        return session.Run(plan, settings, progress).measure(), progress.notes


# -- a run in which all is well ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> session.Result:
    request = Request(
        compare=("team006_before", "team006_after"), workloads=("mask-create-apply-t32", "prefill-tiny-t16")
    )
    return run(tmp_path_factory.mktemp("compared"), request, rounds=20, no_causes=True)[0]


def test_every_variant_is_sampled_once_a_sub_round_in_all_orders(compared):
    samples = compared.folder.read_samples().frame()
    assert set(samples["workload"].unique()) == {"mask-create-apply-t32", "prefill-tiny-t16"}
    assert (samples[["cpu_ns", "wall_ns", "repeats"]] > 0).all().all()
    key = ["workload", "process", "round", "sub_round"]
    assert not samples.duplicated([*key, "variant"]).any()
    first = samples[samples["position"] == 0]
    assert first.groupby("workload", observed=True)["variant"].nunique().min() > 1


def test_a_comparison_is_gated_and_judged(compared):
    # A cached mask spares its creation: by far the largest effect of the micro-op.
    effect = next(e for e in compared.verdicts[0].effects if e.workload == "mask-create-apply-t32")
    assert effect.verdict == "faster"
    assert effect.low > 1.1
    experiment = next(e for e in compared.manifest.experiments if e.workload.name == "prefill-tiny-t16")
    assert set(experiment.gates) == {
        "team006_before", "team006_after", "team006_before@aa", "team006_after@copy", "yardstick",
    }  # fmt: skip
    assert all(gate.passed and gate.cases == 17 for gate in experiment.gates.values())
    assert not experiment.trace_differences[0].same
    assert compared.manifest.noise.controls


def test_its_folder_is_whole_and_sealed(compared):
    assert not (compared.folder.path / "samples.jsonl").exists()
    written = {"claims.json", "verdicts.json", "standings.json", "samples.parquet"}
    assert compared.folder.sums.known().keys() == {"run.json", *written}
    assert compared.folder.changed() == []
    assert read_standings(compared.folder).status == "complete"


def test_no_path_of_this_machine_gets_into_the_run(compared):
    for name in ("run.json", "verdicts.json", "claims.json"):
        text = (compared.folder.path / name).read_text()
        for place in (str(compared.folder.path.parent), str(ROOT), str(Path.home())):
            assert place not in text, (name, place)


# -- a run with everything that can go wrong in it ---------------------------------------------------------------------

BAD_AT_ONCE = {
    "raises": "no such kernel here",
    "wrong": "off by",
    "nan": "NaN",
    "kills": "SIGKILL",
    "threads": "number of torch threads",
    "no_function": "no function 'no_function'",
    "mine": "nowhere_to_be_found",
}
BAD_LATER = {"kills_later": "exit code 7", "wrong_later": "timed call"}


@dataclass(frozen=True)
class Mixed:
    """A run of right and wrong variants. `kept`: of each round whose samples it has, and run.json as it stood then."""

    result: session.Result
    notes: list[str]
    kept: list[tuple[set[str], dict[str, Any]]]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Mixed:
    folder = tmp_path_factory.mktemp("mixed")
    broken = folder / "broken.py"
    broken.write_text("import nowhere_to_be_found\ndef mine(config, weights, *, max_length): ...\n")
    outside = [name for name in ("good", "slow", *BAD_AT_ONCE, *BAD_LATER) if name != "mine"]
    request = Request(
        variants=("fast", "yardstick", *outside, "mine"),
        added=(*(f"{OUTSIDE}:{name}" for name in outside), f"{broken}:mine"),
        workloads=("decode-tiny-c16",),
    )
    kept: list[tuple[set[str], dict[str, Any]]] = []
    append = RunFolder.append_round

    def spy(folder: RunFolder, record: Any) -> None:
        kept.append(({sample.variant for sample in record.samples}, folder.read_manifest()))
        append(folder, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "append_round", spy)
        # What is the same as another is never found to differ; with twice the rounds intervals are as narrow as before.
        patch.setattr(session, "ALPHA", 1e-6)
        # By this seed the first bad processes come after a few good ones (see `outside_variants._is_bad_process`).
        result, notes = run(folder, request, rounds=90, seed=1641, no_causes=True)
    return Mixed(result, notes, kept)


@pytest.mark.parametrize(("function", "said"), (BAD_AT_ONCE | BAD_LATER).items())
def test_a_bad_outside_variant_falls_out_with_its_reason(mixed, function, said):
    [reason] = [item.reason for item in mixed.result.manifest.excluded if item.variant == function]
    assert said in reason
    assert f"{function} is left out" in mixed.notes, "why is told at the end, with the verdicts"
    verdicts = {verdict.title: verdict.verdict for verdict in mixed.result.verdicts}
    assert verdicts[f"{function} against fast"] == "not evidence"


def test_the_run_goes_on_without_them(mixed):
    assert {item.variant for item in mixed.result.manifest.excluded} == {*BAD_AT_ONCE, *BAD_LATER}
    sampled = set(mixed.result.folder.read_samples().frame()["variant"].unique())
    assert {"fast", "yardstick", "good", "slow"} <= sampled and not sampled & {*BAD_AT_ONCE}
    assert mixed.result.manifest.experiments[0].rounds == len(mixed.kept) == 90


def test_a_slower_variant_is_found_slower_and_a_copy_is_not(mixed):
    verdicts = {verdict.title: verdict.verdict for verdict in mixed.result.verdicts}
    assert verdicts["slow against fast"] == "slower"
    assert verdicts["good against fast"] in {"same", "inconclusive"}
    assert verdicts["yardstick against fast"] in {"faster", "slower", "same", "inconclusive"}


@pytest.mark.parametrize("function", BAD_LATER)
def test_what_turns_bad_in_a_round_is_known_before_the_next_is_kept(mixed, function):
    """A kill at any time leaves a manifest that knows how to judge the rounds of the journal."""
    assert {function in names for names, _ in mixed.kept} == {True, False}
    for names, manifest in mixed.kept:
        assert (function in names) != (function in {item["variant"] for item in manifest["excluded"]})
        assert all(
            names <= experiment["gates"].keys() for experiment in manifest["experiments"][:1] if function in names
        )


# -- gates of several processes ----------------------------------------------------------------------------------------


def planned(tmp_path: Path, request: Request, *, real: bool) -> measure.Measurement:
    """A Measurement of what is asked, whose gates nobody has passed yet."""
    plan = session.plan_run(request, Options(run_dir=tmp_path / "run"))
    names = {one.workload.geometry for one in plan.experiments if one.workload.kind != "component"}
    cache = cache_directory()
    folders = {name: synthesize(geometries.get(name), cache=cache) if real else tmp_path / name for name in names}
    return measurement_of(plan, tmp_path, folders=folders, cache=cache)


def spied(measurement: measure.Measurement, monkeypatch) -> list[tuple[Any, Group, str, bool]]:
    """Every gate that was begun: in which process, for which group, of which variant, and if that had fallen out."""
    begun = []
    begin = measurement.gates.begin

    def spy(process, group, state, name):
        begun.append((process, group, name, name in measurement.participants.excluded))
        with pytest.MonkeyPatch.context() as patch:
            if name == "hangs":
                patch.setattr(gating, "GATE_SECONDS", 1.0)
            return begin(process, group, state, name)

    monkeypatch.setattr(measurement.gates, "begin", spy)
    return begun


class Pretended:
    """Stands for a measuring process: every variant passes its gates at once, but `kills`, which ends it."""

    def __init__(self, log: str) -> None:
        self.log = log
        self.reader, self.writer = os.pipe()
        os.write(self.writer, b".")  # an answer can always be had
        self.open = True

    def fileno(self) -> int:
        return self.reader

    def alive(self) -> bool:
        return self.open

    def noise(self) -> list[int | None]:
        return []

    def ask(self, verb: str, timeout_seconds: float, **arguments: Any) -> Any:
        return {"parameters": 1, "digest": "", "synthetic": True} if verb == "open" else []

    def begin(self, verb: str, timeout_seconds: float, **arguments: Any) -> PendingAnswer:
        self.variant = arguments["variant"]
        return PendingAnswer(self, verb, timeout_seconds)  # type: ignore[arg-type]

    def answer(self, verb: str, timeout_seconds: float, end: float) -> Any:
        if self.variant == "kills":
            raise WorkerFailed("kills its process (SIGKILL)")
        learnt = {"call_ns": 1000, "own_threads": False}
        return {"gate": {"passed": True, "cases": 1}, "learnt": learnt, "facts": {}, "cheap": True}

    def close(self) -> None:
        if self.open:
            os.close(self.reader)
            os.close(self.writer)
        self.open = False

    def is_ready(self) -> bool:
        return True

    def ready_at(self) -> float:
        return 0.0

    end = close


def pretending(measurement: measure.Measurement, monkeypatch) -> list[Pretended]:
    """The processes that it begins, none of which is one."""
    processes: list[Pretended] = []

    def process(group, index, log, side=None, prepare=(), start_seconds=0.0, variables=None):
        processes.append(Pretended(log))
        return processes[-1]

    monkeypatch.setattr(measurement.processes, "new", process)
    monkeypatch.setattr(measurement.processes, "examination", Pretended("examiner.log"))
    return processes


@pytest.mark.parametrize("cores", [1, 2])
def test_gates_of_two_checkpoints_run_beside_each_other_where_there_are_cores(tmp_path, monkeypatch, cores):
    monkeypatch.setattr(gating, "granted_cores", lambda: cores)
    workloads = ("prefill-tiny-t16", "mask-create-apply-t32", "decode-width-256-c1")
    request = Request(compare=("team006_before", "team006_after"), workloads=workloads)
    measurement = planned(tmp_path, request, real=False)
    processes, begun = pretending(measurement, monkeypatch), spied(measurement, monkeypatch)
    with measurement.processes.running():
        measurement.gates.pass_gates()
        assert len(processes) == len(measurement.processes.groups) == 3
        assert all(process.alive() for process in processes)
    assert not any(process.alive() for process in processes)
    assert all(state.gates and not state.excluded for state in measurement.participants.states)
    order = [measurement.processes.groups.index(group) for _, group, _, _ in begun]
    turns = [group for group, _ in itertools.groupby(order)]
    assert (len(turns) == 3) == (cores == 1)
    assert (len(set(order[:2])) == 2) == (cores == 2)
    # Nothing beside a component, which takes microseconds.
    [component] = [index for index, group in enumerate(measurement.processes.groups) if group.folder is None]
    assert order.index(component) == len(order) - order.count(component)


def test_what_falls_out_of_one_gate_is_not_gated_beside_it(tmp_path, monkeypatch):
    """Real processes: of two checkpoints side by side, one variant kills those it is gated in, one hangs in them."""
    monkeypatch.setattr(gating, "granted_cores", lambda: 2)
    request = Request(
        variants=("yardstick", "fast", "kills", "hangs"),
        added=(f"{OUTSIDE}:kills", f"{OUTSIDE}:hangs"),
        workloads=("decode-tiny-c16", "decode-width-256-c1"),
    )
    measurement = planned(tmp_path, request, real=True)
    begun = spied(measurement, monkeypatch)
    with measurement.processes.running():
        measurement.gates.pass_gates()
    excluded, groups = measurement.participants.excluded, measurement.processes.groups
    assert "SIGKILL" in excluded["kills"] and "hangs" in excluded["hangs"]
    assert {groups.index(group) for _, group, *_ in begun} == {0, 1} and len(groups) == 2
    assert not any(fallen_out for *_, fallen_out in begun)
    for state in measurement.participants.states:
        assert state.excluded.items() == excluded.items()
        assert state.gates["fast"].passed and not {"kills", "hangs"} & state.gates.keys()


def test_rounds_that_tell_nothing_end_with_their_time(tmp_path, monkeypatch):
    """A round is no evidence on others when one computed elsewhere; were all so, the slice must still end."""
    measurement = planned(tmp_path, Request(compare=("fast", "yardstick"), workloads=("prefill-tiny-t16",)), real=False)
    monkeypatch.setattr(measurement.gates, "standing", lambda group: None)  # who was excluded has its process ended
    [state] = measurement.participants.states
    asked: list[str] = []

    class Endless(Pretended):
        def ask(self, verb, timeout_seconds, **arguments):
            asked.append(verb)
            nothing: dict[str, Any] = {key: [] for key in ("samples", "drawn", "by_wall", "refused")}
            return {**nothing, "wrong": {}, "changed": {}, "leaks": {}, "elsewhere": {"gone": "why"}}

    class AsksForMore:
        def add(self, finished):
            raise AssertionError("a round that tells nothing is kept")

        def end_process(self, process=None):
            pass

        def remaining(self, experiment, is_apart):
            return [Remaining(("fast", "yardstick"), True, 1.0, 1.0)]

    state.learnt = {name: {"call_ns": 1000, "own_threads": False} for name in ("fast", "yardstick")}
    process: Any = Endless("worker.log")
    monkeypatch.setattr(measurement.processes, "new", lambda *_, **__: process)
    measurement.schedule.run(AsksForMore(), lambda finished: None, seconds=0.05)
    assert asked.count("round") > 1 and state.rounds == 0
    process.close()


def test_no_process_follows_the_one_that_settles_all(tmp_path, monkeypatch):
    """What a process gave counts once it is over: then it is asked again what is open."""
    measurement = planned(tmp_path, Request(compare=("fast", "yardstick"), workloads=("prefill-tiny-t16",)), real=False)
    [state] = measurement.participants.states
    state.learnt = {name: {"call_ns": 1000, "own_threads": False} for name in ("fast", "yardstick")}
    monkeypatch.setattr(measurement.processes, "is_beside", lambda group: False)
    begun, over = list[int](), list[int]()

    def measure_once(group, state, chosen, *_):
        begun.append(group.current.number)
        group.current.had.add((state.experiment.workload.name, chosen.pair))

    monkeypatch.setattr(measurement.schedule, "_measure_once", measure_once)

    class SettledByTwoProcesses:
        def add(self, finished):
            raise AssertionError("nothing is kept")

        def end_process(self, process=None):
            over.append(process)

        def remaining(self, experiment, is_apart):
            ended = {*over} & {*begun}
            return [] if len(ended) == 2 else [Remaining(("fast", "yardstick"), True, 1.0, 1.0)]

    measurement.schedule.run(SettledByTwoProcesses(), lambda finished: None, seconds=60.0)
    assert len(begun) == 2 and {*begun} <= {*over}


@pytest.mark.parametrize(("rounds_next", "rounds"), [(1.0, 11), (2.0, 10), (0.5, 11)])
def test_what_is_nearly_settled_when_the_time_is_over_gets_a_tenth_more(tmp_path, monkeypatch, rounds_next, rounds):
    """By a clock of its own: every round takes a second, there are ten, and nothing is ever settled."""
    measurement = planned(tmp_path, Request(compare=("fast", "yardstick"), workloads=("prefill-tiny-t16",)), real=False)
    [state] = measurement.participants.states
    state.pairs_apart, state.together = frozenset(), Tally(10, 10.0, 1.0)
    state.learnt = {name: {"call_ns": 1000, "own_threads": False} for name in ("fast", "yardstick")}
    clock = [0]
    monkeypatch.setattr(measure, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(measurement.schedule, "_measure_once", lambda *_: clock.append(clock.pop() + 1))

    class AlwaysOpen:
        def add(self, finished):
            raise AssertionError("nothing is kept")

        def end_process(self, process=None):
            pass

        def remaining(self, experiment, is_apart):
            return [Remaining(("fast", "yardstick"), False, rounds_next, rounds_next, verdicts=((),))]

    measurement.schedule.run(AlwaysOpen(), lambda finished: None, seconds=10.0)
    assert clock == [rounds]


# -- signals -----------------------------------------------------------------------------------------------------------


def _command(run_dir: Path, *words: str) -> list[str]:
    return [
        sys.executable, "-m", "pytest", "--benchmark", "--compare", *kills.MODELS, *kills.ENDLESS,
        "--workloads", "decode-tiny-c16,prefill-tiny-t16", f"--run-dir={run_dir}", "-p", "no:cacheprovider", *words,
    ]  # fmt: skip


def _wait_for_rounds(run_dir: Path, process: subprocess.Popen, rounds: int = 6, processes: int = 1) -> None:
    journal = run_dir / "samples.jsonl"
    end = time.monotonic() + 90
    while time.monotonic() < end and process.poll() is None:
        lines = journal.read_text().splitlines(keepends=True) if journal.is_file() else []
        begun = {json.loads(line)["process"] for line in lines if line.endswith("\n")}
        if len(lines) > rounds and len(begun) >= processes:
            return
        time.sleep(0.05)
    raise AssertionError(f"no {rounds} rounds; exit code {process.poll()}")


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


@pytest.mark.covers("harness/machine", "harness/measure", "harness/plugin", "harness/session", "harness/worker")
def test_kill_minus_nine_keeps_every_finished_round_and_leaves_no_orphan(tmp_path):
    run_dir = tmp_path / "run"
    with subprocess.Popen(_command(run_dir, "--budget=60"), cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        _wait_for_rounds(run_dir, process, processes=3)
        workers = _children(process.pid)
        process.send_signal(signal.SIGKILL)
    journal = (run_dir / "samples.jsonl").read_bytes().count(b"\n")
    samples = RunFolder(run_dir).read_samples().frame()
    assert samples.groupby(["workload", "round"], observed=True).ngroups >= journal >= 5
    judged = subprocess.run(
        [sys.executable, "-m", "llama_workbench.commands.app", "judge", str(run_dir)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stderr
    assert "ad-hoc" in judged.stdout
    verdict, *conditions = json.loads((run_dir / "verdicts.json").read_text())
    assert len(conditions) == len(kills.ENDLESS)
    assert verdict["claim"] == "ad-hoc"
    assert sum(effect["rounds"] for effect in verdict["effects"]) >= samples["process"].nunique() - 1 >= 1
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < end:
        time.sleep(0.1)
    assert workers
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_a_claim_about_architecture_ends_at_the_gate_where_traces_differ() -> None:
    pair = Comparison("w", "new", "old")
    target = Target(pair, (), ARCHITECTURE)
    experiment = Experiment(SimpleNamespace(name="w", kind="prefill"), ("old", "new"), "old", ("old@aa",), (target,))  # type: ignore[arg-type]
    state = ExperimentState(experiment, None)
    assert state.to_settle() == experiment
    state.trace_differences = [TraceDifference(baseline="old", variant="new", same=False)]
    assert not state.to_settle().targets and not state.to_settle().controls
    state.experiment = replace(experiment, targets=(target, replace(target, evidence="operations")))
    assert state.to_settle().targets[0].evidence == "operations" and state.to_settle().controls
