"""Two runs: what is a regression, what is none, and when that cannot be told."""

from __future__ import annotations

import io
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from llama_workbench.harness.baselines.regressions import (
    BETWEEN_PERCENT,
    TOLERANCE_PERCENT,
    Row,
    RunComparison,
    Saved,
    compare,
)
from llama_workbench.harness.baselines.text import render, to_markdown
from llama_workbench.harness.baselines.thresholds import Thresholds
from llama_workbench.harness.evidence.evidence import evidence_from_manifest
from llama_workbench.harness.report.terminal import console, show
from llama_workbench.harness.spec.comparison import Comparison
from llama_workbench.harness.store.files import RunError, RunWarning
from llama_workbench.harness.store.folder import RunFolder
from tests.runs import ENVIRONMENT, FACTORS, write_run
from tests.tables import table_of

MODELS = ("prefill-15m-t128", "decode-15m-c64")
WORKLOADS = (*MODELS, "mask-create-apply-t128")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return a_run(tmp_path_factory.mktemp("compare") / "base", seed=1)


def a_run(folder: Path, **options: Any) -> RunFolder:
    """A run without verdicts: comparing reads none."""
    return write_run(folder, judged=False, **{"only": WORKLOADS, **options})


def times(comparison: RunComparison) -> tuple[Row, ...]:
    return tuple(each for each in comparison.rows if each.what == "time")


def row(comparison: RunComparison, workload: str, variant: str, what: str = "time") -> Row:
    key = workload, variant, what
    [found] = [each for each in comparison.rows if (each.workload, each.variant, each.what) == key]
    return found


def slower(variant: str, percent: float) -> dict[str, float]:
    """Factors that make a variant take `percent` more time than in the base run."""
    return {
        key: value * (1 + percent / 100)
        for key, value in FACTORS.items()
        if key.partition("/")[2] == variant or key == variant
    }


# -- the answer --------------------------------------------------------------------------------------------------------


def test_the_same_code_on_another_day_is_no_regression(base: RunFolder, tmp_path: Path) -> None:
    for seed in (2, 3):
        found = compare(base, a_run(tmp_path / str(seed), seed=seed))
        assert (found.verdict, found.exit_code, found.same_machine) == ("no regression", 0, True), found.summary()
    kept = tmp_path / "main"  # as a baseline is kept
    shutil.copytree(base.path, kept)
    assert compare(RunFolder(kept), RunFolder(tmp_path / "3")).summary().startswith("3 against main: no regression")
    assert {(each.workload, each.variant) for each in times(found)} == {
        (workload, variant)
        for workload in WORKLOADS
        for variant in ("team006_before", "team006_after", "team005_hybrid", "team005_proposal")
        if workload in MODELS or variant == "team006_after"
    }


def test_a_slow_down_beyond_threshold_and_tolerance_is_found(base: RunFolder, tmp_path: Path) -> None:
    found = compare(base, a_run(tmp_path / "new", seed=2, factors=slower("team005_hybrid", 25)))
    assert found.exit_code == 1
    assert {each.variant for each in times(found) if each.verdict == "regression"} == {"team005_hybrid"}
    assert [each.verdict for each in times(found)].count("regression") == len(MODELS)
    hybrid = row(found, "decode-15m-c64", "team005_hybrid")
    assert hybrid.change_percent == pytest.approx(25, abs=1.2)
    assert hybrid.low_percent is not None
    assert hybrid.high_percent is not None
    assert 22 < hybrid.low_percent < 25 < hybrid.high_percent < 28
    assert isinstance(hybrid.base, Saved)
    assert hybrid.base.ratio == pytest.approx(1 / 1.09, rel=0.01)
    assert hybrid.base.rounds == 40
    assert hybrid.against == "yardstick"


