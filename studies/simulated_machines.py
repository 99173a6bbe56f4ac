"""Prints the table of verdicts over machines: `python -m studies.simulated_machines [FLEETS]`.

The judge is the real one. Only the rounds are drawn: on each machine around what is true there, with its own spread.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from llama_workbench.harness.evidence.effect import ALPHA
from llama_workbench.harness.evidence.evidence import Evidence
from llama_workbench.harness.judge.parts import Part
from llama_workbench.harness.metrics.base import Judged
from llama_workbench.harness.slices.fleet.verdicts import MachineEvidence, judge_machines
from llama_workbench.harness.spec.regions import Region
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.stats.confidence import looks_reached, running_interval
from llama_workbench.harness.store.verdict_schema import Effect, Pooled, Verdict

MACHINES = (2, 3, 5, 10)
BETWEEN = (0.0, 0.02, 0.05, 0.10)
"""Standard deviation between machines, log units."""

EDGE = math.log(1.01)
CLAIM = Region(EDGE, math.inf)
"""What is claimed: more than 1 % faster. On average over machines the truth lies on its limit."""

ROUND_SPREAD, LEAST_ROUNDS, MOST_ROUNDS = 0.02, 24, 75


@dataclass(frozen=True)
class Series:
    """What stands for the evidence of a machine: its rounds."""

    rounds: NDArray[np.float64]

    def bias(self, workload: str) -> float:
        """No control fired."""
        return 0.0


def judge(evidence: Evidence, alpha: float) -> Judged:
    """One effect, by its interval."""
    interval = running_interval(cast(Any, evidence).rounds, alpha)
    inside, outside = CLAIM.contains(interval.low, interval.high), CLAIM.excludes(interval.low, interval.high)
    word = Word.SUPPORTED if inside else Word.REFUTED if outside else Word.INCONCLUSIVE
    low, high = math.exp(interval.low), math.exp(interval.high)
    effect = Effect(
        workload="w", variant="new", baseline="old", metric="cpu time", ratio=math.exp(interval.centre),
        low=low, high=high, rounds=interval.n, seconds=1.0, verdict=word,
    )  # fmt: skip
    return Judged(word, "", (effect,))


def told(judged: Judged, alpha: float) -> Verdict:
    return Verdict(
        claim="c",
        who=(),
        verdict=judged.verdict,
        reason=judged.reason,
        cause=judged.cause,
        alpha=alpha,
        claimed="",
        effects=judged.effects,
    )


def measured(truth: float, rng: np.random.Generator) -> Series:
    """The rounds of a machine, which stops at the first look that settles the claim, once it has the least rounds."""
    spread = ROUND_SPREAD * math.exp(0.3 * rng.standard_normal())
    rounds = truth + spread * rng.standard_normal(MOST_ROUNDS)
    for look in looks_reached(MOST_ROUNDS, ALPHA):
        interval = running_interval(rounds[: look.rounds], ALPHA)
        if look.rounds >= LEAST_ROUNDS and (interval.low > EDGE or interval.high < EDGE):
            return Series(rounds[: look.rounds])
    return Series(rounds)


@dataclass
class Rates:
    """How often what is said was false, of so many fleets, and half widths."""

    fleets: int = 0
    wrong: int = 0
    depends: int = 0
    misses: int = 0
    widths: list[float] = field(default_factory=list)

    def add(self, low: float, high: float, truth: float) -> None:
        """The interval of a mean over machines, and the log ratio that it should hold."""
        self.misses += not low <= math.exp(truth) <= high
        self.widths.append((math.log(high) - math.log(low)) / 2 if low > 0 else math.inf)


def is_wrong(verdict: Verdict, truths: Sequence[float], between: float) -> bool:
    """Whether a verdict over machines says what is not so."""
    inside = [truth > EDGE for truth in truths]
    if verdict.verdict == "depends":
        sides = {"supported": False, "refuted": True}
        misplaced = any(sides.get(effect.verdict) is here for effect, here in zip(verdict.effects, inside, strict=True))
        return misplaced or not between
    return (verdict.verdict == "supported" and not all(inside)) or (verdict.verdict == "refuted" and any(inside))


def simulate(machines: int, between: float, fleets: int, rng: np.random.Generator) -> Rates:
    """So many fleets of machines, each of another kind. Without a spread the truth lies just outside the claim."""
    rates, part = Rates(), Part(judge, told)
    for _ in range(fleets):
        truths = EDGE - 1e-9 + between * rng.standard_normal(machines)
        series = [measured(truth, rng) for truth in truths]
        found = [MachineEvidence(f"m{k}", f"k{k}", cast(Evidence, each)) for k, each in enumerate(series)]
        [verdict], [over] = judge_machines([part], found, ALPHA)
        rates.fleets += 1
        rates.wrong += is_wrong(verdict, list(truths), between)
        rates.depends += verdict.verdict == "depends"
        mean = cast(Pooled, over.mean)
        rates.add(mean.low, mean.high, float(truths.mean()))
    return rates


def row(machines: int, between: float, rates: Rates) -> str:
    """One line of the table."""
    cells = [
        f"{machines}",
        f"{between:.0%}",
        f"{rates.wrong / rates.fleets:.1%}",
        f"{rates.depends / rates.fleets:.1%}",
        f"{rates.misses / rates.fleets:.1%} (±{np.median(rates.widths):.1%})",
    ]
    return f"| {' | '.join(cells)} |".replace("%", " %")


def main(fleets: int) -> None:
    columns = ["machines", "SD between them", "wrong verdict", '"depends on the machine"', "mean of these misses"]
    print(f"| {' | '.join(columns)} |")
    print("|---|---|---|---|---|", flush=True)
    for machines in MACHINES:
        for between in BETWEEN:
            rates = simulate(machines, between, fleets, np.random.default_rng([machines, round(between * 100)]))
            print(row(machines, between, rates), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
