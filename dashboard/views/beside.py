"""A claim's time beside its work: the time is what was claimed, the work is what no other program can change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .. import words
from . import data

TIME = "time"


@dataclass(frozen=True)
class Part:
    """One part of a claim on a line. kind: "time", or what its metric calls its values beside times ("work")."""

    claim: data.Claim
    kind: str
    found: str


def parts(claims: Sequence[data.Claim], claim: data.Claim) -> list[Part]:
    """The timed and the counted parts of the claim that `claim` is a part of, timed ones first; empty unless it has
    both and is one of them."""
    same = [each for each in claims if each.claim == claim.claim and each.effects and _kind(each)]
    of_both = [Part(each, _kind(each), _found(each)) for each in same]
    if claim not in same or len({part.kind for part in of_both}) < 2:
        return []
    return sorted(of_both, key=lambda part: part.kind != TIME)


def sentence(of_both: Sequence[Part]) -> str:
    """All parts in one line: "Time: open at ±2 %; work: refuted, equal within 0.06 %"."""
    sentences = []
    for kind in dict.fromkeys(part.kind for part in of_both):
        alike = [part.claim for part in of_both if part.kind == kind]
        if len(alike) > 1 and len({(each.verdict, each.unit) for each in alike}) == 1:
            effects = tuple(effect for each in alike for effect in each.effects)
            sentences.append(f"{kind} ({len(alike)} parts): {_said(replace(alike[0], effects=effects))}")
        else:
            sentences += [f"{kind}{f' ({each.part})' if len(alike) > 1 else ''}: {_said(each)}" for each in alike]
    return words.capital("; ".join(sentences))


def _kind(claim: data.Claim) -> str:
    if claim.metric is None:
        return "" if claim.unit else TIME
    return claim.metric.beside_times


def _said(claim: data.Claim) -> str:
    """The word and what was found."""
    if claim.verdict == "inconclusive" and not claim.unit and (known := _known(claim)):
        widest = max(50 * (high / low - 1) for low, high in known if low > 0)
        return f"inconclusive at ±{widest:.2g} % ({_found(claim)})"
    return f"{claim.verdict.look.word.lower()}, {_found(claim)}"


def _known(claim: data.Claim) -> list[tuple[float, float]]:
    """The intervals that have both ends."""
    return [(each.low, each.high) for each in claim.effects if each.lower is not None and each.upper is not None]


def _found(claim: data.Claim) -> str:
    if not (known := _known(claim)):
        return "nothing was measured"
    least, most = min(low for low, _ in known), max(high for _, high in known)
    if not claim.unit:
        return f"{least:.3f}× to {most:.3f}×"
    if all(low <= 0 <= high for low, high in known):
        return f"equal within {max(-least, most):.2g} {claim.unit}"
    return f"{least:+.2g} to {most:+.2g} {claim.unit} more in the baseline"
