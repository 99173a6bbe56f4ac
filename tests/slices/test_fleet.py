"""Runs of several machines: combined, judged, reported and shown."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import llama_workbench as wb
from llama_workbench.harness.baselines.saved import save
from llama_workbench.harness.evidence.effect import how_many
from llama_workbench.harness.report.outcome import outcome
from llama_workbench.harness.report.text import run_notes
from llama_workbench.harness.slices.fleet.folder import FleetFolder, labels
from llama_workbench.harness.slices.fleet.machines import combine, judge_fleet
from llama_workbench.harness.slices.fleet.node import kind_of
from llama_workbench.harness.store.files import VERDICTS, RunError, RunWarning
from llama_workbench.harness.store.folder import RunFolder, describe
from llama_workbench.harness.store.verdict_schema import Machine
from tests.calls.test_functions import MINE
from tests.commands.test_cli import command, fails, output
from tests.runs import CLAIMS, ENVIRONMENT, write_run

ONLY = ("prefill-15m-t128", "decode-15m-c64")
OTHER = {"cpu_model": "Another CPU"}


def a_run(folder: Path, seed: int = 0, **given: Any) -> RunFolder:
    made = write_run(folder, seed=seed, **{"rounds": 30, "only": ONLY, **given})
    made.seal(made.read_manifest())
    return made


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """Runs of three machines of two kinds. Masks cost more on one of the kinds."""
    home = tmp_path_factory.mktemp("measured")
    slow = {"prefill-15m-t128/team006_after": 1.02}
    return [
        a_run(home / "old"),
        a_run(home / "new", 1, environment=OTHER, factors=slow),
        a_run(home / "newer", 2, environment=OTHER, factors=slow),
    ]


@pytest.fixture(scope="module")
def fleet(measured: list[RunFolder], tmp_path_factory: pytest.TempPathFactory) -> FleetFolder:
    return combine(measured, tmp_path_factory.mktemp("project") / "results/runs/fleet")


def outcomes(folder: FleetFolder) -> dict[tuple[str, str], str]:
    return {(each.claim, each.part): outcome(each) for each in folder.run.read(VERDICTS)}


# -- combine -----------------------------------------------------------------------------------------------------------


def test_runs_of_three_machines_get_one_verdict_each(fleet: FleetFolder) -> None:
    assert [each.kind for each in fleet.machines()] == [
        "Simulated CPU, 2 cores", "Another CPU, 2 cores #1", "Another CPU, 2 cores #2",
    ]  # fmt: skip
    assert outcomes(fleet)["refactor-2x-3x", ""] == "refuted on these 3 machines"
    assert outcomes(fleet)["mask-caching-6-11", "whole prefill"] == "depends on the machine"
    assert outcomes(fleet)["gpu-kernels", ""] == "not measurable here"
    described = describe(fleet.run, whole=True)
    assert (described.status, described.mode, described.problem) == ("complete", "fleet", None)
    assert described.noise == "Identical code: no difference found in 12 checks on 3 machines"
    assert described.machine.startswith("3 machines: Simulated CPU") and fleet.run.read_manifest()["sealed"]
    rows = fleet.run.records("machines.json")
    row = next(each for each in rows if each["claim"] == "mask-caching-6-11" and each["workload"] == ONLY[0])
    assert [len(kind["machines"]) for kind in row["kinds"]] == [1, 2] and row["apart"] is True
    first, second = (kind["ratio"] for kind in row["kinds"])
    assert first == pytest.approx(1.10 / 1.06, rel=0.01) and second == pytest.approx(1.10 / 1.02, rel=0.01)
    assert row["mean"]["ratio"] == pytest.approx((first * second**2) ** (1 / 3), rel=0.001)
    assert row["spread"] == pytest.approx(0.022, abs=0.005)


def test_a_fleet_says_over_what_its_intervals_are_taken(fleet: FleetFolder) -> None:
    notes = "\n".join(run_notes(fleet.run.read(VERDICTS), fleet.run.manifest()))
    assert "on these machines: it is taken over fresh processes" in notes


def test_machines_that_measured_the_same_say_what_one_says(measured: list[RunFolder], tmp_path: Path) -> None:
    copies = [a_run(tmp_path / kind, environment={"cpu_model": kind}) for kind in ("A", "B")]
    together = combine([measured[0], *copies], tmp_path / "fleet")
    alone = {(each["claim"], each["part"]): each["verdict"] for each in measured[0].records("verdicts.json")}
    assert {(each["claim"], each["part"]): each["verdict"] for each in together.run.records("verdicts.json")} == alone
    rows = together.run.records("machines.json")
    assert rows and all(row["spread"] == 0 and not row["apart"] for row in rows)


def test_each_machine_stays_an_ordinary_run(fleet: FleetFolder, measured: list[RunFolder]) -> None:
    assert len(fleet.runs()) == len(measured)
    for (machine, run), source in zip(fleet.runs(), measured, strict=True):
        assert not run.changed() and run.digest() == source.digest()
        assert run.records("verdicts.json") == source.records("verdicts.json")
        assert machine.experiments == list(ONLY)


def test_a_fleet_may_be_extended_and_split(fleet: FleetFolder, measured: list[RunFolder], tmp_path: Path) -> None:
    fourth = a_run(tmp_path / "fourth", 3, environment={"cpu_model": "ARM Neoverse"})
    with pytest.raises(RunError, match=r"this is a run of several machines.*Name the runs in its folder machines"):
        combine([fleet.run, fourth], tmp_path / "more")
    more = combine([*(run for _, run in fleet.runs()), fourth], tmp_path / "more")
    assert len(more.machines()) == 4 and more.machines()[-1].kind == "ARM Neoverse, 2 cores"
    parts = [a_run(tmp_path / name, only=[name], claims=[]) for name in ONLY]
    (parts[1].path / "claims.json").write_text(json.dumps([dict(CLAIMS[0])]))
    parts[1].seal(parts[1].read_manifest())
    split = combine(parts, tmp_path / "split")
    assert split.run.read_manifest()["spending"] == "split"
    [verdict] = split.run.read(VERDICTS)
    assert [(each.workload, each.machine) for each in verdict.effects] == [
        (ONLY[0], "Simulated CPU, 2 cores #1"), (ONLY[1], "Simulated CPU, 2 cores #2"),
    ]  # fmt: skip
    assert "not in this run" not in outcome(verdict) and outcome(verdict) == "refuted"


def spoil(folder: Path, name: str, change: Any) -> RunFolder:
    """A run whose file of this name was made by other means; sealed, so that it is not damaged."""
    run = a_run(folder)
    content = json.loads((run.path / name).read_text())
    change(content)
    if name == "run.json":
        run.seal(content)
    else:
        run.write_json(name, content)
        run.seal(run.read_manifest())
    return run


def other_digest(manifest: dict[str, Any]) -> None:
    manifest["checkpoints"]["15m"]["digest"] = "another"


def other_claim(claims: list[dict[str, Any]]) -> None:
    claims[0]["hypothesis"][0]["ratio"] = [2.0, 4.0]


def packages(**versions: str) -> Any:
    return lambda manifest: manifest["environment"]["packages"].update(versions)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("claims.json", other_claim, "the claim refactor-2x-3x is not the same"),
        ("run.json", other_digest, "weights of 15m: SHA-256 15m-0 against another"),
        ("run.json", packages(torch="2.14.0"), "torch: 2.13.0 against 2.14.0"),
        ("run.json", lambda each: each["environment"].update(python="3.12.1"), "Python: 3.11 against 3.12"),
        ("run.json", lambda each: each.update(mode="compare"), 'mode: "claims" against "compare"'),
        ("run.json", lambda each: each["experiments"][0]["workload"].update(tokens=9), "workload prefill-15m-t128"),
        ("run.json", lambda each: each.update(status="running"), "the run is running"),
    ],
)  # fmt: skip
def test_what_is_not_the_same_twice_is_refused(
    measured: list[RunFolder], tmp_path: Path, name: str, change: Any, said: str
) -> None:
    with pytest.raises(RunError, match=said):
        combine([measured[1], spoil(tmp_path / "other", name, change)], tmp_path / "fleet")
    assert not (tmp_path / "fleet").exists()


def test_builds_of_one_torch_for_two_machines_are_one_version(measured: list[RunFolder], tmp_path: Path) -> None:
    other = spoil(tmp_path / "gpu", "run.json", packages(torch="2.13.0+cu128"))
    assert len(combine([measured[1], other], tmp_path / "fleet").machines()) == 2


def test_code_that_differs_is_refused(measured: list[RunFolder], tmp_path: Path) -> None:
    def sources(digest: str, harness: str = "h") -> dict[str, Any]:
        return {"sources": {"variants": {"fast": {"digest": digest, "file": None}}, "harness": harness}}

    first = a_run(tmp_path / "first", 1, manifest=sources("a"))
    for name, given, said in (("code", sources("b"), "code of fast"), ("harness", sources("a", "i"), "that measures")):
        with pytest.raises(RunError, match=said):
            combine([first, a_run(tmp_path / name, 2, manifest=given)], tmp_path / "fleet")
    commits = [a_run(tmp_path / f"c{id_}", environment={"commit": {"id": id_ * 12}}) for id_ in "ab"]
    with pytest.raises(RunError, match="revision: aaaaaaaaaa against bbbbbbbbbb"):
        combine(commits, tmp_path / "fleet")


def test_where_it_cannot_be_made(measured: list[RunFolder], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="two machines or more"):
        combine(measured[:1], tmp_path / "fleet")
    with pytest.raises(RunError, match="the same run as"):
        combine([measured[0], measured[0]], tmp_path / "fleet")
    with pytest.raises(RunError, match="Name a folder of its own"):
        combine(measured, measured[0].path)
    with pytest.raises(RunError, match="Name a folder of its own"):
        combine(measured, measured[0].path.parent)
    damaged = RunFolder(shutil.copytree(measured[0].path, tmp_path / "damaged"))
    (damaged.path / "memory.json").write_text("[]")
    with pytest.raises(RunError, match=r"memory\.json"):
        combine([damaged, measured[1]], tmp_path / "fleet")
    assert all(not run.changed() for run in measured) and not (tmp_path / "fleet").exists()


# -- the folder --------------------------------------------------------------------------------------------------------


def test_a_fleet_as_it_grows(tmp_path: Path) -> None:
    """As the execution over a cluster makes it: machines come and go, one is left out, one was cut off."""
    fleet = FleetFolder.create(tmp_path / "fleet")
    fleet.write([Machine(name="a"), Machine(name="b", reason="it swaps", status="left out")], claims=[dict(CLAIMS[0])])
    assert [(each.name, each.folder) for each in fleet.machines()] == [("a", None), ("b", None)]
    with pytest.raises(RunError, match="has finished a round"):
        judge_fleet(fleet.path)
    write_run(fleet.machine("a"), only=ONLY, killed=True, rounds=30)
    fleet.write(fleet.machines(), claims=[dict(CLAIMS[0])], spending="split")
    with pytest.warns(RunWarning, match="the last line was cut off"):
        [verdict] = judge_fleet(fleet.path)
    assert verdict.verdict == "refuted" and "sealed" not in fleet.run.read_manifest()
    fleet.update(fleet.machines(), "interrupted")
    with pytest.warns(RunWarning, match="the last line was cut off"):
        judge_fleet(fleet.path)
    assert fleet.run.read_manifest()["sealed"] and not fleet.run.changed()
    left_out = fleet.machines()[1]
    assert (left_out.folder, left_out.reason, left_out.kind) == (None, "it swaps", "")


def test_an_experiment_that_another_machine_took_over_counts_there(tmp_path: Path) -> None:
    """One node was lost in the middle of its second experiment, another before its first round."""
    fleet = FleetFolder.create(tmp_path / "fleet")
    a_run(fleet.machine("lost"), rounds=14, factors={"decode-15m-c64/team005_proposal": 0.4})
    a_run(fleet.machine("other"), 1, only=ONLY[1:])
    nothing = a_run(fleet.machine("nothing"), 2, rounds=12)
    (nothing.path / "samples.parquet").unlink()
    nothing.seal(nothing.read_manifest() | {"status": "interrupted", "experiments": []})
    listed = [Machine(name=name, experiments=list(had)) for name, had in (("lost", ONLY[:1]), ("other", ONLY[1:]))]
    listed.append(Machine(name="nothing", status="lost"))
    a_run(fleet.machine("begun"), 3, factors={"decode-15m-c64/team005_proposal": 0.4})
    listed.insert(0, Machine(name="begun", status="interrupted"))
    for spending, verdict, rows in (("split", "refuted", 2), ("replicate", "depends", 5)):
        fleet.write(listed, claims=[dict(CLAIMS[0])], status="complete", spending=spending)
        [judged] = judge_fleet(fleet.path)
        assert (judged.verdict, len(judged.effects)) == (verdict, rows)
    assert fleet.machines()[-1].status == "lost"


@pytest.mark.parametrize("name", ["../up", "", "a/b", ".hidden"])
def test_a_machine_has_a_plain_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a machine"):
        FleetFolder(tmp_path).machine(name)


def test_a_run_json_that_leads_out_of_the_folder_is_refused(fleet: FleetFolder, tmp_path: Path) -> None:
    copied = FleetFolder(shutil.copytree(fleet.path, tmp_path / "fleet"))
    content = copied.run.read_manifest() | {"machines": [{"name": "../../old", "folder": "machines/../../old"}]}
    copied.run.seal(content)
    with pytest.raises(RunError, match="cannot be the name of a machine"):
        judge_fleet(copied.path)
    with pytest.raises(RunError, match="a run of one machine"):
        FleetFolder(fleet.runs()[0][1].path).machines()


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_commands(measured: list[RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")  # a narrower terminal wraps the names of machines
    folders = [str(run.path) for run in measured]
    said = output("combine", *folders, "--into", "results/runs/all", cwd=tmp_path)
    assert "Another CPU, 2 cores #2" in said and "refuted on these 3 machines" in said
    before = (tmp_path / "results/runs/all/verdicts.json").read_bytes()
    judged = output("judge", "all", cwd=tmp_path)
    assert "refuted on these 3 machines* · refactor-2x-3x" in judged and "By machine, and over machines:" in judged
    assert "prefill-15m-t128 on Another CPU, 2 cores #1" in judged and "mean of these 3 machines" in judged
    assert (tmp_path / "results/runs/all/verdicts.json").read_bytes() == before
    assert json.loads(output("judge", "all", "--json", cwd=tmp_path)) == json.loads(before)
    report = output("report", "all", cwd=tmp_path)
    assert "| **depends on the machine**" in report and "workbench report results/runs/all/machines/" in report
    [listed] = json.loads(output("runs", "--json", cwd=tmp_path))
    assert (listed["mode"], listed["problem"]) == ("fleet", None)
    machine = next((tmp_path / "results/runs/all/machines").iterdir())
    assert "refuted* · refactor-2x-3x" in output("judge", machine, cwd=tmp_path)
    page = tmp_path / "claim.html"
    done = command("report", "all", "--claim", "mask-caching-helps", "--html", page, cwd=tmp_path)
    assert done.returncode == 0, done
    assert "Another CPU, 2 cores #1" in page.read_text()
    assert "cannot be combined" in fails("combine", folders[0], a_torch(tmp_path), cwd=tmp_path)
    assert "a run of several machines; name one of the runs in" in fails("compare", folders[0], "all", cwd=tmp_path)


def a_torch(folder: Path) -> str:
    packages = {"packages": {"torch": "2.14.0"}, "torch": "2.14.0"}
    return str(a_run(folder / "other-torch", environment=packages).path)


def test_a_notebook_reads_a_fleet(fleet: FleetFolder) -> None:
    opened = wb.open(str(fleet.path))
    assert len(opened.verdicts) == len(CLAIMS) + 1 and "depends" in repr(opened)
    assert set(opened.effects["machine"]) == {each.kind for each in fleet.machines()}


def test_a_fleet_is_no_baseline_and_one_of_its_machines_is(fleet: FleetFolder, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="a run of several machines cannot be a baseline"):
        save(fleet.run, "main", under=tmp_path)
    machine = next(each for each in fleet.machines() if each.folder)
    save(RunFolder(fleet.path / str(machine.folder)), "main", under=tmp_path)


# -- measured for real -------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.usefixtures("warm", "short_sessions")
def test_two_real_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    runs = [wb.compare("mine.py:once", "mine.py:twice", payload="mine.py:words", budget=600).run for _ in range(2)]
    fleet = combine([RunFolder(run.path) for run in runs], None)
    [verdict] = fleet.run.read(VERDICTS)
    assert outcome(verdict) == "slower on these 2 machines"
    [row] = fleet.run.records("machines.json")
    assert 0.4 < row["mean"]["low"] < row["mean"]["high"] < 0.7 and len(row["kinds"]) == 1
    assert fleet.path.parent == Path("results/runs")


def test_machines_are_named_by_what_computes() -> None:
    epyc = "AMD EPYC 9554, 2 cores"
    found = labels([epyc] * 4, ["m1", "m2", "m2.2", "m2.3"])
    first, *pieces = [f"{epyc} #{each}" for each in ("1", "2, piece 1", "2, piece 2", "2, piece 3")]
    assert found == [first, *pieces] and how_many(found) == 2
    assert labels([epyc] * 2, ["m1", "m1.2"]) == [f"{epyc}, piece 1", f"{epyc}, piece 2"]
    assert labels([epyc] * 2, ["20260102T030405Z-1a2b", "main"]) == [f"{epyc} #1", f"{epyc} #2"]
    assert labels([epyc, "AMD EPYC 9554, 4 cores"], ["m1", "m2"]) == [epyc, "AMD EPYC 9554, 4 cores"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"cpu_model": "Intel(R) Xeon(R) CPU @ 2.20GHz"}, "Intel Xeon, 2 cores"),
        ({"cpu_model": "AMD EPYC 9554 64-Core Processor"}, "AMD EPYC 9554, 2 cores"),
        ({"device": {"kind": "cuda", "name": "NVIDIA H100"}}, "NVIDIA H100"),
        ({"cgroup_quota_cores": 1.5}, "Simulated CPU, 1 core"),
        ({"cpu_model": None, "cores": None}, "unknown processor"),
    ],
)
def test_what_a_kind_of_machine_is_called(change: dict[str, Any], name: str) -> None:
    assert kind_of({**ENVIRONMENT, **change}) == name
