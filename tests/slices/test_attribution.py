"""The factorial: the right contrasts, the right split, no false alarms, and refusals where a cell cannot be trusted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from llama_workbench import variants
from llama_workbench.harness.evidence.evidence import Evidence, evidence_from_manifest
from llama_workbench.harness.judge.stopping import open_contrasts
from llama_workbench.harness.slices.attribution.metric import (
    GRID,
    METRIC,
    Attribution,
    Factor,
    Grid,
    _share,
    attribute,
    contrasts,
    dummy_series,
    refusal,
    verdict_on,
)
from llama_workbench.harness.spec.experiments import Contrast
from llama_workbench.harness.spec.regions import Region
from llama_workbench.harness.spec.sample import Round, Sample
from llama_workbench.harness.stats import samples as stats
from llama_workbench.harness.stats.confidence import pseudo_median, running_bounds
from llama_workbench.harness.stats.samples import Clock, WholeProcesses, whole_processes
from llama_workbench.harness.store.schema import Control, Noise, manifest_of
from studies.simulated_rates import miss
from tests.tables import table_of

CELLS = GRID.cells()
ALPHA = 0.01
SMALL = Grid("small", (Factor("a", "a0", "a1", "architecture"), Factor("o", "o0", "o1", "operations")))


def log_times(gains: Mapping[str, float], *, rounds: int = 60, sub_rounds: int = 3, sd: float = 0.005, seed: int = 0):
    """[processes, sub_rounds, cells]: each factor's gain (log units) makes its new level faster; common drift."""
    rng = np.random.default_rng(seed)
    truth = sum((gain / 2 * contrasts()[name] * len(CELLS) / 2 for name, gain in gains.items()), np.zeros(len(CELLS)))
    drift = rng.normal(0, 0.05, (rounds, sub_rounds, 1))
    logs: NDArray[np.float64] = drift - truth + rng.normal(0, sd, (rounds, sub_rounds, len(CELLS)))
    return logs


def frame(logs: NDArray[np.float64], *, workload: str = "w", repeats: int = 4) -> pd.DataFrame:
    """Samples of a call that takes 10 ms and more."""
    at, sub_round, cell = (axis.ravel() for axis in np.indices(logs.shape))
    total = np.round(np.exp(logs.ravel()) * 1e7 * repeats).astype(np.int64)
    return pd.DataFrame(
        {
            "workload": workload,
            "variant": np.array(CELLS)[cell],
            "process": at + 1,
            "round": at,
            "sub_round": sub_round,
            "position": cell,
            "tokens": 8,
            "repeats": repeats,
            "cpu_ns": total,
            "wall_ns": total * 2,
            "faults": 0,
        }
    )


def evidence(samples: pd.DataFrame, **changes: Any) -> Evidence:
    """A run whose traces agree wherever the operations do."""
    ops = {name: str(signs[2:]) for name, signs in zip(CELLS, GRID.signs(), strict=True)}
    manifest = {
        "experiments": [
            {
                "workload": {"name": "w"},
                "variants": list(CELLS),
                "traces": {name: {"digest": digest, "ops": 10} for name, digest in ops.items()},
            }
        ]
    }
    return replace(evidence_from_manifest(manifest_of(manifest), table_of(samples)), **changes)


def attributed(gains: Mapping[str, float], **arguments: Any) -> Attribution:
    return attribute(evidence(frame(log_times(gains, **arguments)), seed=3), "w", alpha=ALPHA)


@pytest.mark.parametrize(("margin", "answer"), [(None, "operations"), (5.0, "neither")])
def test_a_claim_s_margin_decides_which_gain_matters(margin: float | None, answer: str) -> None:
    given = {"margin": {"percent": margin, "document": "A document", "section": "A section"}} if margin else {}
    asked: dict[str, Any] = {"part": "w", "metric": "attribution", "workloads": ["w"], "quantity": answer}
    hypothesis = METRIC.hypothesis.model_validate(asked | given)
    seen = evidence(frame(log_times({"ops": 0.025}, rounds=24)), seed=3)
    assert METRIC.judge(hypothesis, seen, alpha=ALPHA).verdict == "supported"
    region = hypothesis.contrasts()[0].region
    assert -region.low == pytest.approx(region.high) == math.log1p((margin or 1.0) / 100)


