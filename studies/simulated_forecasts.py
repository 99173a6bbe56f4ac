"""Prints the table of forecasts that come true: `python -m studies.simulated_forecasts [PAIRS]`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llama_workbench.harness.evidence.effect import ALPHA, decided, values_more
from llama_workbench.harness.spec.regions import ANSWERS, Region
from llama_workbench.harness.stats.confidence import MOST_TIMES, LookPlan, looks_reached, running_interval
from studies.simulated_rates import SYMMETRIC, Noise

NOISE: Mapping[str, Noise] = {
    name: SYMMETRIC[name] for name in ("normal", "heavy tails (Student t, 3 degrees of freedom)")
} | {"busy machine (one process in ten off by 5 to 10 spreads)": lambda rng, shape: np.where(
    rng.random(shape) < 0.1, rng.choice([-1.0, 1.0], shape) * rng.uniform(5, 10, shape), rng.standard_normal(shape)
)}  # fmt: skip

QUESTIONS: Mapping[str, Sequence[Region]] = {
    "faster, slower or the same within 1 %": ANSWERS,
    "more than 5 % faster": (Region.faster_than_percent(5),),
}

SPREAD = 0.01
BUDGETS = (12, 24, 40)


class Forecasts(NamedTuple):
    """Of so many open pairs, how many were told a number, and of how many that came true; the median number, over the
    values that there were."""

    open: int
    told: int
    true: int
    times: float

    @property
    def share(self) -> float:
        return self.true / self.told if self.told else 1.0


def is_decided(values: NDArray[np.float64], regions: Sequence[Region], horizon: int) -> bool:
    """Whether the interval after all of these values answers one of the questions."""
    plans = {region: LookPlan(ALPHA, horizon, region.one_sided) for region in regions}
    for region, plan in plans.items():
        interval = running_interval(values, plan)
        inside = region.contains(interval.low, interval.high)
        if decided(interval, region) and (inside or not region.only_inside):
            return True
    return False


def forecast(noise: Noise, regions: Sequence[Region], budget: int, pairs: int, rng: np.random.Generator) -> Forecasts:
    """Pairs whose true effect is any within 3 spreads of a limit, measured until the budget is over: what is said of
    those that are open then, and what became of it."""
    open_, told, true, times = 0, 0, 0, list[float]()
    limits = [boundary for region in regions for boundary in region.boundaries]
    for _ in range(pairs):
        truth = rng.choice(limits) + SPREAD * rng.uniform(-3, 3)
        values = truth + SPREAD * noise(rng, (1, budget * (MOST_TIMES + 1)))[0]
        seen = values[:budget]
        if is_decided(seen, regions, budget):
            continue
        open_ += 1
        more = values_more(seen, [(region, LookPlan(ALPHA, budget, region.one_sided)) for region in regions])
        if not np.isfinite(more):
            continue
        told += 1
        needed = budget + int(more)
        times.append(needed / budget)
        # It may be settled at any look before: whoever goes on stops there.
        ends = {look.rounds for look in looks_reached(needed, LookPlan(ALPHA, budget)) if look.rounds > budget}
        true += any(is_decided(values[:end], regions, budget) for end in sorted(ends | {needed}, reverse=True))
    return Forecasts(open_, told, true, float(np.median(times)) if times else float("nan"))


def main(pairs: int) -> None:
    rng = np.random.default_rng(1)
    for question, regions in QUESTIONS.items():
        print(f"{question}: of the pairs that are open after so many processes, how many forecasts come true")
        for name, noise in NOISE.items():
            found = {budget: forecast(noise, regions, budget, pairs, rng) for budget in BUDGETS}
            said = ", ".join(
                f"{budget}: {each.share:.0%} of {each.told} (open {each.open}, median {each.times:.1f} times)"
                for budget, each in found.items()
            )
            print(f"  {name}: {said}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
