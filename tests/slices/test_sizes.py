"""Several sides, over sizes: the plan, the table and its picture, crossings and growth."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from llama_workbench import ROOT
from llama_workbench.commands.app import main
from llama_workbench.datasets.workloads import Workload
from llama_workbench.harness.calls.inputs import Payload
from llama_workbench.harness.evidence.evidence import evidence_from_manifest
from llama_workbench.harness.judge.parts import judge_claims
from llama_workbench.harness.plan.options import Options, Request, more_sides
from llama_workbench.harness.report.outcome import command_of, compared_again
from llama_workbench.harness.session.judging import stopping_rule
from llama_workbench.harness.session.run import Run, go_on, plan_run
from llama_workbench.harness.slices.sizes.picture import sizes_svg
from llama_workbench.harness.slices.sizes.screen import crossing_lines, growth_lines, rows, sentences
from llama_workbench.harness.slices.sizes.table import Point, SizeTable, crossings, growth, table_of
from llama_workbench.harness.spec.comparison import held_together, sides_of
from llama_workbench.harness.spec.regions import Condition
from llama_workbench.harness.spec.sample import Round, Sample
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.stats.confidence import LookPlan
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import FORMAT, UNIT, manifest_of
from studies.simulated_sizes import PAIRS, rates, truth
from tests import kills
from tests.measure.test_measure import run
from tests.runs import ENVIRONMENT, Quiet
from tests.unchanged import SESSIONS

pytestmark = [pytest.mark.covers("dashboard", *SESSIONS), pytest.mark.usefixtures("warm")]

BENCH = """
import random


def numbers(seed, size):
    return random.Random(seed).sample(range(10 * size), size), list(range(20))


numbers.items = lambda size: size


def in_list(known, wanted):
    return [each in known for each in wanted]


def in_set(known, wanted):
    known = set(known)
    return [each in known for each in wanted]


def in_sorted(known, wanted):
    known = sorted(known)
    return [each in known for each in wanted]


def wrong(known, wanted):
    return [each in known for each in wanted] if len(known) < 50 else []
