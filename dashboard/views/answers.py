"""What a verdict says in plain words: who was right, by how much, how sure that is, and why.

Every sentence is computed from the verdict and the run; none is typed in for a claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from llama_workbench.harness.machine.environment import device_kind
from llama_workbench.harness.report.answer import found_words
from llama_workbench.harness.report.ladder import LadderAdvice
from llama_workbench.harness.report.text import duration_text, gain_text, ratio_text, short
from llama_workbench.harness.spec.regions import ANSWERS, SECOND_MARGIN_PERCENT
from llama_workbench.harness.spec.words import GIVEN, Cause, Word
from llama_workbench.harness.store.schema import Noise
from llama_workbench.harness.store.verdict_schema import Effect

from .. import words
from . import data
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
        reason = words.capital(sentence(claim))  # the stored one lists all workloads
    elif claim.cause is Cause.NOT_SETTLED:  # others may begin with a name
        reason = words.capital(reason)
    return {
        "Who was right": _who(claim),
        "By how much": _how_much(claim),
        "How sure": _how_sure(run, claim),
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


def to_change(advice: LadderAdvice, main: data.Claim) -> str:
    """What to change; where that gains more than what the main claim is about, that it is not that."""
    bounded = [effect.high for effect in main.effects if effect.upper is not None]
    other = not main.unit and bounded and advice.whole.proven > max(bounded)
    first = "Other changes gain more: the table has" if other else "What the table has:"
    alone = " In brackets: the model has one layer, so its last is all of it." if advice.all_of_it else ""
    return f"{first} by how many times (~1: none proven), and with how much more memory.{alone}"


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


def how_sure(run: data.Run) -> str:
    """The error rate of every answer of a run, and what its A/A controls say."""
    return f"Each answer is wrong with at most {words.percent(run.alpha)} probability. {self_check(run.noise)}".rstrip()


def self_check(noise: Noise) -> str:
    """What came out where the run timed the same code as two sides; empty where it did not."""
    controls = noise.controls
    known = [each for each in controls if each.fired or (math.isfinite(each.low) and math.isfinite(each.high))]
    if not known:
        return "Self-check: the A/A controls (same code, timed as two sides) had too few rounds." if controls else ""
    fired, lacking = sum(each.fired for each in known), len(controls) - len(known)
    count = f"{len(known)} A/A control{'s' * (len(known) > 1)} (the same code, timed as two sides)"
    count += f"; {lacking} more had too few rounds" if lacking else ""
    if fired:
        return f"Self-check failed: a difference in {fired} of {count}."
    if noise.typical:
        size = f"{short(100 * noise.typical)} %"
        return f"Self-check failed: no difference in any of {count}. All together show one, of some {size}."
    return f"Self-check: no difference in {count}."


def _how_sure(run: data.Run, claim: data.Claim) -> str:
    known = [effect for effect in claim.effects if effect.value is not None and effect.rounds]
    if not known:
        return "There is nothing to be sure of."
    rounds = [effect.rounds for effect in known]
    if all(effect.unit and effect.lower == effect.upper == effect.value for effect in known):
        return f"Exact: counted or tried ({sum(rounds)} in all), so there is no interval."
    least, most = min(rounds), max(rounds)
    spread = f"{least}" if least == most else f"{least} to {most}"
    often = ", however often one looks" if claim.metric is None or not claim.metric.looks_once else ""
    sure = f"{words.percent(1 - claim.alpha)} confidence{often}"
    if claim.verdict in GIVEN:
        sure += f"; the verdict is wrong with at most {words.percent(run.alpha)} probability"
    if claim.metric is not None and not claim.metric.has_confidence:
        return f"Counted {spread} times. The interval is a bound from experience and has no known probability."
    seconds = sum(effect.seconds or 0 for effect in known)
    spent = f", {duration_text(seconds)} of timing" if seconds else ""
    floors = [run.floors[effect.workload] for effect in known if effect.workload in run.floors]
    same = "" if claim.unit else data.identical_code(floors)
    beside = f" On these workloads {same}." if same else ""
    return f"Each interval holds with {sure}. Processes: {spread}{spent}.{beside}"


# -- beside the verdict ------------------------------------------------------------------------------------------------


def how(run: data.Run, claim: data.Claim) -> dict[str, str]:
    """How a claim was measured: facts by name, empty where there is nothing to say."""
    count, rounds = len(claim.effects), sum(effect.rounds for effect in claim.effects)
    rate = f"{words.percent(claim.alpha)} for each interval, over all processes and all looks"
    has_rate = bool(count) and (claim.metric is None or claim.metric.has_confidence)
    seconds = sum(effect.seconds or 0 for effect in claim.effects)
    return {
        "Decided by": claim.decided_by,
        "Error rate": rate if has_rate else "",
        "Processes": f"{rounds} over {count} effect{'s' * (count > 1)}" if count else "",
        "Time spent": duration_text(seconds) if seconds else "",
        "Noise": run.noise.line or "not recorded",
        "Seed": "not recorded" if run.manifest.seed is None else str(run.manifest.seed),
    }


def sentence(claim: data.Claim) -> str:
    """What the verdict means in plain words, for after the verdict's own word."""
    meaning = claim.verdict.look.meaning.format(claimed=claim.claimed or "not recorded")
    if len(claim.effects) > 1 and claim.verdict in {"supported", "refuted", "faster", "slower", "same"}:
        return f"on every workload {meaning}"
    return meaning


def measured(claim: data.Claim) -> str:
    """The effect in a few words: one interval, or the span of several."""
    known = [(effect.value, words.effect(effect)) for effect in claim.effects if effect.value is not None]
    if len(known) < 2:
        return known[0][1] if known else "not measured"
    (least, _), (most, _) = min(known), max(known)
    if claim.unit:
        return f"{short(least)} to {short(most)} {claim.unit}"
    return f"{ratio_text(least)} to {ratio_text(most)}"
