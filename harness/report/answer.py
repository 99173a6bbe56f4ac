"""The answer to the dispute: one sentence, a short line for each main claim, and a short table. Pure functions.

README has the first lines of what `answer` gives. The dispute's page, `workbench report`, a claim's exported page,
the end of the terminal's report and the dashboard all begin with it. The questions and which claims come first are
the dispute's; verdicts, what was claimed and every number come from the run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from ..evidence.effect import combine
from ..spec.dispute import FOUND, GAIN_OF, SHARE_OF, Beside, Dispute, MainQuestion, Numbers, Rule
from ..spec.table import Table
from ..spec.words import UNDERSTATED, Word
from ..stats.confidence import FIRST_LOOK
from ..store.verdict_schema import Effect, Verdict
from .markdown import markdown_cell, markdown_rows, markdown_text
from .outcome import by_side, found_text, leaning, outcome, standing, tally, tally_text
from .phases import share as time_share
from .text import LEAST_TIMES, claim_text, hull, one_text_line, short, span_text, verdict_counts
from .workload_names import kind_of, told_apart

SO_FAR: Mapping[str, str] = {Word.SUPPORTED: "Yes", Word.REFUTED: "No"}

UNDECIDED = (Word.INCONCLUSIVE, Word.NOT_EVIDENCE)
"""Verdicts on a side of a grid that leave it open."""

UNMEASURED = (Word.NOT_EVIDENCE, Word.NOT_MEASURABLE, Word.NOT_TESTED)
"""Verdicts that give a question no answer, where another part of its claim may."""

NOT_YET = "not known yet"

AT_LEAST_THAT = "Yes, or more"
"""Of a range of gains where every interval begins within it, or above it."""

MOST_LINES = 6

LONGEST = 800
"""Letters of a line with all that stands beside it."""

IN_SHORT = 3
"""Lines of the answer in README, which follow its headline."""

NAMED = 2
"""Workloads of a grid, up to which each is named."""

MOST_NAMED = 3
"""Workloads, up to which they are named where a verdict holds on some only."""


@dataclass(frozen=True)
class Line:
    """A question with its answer, all plain text that may come from anywhere. scope: what all answers are about, said
    behind the first one. beside: sentences that a fair reader needs besides. card: the question in short, where it
    stands on one of the first cards. overall: the verdict on all of its parts, where several answer it."""

    verdict: Verdict
    question: str
    word: str
    text: str
    scope: str = ""
    beside: tuple[str, ...] = ()
    card: str = ""
    overall: Word | None = None

    @property
    def found(self) -> str:
        """What was found, as it stands behind the word: "at most 0.88 % faster"; empty where nothing was."""
        return " ".join(filter(None, (self.text, self.scope)))

    @property
    def effect(self) -> str:
        """The same as it stands behind the question: "At most 0.88 % faster"."""
        text = self.found
        return f"{text[:1].upper()}{text[1:]}" if self.question.endswith("?") else text

    @property
    def sentence(self) -> str:
        """The effect first, then the word: "Is one file more than 5 % faster than many? No difference beyond 1.6 %:
        no."."""
        return f"{self.question} {self.answered}"

    @property
    def answered(self) -> str:
        """What stands behind the question."""
        return f"{self.effect}{': ' if self.effect else ''}{self.said}."

    @property
    def said(self) -> str:
        """The word as it stands behind the effect."""
        return _lower(self.word) if self.effect else self.word

    @property
    def told(self) -> str:
        """The same with what stands beside it."""
        return " ".join((self.sentence, *self.beside))


@dataclass(frozen=True)
class Answer:
    """The headline of a run, and a line for each of its main claims; of its first claims where it has no main one."""

    headline: str
    lines: tuple[Line, ...]

    @property
    def beside(self) -> tuple[str, ...]:
        """What stands beside the headline."""
        return next((line.beside for line in self.lines if line.sentence == self.headline), ())

    @property
    def further(self) -> list[str]:
        """The other lines, each with what stands beside it."""
        return [line.told for line in self.lines if line.sentence != self.headline]