"""

Times = Callable[[str, int], float]
"""Side and size → nanoseconds of a call."""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bench.py").write_text(BENCH)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(*sides: str, sizes: Sequence[int] = (10, 1000), **more: Any) -> Request:
    return Request(compare=sides, calls=("bench.py:numbers",), sizes=tuple(sizes), **more)


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_each_size_is_a_workload_and_several_sides_need_none(mine: Path) -> None:
    plan = plan_run(asked("in_list", "bench.py:in_set", "in_sorted"), Options())
    assert plan.sides == ("in_list", "in_set", "in_sorted") and plan.is_tabled
    assert plan.ad_hoc == (("in_list", "in_set"), ("in_list", "in_sorted"))
    assert {each.workload.name: each.workload.size for each in plan.experiments} == {
        "numbers-10": 10,
        "numbers-1000": 1000,
    }
    assert all(each.variants == plan.sides and each.baseline == "in_list" for each in plan.experiments)
    assert {call.payload.size for call in plan.calls().values()} == {10, 1000}

    (mine / "plain.py").write_text(
        "def texts(seed):\n    return str(seed)\n\n\ndef a(text):\n    return 1\n\n\nb = c = a\n"
    )
    several = Request(compare=("a", "plain.py:b", "plain.py:c"), calls=("plain.py:texts",))
    assert plan_run(several, Options()).is_tabled
    two = plan_run(Request(compare=("plain.py:a", "plain.py:b"), calls=("plain.py:texts",)), Options())
    assert not two.is_tabled and {each.at_once for each in two.experiments[0].targets} == {1}

    plan = plan_run(asked("in_list", "in_set", "in_sorted", against="in_sorted"), Options())
    assert plan.sides == ("in_sorted", "in_list", "in_set")
    assert plan_run(asked("in_list", "in_set", against="best"), Options()).sides == ("in_list", "in_set")


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request(compare=("fast", "good"), sizes=(1, 2)), "--sizes: only with --call FILE:FUNCTION"),
        (asked("in_list", "in_set", against="list"), "--against list: expected best or a side: in_list, in_set"),
        (
            Request(compare=("in_list", "in_set"), calls=("bench.py:numbers", "also=bench.py:numbers"), sizes=(1, 2)),
            "--sizes: only with --call FILE:FUNCTION, and one alone",
        ),
        (Request(against="best"), "--against best: only with --compare"),
        (asked("in_list", "nobody"), "no function 'nobody'"),
    ],
)
def test_a_mistake_names_the_option(mine: Path, request_: Request, said: str) -> None:
    with pytest.raises(Exception, match=re.escape(said)):
        plan_run(request_, Options())


def test_words_behind_both_sides_are_sides_unless_they_are_tests(mine: Path) -> None:
    (mine / "test_it.py").touch()
    assert more_sides(["in_sorted", "test_it.py::test_one", "bench.py:in_set"]) == ["in_sorted", "bench.py:in_set"]


@pytest.mark.parametrize(("pairs", "workloads", "sized", "together"), [
    (1, 3, False, 1), (1, 5, True, 5), (2, 1, False, 3), (2, 5, True, 15), (7, 5, True, 140),
])  # fmt: skip
def test_all_two_sides_at_all_sizes_share_alpha(pairs: int, workloads: int, sized: bool, together: int) -> None:
    assert held_together(pairs, workloads, sized=sized) == together


def test_the_loop_settles_at_the_level_of_the_judge(mine: Path, tmp_path: Path) -> None:
    plan = plan_run(asked("in_list", "in_set", "in_sorted"), Options())
    rule = stopping_rule(plan, {})
    written = a_run(tmp_path / "run", lambda side, size: 1000 + 5 * size * (side == "in_list"), plan.sides, (10, 1000))
    verdicts = judge_claims([], evidence_of_run(written), ad_hoc=plan.ad_hoc)
    assert [rule.alpha_of(part) for part in rule.parts] == [each.alpha for each in verdicts] == [0.01 / 6] * 2


def test_all_sides_share_alpha_where_one_is_enough_to_fail(mine: Path, tmp_path: Path) -> None:
    conditions = tuple(map(Condition.parse, ("slower:5", "maybe-slower:5")))
    plan = plan_run(asked("in_list", "in_set", "in_sorted", fail_if=conditions), Options())
    rule = stopping_rule(plan, {})
    written = a_run(tmp_path / "run", lambda side, size: 1000.0, plan.sides, (10, 1000))
    verdicts = judge_claims([], evidence_of_run(written), ad_hoc=plan.ad_hoc, conditions=conditions)
    assert [each.alpha for each in verdicts] == [0.01 / 6, 0.01 / 4, 0.01] * 2
    assert [rule.alpha_of(part) for part in rule.parts] == [each.alpha for each in verdicts]


CLAIM = """
id = "sets-scale"
title = "The gain of a set grows with the size"
who = ["somebody"]
source = [{ document = "a note", section = "one" }]
statement = "The larger, the more a set gains."
assumes = []
decided_by = "Searching in a list and in a set, at two sizes."

[[function]]
name = "list"
source = "bench.py:in_list"

[[function]]
name = "set"
source = "bench.py:in_set"

[[call]]
name = "numbers"
payload = "bench.py:numbers"
sizes = [10, 1000]

