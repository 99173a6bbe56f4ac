"""Functions are measured with the collector and the allocator as a program of their own has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llama_workbench.harness.machine.environment import comparable
from llama_workbench.harness.measure.processes import ALLOCATOR
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import PlanError, Request
from llama_workbench.harness.report.comparison import screens
from llama_workbench.harness.report.side_facts import CALM, faults_text, side_facts_text
from llama_workbench.harness.report.stored import evidence_of
from llama_workbench.harness.session import run as session
from llama_workbench.harness.store.gate_schema import SideFacts
from tests import plain_pairs
from tests.plain_pairs import plain_ratio
from tests.test_measure import run

NOTES = """
import gc, json, os
from pathlib import Path

NOTED = Path(__file__).with_name("noted.txt")
KEPT = []


def note(side):
    with NOTED.open("a") as noted:
        noted.write(json.dumps({
            "side": side, "process": os.getpid(), "on": gc.isenabled(), "thresholds": gc.get_threshold(),
            "malloc": [name for name in os.environ if name.startswith("MALLOC_")],
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


def keeps():
    kept = [[number] for number in range(30_000)]
    return lambda number: number + 0 * len(kept)


def collects(number):
    note("collects")
    return number + 0 * len([[each] for each in range(20_000)])
"""


def noted(folder: Path, variant: str, **more: Any) -> tuple[session.Result, dict[str, list[dict[str, Any]]]]:
    """A run in real processes, and what each side saw in its calls: not in the process of the gates, and not where
    it is called to check the answers of another one that had the process to itself."""
    (folder / "notes.py").write_text(NOTES)
    sides = ("notes.py:plain", f"notes.py:{variant}")
    result, _ = run(folder, Request(compare=sides, calls=("notes.py:numbers",), **more), rounds=3)
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


def test_a_call_finds_the_collector_on_and_the_allocator_as_it_is(folder: Path) -> None:
    result, seen = noted(folder, "also")
    [experiment] = result.manifest.experiments
    assert not experiment.workload.calm and not experiment.own_processes, "neither would feel the other"
    assert result.manifest.environment is not None and result.manifest.environment.malloc == {}
    for line in (*seen["plain"], *seen["also"]):
        assert line["on"] and line["thresholds"] == [700, 10, 10] and not line["malloc"]
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


def test_large_blocks_are_asked_of_the_system_and_told(folder: Path) -> None:
    """Forty megabytes are beyond what the C library ever keeps: clearing them anew takes a thousand times as long."""
    module = Path(plain_pairs.__file__).name
    (folder / module).write_text(Path(plain_pairs.__file__).read_text())
    pair = "40 MB filled or zeroed"
    first, second, given = plain_pairs.PAIRS[pair]
    sides = (f"{module}:{first}", f"{module}:{second}")
    result, _ = run(folder, Request(compare=sides, calls=(f"{module}:{given}",)), rounds=12)
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
    assert said == "Memory that the system hands over takes about 90% of a call of filled (9,000 page faults a call)."