def answer(verdicts: Iterable[Verdict], dispute: Dispute) -> Answer:
    """What these verdicts come to, by the questions of the dispute."""
    listed = list(verdicts)
    parts = _by_part(listed)
    asked = [(each, _lead(each, parts)) for each in dispute.question]
    if answered := [_line(each, verdict, parts) for each, verdict in asked if verdict is not None]:
        answered[0] = replace(answered[0], scope=_scope(answered, dispute))
        return Answer(answered[0].sentence, tuple(answered))
    lines = tuple(_plain_line(verdict) for verdict in listed[:MOST_LINES])
    if not lines:
        return Answer("Nothing was measured, so there is no answer.", ())
    if not all(verdict.is_comparison or verdict.is_condition for verdict in listed):
        return Answer(lines[0].sentence if len(listed) == 1 else _summary(listed), lines)
    # Of one comparison what was asked about it, where that is decided.
    by_worth = sorted(lines, key=lambda line: (line.verdict.is_open, not line.verdict.is_condition))
    return Answer(by_worth[0].sentence, lines)


def _scope(lines: Iterable[Line], dispute: Dispute) -> str:
    """What the models and the clock were, in brackets: whoever reads one line must know of what. Empty for others."""
    timed = [effect for line in lines for effect in line.verdict.effects if not effect.unit]
    models = [said for shape, said in dispute.scope.items() if any(f"-{shape}-" in effect.workload for effect in timed)]
    clocks = {effect.clock for effect in timed}
    computed = {frozenset({"cpu"}): ", one CPU thread", frozenset({"device"}): ", on a GPU"}.get(frozenset(clocks), "")
    return f"({' and '.join(models)}{computed})" if models else ""


def answer_markdown(verdicts: Iterable[Verdict], dispute: Dispute, *, most: int | None = None) -> str:
    """The same as Markdown: the headline, then the lines that say more. most: how many of these; None for all."""
    conclusion = answer(verdicts, dispute)
    lines = [line for line in conclusion.lines if line.sentence != conclusion.headline]
    items = ((line.question, f"**{line.answered}**", *line.beside) for line in lines[:most])
    listed = "".join(f"- {' '.join(markdown_text(each, LONGEST) for each in sentences)}\n" for sentences in items)
    headline = " ".join((f"**{markdown_text(conclusion.headline)}**", *map(markdown_text, conclusion.beside)))
    return f"{headline}\n{chr(10) if listed else ''}{listed}"


def headlines(verdicts: Iterable[Verdict], dispute: Dispute) -> str:
    """A Markdown table with a row for each main claim that these verdicts have."""
    parts = _by_part(verdicts)
    rows = []
    for verdict in filter(None, (_find(parts, *key) for key in dispute.headlines())):
        title = verdict.title + (f" ({verdict.part})" if verdict.part else "")
        cells = [title, ", ".join(verdict.who), verdict.claimed_here, _measured(verdict.effects)]
        rows.append([*map(markdown_cell, cells), f"**{markdown_cell(outcome(verdict))}**"])
    return markdown_rows(("claim", "who said it", "claimed", "what was found", "verdict"), rows) + "\n"


Parts = Mapping[tuple[str, str], Verdict]
"""The verdicts of a run by claim and part."""


def _by_part(verdicts: Iterable[Verdict]) -> dict[tuple[str, str], Verdict]:
    return {(verdict.claim, verdict.part): verdict for verdict in verdicts}


def _find(parts: Parts, claim: str, part: str | None) -> Verdict | None:
    """The verdict on a part of a claim. In older runs a claim had one part without a label where it has several now."""
    return parts.get((claim, part or "")) or parts.get((claim, ""))