[[hypothesis]]
metric = "trend"
variant = "set"
baseline = "list"
workloads = ["numbers-10", "numbers-1000"]
above = 50
"""


def test_sizes_of_a_claim_are_workloads_and_a_trend_goes_over_them(mine: Path, tmp_path: Path) -> None:
    (mine / "claims").mkdir()
    (mine / "claims" / "sets-scale.toml").write_text(CLAIM.replace("bench.py", "../bench.py"))
    plan = plan_run(Request(claims=("sets-scale",)), Options(claims_folder=mine / "claims"))
    assert {each.workload.name: each.workload.size for each in plan.experiments} == {
        "numbers-10": 10, "numbers-1000": 1000,
    }  # fmt: skip
    folder = a_run(
        tmp_path / "run", lambda side, size: 900.0 if side == "set" else 500.0 + 2 * size, ("list", "set"), (10, 1000)
    )
    [verdict] = judge_claims(plan.claims, evidence_of_run(folder))
    assert verdict.verdict == Word.SUPPORTED
    assert verdict.effects[0].low < 100 * (2500 / 520 - 1) < verdict.effects[0].high


# -- what a call is given ----------------------------------------------------------------------------------------------


def test_the_input_generator_is_given_a_seed_and_a_size() -> None:
    def numbers(seed: int, size: int) -> list[int]:
        return [seed] * size

    numbers.items = lambda size: 2 * size  # type: ignore[attr-defined]
    numbers.bytes = 80  # type: ignore[attr-defined]
    payload = Payload(numbers, "draw", 3)
    [made] = payload.arguments(0)
    assert made == [payload.seed(0)] * 3
    assert payload.work() == {"flops": 0.0, "bytes": 80.0, "items": 6.0}

    with pytest.raises(ValueError, match="size"):
        Workload(name="w", kind="prefill", geometry="tiny", tokens=8, size=3, description="d")


# -- crossings and growth ----------------------------------------------------------------------------------------------


def point(size: float, low: float, high: float) -> Point:
    return Point(size, (low + high) / 2, low, high, 1 if low > 0 else -1 if high < 0 else 0)


def test_a_crossing_is_as_wide_as_what_is_known_of_the_curves() -> None:
    """Two sizes say no more than that it is between them; on a straight line it is as wide as the band."""
    [crossing] = crossings([point(10, -1.1, -0.9), point(1000, 0.9, 1.1)])
    assert [crossing.low, crossing.high] == pytest.approx([10, 1000])
    assert crossing.after == 1
    assert crossing.size == pytest.approx(100, rel=0.02), "half-way over the logarithm"
    sizes = (1, 10, 100, 1000)
    [crossing] = crossings([point(size, math.log(size / 30) - 0.1, math.log(size / 30) + 0.1) for size in sizes])
    assert [*crossing.between] == [10, 100]
    assert crossing.size == pytest.approx(30, rel=0.02)
    assert 30 / math.exp(0.35) < crossing.low < 30 / math.exp(0.1)
    assert 30 * math.exp(0.1) < crossing.high < 30 * math.exp(0.35)


@pytest.mark.parametrize("sign", [1, -1])
def test_intervals_narrower_than_the_grid_have_a_crossing_too(sign: int) -> None:
    curve = {size: sign * 2 * math.log(size / 30) for size in (1, 100, 10_000)}
    [crossing] = crossings([point(size, log - 1e-4, log + 1e-4) for size, log in curve.items()])
    assert crossing.low < 30 < crossing.high < 1.05 * crossing.low


@pytest.mark.parametrize("bend", [1.0, -1.0])
def test_a_curve_that_bends_crosses_within_the_interval_though_the_line_between_its_points_misses(bend: float) -> None:
    def curve(size: float) -> float:
        return bend * (math.log(40 + 8 * size) - math.log(900))

    [crossing] = crossings([point(10**k, curve(10**k) - 0.01, curve(10**k) + 0.01) for k in range(6)])
    assert crossing.low < 107.5 < crossing.high < 10 * crossing.low
    assert crossing.after == bend


def test_no_crossing_is_made_up() -> None:
    assert crossings([point(1, -0.1, 0.1), point(2, 0.1, 0.2), point(3, 0.2, 0.3)]) == []
    assert crossings([point(1, -0.2, -0.1), point(2, -0.1, 0.1), point(3, -math.inf, math.inf)]) == []


def test_a_crossing_may_be_anywhere_where_it_is_open_and_an_order_may_change_twice() -> None:
    [crossing] = crossings([point(1, -2, -1.9), Point(10, 0.0, -math.inf, math.inf, 0), point(100, 1.9, 2)])
    assert [crossing.low, crossing.high] == pytest.approx([1, 100], rel=0.05)
    found = crossings([point(1, 0.5, 0.6), point(10, -0.6, -0.5), point(100, 0.5, 0.6)])
    assert [each.after for each in found] == [-1, 1]
    assert found[0].high <= 10.1 and found[1].low >= 9.9


def test_growth_is_a_slope_in_logarithms() -> None:
    rng = np.random.default_rng(0)
    sizes = (10, 100, 1000, 10_000)
    times = np.log([50 + 3 * size for size in sizes])
    logs = times + rng.normal(0, 0.1, (30, 1)) + rng.normal(0, 0.005, (30, 4))
    grown = growth(sizes, logs, LookPlan(0.005, 30))
    assert grown is not None
    slope = (times[-1] - times[-2]) / math.log(10)
    assert grown.last.low < slope < grown.last.high and grown.last.high - grown.last.low < 0.01
    assert grown.whole.low < np.polyfit(np.log(sizes), times, 1)[0] < grown.whole.high < grown.last.low
    assert growth((10,), logs[:, :1], 0.01) is None


@pytest.mark.parametrize("name", PAIRS)
def test_intervals_of_simulated_crossings_and_exponents_hold(name: str) -> None:
    """At 99 % more than 3 misses of 60 have a chance of one in 300."""
    seen = rates(name, 60, 3)
    assert seen.missed <= 3 and seen.exponents_missed <= 3
    assert seen.crossed == (0 if math.isnan(truth(PAIRS[name])) else 60)


# -- the table of a run ------------------------------------------------------------------------------------------------


def a_run(
    folder: Path,
    times: Times,
    sides: Sequence[str] = ("in_list", "in_set"),
    sizes: Sequence[int] = (1, 10, 100, 1000),
    *,
    processes: int = 30,
    noise: float = 0.01,
    seed: int = 0,
    experiment: Mapping[str, Any] | None = None,
    **manifest: Any,
) -> RunFolder:
    """A run folder with drawn samples: every process measures all sides at all sizes. By the wall all takes twice as
    long."""
    folder_, rng = RunFolder.create(folder), np.random.default_rng(seed)
    names = {f"numbers-{size}": size for size in sizes} if all(sizes) else {"numbers": 0}
    for process in range(1, processes + 1):
        slow = rng.normal(0, 0.05)
        for name, size in names.items():
            samples = [
                Sample(
                    side, number, place, 1, 100, total := int(100 * times(side, size) * math.exp(drawn)), 2 * total, 0
                )
                for number in range(3)
                for place, (side, drawn) in enumerate(
                    (side, slow + rng.normal(0, noise)) for side in map(str, rng.permutation(sides))
                )
            ]
            folder_.append_round(Round(name, process, process - 1, tuple(samples)))
    experiments = [
        {
            "workload": {
                "name": name,
                "kind": "call",
                "payload": "bench.py:numbers",
                "size": size or None,
                "calm": False,
            },
            "variants": [*sides],
            "baseline": sides[0],
            "rounds": processes,
            "gates": {side: {"passed": True} for side in sides},
            **(experiment or {}),
        }
        for name, size in names.items()
    ]
    content = {
        "format": FORMAT, "unit": UNIT, "id": "run", "status": "complete", "mode": "compare", "alpha": 0.01, "seed": 1,
        "command": ["pytest", "--benchmark"], "environment": dict(ENVIRONMENT), "experiments": experiments,
        "ad_hoc": [[sides[0], other] for other in sides[1:]],
    }  # fmt: skip
    folder_.write_json("run.json", content | manifest)
    folder_.write_json("claims.json", [])
    folder_.finish()
    return folder_


def evidence_of_run(folder: RunFolder) -> Any:
    return evidence_from_manifest(manifest_of(folder.read_json("run.json")), folder.read_samples())


def list_and_set(side: str, size: int) -> float:
    return 2000.0 if side == "in_set" else 1000.0 + 50.0 * size


def shown(folder: RunFolder, against: str = "") -> SizeTable:
    table = table_of(folder, against)
    assert table is not None
    return table


def test_the_table_says_who_is_best_where_and_where_that_changes(tmp_path: Path) -> None:
    table = shown(a_run(tmp_path / "run", list_and_set))
    assert {size: table.best(name) for name, size in table.sizes.items()} == {
        1: (Word.FASTER, ["in_list"]),
        10: (Word.FASTER, ["in_list"]),
        100: (Word.FASTER, ["in_set"]),
        1000: (Word.FASTER, ["in_set"]),
    }
    [(before, after, crossing)] = table.crossings
    assert (before, after, crossing.between) == ("in_list", "in_set", (10, 100))
    assert 10 < crossing.low < 20 < crossing.high < 100
    [line] = crossing_lines(table)
    assert line.startswith("in_set overtakes in_list at a size of about ")
    assert table.growth["in_set"].last.low < 0 < table.growth["in_set"].last.high
    slope = math.log(51_000 / 6_000) / math.log(10)
    assert table.growth["in_list"].last.low < slope < table.growth["in_list"].last.high
    assert len([*growth_lines(table)]) == 2


def test_identical_sides_have_no_crossing_and_no_best(tmp_path: Path) -> None:
    for seed in range(5):
        table = shown(
            a_run(tmp_path / f"{seed}", lambda side, size: 500.0 + size, ("a", "b", "c"), seed=seed, noise=0.05)
        )
        assert not table.crossings
        words = {table.best(name)[0] for name in table.sizes}
        assert words <= {Word.SAME, Word.INCONCLUSIVE}
        assert crossing_lines(table) == ["No two sides are shown to change places between these sizes."]


def test_two_sides_that_neither_is_the_baseline_are_compared_by_the_same_processes(tmp_path: Path) -> None:
    factors = {"a": 1.0, "b": 0.8, "c": 0.78}
    table = shown(a_run(tmp_path / "run", lambda side, size: factors[side] * (1000 + size), tuple(factors)))
    effect = table.effects["numbers-10", "b", "c"]
    assert effect.verdict == Word.FASTER and effect.low < 0.8 / 0.78 < effect.high
    assert table.effects["numbers-10", "c", "b"].verdict == Word.SLOWER
    assert {table.best(name)[1][0] for name in table.sizes} == {"c"}
    assert table.alpha == 0.01 / 12


def test_against_the_best_each_size_has_its_own(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run", list_and_set, command=["pytest", "--benchmark", "--against=best"])
    table = shown(folder)
    assert [table.reference(name) for name in table.sizes] == ["in_list", "in_list", "in_set", "in_set"]
    assert shown(folder, "in_set").reference("numbers-1") == "in_set"
    with pytest.raises(ValueError, match="--against nobody: expected best or a side: in_list, in_set"):
        table_of(folder, "nobody")


def test_who_is_left_out_at_a_size_has_no_row_there_and_no_growth(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run", list_and_set, ("in_list", "in_set", "wrong"))
    content = folder.read_json("run.json")
    content["experiments"][2]["excluded"] = [{"variant": "wrong", "reason": "another answer"}]
    folder.write_json("run.json", content)
    table = shown(folder)
    assert [row[2] for row in rows(table) if row[1] == "wrong"].count("left out") == 1
    assert set(table.growth) == {"in_list", "in_set"}
    assert table.best("numbers-100") == (Word.FASTER, ["in_set"])


def test_throughput_is_what_the_input_generator_states_over_the_time(tmp_path: Path) -> None:
    facts = {"facts": {"in_list": {"work": {"items": 4000, "bytes": 2.0**20}}}}
    table = shown(a_run(tmp_path / "run", lambda side, size: 1e6, sizes=(10, 100), noise=0.001, experiment=facts))
    [first, *_] = table.to_json()["sizes"][0]["sides"]
    assert first["items_per_second"] == pytest.approx(4e6, rel=0.05)
    assert first["bytes_per_second"] == pytest.approx(2**20 * 1e3, rel=0.05)
    assert [row[4].endswith("M") for row in rows(table)] == [True] * 4


def test_all_times_are_by_one_clock(tmp_path: Path) -> None:
    """A side that computes in threads of its own at one size has wall time there."""
    folder = a_run(tmp_path / "run", list_and_set)
    by_thread = shown(folder)
    content = folder.read_json("run.json")
    content["experiments"][3]["clock"] = {"default": "cpu", "wall_variants": ["in_set"]}
    folder.write_json("run.json", content)
    by_wall = shown(folder)
    for place, time in by_thread.times.items():
        assert by_wall.times[place].centre == pytest.approx(time.centre + math.log(2), abs=1e-3)
    assert by_wall.growth["in_set"].last.centre == pytest.approx(by_thread.growth["in_set"].last.centre, abs=1e-3)


def test_what_is_not_independent_leaves_the_crossing_open(tmp_path: Path) -> None:
    """At 20 both take as long, and one of them becomes slower from process to process."""
    calls = itertools.count()

    def drifting(side: str, size: int) -> float:
        by = next(calls) // 3 - 15 if (side, size) == ("in_set", 20) else 0
        return list_and_set(side, size) * math.exp(0.004 * by)

    [(*_, steady)] = shown(a_run(tmp_path / "steady", list_and_set, sizes=(1, 20, 400))).crossings
    [(*_, drifts)] = shown(a_run(tmp_path / "drifts", drifting, sizes=(1, 20, 400))).crossings
    assert [steady.between, drifts.between] == [(1, 400)] * 2
    assert 10 < steady.low < 20 < steady.high < 40
    assert drifts.low < 1.1 and drifts.high > 350


def test_how_it_ran_and_how_sure_it_is_stand_below(tmp_path: Path) -> None:
    facts = {"in_list": {"inputs": 12}, "in_set": {"inputs": 30, "children_share": 0.5}}
    said = [*sentences(shown(a_run(tmp_path / "run", list_and_set, sizes=(10, 1000), experiment={"facts": facts})))]
    assert [each.startswith("At 1,000: in_set starts child processes") for each in said].count(True) == 1
    assert "Each process generated at least 12 inputs of each size and gave each of them to several calls." in said
    assert said[-1] == (
        "In brackets: intervals. With 99 % confidence, all those of times, ratios and crossings hold at once, and so "
        "do all those of exponents."
    )
    times = {"a": 100.0, "b": 90.0, "c": 95.0}
    [alone] = sentences(shown(a_run(tmp_path / "one", lambda side, size: times[side], ("a", "b", "c"), (0,))))
    assert alone.endswith("all those of times and ratios hold at once.")


def test_json_has_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = a_run(tmp_path / "run", list_and_set)
    with pytest.raises(SystemExit) as ended:
        main(["sizes", str(folder.path), "--json"])
    assert not ended.value.code
    content = json.loads(capsys.readouterr().out)
    assert content["sides"] == ["in_list", "in_set"] and content["against"] == "in_list"
    assert [(each["size"], each["best"]) for each in content["sizes"]] == [
        (1, ["in_list"]), (10, ["in_list"]), (100, ["in_set"]), (1000, ["in_set"])
    ]  # fmt: skip
    assert [each["against"] for each in content["sizes"]] == ["in_list"] * 4
    row = content["sizes"][3]["sides"][1]
    assert row["low_ms"] < 0.002 < row["high_ms"] and row["ratio_low"] < 25.5 < row["ratio_high"]
    [crossing] = content["crossings"]
    assert crossing["low"] < 20 < crossing["high"] and crossing["faster_after"] == "in_set"
    assert {each["side"] for each in content["growth"]} == {"in_list", "in_set"}


def test_several_sides_without_sizes_are_one_table_without_growth(tmp_path: Path) -> None:
    times = {"a": 100.0, "b": 90.0, "c": 95.0}
    table = shown(a_run(tmp_path / "run", lambda side, size: times[side], ("a", "b", "c"), (0,)))
    assert [row[0] for row in rows(table)] == ["numbers"] * 3
    assert table.best("numbers") == (Word.FASTER, ["b"]) and not table.growth and not crossing_lines(table)
    assert table_of(a_run(tmp_path / "two", list_and_set, sizes=(0,))) is None


def test_too_few_processes_say_nothing_yet(tmp_path: Path) -> None:
    table = shown(a_run(tmp_path / "run", list_and_set, processes=3, status="interrupted"))
    assert {table.best(name)[0] for name in table.sizes} == {Word.INCONCLUSIVE} and not table.crossings
    assert all("no interval yet" in row[2] for row in rows(table))
    json.dumps(table.to_json(), allow_nan=False)


# -- the picture -------------------------------------------------------------------------------------------------------


def test_the_picture_has_a_line_a_band_and_a_strip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = a_run(tmp_path / "run", list_and_set)
    with pytest.raises(SystemExit):
        main(["report", str(folder.path), "--svg", str(tmp_path / "out.svg")])
    root = ElementTree.parse(tmp_path / "out.svg").getroot()
    tags = [each.tag.rpartition("}")[2] for each in root.iter()]
    assert tags.count("polyline") == tags.count("polygon") == 2 and tags.count("circle") == 8
    said = " ".join(each.text or "" for each in root.iter())
    assert "in_set overtakes in_list" in said and "size of the input" in said


def test_in_the_picture_names_are_text_open_ends_have_no_band_and_two_crossings_are_two() -> None:
    svg = sizes_svg({"<a>&": [(1, 10.0, math.nan, math.nan), (10, 20.0, 18.0, 22.0)]}, ())
    assert ElementTree.fromstring(svg) is not None and "&lt;a&gt;&amp;" in svg
    with pytest.raises(ValueError, match="nothing was measured"):
        sizes_svg({"a": []}, ())
    twice = [("b overtakes a", 2.0, 3.0), ("b overtakes a", 6.0, 7.0)]
    svg = sizes_svg({"a": [(1, 10.0, 9.0, 11.0), (10, 20.0, 18.0, 22.0)]}, twice)
    assert svg.count("b overtakes a") == 2


def test_the_page_has_picture_crossing_and_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.dashboard_pages import open_page

    folder = a_run(tmp_path / "runs" / "one", list_and_set)
    folder.write_json("verdicts.json", judge_claims([], evidence_of_run(folder), ad_hoc=folder.manifest().ad_hoc))
    page = ROOT / "dashboard" / "page_scripts" / "explore.py"
    app = open_page(page, monkeypatch, tmp_path, run="one", show="sides")
    assert not app.exception and any("overtakes" in each.value for each in app.markdown)
    assert any("hold at once" in each.value for each in app.markdown)
    [frame] = [each.value for each in app.dataframe]
    assert list(frame["best"]) == ["best", "", "best", "", "", "best", "", "best"]


# -- a real run --------------------------------------------------------------------------------------------------------


def test_three_sides_over_sizes_are_measured_gated_and_resumed(mine: Path, tmp_path: Path) -> None:
    request = asked("in_list", "in_set", "in_sorted", "wrong", sizes=(10, 100), fail_if=(Condition.parse("slower:5"),))
    result, _ = run(mine, request, rounds=4, no_causes=False)
    manifest = result.manifest
    first, second = manifest.experiments
    assert [each.workload.size for each in (first, second)] == [10, 100]
    assert {each.variant for each in second.excluded} == {"wrong"}, "its answers are right at one of two sizes"
    assert first.facts["in_list"].work == {"items": 10} and second.facts["in_set"].work == {"items": 100}
    samples = result.folder.read_samples().frame()
    together = samples.groupby(["workload", "process", "sub_round"]).variant.nunique()
    assert (together >= 3).all(), "all sides in the same rounds"
    assert not result.folder.has("causes.json"), "where the difference is, is not looked for"
    table = shown(result.folder)
    assert [row[2] for row in rows(table)].count("left out") == 2
    again = ["--compare", "bench.py:in_list", "bench.py:in_set", "bench.py:in_sorted", "bench.py:wrong"]
    assert compared_again(manifest) == [*again, "--call", "bench.py:numbers"]
    earlier, options = go_on(result.folder, Options(), budget=30.0)
    assert earlier.plan.sides == sides_of(manifest.ad_hoc) and len(earlier.plan.experiments) == 2
    assert {call.payload.size for call in earlier.plan.calls().values()} == {10, 100}
    assert Run(earlier.plan, options, Quiet(), earlier).earlier is earlier


def test_a_size_whose_sides_disturb_each_other_has_processes_of_its_own(mine: Path) -> None:
    """A set of so many numbers is large enough for pages of its own."""
    result, _ = run(mine, asked("in_list", "in_set", sizes=(10, 50_000)), rounds=3)
    shared, own = result.manifest.experiments
    assert (shared.own_processes, own.own_processes) == (False, True)
    samples = result.folder.read_samples().frame()
    counts = samples.groupby("workload").process.nunique()
    assert counts["numbers-50000"] == own.rounds == 3, "each round is a value"
    assert not {*samples[samples.workload == "numbers-10"].process} & {
        *samples[samples.workload != "numbers-10"].process
    }
    grown = shown(result.folder).growth["in_list"].whole
    assert grown.n == 3 and grown.centre > 0.5


def test_the_end_of_a_session_is_the_table(
    mine: Path, run_pytest: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(mine)
    monkeypatch.setenv("COLUMNS", "200")
    words = ("--benchmark", "--compare", "in_list", "in_set", "in_sorted", "--call", "bench.py:numbers")
    result = run_pytest(
        *words, "--sizes", "10,200", "--against", "in_set", "--budget", "4", f"--run-dir={mine / 'out'}",
        "--fail-if", "slower:100000",
    )  # fmt: skip
    assert len(re.findall(r"(?m)^(passes|inconclusive): --fail-if slower:100000$", result.stdout)) == 1
    assert "comparing in_set with in_list, in_sorted" in result.stdout
    assert "times as fast as in_set" in result.stdout and "items/s" in result.stdout
    assert result.returncode in (0, 7), result.stdout
    assert "Name (time" not in result.stdout, "the table has the times"
    folder = RunFolder(mine / "out")
    sides = folder.read_samples().frame().groupby(["process", "workload", "sub_round"]).variant.nunique()
    assert (sides >= 3).all(), "one process measures all sides of a size"
    assert len([*folder.path.glob("log/worker-*.log")]) == 1, "all sizes share their processes"
    verdicts = folder.manifest().ad_hoc
    assert verdicts == [("in_set", "in_list"), ("in_set", "in_sorted")]
    with pytest.raises(SystemExit):
        main(["show", str(mine / "out")])
    assert "times as fast as in_set" in capsys.readouterr().out


@pytest.mark.covers("harness/machine", "harness/plugin", "harness/session", "harness/slices/sizes", "harness/worker")
@pytest.mark.long
def test_ctrl_c_keeps_what_was_measured(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    sides = [f"{mine / 'bench.py'}:{side}" for side in ("in_list", "in_set", "in_sorted")]
    words = ("--compare", *sides, "--call", f"{mine / 'bench.py'}:numbers", "--sizes=10,200")
    with kills.begun(mine, "--budget=600", of=words) as run:
        run.wait_until(lambda: run.lines() >= 6 and len(RunFolder(run.folder).finished_rounds()) == 2)
        before = run.lines()
        run.process.send_signal(signal.SIGINT)
        assert run.ended() == pytest.ExitCode.INTERRUPTED, run.said()
        assert not run.orphans()
    assert "interrupted (SIGINT): what was measured is kept" in run.said() and "Traceback" not in run.said()
    assert "times as fast as in_list" in run.said(), "its end is the table"
    folder = RunFolder(run.folder)
    assert folder.manifest().status == "interrupted" and folder.manifest().sealed and not folder.changed()
    kept = folder.finished_rounds()
    assert sum(kept.values()) >= before
    names = ("numbers-10", "numbers-200"), ("in_list", "in_set", "in_sorted")
    processes = {place: time.n for place, time in shown(folder).times.items()}
    assert processes == {(name, side): kept[name] for name, side in itertools.product(*names)}


def test_the_command_of_a_verdict_has_all_sides_and_sizes(tmp_path: Path, mine: Path) -> None:
    command = shlex.split(
        "pytest --benchmark --compare in_list in_set in_sorted --call bench.py:numbers --sizes=10,100"
    )
    folder = a_run(tmp_path / "run", list_and_set, ("in_list", "in_set", "in_sorted"), (10, 100), command=command)
    (mine / "in_sorted").touch()  # what lies here today says nothing of the command
    [first, _] = judge_claims([], evidence_of_run(folder), ad_hoc=folder.manifest().ad_hoc)
    assert command_of(first, folder.manifest()) == " ".join(command).replace("--sizes=", "--sizes ")


def test_a_condition_is_met_by_any_side(tmp_path: Path) -> None:
    from llama_workbench.harness.session.run import Result

    folder = a_run(tmp_path / "run", lambda side, size: 200.0 if side == "b" else 100.0, ("a", "b", "c"), (10, 100))
    manifest = folder.manifest().model_copy(update={"fail_if": [Condition.parse("slower:5")]})
    verdicts = judge_claims([], evidence_of_run(folder), ad_hoc=manifest.ad_hoc, conditions=manifest.fail_if)
    assert Result(folder, manifest, tuple(verdicts)).failed_conditions() == manifest.fail_if
