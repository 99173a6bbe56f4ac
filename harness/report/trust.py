"""How far a run can be trusted: one answer from its A/A checks, the same on every page and in every export."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..evidence.controls import checks_text, noise_line
from ..evidence.numbers import percent
from ..store.schema import Noise


@dataclass(frozen=True)
class Trust:
    """`finding`: what the checks found, in the words of the terminal. `means`: what follows for the verdicts. `short`:
    why, in a few words."""

    word: str
    finding: str
    means: str = ""
    short: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether nothing speaks against its numbers."""
        return self.word == TRUSTED

    @property
    def sentence(self) -> str:
        """All of it."""
        return " ".join(filter(None, (f"{self.word}.", f"{self.finding}." if self.finding else "", self.means)))


TRUSTED, IN_PART, NOT_KNOWN, NOT_CHECKED = "Trusted", "Trusted in part", "Trust not known", "Not checked"


def trust_of(noise: Noise) -> Trust:
    """By the checks that timed the same code as two sides."""
    controls = noise.controls
    if not controls:
        return Trust(NOT_CHECKED, "", "No code was timed against itself.")
    line = (noise.line or noise_line(controls, noise.typical)).removesuffix(".")
    fired = [control for control in controls if control.fired]
    if fired:
        places = len({control.workload for control in fired})
        where = f"{places} workload{'s' * (places != 1)}"
        means = f"On {where} a verdict counts only if it survives twice that difference."
        return Trust(IN_PART, line, means, f"identical code differed on {where}")
    if noise.typical:
        size = percent(math.expm1(noise.typical))
        means = (
            f"A verdict counts only if it survives twice that difference ({percent(math.expm1(2 * noise.typical))})."
        )
        return Trust(IN_PART, line, means, f"identical code differed by {size}")
    able = sum(math.isfinite(control.shift) for control in controls)
    if not able:
        return Trust(NOT_KNOWN, line, f"{checks_text(len(controls)).capitalize()} had too few rounds.")
    return Trust(TRUSTED, line)
