"""Rounds of lives that are not over yet: what they give counts only then, or looks would see half a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..spec.sample import Round


@dataclass
class OpenLives:
    """By workload, the rounds of the life that measures it now."""

    rounds: dict[str, list[Round]] = field(default_factory=dict)

    def add(self, finished: Round) -> Iterator[list[Round]]:
        """Take a round in; gives the rounds of the life before, where this round is of the next one."""
        open_ = self.rounds.get(finished.workload, [])
        if open_ and open_[0].process != finished.process:
            yield self.rounds.pop(finished.workload)
        self.rounds.setdefault(finished.workload, []).append(finished)

    def had(self, workload: str, variant: str) -> bool:
        """Whether a variant was timed in the life that measures the workload now."""
        return any(sample.variant == variant for each in self.rounds.get(workload, ()) for sample in each.samples)

    def end(self, process: int | None = None) -> Iterator[list[Round]]:
        """The rounds of the life of this process, by workload; without a number those of every life."""
        over = [workload for workload, rounds in self.rounds.items() if process in (None, rounds[0].process)]
        for workload in over:
            yield self.rounds.pop(workload)