def _lead(question: MainQuestion, parts: Parts) -> Verdict | None:
    """The verdict that answers a question: on its part, or where a run has not measured that, on the first beside it of
    the same claim."""
    there = list(filter(None, (_find(parts, question.claim, label) for label in question.parts)))
    return next((each for each in there if each.verdict not in UNMEASURED), there[0] if there else None)


def _line(question: MainQuestion, verdict: Verdict, parts: Parts) -> Line:
    asked = question.text.replace("{claimed}", one_text_line(verdict.claimed))
    so_far = _so_far(verdict) if verdict.is_open else ""
    word = so_far or question.words.get(verdict.verdict) or _word(verdict)
    text = _settled_and_open(verdict, question) if so_far else _found(verdict, question)
    places, beside, overall = [Told(f"{text} ({_lower(word)})", _side(verdict))], list[str](), None
    for each in question.beside:
        if sentence := _beside(each, verdict, parts):
            if each.in_answer and _find(parts, each.claim or "", each.part) is not verdict:
                places.append(sentence)
            else:
                text_beside = sentence.text
                beside.append(f"{text_beside[:1].upper()}{text_beside[1:]}." if each.in_answer else text_beside)
    if len(places) > 1:
        text = "; ".join(place.text for place in places)
        if len({place.side for place in places} - {None}) > 1:
            overall = Word.DEPENDS
            word = overall.look.answer
    return Line(verdict, asked, word, text, beside=(*beside,), card=question.card, overall=overall)


def _word(verdict: Verdict) -> str:
    if verdict.is_open and verdict.is_at_least_so:
        return AT_LEAST_THAT
    return "Yes, and more" if verdict.word == UNDERSTATED else verdict.verdict.look.answer


class Told(NamedTuple):
    """What is said of a part of a claim, and which side it settles on; None: it is open, or without a claim."""

    text: str
    side: Word | None


def _side(verdict: Verdict) -> Word | None:
    """Which way a verdict answers: of an open one, where it is yes or more, or its settled rows agree."""
    if verdict.is_at_least_so or verdict.word == UNDERSTATED:
        return Word.SUPPORTED
    side = Word(leaning(tally(verdict))) if verdict.is_open else verdict.verdict
    return None if side in (*UNDECIDED, *UNMEASURED) else side


def _lower(word: str) -> str:
    return f"{word[:1].lower()}{word[1:]}"


def _beside(beside: Beside, lead: Verdict, parts: Parts) -> Told | None:
    """The sentence, with its verdict in brackets; None where nothing of it was measured, or it leads already."""
    if beside.claim is None:
        return Told(beside.text, None)
    verdict = _find(parts, beside.claim, beside.part)
    if verdict is None or (verdict is lead and not beside.workloads):
        return None
    rows = tuple(each for each in verdict.effects if not beside.workloads or each.workload in beside.workloads)
    verdict = replace(verdict, effects=rows)
    if not (numbers := found_text(verdict)):
        return None
    if verdict.verdict is Word.INCONCLUSIVE and max(each.rounds for each in rows) < FIRST_LOOK:
        numbers = NOT_YET  # an early look is for large differences: what it leaves open, it tells nothing of
    if beside.workloads:
        verdict = replace(verdict, verdict=combine(rows)[0])
    word = (_so_far(verdict) if verdict.is_open else "") or beside.words.get(verdict.verdict) or _word(verdict)
    return Told(beside.text.replace(FOUND, f"{numbers} ({_lower(word)})"), _side(verdict))


def _so_far(verdict: Verdict) -> str:
    """Of an inconclusive verdict whose other rows say the same: "Yes on 2 of 4, rest inconclusive". Else empty."""
    if sides := by_side(verdict.effects):
        return words_of_sides(sides)
    counts = tally(verdict)
    word, total = leaning(counts), sum(counts.values())
    if word not in SO_FAR:
        return ""
    rest = "the other" if counts[word] == total - 1 else "rest"
    return f"{SO_FAR[word]} on {counts[word]} of {total}, {rest} inconclusive"


