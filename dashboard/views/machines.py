"""What several machines measured, by kind of machine and over them, as pages show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llama_workbench.harness.report.machines import general_text, machine_count, spread_text
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.store.files import MACHINES
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.verdict_schema import Effect, OverMachines, Pooled

from .data import Claim, Run


@dataclass(frozen=True)
class ByMachine:
    """A claim whose rows are kinds of machines and their mean, under a heading for each effect.

    lines: for each effect, how much the machines differ, and what to expect of others.
    """

    claim: Claim
    lines: tuple[str, ...]


def read_over(run: Run) -> list[OverMachines]:
    """machines.json; nothing where the run is of one machine. Raises RunError."""
    folder = RunFolder(run.path)
    if not run.manifest.machines or not folder.has(MACHINES):
        return []
    over: list[OverMachines] = folder.read(MACHINES)
    return over


def by_machine(claim: Claim, over: Sequence[OverMachines]) -> ByMachine | None:
    """The claim by machine kind; None where no two machines measured any of it."""
    name = claim.claim, claim.part or claim.title * claim.is_comparison
    rows = [row for row in over if (row.claim, row.part) == name and row.mean is not None]
    if not rows:
        return None
    several = len({row.baseline for row in rows}) > 1
    effects, lines = [], []
    for row in rows:
        place = row.workload or row.metric
        heading = f"{place} against {row.baseline}" if several else place
        effects += [_effect(row, heading, kind.kind, kind, kind.rounds, kind.verdict) for kind in row.kinds]
        if row.mean is not None:
            mean = f"mean of these {machine_count(row)} machines"
            effects.append(_effect(row, heading, mean, row.mean, sum(kind.rounds for kind in row.kinds), Word.MEAN))
        lines.append("; ".join(filter(None, (f"{heading}: {spread_text(row)}", general_text(row)))))
    return ByMachine(replace(claim, effects=tuple(effects), alpha=rows[0].alpha), tuple(lines))


def _effect(row: OverMachines, heading: str, name: str, pooled: Pooled, rounds: int, verdict: Word) -> Effect:
    """A row of the forest: the machine stands where workloads do, and the workload in the heading."""
    return Effect(
        workload=name,
        variant=row.variant,
        baseline=heading,
        metric=row.metric,
        unit=row.unit,
        ratio=pooled.ratio,
        low=pooled.low,
        high=pooled.high,
        rounds=rounds,
        seconds=0.0,
        verdict=verdict,
    )
