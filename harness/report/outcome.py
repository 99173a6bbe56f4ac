"""How a verdict stands: supported, refuted and inconclusive by row, and what deciding it would cost.

The stored word is "inconclusive" as soon as one row is. That hides the most: a claim that is wrong on six of nine rows
can never be supported any more, and one whose every interval ends at +1 % is nearly answered. So no reader is shown
that word alone: `outcome` says which kind it is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..evidence.verdict import ON_THE_MACHINE, ToSettle, about, clock_seconds, machine_of
from ..spec.sides import ARCHITECTURE, OPERATIONS, due_to
from ..spec.words import GIVEN, SETTLED, UNDERSTATED, Cause, Word
from ..store.verdict_schema import Effect, Verdict
from .text import Bounds, hull, span_text

UNSETTLED = ("inconclusive", "no evidence", "not measurable")


def row_words(verdict: Verdict) -> list[str]:
    """What became of each row: of a workload, or of a value without one. A grid has one row a workload."""
    by_workload = grid_answers(verdict)
    words = by_workload.values() if by_workload else [effect.verdict for effect in verdict.effects]
    asked = {"supported": "yes", "refuted": "no"} if verdict.is_condition else {}
    rows = [word.look.row for word in words if word not in (Word.PASSED, Word.FIRED)]
    return [asked.get(word, word) for word in rows]


def tally(verdict: Verdict) -> dict[str, int]:
    """How many rows there are of each kind."""
    return counted(row_words(verdict))


def counted(rows: Iterable[str]) -> dict[str, int]:
    """The same from words for rows, in the order in which they are told."""
    counts = Counter(rows)
    order = ["yes", "no", *(word.look.row for word in Word)]
    return {word: counts[word] for word in dict.fromkeys([*order, *counts]) if counts[word]}


def tally_text(counts: Mapping[str, int]) -> str:
    """ "supported on 3, refuted on 6", "refuted on all 5"; nothing for a single row."""
    total = sum(counts.values())
    if total < 2:
        return ""
    if len(counts) == 1:
        [word] = counts
        return f"{word} on {'both' if total == 2 else f'all {total}'}"
    return ", ".join(f"{word} on {count}" for word, count in counts.items())


def unmet(*asked: Verdict) -> str:
    """What to say of a condition of --fail-if that is not met, by its verdicts on each two sides: it passes only where
    all are decided."""
    return "passes" if all(verdict.verdict in GIVEN for verdict in asked) else "inconclusive"


@dataclass(frozen=True)
class Standing:
    """How a verdict stands: in a word, or in a clause about its rows; and where no row is settled, how far the
    intervals of the open ones reach."""

    word: str
    bound: str = ""

    def __str__(self) -> str:
        """ "refuted on 6 of 9, rest inconclusive", "inconclusive: at most 14 % faster"."""
        return ": ".join(filter(None, (self.word, self.bound)))


def standing(verdict: Verdict) -> Standing:
    """The verdict's own word; where that is "inconclusive", which kind. Where two variants differ from place to place:
    how many places there are of each kind."""
    if text := over_machines(verdict):
        return Standing(text)
    counts = tally(verdict)
    if verdict.verdict == Word.DEPENDS and verdict.is_comparison:
        return Standing(tally_text(counts) if counts.keys().isdisjoint(UNSETTLED) else settled_text(counts))
    if not verdict.is_open:
        return Standing(verdict.word)
    if text := settled_text(counts):
        return Standing(text.replace(Word.REFUTED, UNDERSTATED) if verdict.is_understated else text)
    by_workload = grid_answers(verdict)  # of a grid both sides of an open workload, whichever of them is open
    open_ = [each for each in verdict.effects if by_workload.get(each.workload, each.verdict) == Word.INCONCLUSIVE]
    bound = bound_text(verdict, open_)
    return Standing("inconclusive", bound or "no interval yet")


def outcome(verdict: Verdict) -> str:
    """The same as text."""
    return str(standing(verdict))


def over_machines(verdict: Verdict) -> str:
    """Of several machines that measured the same: "supported on these 3 machines", "depends on the machine", "refuted
    on 2 of 3 machines, rest inconclusive". Empty where there are no two, or none of them settles anything."""
    machines: dict[str, set[Word]] = {}
    places: dict[tuple[str, ...], set[str]] = {}
    for effect in verdict.effects:
        if name := effect.machine:
            machines.setdefault(machine_of(name), set()).add(effect.verdict)
            key = effect.workload, effect.variant, effect.baseline, effect.metric
            places.setdefault(key, set()).add(machine_of(name))
    if not any(len(names) > 1 for names in places.values()):
        return ""
    if verdict.cause is Cause.MACHINES_DIFFER:
        return ON_THE_MACHINE
    if verdict.verdict in GIVEN:
        return f"{verdict.verdict} on these {len(machines)} machines"
    settled = Counter(next(iter(words)) for words in machines.values() if len(words) == 1 and words <= {*SETTLED})
    text = ", ".join(f"{each} on {count}" for each, count in settled.items())
    return text and f"{text} of {len(machines)} machines, rest inconclusive"