def test_the_formula_at_its_edges(base: RunFolder, tmp_path: Path) -> None:
    """Alarm where delta - h_now - h_saved - 9 % > threshold, all-clear where delta + h_now + h_saved < threshold."""
    new = a_run(tmp_path / "new", seed=2, only=["decode-15m-c64"], factors=slower("team005_hybrid", 25))
    hybrid = row(compare(base, new), "decode-15m-c64", "team005_hybrid")
    assert hybrid.low_percent is not None
    assert hybrid.high_percent is not None
    alarm = 100 * math.expm1(math.log1p(hybrid.low_percent / 100) - math.log(1.09))
    for threshold, verdict in (
        (alarm - 0.01, "regression"),
        (alarm + 0.01, "inconclusive"),
        (hybrid.high_percent - 0.01, "inconclusive"),
        (hybrid.high_percent + 0.01, "no regression"),
    ):
        found = compare(base, new, thresholds=Thresholds(time=threshold))
        assert row(found, "decode-15m-c64", "team005_hybrid").verdict == verdict


def test_calls_unlike_the_reference_benchmarks_shift_more(base: RunFolder, tmp_path: Path) -> None:
    def run(name: str, factor: float) -> RunFolder:
        return a_run(tmp_path / name, seed=len(name), only=["decode-15m-c64"], factors={"team005_hybrid": factor})

    old, by_22, by_35 = run("old", 3.0), run("by_22", 3.0 * 1.22), run("new_35", 3.0 * 1.35)
    found = compare(old, by_22)
    assert row(found, "decode-15m-c64", "team005_hybrid").verdict == "inconclusive"
    assert row(compare(old, by_35), "decode-15m-c64", "team005_hybrid").verdict == "regression"


def test_calls_of_nanoseconds_shift_most(tmp_path: Path) -> None:
    """Against what they stand against; one that takes far longer has the tolerance of other unlike calls."""

    def verdict(of: float, slower_by: float) -> str:
        old, new = (
            a_run(
                tmp_path / f"{of}-{slower_by}-{side}",
                seed=side,
                only=["decode-15m-c64"],
                factors={"team005_hybrid": factor},
            )
            for side, factor in enumerate((of, of * slower_by))
        )
        return row(compare(old, new), "decode-15m-c64", "team005_hybrid").verdict

    assert verdict(1 / 25, 1.41) == "inconclusive" and verdict(1 / 25, 1.8) == "regression"
    assert verdict(25, 1.41) == "regression"


def test_between_threshold_and_tolerance_it_cannot_tell(base: RunFolder, tmp_path: Path) -> None:
    found = compare(base, a_run(tmp_path / "new", seed=2, only=["decode-15m-c64"], factors=slower("team005_hybrid", 6)))
    assert found.exit_code == 2
    assert row(found, "decode-15m-c64", "team005_hybrid").reason.startswith(
        "possibly slower, but below what saved runs can detect"
    )
    assert compare(base, RunFolder(tmp_path / "new"), thresholds=Thresholds(time=10)).exit_code == 0


def test_an_improvement_is_no_regression(base: RunFolder, tmp_path: Path) -> None:
    found = compare(base, a_run(tmp_path / "new", seed=2, only=MODELS, factors=slower("team005_hybrid", -25)))
    assert found.exit_code == 0
    assert row(found, "decode-15m-c64", "team005_hybrid").verdict == "improvement"


def test_a_slower_machine_alone_is_no_regression(base: RunFolder, tmp_path: Path) -> None:
    """All times double, the reference benchmark's too: only ratios count."""
    doubled = {key: 2 * value for key, value in FACTORS.items()}
    assert compare(base, a_run(tmp_path / "new", seed=2, factors=doubled)).exit_code == 0


# -- by what sessions were measured to differ --------------------------------------------------------------------------

ONE_VERSION, ANOTHER = (dict[str, Any](sources={"variants": {}, "harness": name}) for name in ("0ne", "0ther"))
PROCESSES: dict[str, Any] = {"manifest": ONE_VERSION, "only": ["decode-15m-c64"], "rounds": 30}


def test_the_interval_of_two_runs_is_that_of_two_samples(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / str(seed), seed=seed, **PROCESSES) for seed in (1, 2)]
    key, series = ("decode-15m-c64", "team005_hybrid"), []
    for run in runs:
        evidence = evidence_from_manifest(run.manifest(), table_of(run.read_samples().frame()))
        series.append(evidence.differences(Comparison(*key, "yardstick")).values)
    oracle = stats.ttest_ind(*series, equal_var=False, trim=0.2).confidence_interval(0.99)
    found = row(compare(*runs), *key)
    ends = [math.log1p((end or 0.0) / 100) for end in (found.low_percent, found.high_percent)]
    assert ends == pytest.approx([oracle.low, oracle.high], rel=1e-6)