def words_of_sides(sides: Mapping[str, Sequence[Effect]]) -> str:
    """Of a grid: "Operations yes; architecture inconclusive on prefill, no on decode"; of many how many there are."""
    text = "; ".join(f"{side} {_words_of_side(effects)}" for side, effects in sides.items())
    return f"{text[:1].upper()}{text[1:]}"


def _words_of_side(effects: Sequence[Effect]) -> str:
    words = [
        "inconclusive" if effect.verdict in UNDECIDED else "yes" if effect.verdict == Word.FASTER else "no"
        for effect in effects
    ]
    kinds, total = Counter(words), len(words)
    if len(kinds) == 1:
        return words[0]
    if total <= NAMED:
        names = told_apart([effect.workload for effect in effects])
        return ", ".join(f"{word} on {name}" for word, name in zip(words, names, strict=True))
    return _counted_words(words)


def _counted_words(words: Sequence[str]) -> str:
    """ "yes"; "yes on 1, no on 2 of 4, rest inconclusive"."""
    kinds = Counter(words)
    if len(kinds) == 1:
        return words[0]
    settled = ", ".join(f"{word} on {kinds[word]}" for word in ("yes", "no") if word in kinds)
    return f"{settled} of {len(words)}{', rest inconclusive' if 'inconclusive' in kinds else ''}"


def _place_by_place(verdict: Verdict) -> str:
    """Of a verdict that holds in some places only, each place with what was found there and its word: "in decode 32 to
    89 % slower (yes); in prefill 1 to 2 % faster (no)" where these tell yes from no, else each workload. Empty where
    that are too many, or a workload has several rows."""
    rows = verdict.effects
    by_kind: dict[str, list[Effect]] = {}
    for effect in rows:
        by_kind.setdefault(kind_of(effect.workload), []).append(effect)
    settled = {kind: {*map(_yes_or_no, some)} & {"yes", "no"} for kind, some in by_kind.items()}
    if "" not in by_kind and [*map(len, settled.values())] == [1, 1] and len(set().union(*settled.values())) == 2:
        kinds = sorted(by_kind, key=lambda kind: settled[kind] == {"no"})
        return "; ".join(f"in {kind} {_row_text(verdict, by_kind[kind])}" for kind in kinds)
    names = told_apart([effect.workload for effect in rows])
    if len(rows) > MOST_NAMED or len({*names}) < len(names):
        return ""
    return "; ".join(f"{_row_text(verdict, [row])} on {name}" for row, name in zip(rows, names, strict=True))


def _settled_and_open(verdict: Verdict, question: MainQuestion) -> str:
    """Of an inconclusive verdict whose settled rows agree, what these found, and each open one by its name: "at most
    2 % faster; on 1 token 10 to 14 % faster"."""
    open_ = [effect for effect in verdict.effects if effect.verdict not in SO_FAR]
    settled = [effect for effect in verdict.effects if effect.verdict in SO_FAR]
    names = told_apart([effect.workload for effect in verdict.effects])
    if by_side(verdict.effects) or len(open_) > MOST_NAMED or len({*names}) < len(names):
        return _numbers(verdict, question)
    first = _numbers(replace(verdict, verdict=settled[0].verdict, effects=tuple(settled)), question)
    alone = [name for name, effect in zip(names, verdict.effects, strict=True) if effect in settled]
    texts = [f"{first} on {alone[0]}" if first and len(alone) == 1 else first]
    for name, effect in zip(names, verdict.effects, strict=True):
        if effect in open_:
            span = hull([effect])
            numbers = span_text(span, "between", as_ratio=_is_in_times(verdict)) if span else NOT_YET
            why = f" ({one_text_line(effect.reason, 200)})" if effect.cause.is_doubtful else ""
            texts.append(f"on {name} {numbers}{why}")
    return "; ".join(filter(None, texts))


