"""From effects to a verdict on a part of a claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..store.schema import Effect
from .numbers import listing


def combine(effects: Sequence[Effect]) -> tuple[str, str]:
    """Verdict and reason for a part from its effects (at least one).

    All supported or all refuted: that. Some supported and some refuted: depends, with both lists. None of them
    evidence: not evidence. Otherwise inconclusive, with what is open; one open comparison is enough.
    """
    named = _grouped(effects)
    supported, refuted, excluded = (named.get(word, []) for word in ("supported", "refuted", "not evidence"))
    open_ = named.get("inconclusive", []) + excluded
    if supported and refuted:
        reason = f"supported on {listing(supported)}; refuted on {listing(refuted)}"
        return "depends", reason + (f"; open: {listing(open_)}" if open_ else "")
    if supported and not open_:
        return "supported", f"inside the claimed range on {listing(supported)}"
    if refuted and not open_:
        return "refuted", f"outside the claimed range on {listing(refuted)}"
    if len(excluded) == len(effects):
        return "not evidence", reasons(effects)
    return "inconclusive", _open_reason(effects, {"supported": supported, "refuted": refuted})


def combine_ad_hoc(effects: Sequence[Effect]) -> tuple[str, str]:
    """The same for a comparison without a claim, whose effects are faster, slower or same."""
    named = _grouped(effects)
    settled: dict[str, list[str]] = {word: named[word] for word in ("faster", "slower", "same") if word in named}
    excluded = named.get("not evidence", [])
    open_ = named.get("inconclusive", []) + excluded
    if len(settled) > 1:
        reason = "; ".join(f"{word} on {listing(where)}" for word, where in settled.items())
        return "depends", reason + (f"; open: {listing(open_)}" if open_ else "")
    if len(excluded) == len(effects):
        return "not evidence", reasons(effects)
    if open_:
        return "inconclusive", _open_reason(effects, settled)
    [(word, where)] = settled.items()
    return word, f"{word} on {listing(where)}"


def _grouped(effects: Sequence[Effect]) -> dict[str, list[str]]:
    """Labels of the effects by verdict. A label is the workload, with the baseline where there are several."""
    if not effects:
        raise ValueError("a verdict needs at least one effect")
    several = len({effect.baseline for effect in effects}) > 1
    named: dict[str, list[str]] = {}
    for effect in effects:
        where = effect.workload or effect.metric  # a reading may be of no workload
        label = f"{where} against {effect.baseline}" if several else where
        named.setdefault(effect.verdict, []).append(label)
    return named


def _open_reason(effects: Sequence[Effect], settled: Mapping[str, Sequence[str]]) -> str:
    still_open = [effect for effect in effects if effect.verdict in ("inconclusive", "not evidence")]
    known = "; ".join(f"{word} on {listing(where)}" for word, where in settled.items() if where)
    return f"open: {reasons(still_open)}" + (f"; {known}" if known else "")


def reasons(effects: Sequence[Effect]) -> str:
    """Each effect's own reason, those with the same reason together."""
    by_reason: dict[str, list[Effect]] = {}
    for effect in effects:
        by_reason.setdefault(effect.warnings[0] if effect.warnings else effect.verdict, []).append(effect)
    return "; ".join(
        f"{listing(list(dict.fromkeys(effect.workload or effect.metric for effect in group)))} ({reason})"
        for reason, group in by_reason.items()
    )
