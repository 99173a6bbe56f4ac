"""The three cards of a run's first screen: the answers to the two questions that its dispute puts there, and what to
change. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..spec.dispute import Dispute
from ..store.schema import Manifest
from ..store.verdict_schema import Verdict
from .answer import Line, answer
from .ladder import LadderAdvice, ladder_advice, ladder_of


@dataclass(frozen=True)
class Cards:
    """answers: of the questions that have a card, in their order; where none has one, of the first two. change: what to
    change, where the run has measured that; command: what measures it."""

    answers: tuple[Line, ...]
    change: LadderAdvice | None
    command: str

    @property
    def to_change(self) -> str:
        """What to change, in a sentence or two; empty where the dispute has no such steps."""
        if self.change is None:
            return f"This run has not measured what to change: {self.command}" if self.command else ""
        return " ".join(filter(None, (self.change.together, self.change.to_take, self.change.not_to_take)))


def cards_of(verdicts: Sequence[Verdict], dispute: Dispute, manifest: Manifest) -> Cards:
    """The cards of a run, of one session or over both."""
    asked = {question.claim for question in dispute.question}
    lines = tuple(line for line in answer(verdicts, dispute).lines if line.verdict.claim in asked)
    ladder = ladder_of(verdicts, dispute, manifest)
    command = f"pytest --benchmark --claims {dispute.ladder.claim}" if dispute.ladder else ""
    with_card = tuple(line for line in lines if line.card)
    return Cards(with_card or lines[:2], ladder_advice(ladder) if ladder else None, command)