def _is_in_times(verdict: Verdict) -> bool:
    return bool(verdict.low and verdict.low >= LEAST_TIMES)


def _row_text(verdict: Verdict, rows: Sequence[Effect]) -> str:
    """What some rows of a verdict found, with their word."""
    span = hull(rows)
    numbers = span_text(span, "between", as_ratio=_is_in_times(verdict)) if span else NOT_YET
    return f"{numbers} ({_counted_words([*map(_yes_or_no, rows)])})"


def _yes_or_no(effect: Effect) -> str:
    return SO_FAR.get(effect.verdict, "inconclusive").lower()


def _plain_line(verdict: Verdict) -> Line:
    """The same for a verdict that nobody wrote a question for: its own statement, or its title."""
    if verdict.is_comparison:
        which = {Word.SLOWER: "slower", Word.SAME: "the same"}.get(verdict.verdict, "")
        asked, numbers = one_text_line(verdict.statement), _found(verdict)
        text = numbers if which in numbers else f"{which}, {numbers}"
        return Line(verdict, asked, verdict.verdict.look.answer, text)
    said = one_text_line(verdict.title or claim_text(verdict))
    if verdict.is_condition:
        said = one_text_line(verdict.statement or said).removesuffix(".")
    elif verdict.part:
        said += f" ({one_text_line(verdict.part)})"
    if verdict.is_open:
        stands = standing(verdict)
        return Line(verdict, f"{said}:", stands.word, stands.bound or found_text(verdict))
    return Line(verdict, f"{said}:", verdict.verdict.value, _found(verdict))


def _found(verdict: Verdict, question: MainQuestion | None = None) -> str:
    """What stands behind the word: how the rows stand where they differ, and the numbers."""
    word, text = verdict.verdict, _numbers(verdict, question)
    if verdict.is_open:
        stands = standing(verdict)
        opened = stands.bound or stands.word
        return opened if opened in text or not tally_text(tally(verdict)) or not text else f"{opened}; {text}"
    if word is Word.DEPENDS:
        if question and (placed := _place_by_place(verdict)):
            where = _where(verdict, question)
            return f"{where}: {placed}" if where else placed
        return "; ".join(filter(None, (text, tally_text(tally(verdict)))))
    span = hull(verdict.effects)
    if span and question and question.consequence and word in (Word.SUPPORTED, Word.REFUTED):
        text += f", {question.follows(span.high)}"
    return text if text or word in (Word.SUPPORTED, Word.REFUTED) else one_text_line(verdict.reason, 200)


def _numbers(verdict: Verdict, question: MainQuestion | None) -> str:
    text, where = found_text(verdict), _where(verdict, question)
    return f"{text} {where}" if text and where else text


def _where(verdict: Verdict, question: MainQuestion | None) -> str:
    return question.where if question and verdict.part == (question.part or "") else ""


def found_words(verdict: Verdict) -> str:
    """What was measured, in a few words; the exact or single value where there is no interval to bound."""
    return found_text(verdict) or _measured(verdict.effects)


def _summary(verdicts: Sequence[Verdict]) -> str:
    """How the claims of a run stand, where none of them is a main one."""
    words: dict[str, str] = {Word.DEPENDS: "supported in some places only"}
    text = ", ".join(f"{count} {words.get(word, word)}" for word, count in verdict_counts(verdicts).items())
    return f"Of {len(verdicts)} verdicts: {text}."


