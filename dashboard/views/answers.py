"""What a verdict says in plain words: who was right, by how much, how sure that is, and why.

Every sentence is computed from the verdict and the run; none is typed in for a claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from llama_workbench.harness.machine.environment import device_kind
from llama_workbench.harness.report.answer import found_words
from llama_workbench.harness.report.text import gain_text
from llama_workbench.harness.spec.regions import ANSWERS, SECOND_MARGIN_PERCENT
from llama_workbench.harness.spec.words import GIVEN, Cause, Word
from llama_workbench.harness.store.verdict_schema import Effect

from .. import words
from . import data, outcomes
from .attribution import MEANING, headline, standing

LONGEST_LIST = 4
SETTLED = {Word.SUPPORTED: "right on", Word.REFUTED: "not right on"}
STANDS = SETTLED | {Word.INCONCLUSIVE: "inconclusive on", Word.NOT_EVIDENCE: "without evidence on"}


def answer(run: data.Run, claim: data.Claim, explained: str = "") -> dict[str, str]:
    """The verdict of `claim` in plain words: answers by question, a sentence or two or nothing. `explained`: what
    the run knows of the causes (see `why`)."""
    reason = claim.reason
    if claim.is_comparison and claim.verdict in GIVEN:
        reason = ""  # it would say the same once more
    elif claim.is_factorial:
        reason = MEANING  # the stored one repeats the numbers
    if claim.verdict in SETTLED:
        reason = words.capital(outcomes.meaning(claim))  # the stored one lists all workloads
    elif claim.cause is Cause.NOT_SETTLED:  # others may begin with a name
        reason = words.capital(reason)
    return {
        "Who was right": _who(claim),
        "By how much": _how_much(claim),
        "How sure": outcomes.certainty(run, claim),
        "Why": " ".join(filter(None, (explained, reason and f"{reason}."))),
        "What would change it": what_would_change(run, claim),
    }


def what_would_change(run: data.Run, claim: data.Claim) -> str:
    """Of a settled verdict about times: what it is about, and so where another one is possible. Else nothing."""
    where = list(dict.fromkeys(effect.where for effect in claim.effects))
    if claim.verdict not in SETTLED or claim.unit or not where:
        return ""
    about = words.listing(where) if len(where) <= 3 else f"these {len(where)} workloads"
    kind = device_kind(run.environment)
    other = ", or a GPU" if kind == "cpu" and not run.is_of_functions else ""
    device = "GPU" if kind == "cuda" else "CPU"
    decided = {Word.SUPPORTED: "lies inside the claimed range", Word.REFUTED: "lies outside the claimed range"}
    return (
        f"Measuring longer would not: every interval {decided.get(claim.verdict, 'decides it')} already. "
        f"Other workloads, another machine{other} could: this verdict is about {about} on this {device}."
    )


def _who(claim: data.Claim) -> str:
    if claim.is_comparison:
        return _comparison(claim)
    if claim.is_condition:
        return _condition(claim)
    names = words.listing(claim.who) if claim.who else "Whoever said it"
    were = "were" if len(claim.who) > 1 else "was"
    claimed = f" ({claim.claimed})" if claim.claimed else ""
    everywhere = _everywhere(claim)
    match claim.verdict:
        case "supported":
            return f"{names} {were} right: {everywhere}what was measured lies within the claimed range{claimed}."
        case "refuted":
            return f"{names} {were} not right: {everywhere}what was measured lies outside the claimed range{claimed}."
        case "depends":
            places = _places(claim, STANDS)
            return f"{names} {were} {places or 'right in some places and not in others'}."
        case "inconclusive":
            if _places(claim, SETTLED):
                return f"{names} {were} {_places(claim, STANDS)}."
            if claim.is_factorial:
                return " ".join(standing(claim))
            return f"Not decided: these rounds show neither that {names} {were} right nor the contrary."
        case "not evidence":
            return f"Nobody can say from this run whether {names} {were} right: it is no evidence either way."
        case "not measurable here":
            return f"This machine cannot say whether {names} {were} right."
        case _:
            return ""


def _condition(claim: data.Claim) -> str:
    match claim.verdict:
        case "supported":
            return f"Yes: {_everywhere(claim)}what was measured is {claim.claimed}."
        case "refuted":
            return f"No: {_everywhere(claim)}what was measured is not {claim.claimed}."
        case "depends":
            sides = {Word.SUPPORTED: "yes on", Word.REFUTED: "no on", Word.INCONCLUSIVE: "inconclusive on"}
            return f"{claim.claimed.capitalize()}: {_places(claim, sides)}."
        case _:
            return f"Not decided: these rounds show neither that it is {claim.claimed} nor the contrary."


def _everywhere(claim: data.Claim) -> str:
    """How many rows a verdict speaks for, as the front of a clause; nothing for one."""
    count = len(claim.effects)
    if count < 2 or claim.is_factorial:
        return ""
    rows = "workloads" if len({effect.where for effect in claim.effects}) == count else "comparisons"
    return f"on {'both' if count == 2 else f'all {count}'} {rows} "


def _comparison(claim: data.Claim) -> str:
    if not claim.effects:
        return "Nothing was compared."
    first = claim.effects[0]
    kinds = {word: f"{word} on" for word in (Word.FASTER, Word.SLOWER, Word.SAME)}
    nearly = f"same within {SECOND_MARGIN_PERCENT:g} % on"
    beyond = [effect for effect in claim.effects if _is_beyond(effect)]
    near = _places(replace(claim, effects=tuple(beyond)), {Word.SAME: nearly})
    rest = replace(claim, effects=tuple(effect for effect in claim.effects if effect not in beyond))
    not_known = _places(rest, {Word.INCONCLUSIVE: "inconclusive on"})
    places = "; ".join(filter(None, (_places(rest, kinds), near, not_known)))
    return f"{first.variant} compared with {first.baseline}{': ' * bool(places)}{places}."


def _is_beyond(effect: Effect) -> bool:
    """Whether an effect counts as the same by the second margin alone."""
    low, high = (math.exp(end) for end in (ANSWERS[1].low, ANSWERS[1].high))
    return effect.verdict == Word.SAME and not low <= (effect.lower or 0.0) <= (effect.upper or math.inf) <= high


def _places(claim: data.Claim, kinds: Mapping[Word, str]) -> str:
    """As "right on A and B, not right on C": workloads by their verdict, as far as `kinds` has words for it."""
    if claim.is_factorial:
        return ""
    places = []
    for verdict, word in kinds.items():
        where = list(dict.fromkeys(effect.where for effect in claim.effects if effect.verdict == verdict))
        if len(where) > LONGEST_LIST:
            where[LONGEST_LIST - 1 :] = [f"{len(where) - LONGEST_LIST + 1} more"]
        if where:
            places.append(f"{word} {words.listing(where)}")
    return "; ".join(places)


def _how_much(claim: data.Claim) -> str:
    if claim.is_factorial:
        return " ".join(headline(claim))
    known = [effect for effect in claim.effects if effect.value is not None]
    if not known:
        return "Nothing was measured, so there is no number."
    known = [effect for effect in known if effect.lower is not None] or known  # one without an interval is no end
    first = known[0]
    front = claimed_and_found(claim)
    subject = first.sides
    if first.unit:
        subject = f"{first.metric} of {first.variant}" if first.variant else first.metric
    if len(known) == 1:
        place = f" on {first.where}" if first.workload else ""
        return f"{front}{subject}{place}: {words.effect(first)}{_gain(first)}."
    same = len({effect.sides for effect in known}) == 1
    ends = []
    lowest = min(
        known, key=lambda estimate: (-math.inf if estimate.lower is None else estimate.low, estimate.value or 0.0)
    )
    highest = max(
        known, key=lambda estimate: (math.inf if estimate.upper is None else estimate.high, estimate.value or 0.0)
    )
    for end, effect in (("Lowest", lowest), ("Highest", highest)):
        place = effect.where if same else f"{effect.sides} on {effect.where}"
        ends.append(f"{end} ({place}): {words.effect(effect)}{_gain(effect)}.")
    return f"{front}{f'{subject}. ' if same else ''}{' '.join(ends)}"


def claimed_and_found(claim: data.Claim) -> str:
    """As "Claimed: 2-3x; measured: at most 1.02x. "; nothing where nothing was claimed."""
    if not claim.claimed:
        return ""
    front = "Margin" if claim.is_comparison else claim.range_word.capitalize()
    result = "" if claim.is_comparison else found_words(claim)
    return f"{front}: {claim.claimed}{f'; measured: {result}' if result else ''}. "


def _gain(effect: Effect) -> str:
    """A ratio's interval in words: ", that is 1.2 to 3.1 % faster"; nothing with a unit or an open end."""
    low, high = effect.lower, effect.upper
    gain = "" if effect.unit or low is None or high is None else gain_text(low, high)
    return gain and f", that is {gain}"