def test_without_a_measured_tolerance_a_comparison_is_cautious(tmp_path: Path) -> None:
    base = a_run(tmp_path / "base", seed=1, **PROCESSES)
    by_5, by_16 = (
        a_run(tmp_path / str(percent), seed=2, factors=slower("team005_hybrid", percent), **PROCESSES)
        for percent in (5, 16)
    )
    found = compare(base, by_5)
    assert (found.tolerance_percent, row(found, "decode-15m-c64", "team005_hybrid").verdict) == (9.0, "inconclusive")
    assert row(compare(base, by_16), "decode-15m-c64", "team005_hybrid").verdict == "regression"


def test_processes_on_another_machine_decide_nothing(tmp_path: Path) -> None:
    base = of_functions(tmp_path / "base", seed=1, manifest=beside(0.01))
    new = of_functions(tmp_path / "new", seed=2, manifest=beside(0.01), environment={"cpu_model": "Another CPU"})
    found = compare(base, new)
    assert {each.verdict for each in times(found)} == {"inconclusive"} and found.tolerance_percent == 20.0


# -- functions ---------------------------------------------------------------------------------------------------------


def of_functions(
    folder: Path, *, slower_by: float = 0.0, reference_benchmark: bool = True, **options: Any
) -> RunFolder:
    """A run of two functions, both of which take so many percent more time than in others."""
    left_out = [name for name in FACTORS if "/" not in name and name not in ("yardstick", *BOTH, f"{BOTH[0]}@aa")]
    factors = {name: FACTORS[name] * (1 + slower_by / 100) for name in (*BOTH, f"{BOTH[0]}@aa")}
    left_out += ["yardstick"] * (not reference_benchmark)
    run = a_run(folder, without=left_out, factors=factors, **PROCESSES | options)
    frame = run.read_samples().frame()
    frame["variant"] = frame["variant"].cat.rename_categories(
        {"yardstick": "function_yardstick"} if reference_benchmark else {}
    )
    frame.to_parquet(run.path / "samples.parquet")
    manifest = run.read_manifest()
    [experiment] = manifest["experiments"]
    experiment["workload"] |= {"kind": "call", "geometry": "", "payload": "mine.py:texts"}
    renamed = ["function_yardstick" if name == "yardstick" else name for name in experiment["variants"]]
    run.write_json("run.json", manifest | {"experiments": [experiment | {"variants": renamed}]})
    return run


BOTH = ("team006_before", "team006_after")


def test_two_functions_that_both_became_slower_are_seen_by_the_reference_benchmark(tmp_path: Path) -> None:
    alone = beside(0.01)
    base = of_functions(tmp_path / "base", seed=1, manifest=alone)
    found = compare(base, of_functions(tmp_path / "slow", seed=2, slower_by=11, manifest=alone))
    assert found.exit_code == 1
    assert {each.variant: each.verdict for each in times(found)} == dict.fromkeys(BOTH, "regression")
    assert {each.against for each in times(found)} == {"function_yardstick"}
    assert not any("it may be" in each.reason for each in times(found))
    assert compare(base, of_functions(tmp_path / "same", seed=3, manifest=alone)).exit_code == 0


def beside(others: float | None) -> dict[str, Any]:
    """run.json of a run beside which other programs used this share of the machine."""
    session = {"started": "2026-11-01T08:00:00+00:00", "budget_seconds": 30}
    return ONE_VERSION | {"sittings": [session if others is None else session | {"others": others}]}


