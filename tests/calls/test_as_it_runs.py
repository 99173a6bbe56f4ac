"""Functions are measured with the collector and the allocator as a program of their own has them."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from llama_workbench.harness.machine.environment import comparable
from llama_workbench.harness.measure.processes import ALLOCATOR, WorkerProcess
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import Options, PlanError, Request
from llama_workbench.harness.report.comparison import screens
from llama_workbench.harness.report.standings import evidence_of
from llama_workbench.harness.report.text import CALM, faults_text, side_facts_text
from llama_workbench.harness.session import run as session
from llama_workbench.harness.session.run import plan_run
from llama_workbench.harness.store.passes import MEMORY
from llama_workbench.harness.store.schema import SideFacts
from studies import plain_pairs
from studies.plain_pairs import plain_ratio
from tests.measure.test_measure import run
from tests.unchanged import SESSIONS

pytestmark = pytest.mark.covers(*SESSIONS)

NOTES = """
import ctypes, gc, json, os, sys
from pathlib import Path

NOTED = Path(__file__).with_name("noted.txt")
LOOKED = []


def note(side):
    with NOTED.open("a") as noted:
        noted.write(json.dumps({
            "side": side, "process": os.getpid(), "on": gc.isenabled(), "thresholds": gc.get_threshold(),
            "malloc": [name for name in os.environ if name.startswith("MALLOC_")],
            "bytecode": not sys.dont_write_bytecode,
        }) + "\\n")


def numbers(seed):
    return (seed % 7,)


def plain(number):
    note("plain")
    return number


def also(number):
    note("also")
    return number


def sets(number):
    gc.set_threshold(50, 5, 5)
    note("sets")
    return number


def turns_off(number):
    gc.disable()
    note("turns_off")
    return number


def freezes(number):
    gc.freeze()
    note("freezes")
    return number


GATED = Path(__file__).with_name("gated.txt")


def turns_off_late(number):
    if not GATED.exists():
        GATED.write_text(str(os.getpid()))
    if GATED.read_text() != str(os.getpid()):
        gc.disable()
    note("turns_off_late")
    return number


def sets_late(number):
    if not GATED.exists():
        GATED.write_text(str(os.getpid()))
    if GATED.read_text() != str(os.getpid()):
        gc.set_threshold(50, 5, 5)
    note("sets_late")
    return number


def keeps():
    kept = [[number] for number in range(30_000)]
    return lambda number: number + 0 * len(kept)


def needs_much(number):
    gc.set_threshold(50, 5, 5)
    return number + 0 * len(bytearray(8_000_000))


def needs_less(number):
    return number + 0 * len(bytearray(2_000_000))


