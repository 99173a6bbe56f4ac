"""Two runs by what was counted in both: instructions, memory beside time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from llama_workbench.commands.app import main
from llama_workbench.harness.baselines.regressions import Answer, Row, RunComparison, compare, gated
from llama_workbench.harness.baselines.text import MARKER, change_text, to_markdown
from llama_workbench.harness.baselines.thresholds import Thresholds, What
from llama_workbench.harness.slices.instructions.counting import ALLOCATORS, DISPATCH, KERNELS
from llama_workbench.harness.store.folder import RunFolder
from tests.runs import write_run

WORKLOAD = "decode-15m-c64"
SUBJECTS = ("team006_before", "team006_after", "team005_hybrid", "team005_proposal")
VERSIONS = {"torch": "2.13.0", "python": "3.11.7", "valgrind": "3.19.0"}
COUNTED = Thresholds(gate=("time", "instructions"))


def a_count(variant: str, work: float = 10e6, allocators: float = 3e5, **changed: Any) -> dict[str, Any]:
    by = {KERNELS: 0.6 * work, DISPATCH: 0.4 * work, ALLOCATORS: allocators}
    record = {"workload": WORKLOAD, "variant": variant, "instructions": work + allocators, "calls": 2, "again": None}
    return record | {"by": by, "reason": None, "capability": "AVX2", "versions": VERSIONS} | changed


def a_run(
    folder: Path, counts: Mapping[str, Any] | None = None, *, seed: int = 1, noise: float = 0.5, **options: Any
) -> RunFolder:
    """A run whose times can tell nothing, as on a shared machine, with the counts of its variants; `counts`: work of
    some, or what their whole record has instead."""
    run = write_run(folder, seed=seed, judged=False, only=[WORKLOAD], noise=noise, **options)
    if counts is not None:
        others = ({"work": each} if isinstance(each, float) else each for each in counts.values())
        changed = dict(zip(counts, others, strict=True))
        records = [a_count(name, **changed.get(name, {})) for name in ("yardstick", *SUBJECTS)]
        run.write_json("instructions.json", [each for each in records if each["calls"] is not None])
    return run


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return a_run(tmp_path_factory.mktemp("counts") / "base", {})


def rows(comparison: RunComparison, what: What) -> dict[str, Row]:
    return {row.variant: row for row in comparison.rows if row.what == what}


def hybrid(base: RunFolder, new: RunFolder, thresholds: Thresholds = COUNTED) -> Row:
    """What its counts say of the variant that most of these tests change."""
    return rows(compare(base, new, thresholds=thresholds), "instructions")["team005_hybrid"]


# -- instructions ------------------------------------------------------------------------------------------------------


def test_more_work_is_seen_where_times_cannot_tell_but_none_of_allocators(base: RunFolder, tmp_path: Path) -> None:
    new = a_run(tmp_path / "new", {"team005_hybrid": 10.1e6}, seed=2)
    assert compare(base, new).exit_code == 2  # by time alone, as ever
    found = compare(base, new, thresholds=COUNTED)
    assert (found.verdict, found.exit_code) == ("regression", 1)
    row = rows(found, "instructions")["team005_hybrid"]
    assert row.change_percent == pytest.approx(1.0)
    assert (row.low_percent, row.high_percent) == pytest.approx((0.8, 1.2))
    assert row.reason == f"most of it in {KERNELS} (+60,000)"
    assert found.summary().endswith("regression (1 regression, 3 no regression, by time and instructions)")
    assert compare(base, a_run(tmp_path / "same", {}, seed=3), thresholds=COUNTED).exit_code == 0
    allocating = a_run(tmp_path / "allocating", {"team005_hybrid": {"allocators": 9e5}}, seed=2)
    assert hybrid(base, allocating).change_percent == pytest.approx(0)


@pytest.mark.parametrize(
    ("work", "threshold", "verdict"),
    [
        (10.071e6, 0.5, "regression"),
        (10.069e6, 0.5, "inconclusive"),
        (10.031e6, 0.5, "inconclusive"),
        (10.029e6, 0.5, "no regression"),
        (10.071e6, 1.0, "no regression"),
        (9.929e6, 0.5, "improvement"),
        (10.0e6, 0.19, "inconclusive"),
    ],
)
def test_a_count_is_known_to_a_fifth_of_a_percent(
    base: RunFolder, tmp_path: Path, work: float, threshold: float, verdict: Answer
) -> None:
    new = a_run(tmp_path / "new", {"team005_hybrid": work}, seed=2)
    found = hybrid(base, new, Thresholds(instructions=threshold))
    assert found.verdict == verdict
    assert ("known to ±0.20 %" in found.reason) == (verdict == "inconclusive")


def test_short_calls_have_wide_intervals_and_say_so(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / name, dict.fromkeys(("yardstick", *SUBJECTS), 1e6)) for name in ("one", "two")]
    found = compare(*runs, thresholds=COUNTED)
    assert found.exit_code == 2
    assert {row.reason for row in rows(found, "instructions").values()} == {
        "up to 1.00 % more are not excluded: counts of such short calls are known to ±1.00 %"
    }


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"work": 50_400}, "most of it in"),
        ({"inputs": 8}, "4 inputs in the base run, 8 in the new one"),
        ({"versions": VERSIONS | {"numpy": "3.0"}}, "numpy 3.0 for the new run"),
    ],
)
def test_a_function_is_counted_over_many_calls_and_has_no_reference_benchmark(
    tmp_path: Path, changed: dict[str, Any], said: str | None
) -> None:
    counted = {
        "work": 50_000.0,
        "allocators": 500.0,
        "calls": 2_000,
        "inputs": 4,
        "versions": VERSIONS | {"numpy": "2"},
    }
    counts = {"yardstick": {"calls": None}, "team005_hybrid": counted}
    one, two = a_run(tmp_path / "one", counts), a_run(tmp_path / "two", counts | {"team005_hybrid": counted | changed})
    row = hybrid(one, two)
    assert row.reason == "" if said is None else said in row.reason
    if "work" in changed:
        assert row.verdict == "regression" and (row.low_percent, row.high_percent) == pytest.approx((0.6, 1.0))


def test_the_reference_benchmark_of_functions_is_counted_beside_them(tmp_path: Path) -> None:
    def run(name: str, work: float) -> RunFolder:
        counted = {"calls": 2_000, "inputs": 4, "work": 10e6}
        made = a_run(tmp_path / name, {"yardstick": {"calls": None}, "team005_hybrid": counted})
        reference_benchmark = a_count("function_yardstick", **counted | {"work": work})
        made.write_json("instructions.json", [*made.read_json("instructions.json"), reference_benchmark])
        return made

    one, two, three = run("one", 10e6), run("two", 10e6), run("three", 10.2e6)
    assert hybrid(one, two).verdict == "no regression"
    reason = hybrid(one, three).reason
    assert "the reference benchmark, whose code never changes, executes +2.00 % instructions" in reason


def test_what_others_are_compared_with_is_counted_as_well(tmp_path: Path) -> None:
    """Two functions without a reference benchmark: the first stands for it in the times, and may need more work
    itself."""
    calls: dict[str, Any] = {"without": ["yardstick", "team006_after"], "noise": 0.01}
    both = {name: {"calls": 2_000, "inputs": 4, "work": 11e6} for name in ("team006_before", "team005_hybrid")}
    before = {name: record | {"work": 10e6} for name, record in both.items()}
    old, new = (a_run(tmp_path / name, counts, **calls) for name, counts in (("one", before), ("two", both)))
    found = rows(compare(old, new, thresholds=COUNTED), "instructions")
    assert {found[name].verdict for name in both} == {"regression"}


def test_other_inputs_are_no_other_work(tmp_path: Path) -> None:
    found: list[RunFolder] = []
    for digest in ("1" * 64, "1" * 64, "2" * 64):
        run = a_run(tmp_path / f"{len(found)}", {})
        call = {WORKLOAD: {"payload": {"digest": digest}}}
        run.write_json("run.json", run.read_manifest() | {"sources": {"variants": {}, "calls": call, "harness": ""}})
        found.append(run)
    words = [{row.reason for row in rows(compare(found[0], new), "instructions").values()} for new in found[1:]]
    assert words == [{""}, {"the input generator changed"}]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"team005_hybrid": {"capability": "AVX512"}}, "torch computes with AVX512 for the new run, AVX2 for the base"),
        ({"team005_hybrid": {"versions": VERSIONS | {"torch": "2.14.0"}}}, "torch 2.14.0 for the new run"),
        ({"team005_hybrid": {"instructions": None, "reason": "hangs"}}, "no count in the new run (hangs)"),
        ({"team005_hybrid": {"calls": None}}, "no count in the new run"),
        ({"team005_hybrid": {"by": {KERNELS: 10e6}}}, "did not count apart what allocators execute"),
        ({"yardstick": 10.1e6}, "the reference benchmark, whose code never changes, executes +1.00 % instructions"),
        ({"yardstick": {"calls": None}}, "the reference benchmark: no count in the new run; measure both"),
    ],
)
def test_counts_that_cannot_be_compared_say_why(
    base: RunFolder, tmp_path: Path, counts: dict[str, Any], said: str
) -> None:
    found = compare(base, a_run(tmp_path / "new", counts, seed=2), thresholds=COUNTED)
    row = rows(found, "instructions")["team005_hybrid"]
    assert row.verdict == "inconclusive" and said in row.reason
    assert found.exit_code == 2


def test_another_processor_does_not_matter_to_counts(base: RunFolder, tmp_path: Path) -> None:
    new = a_run(tmp_path / "new", {"team006_after": 10.1e6}, seed=2, environment={"cpu_model": "Another CPU"})
    found = compare(base, new, thresholds=COUNTED)
    assert not found.same_machine and found.exit_code == 1


def test_a_variant_that_fell_out_is_not_passed_over(base: RunFolder, tmp_path: Path) -> None:
    new = a_run(tmp_path / "new", {"team005_hybrid": {"instructions": None, "reason": "gates failed"}}, seed=2)
    manifest = new.read_manifest()
    manifest["experiments"][0]["excluded"] = [{"variant": "team005_hybrid", "reason": "gates failed"}]
    new.write_json("run.json", manifest)
    found = compare(base, new, thresholds=Thresholds(gate=("instructions",)))
    assert found.exit_code == 2
    assert "gates failed" in rows(found, "instructions")["team005_hybrid"].reason


def test_without_counts_the_gate_has_nothing_to_decide_by(base: RunFolder, tmp_path: Path) -> None:
    new = a_run(tmp_path / "new", noise=0.01)
    sharp = a_run(tmp_path / "sharp", noise=0.01, seed=2)
    found = compare(base, new, thresholds=Thresholds(gate=("instructions",)))
    assert (found.verdict, found.exit_code) == ("inconclusive", 2)
    assert found.summary().endswith("inconclusive: the two runs do not both have instructions")
    assert compare(sharp, new, thresholds=COUNTED).exit_code == 0  # times decide alone
    assert "No instructions in both runs, so these are not decided by instructions" in to_markdown(found)


def test_a_proven_slow_down_counts_beside_equal_counts(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / "one", {}, noise=0.01)]
    runs.append(a_run(tmp_path / "two", {}, noise=0.01, seed=2, factors={"team005_hybrid": 1.09 * 1.25}))
    found = compare(*runs, thresholds=COUNTED)
    assert found.exit_code == 1
    assert compare(*runs, thresholds=Thresholds(gate=("instructions",))).exit_code == 0


# -- who decides -------------------------------------------------------------------------------------------------------


def a_row(what: What, verdict: Answer, variant: str = "v") -> Row:
    return Row("w", variant, "", None, None, None, None, None, verdict, "", what)


@pytest.mark.parametrize(
    ("gate", "time", "count", "decides"),
    [
        (("time",), "inconclusive", "no regression", ["time"]),
        (("instructions",), "regression", "no regression", ["instructions"]),
        (("time", "instructions"), "inconclusive", "no regression", ["instructions"]),
        (("time", "instructions"), "inconclusive", "inconclusive", ["time", "instructions"]),
        (("time", "instructions"), "regression", "no regression", ["time", "instructions"]),
        (("memory",), "regression", "regression", ["memory"]),
    ],
)
def test_the_count_decides_where_the_time_cannot_tell(
    gate: tuple[What, ...], time: Answer, count: Answer, decides: list[What]
) -> None:
    found = gated([a_row("time", time), a_row("instructions", count), a_row("memory", "no regression")], gate)
    assert [row.what for row in found if row.decides] == decides
    others = gated([a_row("time", "inconclusive", "a"), a_row("instructions", "no regression", "b")], COUNTED.gate)
    assert [row.decides for row in others] == [True, True], "the count of one says nothing about another"


# -- memory ------------------------------------------------------------------------------------------------------------


def with_memory(run: RunFolder, **transient: int | None) -> RunFolder:
    sizes = {"parameter_bytes": 60_000_000, "cache_bytes": 7_000_000}
    run.write_json(
        "memory.json",
        [
            {"workload": WORKLOAD, "variant": name, "peak_transient_bytes": size, **sizes, "reason": "it hangs"}
            for name, size in transient.items()
        ],
    )
    return run


def test_memory_is_compared_by_its_peak(tmp_path: Path) -> None:
    one = with_memory(a_run(tmp_path / "one"), team006_after=3_000_000, team005_hybrid=3_000_000, fast=1)
    two = with_memory(a_run(tmp_path / "two"), team006_after=4_500_000, team005_hybrid=3_010_000)
    found = compare(one, two, thresholds=Thresholds(gate=("memory",)))
    assert found.exit_code == 1
    bigger, same = (rows(found, "memory")[name] for name in ("team006_after", "team005_hybrid"))
    assert (bigger.verdict, bigger.reason) == ("regression", "temporary tensors +1,500,000 bytes")
    assert bigger.change_percent == pytest.approx(100 * 1.5 / 70)
    assert (same.verdict, same.reason) == ("no regression", "")
    assert compare(two, one, thresholds=Thresholds(gate=("memory",))).exit_code == 0
    assert compare(one, two, thresholds=Thresholds(gate=("memory",), memory=3)).exit_code == 0
    lost = with_memory(a_run(tmp_path / "lost"), team006_after=None, team005_hybrid=3_000_000)
    found = compare(one, lost, thresholds=Thresholds(gate=("memory",)))
    assert "it hangs" in rows(found, "memory")["team006_after"].reason and found.exit_code == 2
    other = with_memory(a_run(tmp_path / "other", environment={"torch": "2.14.0"}), team006_after=9_000_000)
    reason = rows(compare(one, other), "memory")["team006_after"].reason
    assert reason.startswith("more memory, but on a different machine: temporary tensors")


def test_memory_that_was_none_before_has_no_percentage(tmp_path: Path) -> None:
    """A part that is called alone may hold nothing, and allocate nothing."""
    empty = {"parameter_bytes": 0, "cache_bytes": 0}
    names = [("one", 0), ("two", 0), ("three", 500_000)]
    folders = []
    for name, size in names:
        run = with_memory(a_run(tmp_path / name), team006_after=size)
        run.write_json("memory.json", [each | empty for each in run.records("memory.json")])
        folders.append(run)
    same, more = (rows(compare(folders[0], run), "memory")["team006_after"] for run in folders[1:])
    assert (same.verdict, same.change_percent) == ("no regression", None)
    assert (more.verdict, more.change_percent) == ("regression", None)
    assert change_text(same) == change_text(more) == "–"


# -- how it is told ----------------------------------------------------------------------------------------------------


def test_markdown_is_a_comment_that_can_be_found_again(base: RunFolder, tmp_path: Path) -> None:
    new = a_run(tmp_path / "new", {"team005_hybrid": 10.1e6}, seed=2)
    found = compare(base, new, thresholds=COUNTED)
    text = to_markdown(found)
    assert text.startswith(
        "### new against base: regression (1 regression, 3 no regression, by time and instructions)\n\n|"
    )
    assert text.endswith(f"\n{MARKER}\n")
    assert "| 10,000,000 instructions | 10,100,000 instructions | +1.00 % [+0.80, +1.20] | **regression** |" in text


def test_a_comment_is_never_too_long(base: RunFolder, tmp_path: Path) -> None:
    found = compare(base, a_run(tmp_path / "new", {}, seed=2))
    many = tuple(a_row("time", "inconclusive", f"variant-{number}") for number in range(5000))
    text = to_markdown(RunComparison(**{**found.__dict__, "rows": many}))
    assert len(text) < 65_536 and text.endswith(f"\n{MARKER}\n")
    rows_shown = len(re.findall(r"^\| w \|", text, re.MULTILINE))
    assert f"{5000 - rows_shown} more rows do not fit here" in text


def test_the_command_takes_a_gate_and_prints_what_help_says(
    base: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    new = a_run(tmp_path / "new", {"team005_hybrid": 10.1e6}, seed=2)
    monkeypatch.chdir(tmp_path)

    def ended(*options: str) -> tuple[Any, dict[str, Any]]:
        with pytest.raises(SystemExit) as end:
            main(["compare", str(base.path), str(new.path), "--json", *options])
        return end.value.code, json.loads(capsys.readouterr().out)

    assert ended()[0] == 2
    code, found = ended("--gate", "instructions")
    assert (code, found["verdict"], found["gate"]) == (1, "regression", ["instructions"])
    [row] = [each for each in found["rows"] if each["verdict"] == "regression"]
    assert (row["what"], row["new"], row["decides"]) == (
        "instructions",
        {"value": 10.1e6, "unit": "instructions"},
        True,
    )
    Path("pyproject.toml").write_text(
        '[tool.llama-workbench.compare]\ngate = ["instructions"]\ninstructions = 2\n', encoding="utf-8"
    )
    assert ended()[0] == 0
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    for name in (*found, *row):
        assert f'"{name}"' in help_text, name