def test_functions_that_one_version_measured_on_a_quiet_machine_show_five_percent(tmp_path: Path) -> None:
    base = of_functions(tmp_path / "base", seed=1, manifest=beside(0.01))
    same, more = (of_functions(tmp_path / str(by), seed=2, slower_by=by, manifest=beside(0.02)) for by in (0, 6))
    assert {each.verdict for each in times(compare(base, same))} == {"no regression"}
    found = compare(base, more)
    assert {(each.verdict, each.between_percent) for each in times(found)} == {("regression", BETWEEN_PERCENT)}
    assert found.tolerance_percent == 0
    unknown = compare(base, of_functions(tmp_path / "unknown", seed=2, slower_by=6))
    for each in times(found):
        narrower = row(unknown, each.workload, each.variant)
        assert None not in (each.low_percent, each.high_percent, narrower.high_percent)
        assert 2.5 < each.low_percent < 6 < each.high_percent < 9  # type: ignore[operator]
        assert each.high_percent > narrower.high_percent  # type: ignore[operator]


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (beside(0.43), "other programs used 43% of the machine while fresh was measured"),
        (beside(None), None),
        (beside(0.01) | ANOTHER, "another version of the workbench, so small changes cannot be found: save it again"),
    ],
    ids=["busy", "not known", "another version"],
)
def test_functions_of_other_conditions_are_held_to_a_tolerance(
    tmp_path: Path, manifest: dict[str, Any], said: str | None
) -> None:
    base = of_functions(tmp_path / "base", seed=1, manifest=beside(0.01))
    found = compare(base, of_functions(tmp_path / "fresh", seed=2, slower_by=6, manifest=manifest))
    assert {(each.verdict, each.between_percent) for each in times(found)} == {("inconclusive", None)}
    assert found.tolerance_percent == TOLERANCE_PERCENT
    assert said is None or any(said in note for note in found.notes)


def test_models_beside_other_programs_are_told_of_nothing_that_would_not_help_them(tmp_path: Path) -> None:
    base = a_run(tmp_path / "base", seed=1, **PROCESSES | {"manifest": beside(0.01)})
    busy = a_run(tmp_path / "busy", seed=2, **PROCESSES | {"manifest": beside(0.43)})
    found = compare(base, busy)
    assert times(found) and not any("other programs" in note for note in found.notes)


def test_functions_of_another_python_are_other_work(tmp_path: Path) -> None:
    base = of_functions(tmp_path / "base", seed=1)
    patch = of_functions(tmp_path / "patch", seed=2, environment={"python": "3.11.9"})
    minor = of_functions(tmp_path / "minor", seed=2, environment={"python": "3.12.1"})
    assert compare(base, patch).exit_code == 0
    assert {each.reason for each in times(compare(base, minor))} == {"Python 3.11 against 3.12"}


def test_a_run_of_functions_from_before_their_reference_benchmark_says_so(tmp_path: Path) -> None:
    older = of_functions(tmp_path / "older", seed=1, reference_benchmark=False)
    found = compare(older, of_functions(tmp_path / "new", seed=2))
    assert {each.reason for each in times(found)} == {"no reference benchmark in both runs"}


# -- inconclusive ------------------------------------------------------------------------------------------------------


def test_on_another_machine_nothing_is_a_failure_by_itself(base: RunFolder, tmp_path: Path) -> None:
    environment = {"torch": "2.14.0+cpu", "cpu_flags": [*ENVIRONMENT["cpu_flags"], "avx512f"]}
    found = compare(
        base, a_run(tmp_path / "new", seed=2, environment=environment, factors=slower("team005_hybrid", 40))
    )
    assert (found.exit_code, found.same_machine, found.tolerance_percent) == (2, False, 20.0)
    assert {each.verdict for each in times(found)} == {"inconclusive"}
    assert row(found, "decode-15m-c64", "team005_hybrid").reason.startswith("slower, but on a different machine")
    assert row(found, "decode-15m-c64", "team006_after").reason == "different machine"
    assert any(reason.startswith("torch: 2.13.0+cpu against 2.14.0+cpu") for reason in found.machine_differences)


def test_one_process_is_too_few(base: RunFolder, tmp_path: Path) -> None:
    found = compare(base, a_run(tmp_path / "new", seed=2, rounds=1))
    assert found.exit_code == 2
    assert {each.reason for each in times(found)} == {"too few processes for an interval"}
    assert times(found)[0].low_percent is None


def test_too_much_noise(base: RunFolder, tmp_path: Path) -> None:
    found = compare(base, a_run(tmp_path / "new", seed=2, noise=0.5))
    assert found.exit_code == 2
    assert all("not excluded; measure longer" in each.reason for each in times(found))


