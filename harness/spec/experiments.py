"""What is measured: a workload, its variants, and the effects that must be settled on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from llama_workbench.datasets.workloads import Workload

from .comparison import Comparison
from .regions import Region


@dataclass(frozen=True)
class Target:
    """One effect that somebody waits for: where it must lie, and what kind of evidence it is."""

    comparison: Comparison
    region: Region
    evidence: str


@dataclass(frozen=True)
class Experiment:
    """One workload, its variants (controls and yardstick not among them), and the effects it must settle."""

    workload: Workload
    variants: tuple[str, ...]
    baseline: str
    controls: tuple[str, ...]
    targets: tuple[Target, ...]
    grid: tuple[str, ...] = ()  # cells that are all timed in the same rounds, for attribution

    def entered(self) -> tuple[str, ...]:
        """Everything that is built and timed."""
        return (*self.variants, *self.controls)


def without(experiment: Experiment, gone: Iterable[str]) -> Experiment:
    """The experiment without the variants (and their controls) that were excluded."""
    lost = set(gone)
    lost |= {name for name in experiment.entered() if name.partition("@")[0] in lost}
    return replace(
        experiment,
        variants=tuple(name for name in experiment.variants if name not in lost),
        controls=tuple(name for name in experiment.controls if name not in lost),
        targets=tuple(each for each in experiment.targets if not lost & each.comparison.sides),
        grid=() if lost & {*experiment.grid} else experiment.grid,  # a grid is worth nothing without all its cells
    )