# -- the grid and its contrasts ----------------------------------------------------------------------------------------


def test_the_cells_are_the_presets_and_differ_by_the_factors_alone() -> None:
    assert GRID.cells() == variants.grid_cells()
    assert set(GRID.cells()) == {name for name in variants.names() if name.startswith("grid_")}
    assert variants.get(GRID.cells()[0]).settings == variants.get("team006_before").settings
    axes = {"layout": {"layout"}, "cache": {"cache"}, "mask": {"mask"}}
    axes["ops"] = {"boundary", "softmax", "attention", "mask_application"}
    signs = dict(zip(CELLS, GRID.signs(), strict=True))
    for name in CELLS:
        found = variants.get(name).factors
        for index, factor in enumerate(GRID.factors):
            neighbour = next(
                other for other in CELLS if np.flatnonzero(signs[other] != signs[name]).tolist() == [index]
            )
            theirs = variants.get(neighbour).factors
            assert {axis for axis in found if found[axis] != theirs[axis]} == axes[factor.name]
            if factor.name != "ops":
                assert found[factor.name] == (factor.new if signs[name][index] > 0 else factor.old)


def test_contrasts_are_balanced_orthogonal_and_add_up() -> None:
    weights = contrasts()
    effects = np.array([weights[name] for name in GRID.terms()])
    assert len(effects) == 15
    assert effects @ effects.T == pytest.approx(np.eye(15) / 4)
    for row in weights.values():
        assert row[row > 0].sum() == pytest.approx(1) and row[row < 0].sum() == pytest.approx(-1)
    corners = np.zeros(16)
    corners[[0, -1]] = -1, 1
    assert weights["total"] == pytest.approx(corners)
    # Architecture first, then last: (modular, split) is cell 0 to 3, (single file, unified) is 12 to 15.
    assert np.flatnonzero(weights["architecture"]).tolist() == [0, 3, 12, 15]
    assert weights["architecture"][[0, 3, 12, 15]] == pytest.approx([-0.5, -0.5, 0.5, 0.5])
    assert weights["operations"][[0, 3, 12, 15]] == pytest.approx([-0.5, 0.5, -0.5, 0.5])


def test_estimates_are_those_of_least_squares() -> None:
    import statsmodels.formula.api as smf  # takes a second, which no other test should wait for

    gains = {"layout": 0.02, "ops": 0.3, "mask:ops": -0.05, "layout:cache:mask": 0.01}
    samples = frame(log_times(gains, rounds=24, sub_rounds=1))
    found = attribute(evidence(samples), "w", alpha=ALPHA)
    levels = pd.DataFrame(GRID.signs(), columns=[factor.name for factor in GRID.factors], index=CELLS)
    table = samples.join(levels, on="variant")
    table["speed"] = -np.log(table["cpu_ns"])
    fitted = smf.ols("speed ~ layout * cache * mask * ops + C(round)", table).fit()
    for name in GRID.terms():
        effect = found.effects[name]
        differences = -found.times.logs @ contrasts()[name]
        assert differences.mean() == pytest.approx(2 * fitted.params[name], abs=1e-12)
        assert math.log(effect.ratio) == pytest.approx(pseudo_median(differences), abs=1e-12)
        assert effect.low < math.exp(gains.get(name, 0.0)) < effect.high and effect.rounds == 24


def grid_times(samples: pd.DataFrame, *, workload: str, clock: Clock) -> WholeProcesses:
    return whole_processes(stats.log_times(table_of(samples), workload=workload, clock=clock).of(CELLS))


