"""A run's claims in the words of today: what a claim says of itself may be mended after it was measured, what it asks
may not, or its limits could be moved to where the measurement lies."""

from __future__ import annotations

from collections.abc import Iterable

from ..spec.hypotheses import Hypothesis
from .model import Claim

WORDS = frozenset({"part", "who", "reason", "quick", "left_out"})
"""Of a hypothesis: what it is called, who says it, why nobody can measure it, and when it is measured. All else is
what is asked."""


def in_words_of(stored: Iterable[Claim], today: Iterable[Claim]) -> list[Claim]:
    """The stored claims, each with what the claim of the same name says of itself today: title, source, statement,
    what it assumes, and of its parts the labels and who says them. Where a part asks something else today, or is not
    there any more, all of the claim stays as it was stored: the words of today would be about another question."""
    by_name = {claim.id: claim for claim in today}
    return [_reworded(claim, by_name[claim.id]) if claim.id in by_name else claim for claim in stored]


def _reworded(stored: Claim, today: Claim) -> Claim:
    left, parts = list(today.hypothesis), list[Hypothesis]()
    for part in stored.hypothesis:
        alike = [other for other in left if _asks_the_same(part, other)]
        if not alike:
            return stored
        alike.sort(key=lambda other: other.part != part.part)  # of several that ask the same, the one of this label
        left.remove(alike[0])
        parts.append(_renamed(part, alike[0]))
    asked = {"hypothesis": tuple(parts), "function": stored.function, "call": stored.call}
    return today.model_copy(update=asked)


def _renamed(part: Hypothesis, today: Hypothesis) -> Hypothesis:
    names: dict[str, object] = {
        name: getattr(today, name) for name in ("part", "who", "reason") if name in type(today).model_fields
    }
    return part.model_copy(update=names)


def _asks_the_same(stored: Hypothesis, today: Hypothesis) -> bool:
    """Whether the stored one is the other, of all its workloads or of some (a run may have left some out)."""
    before, after = (part.model_dump(exclude={*WORDS, "workloads"}) for part in (stored, today))
    return before == after and set(stored.workload_names()) <= set(today.workload_names())