def _measured(effects: Sequence[Effect]) -> str:
    """The smallest and the largest effect with the ends of all intervals; of a grid each side's. An effect without an
    interval says nothing of these ends: it is only counted."""
    if sides := by_side(effects):
        return ", ".join(f"{name} {_measured(side)}" for name, side in sides.items())
    known = [effect for effect in effects if effect.lower is not None or effect.upper is not None]
    if known and len(known) < len(effects):
        return f"{_measured(known)} ({len(known)} of {len(effects)} effects; no interval yet for the rest)"
    values = sorted(effect.ratio for effect in effects if effect.rounds and effect.value is not None)
    if not values:
        return ""
    unit = effects[0].unit
    text = " to ".join(dict.fromkeys(_number(value, unit) for value in (values[0], values[-1])))
    lows, highs = [effect.lower for effect in effects], [effect.upper for effect in effects]
    if (lows, highs) != (values, values):
        ends = [_number(min(effect.low for effect in effects), unit) if None not in lows else "open"]
        ends.append(_number(max(effect.high for effect in effects), unit) if None not in highs else "open")
        text += f" [{', '.join(ends)}]"
    return f"{text} {unit}" if unit else f"{text} times as fast"


def _number(value: float, unit: str) -> str:
    if not unit:
        return f"{value:.2f}"
    return f"{value:.2g}" if abs(value) < 10 else short(value)


# What the teams' own rules pick, once the numbers they asked for are there. Pure functions.
# The documents of a dispute decide by thresholds. Each rule is a value with its source (`spec.dispute`), and is
# applied to shares and effects *with their intervals*: where an interval lies on both sides of a threshold, every
# action that remains possible is named.
# Shares are percent of a workload's time. Effects are ratios t_old / t_new and enter the rules as gains in percent.


class Measured(NamedTuple):
    """A number with its interval; infinite ends where there is none."""

    value: float
    low: float
    high: float


UNKNOWN = Measured(math.nan, -math.inf, math.inf)


@dataclass(frozen=True)
class Decision:
    """What a rule picks. actions: what may then be done, several where an interval lies on both sides of a threshold.
    is_measured: whether the run has all numbers that this depends on."""

    rule: Rule
    actions: tuple[str, ...]
    is_measured: bool


def decide(dispute: Dispute, shares: Mapping[str, Measured], effects: Mapping[str, Measured]) -> tuple[Decision, ...]:
    """Apply the rules to one workload: its time shares (percent) and its effects (ratios t_old / t_new) by name.

    What is not in the mappings, or has no value (NaN), counts as not measured.
    """
    quantities = {SHARE_OF(name): share for name, share in shares.items()}
    quantities |= {GAIN_OF(name): Measured(*(100 * (end - 1) for end in ratio)) for name, ratio in effects.items()}
    known = {name: measured for name, measured in quantities.items() if not math.isnan(measured.value)}
    return tuple(_apply(rule, known) for rule in dispute.rule)


def _apply(rule: Rule, known: Mapping[str, Measured]) -> Decision:
    """Every pick that the intervals allow, in the order of the rule: what lies on both sides of a threshold is narrowed
    to the other side for the picks that follow."""
    narrowed, actions, is_measured = dict(known), dict[str, None](), True
    for pick in rule.pick:
        may = may_not = True
        if pick.quantity is not None and pick.percent is not None:
            is_measured &= pick.quantity in known
            value, low, high = narrowed.get(pick.quantity, UNKNOWN)
            may, may_not = pick.percent < high, pick.percent >= low  # lie above it, strictly
            if pick.above is not None:
                narrowed[pick.quantity] = Measured(value, low, min(high, pick.percent))
            else:
                may, may_not = may_not, may
                narrowed[pick.quantity] = Measured(value, max(low, math.nextafter(pick.percent, math.inf)), high)
        if may:
            actions[pick.action] = None
            if not may_not:
                break
    return Decision(rule, tuple(actions), is_measured)


def effects_of(numbers: Numbers, verdicts: Iterable[Verdict], workload: str) -> dict[str, Measured]:
    """The effects that the rules ask for on one workload."""
    ratios = {
        (effect.variant, effect.baseline): Measured(effect.ratio, effect.lower or 0.0, effect.high)
        for verdict in verdicts
        for effect in verdict.effects
        if effect.workload == workload and not effect.unit and effect.value is not None
    }
    sides = {name: (gain.variant, gain.baseline) for name, gain in numbers.gains.items()}
    return {name: ratios[pair] for name, pair in sides.items() if pair in ratios}


