"""Changes of a history: planted steps are found where they are, and histories without any get none."""

from __future__ import annotations

import numpy as np
import pytest

from llama_workbench.harness.stats.change_points import LEAST_PART, change_points


def energy(first: np.ndarray, second: np.ndarray) -> float:
    """By its definition."""

    def inside(part: np.ndarray) -> float:
        return float(np.mean([abs(x - y) for i, x in enumerate(part) for y in part[:i]]))

    between = float(np.mean([abs(x - y) for x in first for y in second]))
    return (2 * between - inside(first) - inside(second)) * first.size * second.size / (first.size + second.size)


def test_the_energy_of_every_cut_is_that_of_the_definition() -> None:
    from llama_workbench.harness.stats.change_points import _energies

    values = np.random.default_rng(0).standard_normal(11)
    found = _energies(values)
    for cut in range(values.size):
        if LEAST_PART <= cut <= values.size - LEAST_PART:
            ends = range(cut + LEAST_PART, values.size + 1)
            assert found[cut] == pytest.approx(max(energy(values[:cut], values[cut:end]) for end in ends))
        else:
            assert found[cut] == -np.inf


@pytest.mark.covers("harness/stats")
@pytest.mark.long
@pytest.mark.parametrize("noise", ["normal", "heavy", "skewed"])
def test_histories_without_a_change_get_one_as_rarely_as_promised(noise: str) -> None:
    rng = np.random.default_rng(7)
    histories = {
        "normal": rng.standard_normal((300, 24)),
        "heavy": rng.standard_t(2, (300, 24)),
        "skewed": rng.exponential(1.0, (300, 24)),
    }[noise]
    alarms = sum(bool(change_points(values, alpha=0.05, seed=number)) for number, values in enumerate(histories))
    assert alarms / 300 < 0.08  # 0.05, and two standard errors


@pytest.mark.covers("harness/stats")
@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [(12, 4), (15, 15), (30, 3)])
def test_a_planted_step_is_found_where_it_is(before: int, after: int) -> None:
    rng = np.random.default_rng(before)
    hits = 0
    for number in range(20):
        values = 0.01 * rng.standard_normal(before + after)
        values[before:] += 0.05
        cuts = change_points(values, seed=number)
        hits += cuts[:1] == [before]
    assert hits >= 18


def test_several_steps_are_told_apart() -> None:
    rng = np.random.default_rng(3)
    levels = np.repeat([0.0, 0.05, -0.02, -0.02], 10)
    assert change_points(levels + 0.005 * rng.standard_normal(40)) == [10, 20]


def test_a_value_far_out_is_no_change_and_a_drift_back_is_two() -> None:
    values = 0.01 * np.random.default_rng(4).standard_normal(30)
    assert change_points(np.where(np.arange(30) == 12, 1.0, values)) == []
    assert change_points(np.where((np.arange(30) >= 12) & (np.arange(30) < 18), values + 0.08, values)) == [12, 18]


def test_it_changes_only_where_it_can() -> None:
    values = np.repeat([0.0, 1.0], [10, 10]) + 0.01 * np.random.default_rng(5).standard_normal(20)
    assert change_points(values, at=[4, 11, 16]) == [11]
    assert change_points(values, at=[]) == []


def test_few_values_equal_values_and_bad_ones() -> None:
    assert change_points([]) == change_points([1.0]) == change_points([0.0, 0.0, 1.0, 1.0]) == []
    assert change_points(np.zeros(50)) == []
    assert change_points(np.repeat([0.0, 1.0], 8)) == [8]
    with pytest.raises(ValueError, match="finite"):
        change_points([0.0, np.nan])