# -- processes ---------------------------------------------------------------------------------------------------------


def test_a_process_is_the_median_of_its_sub_rounds_by_cell() -> None:
    logs = log_times({"ops": 0.1}, rounds=5)
    found = grid_times(frame(logs), workload="w", clock="cpu")
    assert found.logs == pytest.approx(np.median(logs, axis=1) + math.log(1e7), abs=1e-6)
    assert found.starts == tuple((index + 1, index) for index in range(5))
    assert (found.incomplete, found.invalid) == (0, 0)
    assert found.seconds == pytest.approx(frame(logs)["wall_ns"].sum() / 1e9)
    by_wall = grid_times(frame(logs), workload="w", clock="wall")
    assert by_wall.logs - found.logs == pytest.approx(math.log(2))


def test_processes_that_lack_a_cell_or_have_no_time_are_left_out_whole() -> None:
    samples = frame(log_times({}, rounds=6))
    here = samples["variant"] == CELLS[5]
    samples.loc[(samples["round"] == 1) & (samples["sub_round"] == 2) & here, "cpu_ns"] = 0
    gone = (samples["round"] == 2) & here
    one_sub_round = (samples["round"] == 3) & (samples["sub_round"] == 0) & here
    foreign = frame(log_times({}, rounds=6, seed=9), workload="other")
    found = grid_times(pd.concat([samples[~(gone | one_sub_round)], foreign]), workload="w", clock="cpu")
    assert [number for _, number in found.starts] == [0, 3, 4, 5]
    assert (found.incomplete, found.invalid) == (1, 1)
    whole = grid_times(samples, workload="w", clock="cpu")
    assert found.logs[[0, 2, 3]] == pytest.approx(whole.logs[[0, 3, 4]])
    nothing = grid_times(samples, workload="not there", clock="cpu")
    assert nothing.logs.shape == (0, 16) and nothing.starts == () and dummy_series(nothing, 0).size == 0
    with pytest.raises(ValueError, match="two samples in one sub-round"):
        grid_times(pd.concat([samples, samples.iloc[:1]]), workload="w", clock="cpu")