def decisions_of(
    dispute: Dispute, table: Table, verdicts: Iterable[Verdict], alpha: float
) -> dict[str, tuple[Decision, ...]]:
    """What the rules pick on each workload with time shares of the variant that they ask about, or where they ask for
    no shares, with any verdict; from phases.parquet and the verdicts. Nothing where there are no rules."""
    judged, numbers = list(verdicts), dispute.numbers
    if not dispute.rule or (numbers.shares and not len(table)):
        return {}

    def percent(workload: str, phases: Sequence[str]) -> Measured:
        part = time_share(table, workload, numbers.shares_of, [*phases], "forward", alpha=alpha)
        return Measured(100 * part.value, 100 * part.low, 100 * part.high)

    if numbers.shares:
        names = [workload for (workload,) in table.where(variant=numbers.shares_of).distinct("workload")]
    else:
        names = [effect.workload for verdict in judged for effect in verdict.effects]
    return {
        workload: decide(
            dispute,
            {name: percent(workload, phases) for name, phases in numbers.shares.items()},
            effects_of(numbers, judged, workload),
        )
        for workload in dict.fromkeys(names)
    }


@dataclass(frozen=True)
class Picked:
    """What one rule picks over all workloads that have the numbers it asks for. actions: on each, what may be done."""

    rule: Rule
    actions: tuple[tuple[str, ...], ...]

    @property
    def done(self) -> str:
        """What is then done: "do nothing", "do nothing (on 3 of 4 workloads); undecided: ... (on 1 of 4 workloads)"."""
        if len(self._ways) < 2:
            return next(iter(self._ways), "nothing: its numbers were not measured")
        total = len(self.actions)
        return "; ".join(f"{way} (on {count} of {total} workloads)" for way, count in self._ways.most_common())

    @property
    def where(self) -> str:
        """On which workloads, where all say the same: "on all 4 workloads"; else empty."""
        if len(self._ways) != 1:
            return ""
        if len(self.actions) == 1:
            return "on the one workload that has its numbers"
        return f"on {'both' if len(self.actions) == 2 else f'all {len(self.actions)}'} workloads"

    @property
    def _ways(self) -> Counter[str]:
        """What is then done, and on how many workloads; those that cannot tell are told together."""
        ways = Counter(possible[0] for possible in self.actions if len(possible) == 1)
        if unsettled := [possible for possible in self.actions if len(possible) > 1]:
            ways[undecided(self.rule, chain.from_iterable(unsettled))] = len(unsettled)
        return ways


def picks_of(decisions: Mapping[str, Sequence[Decision]]) -> list[Picked]:
    """One pick for each rule, in the order of the rules."""
    return [
        Picked(row[0].rule, tuple(each.actions for each in row if each.is_measured))
        for row in zip(*decisions.values(), strict=True)
    ]


def undecided(rule: Rule, possible: Iterable[str]) -> str:
    """What is left of a rule's actions where it cannot tell: "ruled out: ...; undecided: (a) ... or (b) ..."."""
    left = dict.fromkeys(possible)
    letters = (f"({letter}) {action}" for letter, action in zip("abcdefgh", left, strict=False))
    gone = " and ".join(dict.fromkeys(pick.action for pick in rule.pick if pick.action not in left))
    return f"{gone and f'ruled out: {gone}; '}undecided: {' or '.join(letters)}"


def picks_markdown(picks: Sequence[Picked]) -> str:
    """One row a rule: whose it is, what it says, and what it has one do by this run's numbers."""
    rows = (
        (markdown_cell(pick.rule.team), markdown_cell(pick.rule.says), f"**{markdown_cell(pick.done)}** {pick.where}")
        for pick in picks
    )
    return markdown_rows(("team", "its own rule", "so by these numbers"), rows)