def settled_text(counts: Mapping[str, int]) -> str:
    """ "refuted on 6 of 9, rest inconclusive"; nothing where no row is settled."""
    settled = {word: count for word, count in counts.items() if word not in UNSETTLED}
    text = ", ".join(f"{word} on {count}" for word, count in settled.items())
    return text and f"{text} of {sum(counts.values())}, rest inconclusive"


def verdict_text(verdict: Verdict) -> str:
    """The same, with a * where it holds together with all that are marked so."""
    return f"{outcome(verdict)}{'*' * verdict.together}"


def leaning(counts: Mapping[str, int]) -> str:
    """Of an inconclusive verdict's rows: "supported" or "refuted" where all others are that, else that word."""
    settled = [word for word in counts if word not in UNSETTLED]
    return settled[0] if len(settled) == 1 and settled[0] in (Word.SUPPORTED, Word.REFUTED) else "inconclusive"


def bound_text(verdict: Verdict, effects: Sequence[Effect]) -> str:
    """What the intervals of these effects leave possible, seen from what is claimed: "at most 14 % faster". Empty where
    an effect has no interval."""
    if sides := sides_text(effects):
        return sides
    span, low, high = hull(effects), verdict.low, verdict.high
    if span is None:
        return ""
    way = "between"
    if not verdict.is_comparison and (low is None) != (high is None):
        # A claim of "more than" fails from above, one of "at most" holds or fails by the same end.
        way = "at least" if low is None and high is not None and not span.unit and high < 1 else "at most"
    return span_text(span, way, as_ratio=bool(low and low >= 1.5))


def found_text(verdict: Verdict) -> str:
    """What was measured, in the fewest words that carry the verdict: the end that lies nearest to what is claimed, or
    both. Empty where nothing has an interval."""
    if sides := sides_text(verdict.effects):
        return sides
    span, low, high = hull(verdict.effects), verdict.low, verdict.high
    if span and (text := _within_text(verdict, span)):
        return text
    is_around = span and low is not None and high is not None and span.low < low and span.high > high
    if verdict.verdict == Word.REFUTED and (span is None or is_around):
        return _outside_text(verdict.effects, low, high)
    if span is None:
        return ""
    below, above = low is not None and span.high < low, high is not None and span.low > high
    if verdict.verdict == Word.SUPPORTED:  # of an open range the end that it has is the one to keep
        below, above = low is None and high is not None, high is None and low is not None
    elif verdict.verdict != Word.REFUTED:
        below = above = False
    return span_text(
        span, "at most" if below else "at least" if above else "between", as_ratio=bool(low and low >= 1.5)
    )


def _within_text(verdict: Verdict, span: Bounds) -> str:
    """Of a settled verdict whose intervals all lie within the margin that matters: how far they reach. Else empty."""
    most = max(span.high, 1 / span.low) if span.low > 0 and not span.unit else math.inf
    is_within = verdict.margin and not verdict.is_open and most <= 1 + verdict.margin / 100
    return f"no difference beyond {100 * (most - 1):.2g} %" if is_within else ""