@given(st.integers(0, 1000), st.integers(1, 5), st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_the_order_of_rows_and_the_way_in_do_not_matter(seed: int, rounds: int, random: Any) -> None:
    """Stored samples, in any order and type, and the measuring loop's records give the same log times."""
    samples = frame(log_times({"cache": 0.1}, rounds=rounds, seed=seed))
    samples = samples.drop(index=random.sample(range(len(samples)), 2))
    samples.loc[random.choice(samples.index.tolist()), "cpu_ns"] = 0
    order = list(range(len(samples)))
    random.shuffle(order)
    stored = samples.iloc[order].astype({"workload": "category", "variant": "category", "cpu_ns": "int64"})
    found = grid_times(stored, workload="w", clock="cpu")
    assert np.array_equal(found.logs, grid_times(samples, workload="w", clock="cpu").logs)
    columns = ["variant", "sub_round", "position", "tokens", "repeats", "cpu_ns", "wall_ns", "faults"]
    live = [
        Round("w", 1, 0, tuple(Sample(*row) for row in part[columns].values.tolist()))
        for _, part in stored.groupby("round")
    ]
    whole = [whole_processes(stats.log_times_of_rounds([each], clock="cpu").of(CELLS)).logs for each in live]
    assert np.concatenate(whole) == pytest.approx(found.logs)


# -- error rates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["normal", "busy"])
def test_under_the_null_hardly_any_run_has_a_single_false_interval(noise: str) -> None:
    """200 grids of 80 rounds: any effect or split of which any look leaves out the truth."""
    alpha, runs, rounds = 0.05 / len(contrasts()), 200, 80
    rng = np.random.default_rng(7)
    logs = rng.normal(0, 0.01, (runs, rounds, 16))
    if noise == "busy":
        logs += (rng.random(logs.shape) < 0.1) * rng.uniform(0.2, 0.5, logs.shape)
    truth = {"ops": 0.3, "mask": -0.02, "mask:ops": 0.05}
    logs -= sum(gain / 2 * contrasts()[name] * 8 for name, gain in truth.items())
    missed = np.zeros(runs, dtype=bool)
    known = truth | {"operations": truth["ops"] + truth["mask"], "total": truth["ops"] + truth["mask"]}
    for name, weights in contrasts().items():
        missed |= miss(-logs @ weights, alpha, known.get(name, 0.0))
    assert missed.mean() <= 0.1  # 0.05 are promised, and skewed noise spoils a little


def test_the_dummy_is_blind_to_real_effects_and_covers_nil() -> None:
    fired = 0
    for seed in range(60):
        logs = log_times({"ops": 0.5, "layout": 0.1}, rounds=50, sub_rounds=1, seed=seed)
        times = grid_times(frame(logs), workload="w", clock="cpu")
        series = dummy_series(times, seed)
        assert series.std() == pytest.approx(0.005 / 2, rel=0.5)
        low, high = running_bounds(series, 0.05)
        fired += bool(low[-1] > 0 or high[-1] < 0)
    assert fired <= 3
    assert np.array_equal(dummy_series(times, 1), dummy_series(times, 1))
    assert not np.array_equal(dummy_series(times, 1), dummy_series(times, 2))


# -- the split ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gains", "answer", "share"),
    [
        ({"ops": 0.3, "mask": 0.05}, "operations", 0.0),
        ({"layout": 0.1, "cache": 0.02}, "architecture", 1.0),
        ({"layout": 0.1, "ops": 0.3}, "both", 0.25),
        ({"cache": -0.1, "ops": 0.3}, "operations", -0.5),
        ({"layout:mask": 0.2, "cache:ops": -0.1}, "neither", None),
        ({"layout:mask:ops": 0.1}, "architecture", 1.0),
        ({"ops": -0.3}, "neither", None),
        ({}, "neither", None),
        ({"layout": math.log(1.01), "ops": 0.3}, "inconclusive", 0.032),
    ],
)
def test_the_speed_up_goes_to_the_side_that_brings_it(
    gains: dict[str, float], answer: str, share: float | None
) -> None:
    found = attributed(gains)
    assert found.answer == answer
    assert math.log(found.effects["architecture"].ratio) + math.log(found.effects["operations"].ratio) == pytest.approx(
        math.log(found.effects["total"].ratio), abs=2e-3
    )
    if share is None:
        assert found.share is None or found.share[2] - found.share[1] > 1
    else:
        assert found.share is not None
        value, low, high = found.share
        assert low <= share <= high and low <= value <= high and high - low < 0.4
        assert "share of the total" in found.reason
    assert found.effects["dummy"].verdict == "passed"
    words = {name: found.effects[name].verdict for name in GRID.terms()}
    for name, gain in gains.items():
        if answer != "inconclusive" or name == "ops":
            assert words[name] == ("faster" if gain > 0 else "slower")
    assert {words[name] for name in words if name not in gains} == {"same"}
    assert ("do not just add up" in found.reason) == any(":" in name for name in gains)


def test_verdicts_on_what_was_said() -> None:
    found = attributed({"ops": 0.3})
    assert verdict_on(found, "operations") == "supported" and verdict_on(found, "architecture") == "refuted"
    assert verdict_on(replace(found, answer="inconclusive"), "architecture") == "inconclusive"
    assert verdict_on(replace(found, answer="not evidence"), "both") == "not evidence"


