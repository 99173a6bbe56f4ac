"""What is measured: a workload, its variants, and the effects that must be settled on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from llama_workbench.datasets.workloads import Workload

from .comparison import Comparison, EnteredName
from .regions import Region

PRECISION = 0.03
"""A settled effect goes on until its interval is at most this far (log units) to either side: a verdict alone, "not
2-3x", would otherwise come with an interval too wide to be worth reading."""

QUESTION_PRECISION, DECODE_PRECISION = 0.01, 0.02
"""The same of what the first screen asks for: of most workloads, and of a decode, whose calls are short and differ."""


@dataclass(frozen=True)
class Target:
    """One effect that somebody waits for. regions: where it may lie; it is settled once one of them holds it or leaves
    it out. evidence: of what kind it is. part: of which part of which claim; its effects are judged together. headline:
    whether it is measured before others. precision: half width (log units) of the interval that is wanted of it.
    question: whether the first screen asks for it; then it is measured to that precision before all that is no
    question. at_once: how many effects one answer needs; they share alpha."""

    comparison: Comparison
    regions: tuple[Region, ...]
    evidence: str
    part: str = ""
    headline: bool = False
    precision: float = PRECISION
    question: bool = False
    at_once: int = 1


@dataclass(frozen=True)
class Contrast:
    """An effect that many variants have a part in, and where it must lie: `weights` of the log speed-ups of `cells`,
    which are all timed in the same rounds."""

    name: str
    cells: tuple[str, ...]
    weights: tuple[float, ...]
    region: Region


@dataclass(frozen=True)
class Experiment:
    """One workload, its variants (controls and reference benchmark not among them), and the effects it must settle."""

    workload: Workload
    variants: tuple[str, ...]
    baseline: str
    controls: tuple[str, ...]
    targets: tuple[Target, ...]
    contrasts: tuple[Contrast, ...] = ()  # all over the same cells
    grid_is_asked: bool = False  # whether a question of the first screen waits for them

    @property
    def grid(self) -> tuple[str, ...]:
        """The variants that its contrasts compare, all in the same rounds."""
        return self.contrasts[0].cells if self.contrasts else ()

    def control_pair(self, name: str) -> Comparison:
        """What a control is measured against: `NAME@aa` with NAME, the reference benchmark with the baseline."""
        entered = EnteredName(name)
        return Comparison(self.workload.name, name, entered.original if entered.is_control else self.baseline)

    def entered(self) -> tuple[str, ...]:
        """Everything that is built and timed."""
        return (*self.variants, *self.controls)


def without(experiment: Experiment, gone: Iterable[str]) -> Experiment:
    """The experiment without the variants (and their controls) that were excluded."""
    lost = set(gone)
    lost |= {name for name in experiment.entered() if EnteredName(name).original in lost}
    return replace(
        experiment,
        variants=tuple(name for name in experiment.variants if name not in lost),
        controls=tuple(name for name in experiment.controls if name not in lost),
        targets=tuple(each for each in experiment.targets if not lost & each.comparison.sides),
        contrasts=() if lost & {*experiment.grid} else experiment.contrasts,  # these need all their cells
    )