def _outside_text(effects: Sequence[Effect], low: float | None, high: float | None) -> str:
    """Of intervals that lie outside of a range: how near they come to it from below, from above, or from both, as "at
    most 1.02x or at least 4.10x". Empty where one of them is not known to lie outside."""
    highs = [each.upper for each in effects if each.upper is not None]
    lows = [each.lower for each in effects if each.lower is not None]
    below = [each for each in highs if low is not None and each < low]
    above = [each for each in lows if high is not None and each > high]
    if not effects or len(below) + len(above) < len(effects):
        return ""
    unit, as_ratio = effects[0].unit, bool(low and low >= 1.5)
    texts = []
    if below:
        texts.append(span_text(Bounds(min([*lows, *below]), max(below), unit), "at most", as_ratio=as_ratio))
    if above:
        texts.append(span_text(Bounds(min(above), max([*highs, *above]), unit), "at least", as_ratio=as_ratio))
    return " or ".join(texts)


def grid_answers(verdict: Verdict) -> dict[str, Word]:
    """The verdict on each workload where the effects are a grid's: it is that of its two sides. Else empty."""
    sides = grid_sides(verdict.effects)
    claimed = verdict.due_to
    answers = {}
    for workload, (architecture, operations) in sides.items() if claimed else ():
        named = {ARCHITECTURE: architecture.verdict, OPERATIONS: operations.verdict}
        open_ = [word for word in (Word.NOT_EVIDENCE, Word.INCONCLUSIVE) if word in named.values()]
        due = due_to(name for name, word in named.items() if word == Word.FASTER)
        answers[workload] = open_[0] if open_ else Word.SUPPORTED if claimed == due else Word.REFUTED
    return answers


def grid_sides(effects: Iterable[Effect]) -> dict[str, tuple[Effect, Effect]]:
    """Of a grid's effects those of architecture and of operations by workload; empty where they are of no grid."""
    by_side: dict[str, dict[str, Effect]] = {ARCHITECTURE: {}, OPERATIONS: {}}
    for effect in effects:
        if effect.factor in by_side:
            by_side[effect.factor][effect.workload] = effect
    ours, theirs = by_side.values()
    return {workload: (ours[workload], theirs[workload]) for workload in ours if workload in theirs}


def by_side(effects: Iterable[Effect]) -> dict[str, list[Effect]]:
    """The same by side, in the order in which they are told; empty where they are of no grid."""
    pairs = grid_sides(effects).values()
    return {OPERATIONS: [pair[1] for pair in pairs], ARCHITECTURE: [pair[0] for pair in pairs]} if pairs else {}


def sides_text(effects: Sequence[Effect]) -> str:
    """Of a grid: what either side gains. Empty where the effects are of no grid, or a side has no interval."""
    spans = {name: span for name, some in by_side(effects).items() if (span := hull(some)) is not None}
    return ", ".join(f"{name} {span_text(span, 'between')}" for name, span in spans.items()) if len(spans) == 2 else ""


# -- what it would take ------------------------------------------------------------------------------------------------


def cost_text(verdict: Verdict) -> str:
    """How much more measuring would settle the open rows: "about 4 min more, enough in 9 of 10 cases". Empty where
    nothing can be said, or nothing is open."""
    rows = [side for pair in grid_sides(verdict.effects).values() for side in pair] or verdict.effects
    open_ = [effect for effect in rows if effect.verdict == Word.INCONCLUSIVE]
    needs, texts = ToSettle.of(open_), []
    for effects, why in ((needs.settles, "enough in 9 of 10 cases"), (needs.begins, "for a first interval")):
        if effects:
            some = f" for {len(effects)} of {len(open_)} inconclusive rows" if len(effects) < len(open_) else ""
            texts.append(f"{about(clock_seconds(effects))} more{some}, {why}")
    if needs.never:
        texts.append(f"{'the rest: ' if texts else ''}{needs.never}")
    return "; ".join(texts)


def to_settle(verdict: Verdict, command: str) -> str:
    """What an open verdict would cost, and the `command` for it; empty where nothing is open. Where no time is known to
    settle it, the command is said to measure it again."""
    if not verdict.is_open:
        return ""
    needs, cost = ToSettle.of(verdict.effects), cost_text(verdict)
    does = "to decide it" if needs.settles or needs.begins else "to measure it again"
    return f"{does}{f' ({cost})' if cost else ''}: {command}"