@settings(deadline=None)
@given(
    st.floats(-0.2, 0.4), st.floats(0, 0.05), st.floats(-0.2, 0.4), st.floats(0, 0.05), st.floats(0, 1), st.floats(0, 1)
)
def test_the_share_holds_for_every_truth_that_the_intervals_allow(
    a: float, a_wide: float, o: float, o_wide: float, at: float, there: float
) -> None:
    ours, theirs = (
        SimpleNamespace(ratio=math.exp(gain), low=math.exp(gain - wide), high=math.exp(gain + wide))
        for gain, wide in ((a, a_wide), (o, o_wide))
    )
    found = _share(ours, theirs, 0.0)  # type: ignore[arg-type]
    if a - a_wide + o - o_wide < -1e-9:
        assert found is None
    elif found is not None:
        true_a, true_o = a + (2 * at - 1) * a_wide, o + (2 * there - 1) * o_wide
        value, low, high = found
        slack = 1e-6 * max(abs(low), abs(high), 1)
        assert low - slack <= true_a / (true_a + true_o) <= high + slack and low - slack <= value <= high + slack


def test_every_factor_and_interaction_has_its_effect() -> None:
    effects = attributed({"layout": 0.03}).effects
    layout = effects["layout"]
    assert layout.verdict == "faster" and layout.low < math.exp(0.03) < layout.high
    assert (layout.variant, layout.baseline, layout.metric) == ("layout new", "layout old", "cpu time")
    assert layout.rounds == 60 and effects["layout:cache"].verdict == "same"


def test_page_faults_on_one_side_confound() -> None:
    samples = frame(log_times({"mask": 0.012}, sd=0.001))
    samples.loc[samples["variant"].str.contains("fresh"), "faults"] = 4 * 50  # 50 a call: 2 % of 10 ms
    found = attribute(evidence(samples), "w", alpha=ALPHA)
    words = found.effects
    assert words["mask"].verdict == "inconclusive" and "page faults" in words["mask"].said[0]
    assert words["layout"].verdict == "same"


def test_a_control_that_fired_widens_effects_and_share() -> None:
    samples = frame(log_times({"layout": 0.03, "ops": 0.3}))
    quiet = attribute(evidence(samples), "w", alpha=ALPHA)
    control = Control("w", "aa", f"{CELLS[0]}@aa", 0.01, 0.005, 0.015, 50, True)
    fired = attribute(evidence(samples, noise=Noise((control,), "")), "w", alpha=ALPHA)
    assert quiet.answer == "both" and fired.answer == "inconclusive" and "A/A checks differ" in fired.reason
    assert quiet.share and fired.share and fired.share[1] < quiet.share[1] < quiet.share[2] < fired.share[2]


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_what_is_not_evidence_says_why() -> None:
    samples = frame(log_times({"ops": 0.3}))
    good = evidence(samples)
    assert refusal(good, "w") is None

    fallen = replace(good, unusable={("w", CELLS[3]): "gates failed: NaN", ("w", CELLS[9]): "hangs"})
    assert "was excluded (and 1 more): gates failed: NaN" in str(refusal(fallen, "w"))
    fewer = replace(good, measured={"w": CELLS[:-2]})
    assert "14 of the grid's 16 cells" in str(refusal(fewer, "w")) and CELLS[-1] in str(refusal(fewer, "w"))
    assert "0 of the grid's 16 cells" in str(refusal(good, "other"))

    pair = frozenset((CELLS[0], CELLS[4]))  # modular, split and unified: cache ownership alone
    differ = replace(good, trace_difference={**good.trace_difference, ("w", pair): "12 ops against 10"})
    assert "op traces differ: 12 ops against 10" in str(refusal(differ, "w"))
    uncompared = replace(good, trace_difference={})
    assert "op traces were not compared" in str(refusal(uncompared, "w"))
    operations = frozenset((CELLS[0], CELLS[1]))  # composite and fused: of course these differ
    assert good.trace_difference["w", operations] != ""

    for refused in (fallen, fewer, differ, uncompared):
        found = attribute(refused, "w", alpha=ALPHA)
        assert found.answer == "not evidence" and found.reason == refusal(refused, "w")
        assert {found.effects[name].verdict for name in GRID.terms()} == {"not evidence"} and found.share is None