class Allocated(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd".split()]
    _fields_ += [(name, ctypes.c_size_t) for name in "usmblks fsmblks uordblks fordblks keepcost".split()]


def mapped_blocks():
    # of each block, whether the C library has the system hand it over alone
    allocated = ctypes.CDLL(None).mallinfo2
    allocated.restype = Allocated
    counts, kept = [allocated().hblks], []
    for size in (300 << 10, 600 << 10, 1 << 20):
        kept.append(bytearray(size))
        counts.append(allocated().hblks)
    return [after - before for before, after in zip(counts, counts[1:])]


def looks(number, side="looks"):
    if not LOOKED:
        LOOKED.append(mapped_blocks())
    with NOTED.open("a") as noted:
        noted.write(json.dumps({"side": side, "process": os.getpid(), "mapped": LOOKED[0]}) + "\\n")
    return number


def looks_alone(number):
    gc.set_threshold(50, 5, 5)
    return looks(number, "looks_alone")


def collects(number):
    note("collects")
    return number + 0 * len([[each] for each in range(20_000)])
"""


def noted(
    folder: Path, variant: str, baseline: str = "plain", **more: Any
) -> tuple[session.Result, dict[str, list[dict[str, Any]]]]:
    """A run in real processes, and what each side saw in its calls: not in the process of the gates, and not where
    it is called to check the answers of another one that had the process to itself."""
    (folder / "notes.py").write_text(NOTES)
    sides = (f"notes.py:{baseline}", f"notes.py:{variant}")
    result, _ = run(folder, Request(compare=sides, calls=("notes.py:numbers",), **more), rounds=3, no_causes=True)
    lines = [json.loads(line) for line in (folder / "noted.txt").read_text().splitlines()]
    [experiment] = result.manifest.experiments
    first: dict[int, str] = {}
    seen: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        is_first = first.setdefault(line["process"], line["side"]) == line["side"]
        if line["process"] != lines[0]["process"] and (is_first or not experiment.own_processes):
            seen.setdefault(line["side"], []).append(line)
    return result, seen


def of_processes(lines: list[dict[str, Any]]) -> set[int]:
    return {line["process"] for line in lines}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_call_finds_the_collector_on_and_the_allocator_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    result, seen = noted(folder, "also")
    [experiment] = result.manifest.experiments
    assert not experiment.workload.calm and not experiment.own_processes, "neither would feel the other"
    assert result.manifest.environment is not None and result.manifest.environment.malloc == {}
    for line in (*seen["plain"], *seen["also"]):
        assert line["on"] and line["thresholds"] == [700, 10, 10] and not line["malloc"] and not line["bytecode"]
    assert of_processes(seen["plain"]) & of_processes(seen["also"])


def test_calm_says_so_beside_the_number_and_is_not_compared_with_what_runs_otherwise(folder: Path) -> None:
    result, seen = noted(folder, "also", calm=True)
    [experiment] = result.manifest.experiments
    assert experiment.workload.calm and result.manifest.environment is not None
    assert result.manifest.environment.malloc == ALLOCATOR
    assert not all(line["on"] for line in seen["also"]) and all(line["malloc"] for line in seen["also"])
    facts = result.manifest.machine_facts
    [told] = comparable(facts, facts | {"malloc": {}})
    assert told.startswith("malloc: MALLOC_MMAP_THRESHOLD_=")
    evidence = evidence_of(result.folder, result.manifest)
    assert CALM in screens(result.folder, result.verdicts, evidence)[0].as_it_ran


def test_models_are_always_calm() -> None:
    with pytest.raises(PlanError, match="--calm: only with --call"):
        make_plan(Request(compare=("fast", "library"), calm=True), [])


@pytest.mark.parametrize(
    ("variant", "what"),
    [
        ("sets", lambda line: line["thresholds"] == [50, 5, 5]),
        ("turns_off", lambda line: not line["on"]),
        ("freezes", lambda line: True),
    ],
)
def test_what_a_side_sets_of_the_collector_is_its_own(folder: Path, variant: str, what: Any) -> None:
    result, seen = noted(folder, variant)
    [experiment] = result.manifest.experiments
    assert experiment.own_processes and not experiment.excluded
    assert all(map(what, seen[variant]))
    assert all(line["on"] and line["thresholds"] == [700, 10, 10] for line in seen["plain"])
    assert not of_processes(seen["plain"]) & of_processes(seen[variant])
    if variant != "freezes":
        assert "sets the garbage collector" in side_facts_text(experiment.facts, [variant])


@pytest.mark.parametrize("variant", ["turns_off_late", "sets_late"])
def test_who_sets_the_collector_after_its_gate_has_a_process_of_its_own_from_then_on(
    folder: Path, variant: str
) -> None:
    """The round in which that was found does not count: the other side took part in it."""
    result, seen = noted(folder, variant)
    [experiment] = result.manifest.experiments
    assert experiment.own_processes and not experiment.excluded and experiment.rounds == 3
    assert all(line["on"] and line["thresholds"] == [700, 10, 10] for line in seen["plain"])
    assert "sets the garbage collector" in side_facts_text(experiment.facts, [variant])
    assert not experiment.facts[variant].changes
    frame = result.folder.read_samples().frame()
    timed = {name: set(frame[frame["variant"] == name]["sub_round"]) for name in ("plain", variant)}
    assert timed == {"plain": {0}, variant: {0}}, "what was timed in one process with others is several samples"
    processes = of_processes(seen[variant])
    assert len(processes) >= 3 and len(of_processes(seen["plain"]) - processes) >= 3


@pytest.mark.parametrize("variant", ["keeps()", "collects"])
def test_who_would_be_felt_by_the_other_has_a_process_of_its_own(folder: Path, variant: str) -> None:
    result, _ = noted(folder, variant)
    [experiment] = result.manifest.experiments
    assert experiment.own_processes and not experiment.excluded
    if variant == "collects":
        facts = experiment.facts["collects"]
        assert (facts.collections_per_call or 0) > 20 and 0 < (facts.collection_share or 0) < 1
        assert "collections a call" in side_facts_text(
            {"collects": facts.model_copy(update={"collection_share": 0.3})}, ["collects"]
        )


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="another C library, or an old one")
def test_beginning_a_process_changes_nothing_of_when_the_system_is_asked_for_memory(folder: Path) -> None:
    """Each large block that is freed raises the size from which on the C library asks. Importing json is enough for 200
    KiB: names of programs lie in a table that grows. Beyond what any program does nothing of ours may."""
    (folder / "plain.py").write_text(NOTES)
    code = "import plain; print(plain.mapped_blocks())"
    plain = subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True)
    result, seen = noted(folder, "looks_alone", "looks")
    [experiment] = result.manifest.experiments
    assert experiment.own_processes and not experiment.excluded
    assert plain.stdout.strip() == "[1, 1, 1]", "none of these lies where there was room"
    for side in ("looks", "looks_alone"):
        first = {line["process"]: line["mapped"] for line in reversed(seen[side])}
        assert len(first) >= 3 and all(mapped == [1, 1, 1] for mapped in first.values())


@pytest.mark.whole
def test_memory_of_sides_with_processes_of_their_own_is_measured_too(folder: Path) -> None:
    pytest.importorskip("memray", reason="[profile] is not installed")
    (folder / "notes.py").write_text(NOTES)
    sides = ("notes.py:needs_less", "notes.py:needs_much")
    result, _ = run(folder, Request(compare=sides, calls=("notes.py:numbers",)), rounds=2)
    [experiment] = result.manifest.experiments
    assert experiment.own_processes and not experiment.excluded
    most = {each.variant: each.peak_transient_bytes or 0.0 for each in result.folder.read(MEMORY)}
    assert 2e6 <= most["needs_less"] < 3e6 and 8e6 <= most["needs_much"] < 9e6


@pytest.mark.parametrize("setting", ["sets", "turns_off"])
@pytest.mark.parametrize("strict", [False, True])
def test_the_memory_pass_undoes_what_a_side_sets_of_the_collector(folder: Path, setting: str, strict: bool) -> None:
    pytest.importorskip("memray", reason="[profile] is not installed")
    (folder / "notes.py").write_text(NOTES)
    plan = plan_run(Request(compare=("notes.py:plain", f"notes.py:{setting}"), calls=("notes.py:numbers",)), Options())
    [experiment] = plan.experiments
    name, functions = experiment.workload.name, plan.functions.sources.items()
    hello = {"functions": {side: asdict(source) for side, source in functions}, "calm": False, "strict": strict}
    what: dict[str, Any] = {"workload": experiment.workload.model_dump(), "folder": None, "seed": 0}
    with closing(
        WorkerProcess(threads=1, cache=folder, log=folder / "log", hello={**hello, "torch": False})
    ) as process:
        process.ask("open", 60.0, **what, call=asdict(plan.calls()[name]))
        for side in ("plain", setting):
            assert process.ask("gate", 60.0, workload=name, variant=side)["gate"]["passed"]
        for side in (setting, "plain"):
            process.ask("peak", 60.0, workload=name, variant=side, keeps=True)
    lines = [json.loads(line) for line in (folder / "noted.txt").read_text().splitlines()]
    assert lines[-1]["side"] == "plain" and lines[-1]["on"] and lines[-1]["thresholds"] == [700, 10, 10]


def test_large_blocks_are_asked_of_the_system_and_told(folder: Path) -> None:
    """Forty megabytes are beyond what the C library ever keeps: clearing them anew takes a thousand times as long."""
    module = Path(plain_pairs.__file__).name
    (folder / module).write_text(Path(plain_pairs.__file__).read_text())
    pair = "40 MB filled or zeroed"
    first, second, given = plain_pairs.PAIRS[pair]
    sides = (f"{module}:{first}", f"{module}:{second}")
    result, _ = run(folder, Request(compare=sides, calls=(f"{module}:{given}",)), rounds=12, no_causes=True)
    [experiment] = result.manifest.experiments
    assert experiment.own_processes
    plain = plain_ratio(pair, processes=2, seconds=0.2)
    assert plain > 20
    assert result.verdicts[0].effects[0].ratio > plain / 2
    frame = result.folder.read_samples().frame()
    filled = frame[frame["variant"] == first]
    assert (filled["faults"] / filled["repeats"]).median() >= 16, "it has 20 pages of 2 MiB, or thousands of 4 KiB"
    facts = SideFacts(fault_ns=1000.0)
    said = faults_text({"filled": facts}, {"filled": 1e7}, {"filled": 9000.0})
    assert said == "Getting memory from the system takes about 90 % of a call of filled (9,000 page faults a call)."