def test_nothing_in_common(base: RunFolder, tmp_path: Path) -> None:
    other = a_run(tmp_path / "other", only=["mask-create-apply-t128"])
    ours = a_run(tmp_path / "ours", only=["decode-15m-c64"])
    found = compare(ours, other)
    assert (found.rows, found.exit_code) == ((), 2)
    assert "nothing in common" in found.summary()
    assert "team005_hybrid on decode-15m-c64" in found.only_in_base
    assert found.only_in_new == ("team006_after on mask-create-apply-t128",)


def test_a_selection_of_workloads_is_compared_on_what_it_has(base: RunFolder, tmp_path: Path) -> None:
    found = compare(base, a_run(tmp_path / "new", seed=2, only=["decode-15m-c64"], without=["team005_hybrid"]))
    assert found.exit_code == 0
    assert len(times(found)) == 3
    assert "team005_hybrid on decode-15m-c64" in found.only_in_base


def test_a_variant_that_fell_out_of_the_new_run_is_not_passed_over(base: RunFolder, tmp_path: Path) -> None:
    new = a_run(tmp_path / "new", seed=2, without=["team005_hybrid"])
    manifest = new.read_manifest()
    reason = "gates failed: logits differ by 0.3"
    manifest["experiments"][0]["excluded"] = [{"variant": "team005_hybrid", "reason": reason}]
    new.write_json("run.json", manifest)
    found = compare(base, new)
    assert found.exit_code == 2
    assert reason in row(found, "prefill-15m-t128", "team005_hybrid").reason