def test_too_many_invalid_rounds_or_none_decide_nothing_and_incomplete_ones_are_told() -> None:
    samples = frame(log_times({"ops": 0.3}))
    samples.loc[(samples["round"] % 10 == 0) & (samples["variant"] == CELLS[0]), "cpu_ns"] = 0
    found = attribute(evidence(samples), "w", alpha=ALPHA)
    assert found.answer == "inconclusive" and "without a valid time" in found.reason and found.share is None
    few = attributed({"ops": 0.3}, rounds=5)
    assert few.answer == "inconclusive" and "too few rounds" in few.reason and few.share is None
    none = attribute(evidence(samples.iloc[:0]), "w", alpha=ALPHA)
    assert none.answer == "inconclusive" and "no rounds were measured" in none.reason
    assert none.share is None and math.isinf(none.effects["total"].high)
    samples = frame(log_times({"ops": 0.3}))
    samples = samples[~((samples["round"] < 3) & (samples["variant"] == CELLS[7]))]
    lacking = attribute(evidence(samples), "w", alpha=ALPHA)
    assert lacking.answer == "operations" and lacking.effects["total"].rounds == 57
    assert "3 of 60 processes lack a cell" in lacking.effects["total"].said


# -- stopping ----------------------------------------------------------------------------------------------------------


def test_the_loop_stops_by_the_intervals_that_judge() -> None:
    """Fed round by round, an effect is open exactly as long as judging the same rounds says inconclusive."""
    logs = log_times({"ops": 0.3, "layout": 0.02}, rounds=50, sub_rounds=1, sd=0.006)
    samples = frame(logs)
    same = Region.same_within_percent(1)
    every = [Contrast(name, CELLS, tuple(weights), same) for name, weights in contrasts().items()]
    for rounds in (0, 1, 8, 16, 24, 32, 50):
        times = grid_times(samples[samples["round"] < rounds], workload="w", clock="cpu")
        open_ = {contrast.name for contrast, _ in open_contrasts(every, times.logs, alpha=ALPHA)}
        here = samples[samples["round"] < rounds]
        found = attribute(evidence(here), "w", alpha=ALPHA)
        assert open_ == {name for name, effect in found.effects.items() if effect.verdict == "inconclusive"}
    assert open_ == set()
    asked = METRIC.hypothesis(metric="attribution", workloads=("w",), quantity="operations").contrasts()
    assert [contrast.name for contrast, _ in open_contrasts(asked, [], alpha=ALPHA)] == ["architecture", "operations"]
    assert {contrast.region for contrast in (*asked, *every)} == {Region.same_within_percent(1)}


def test_a_claim_may_bring_a_grid_of_its_own() -> None:
    """It is stored with the claim, decides which cells are measured, and is what the verdict is about."""
    assert SMALL.cells() == ("small_a0_o0", "small_a0_o1", "small_a1_o0", "small_a1_o1")
    assert contrasts(SMALL)["architecture"] == pytest.approx(contrasts(SMALL)["a"])
    factors = [dataclasses.asdict(factor) for factor in SMALL.factors]
    part = {"metric": "attribution", "workloads": ["w"], "quantity": "operations"}
    own = METRIC.hypothesis.model_validate(part | {"grid": {"name": "small", "factors": factors}})
    assert METRIC.hypothesis.model_validate(own.model_dump(mode="json")) == own and own.grid == SMALL
    assert {contrast.cells for contrast in own.contrasts()} == {SMALL.cells()}
    assert METRIC.hypothesis.model_validate(part).grid == GRID
    assert "0 of the grid's 4 cells" in METRIC.judge(own, evidence(frame(log_times({}))), alpha=ALPHA).reason
    with pytest.raises(ValueError, match="side"):
        METRIC.hypothesis.model_validate(part | {"grid": {"name": "small", "factors": [factors[0] | {"side": "b"}]}})
