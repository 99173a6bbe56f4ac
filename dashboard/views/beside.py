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
    said: str


def parts(claims: Sequence[data.Claim], claim: data.Claim) -> list[Part]:
    """The timed and the counted parts of the claim that `claim` is a part of, timed ones first; empty unless it has
    both and is one of them."""
    same = [each for each in claims if each.id == claim.id and each.effects and _kind(each)]
    of_both = [Part(each, _kind(each), _said(each)) for each in same]
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
    word = words.look(claim.verdict).word.lower()
    known = [effect for effect in claim.effects if effect.low is not None and effect.high is not None]
    if not known:
        return f"{word}, nothing was measured"
    lows, highs = [effect.low or 0.0 for effect in known], [effect.high or 0.0 for effect in known]
    if not claim.unit:
        widest = max(50 * (high / low - 1) for low, high in zip(lows, highs, strict=True) if low > 0)
        range_ = f"{min(lows):.3f}× to {max(highs):.3f}×"
        return f"open at ±{widest:.2g} % ({range_})" if claim.verdict == "inconclusive" else f"{word}, {range_}"
    if all(low <= 0 <= high for low, high in zip(lows, highs, strict=True)):
        return f"{word}, equal within {max(*(-low for low in lows), *highs):.2g} {claim.unit}"
    return f"{word}, {min(lows):+.2g} to {max(highs):+.2g} {claim.unit} more in the baseline"