def test_no_reference_benchmark(base: RunFolder, tmp_path: Path) -> None:
    new = a_run(tmp_path / "new", seed=2, without=["yardstick"])
    reasons = {each.reason for each in times(compare(base, new)) if each.workload in MODELS}
    assert reasons == {"no reference benchmark in both runs"}
    found = compare(new, a_run(tmp_path / "newer", seed=3, without=["yardstick"]))
    assert {each.reason for each in times(found) if each.workload in MODELS} == {"no reference benchmark in either run"}
    assert found.exit_code == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tokens": 64}, "the workload changed (tokens)"),
        ({"calm": False}, "the workload changed (calm)"),
        ({"calm": True}, ""),  # which a run from before does not say
        ({"description": "other words"}, ""),
    ],
)
def test_a_workload_that_was_changed(base: RunFolder, tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    new = a_run(tmp_path / "new", seed=2)
    manifest = new.read_manifest()
    manifest["experiments"][0]["workload"] |= change
    new.write_json("run.json", manifest)
    assert row(compare(base, new), "prefill-15m-t128", "team005_hybrid").reason == reason


def test_other_weights_and_another_clock(base: RunFolder, tmp_path: Path) -> None:
    new = a_run(tmp_path / "new", seed=2)
    manifest = new.read_manifest()
    manifest["experiments"][1]["clock"]["wall_variants"] = ["team005_hybrid"]
    new.write_json("run.json", manifest)
    found = compare(base, new)
    assert row(found, MODELS[1], "team005_hybrid").reason == "one run has CPU time, the other wall time"
    assert row(found, MODELS[1], "team006_after").verdict == "no regression"
    manifest["checkpoints"]["15m"]["digest"] = "other"
    new.write_json("run.json", manifest)
    found = compare(base, new)
    assert {each.reason for each in times(found) if each.workload in MODELS} == {"the checkpoints differ"}
    assert row(found, "mask-create-apply-t128", "team006_after").verdict == "no regression"


def test_a_control_that_fired_widens_the_tolerance(base: RunFolder, tmp_path: Path) -> None:
    factors = slower("team005_hybrid", 25) | {"decode-15m-c64/team006_before@copy": 1.10 * 1.05}
    found = compare(base, a_run(tmp_path / "new", seed=2, factors=factors))
    assert row(found, "decode-15m-c64", "team005_hybrid").verdict == "inconclusive"
    assert row(found, "prefill-15m-t128", "team005_hybrid").verdict == "regression"
    assert any("A/A checks failed (team006_before@copy on decode-15m-c64)" in note for note in found.notes)


def test_a_pair_without_a_reference_benchmark_says_which_side_may_have_moved(base: RunFolder, tmp_path: Path) -> None:
    workload = "mask-create-apply-t128"
    found = compare(base, a_run(tmp_path / "slow", seed=2, factors=slower("team006_after", 25)))
    assert row(found, workload, "team006_after").verdict == "regression"
    assert row(found, workload, "team006_after").reason.endswith("it may be team006_before that changed")
    found = compare(base, a_run(tmp_path / "fast", seed=2, factors=slower("team006_before", 25), only=[workload]))
    assert row(found, workload, "team006_after").reason == "faster, or team006_before became slower"
    assert found.exit_code == 2


def test_a_killed_run_is_compared_by_what_it_finished(base: RunFolder, tmp_path: Path) -> None:
    new = a_run(tmp_path / "new", seed=2, killed=True)
    with pytest.warns(RunWarning, match="cut off"):
        found = compare(base, new)
    assert found.exit_code == 0
    assert any("did not finish" in note for note in found.notes)


def test_damaged_runs_and_bad_thresholds_raise(base: RunFolder, tmp_path: Path) -> None:
    broken = a_run(tmp_path / "broken", seed=2)
    (broken.path / "samples.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match=r"samples\.parquet"):
        compare(base, broken)
    with pytest.raises(RunError, match="no such run folder"):
        compare(RunFolder(tmp_path / "nowhere"), base)


# -- how it is told ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(base: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> RunComparison:
    """A regression, some that cannot be told, and some without."""
    factors = slower("team005_hybrid", 25) | slower("team006_after", 6)
    return compare(base, a_run(tmp_path_factory.mktemp("compare") / "new", seed=2, factors=factors))


@pytest.mark.parametrize("width", [80, 100])
def test_the_table_on_the_terminal(mixed: RunComparison, width: int) -> None:
    out = io.StringIO()
    show(render(mixed), console(out, width=width))
    text = out.getvalue()
    assert max(len(line) for line in text.splitlines()) <= width
    assert text.endswith("new against base: regression (2 regression, 4 no regression, 3 inconclusive)\n")
    for each in times(mixed):
        assert f"  {each.variant} " in text
    assert "slower by at least 2" in text


def test_json_holds_everything(mixed: RunComparison) -> None:
    found = json.loads(json.dumps(mixed.to_json(), allow_nan=False))
    assert (found["verdict"], found["exit_code"], found["same_machine"]) == ("regression", 1, True)
    assert len(found["rows"]) == len(mixed.rows)
    assert found["rows"][0]["base"].keys() == {"ratio", "low", "high", "rounds"}


def test_markdown(mixed: RunComparison) -> None:
    text = to_markdown(mixed)
    assert text.startswith("### new against base: regression")
    assert text.count("| **regression** |") == 4  # once on top, once among all rows
    assert text.count("| **no regression** |") == 4


def test_hostile_names_stay_text(base: RunFolder, tmp_path: Path) -> None:
    """A variant's name is whatever its author called it, and a reason is whatever it raised."""
    name, reason = "a<b>&\"'|`[red]`", "]]> \x00\x1b[2J <script>\n|"
    runs = []
    for folder in ("one", "two"):
        run = a_run(tmp_path / folder, seed=2)
        frame = run.read_samples().frame()
        frame["variant"] = frame["variant"].cat.rename_categories({"team005_hybrid": name})
        frame.to_parquet(run.path / "samples.parquet")
        manifest = run.read_manifest()
        for experiment in manifest["experiments"]:
            experiment["variants"] = [name if each == "team005_hybrid" else each for each in experiment["variants"]]
        if folder == "two":
            manifest["experiments"][0]["excluded"] = [{"variant": name, "reason": reason}]
        run.write_json("run.json", manifest)
        runs.append(run)
    found = compare(*runs)
    assert row(found, "prefill-15m-t128", name).verdict == "inconclusive"
    rows = [line for line in to_markdown(found).splitlines() if line.startswith("|")]
    assert "<b>" not in "".join(rows)
    assert "<script>" not in "".join(rows)
    assert {line.replace("\\|", "").count("|") for line in rows} == {9}
    out = io.StringIO()
    show(render(found), console(out, width=100))
    assert name in out.getvalue()
    assert "\x1b" not in out.getvalue()
