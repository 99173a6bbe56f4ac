"""The answer to the dispute: one sentence, a short line for each main claim, and a short table. Pure functions.

README has the first lines of what `answer` gives. The dispute's page, `workbench report`, a claim's exported page,
the end of the terminal's report and the dashboard all begin with it. The questions and which claims come first are
the dispute's; verdicts, what was claimed and every number come from the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..evidence.verdict import combine
from ..spec.dispute import FOUND, Beside, Dispute, MainQuestion
from ..spec.words import UNDERSTATED, Word
from ..stats.confidence import FIRST_LOOK
from ..store.verdict_schema import Effect, Verdict
from .markdown import markdown_cell, markdown_rows, markdown_text
from .outcome import by_side, found_text, leaning, outcome, standing, tally, tally_text
from .text import claim_text, hull, one_text_line, short, verdict_counts

SO_FAR: Mapping[str, str] = {Word.SUPPORTED: "Yes", Word.REFUTED: "No"}

UNDECIDED = (Word.INCONCLUSIVE, Word.NOT_EVIDENCE)
"""Verdicts on a side of a grid that leave it open."""

UNMEASURED = (Word.NOT_EVIDENCE, Word.NOT_MEASURABLE, Word.NOT_TESTED)
"""Verdicts that give a question no answer, where another part of its claim may."""

NOT_YET = "not known yet"

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
    stands on one of the first cards."""

    verdict: Verdict
    question: str
    word: str
    text: str
    scope: str = ""
    beside: tuple[str, ...] = ()
    card: str = ""

    @property
    def effect(self) -> str:
        """What was found, as it stands behind the question: "At most 0.88 % faster"; empty where nothing was."""
        text = " ".join(filter(None, (self.text, self.scope)))
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
        return f"{self.word[:1].lower()}{self.word[1:]}" if self.effect else self.word

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
    clocks = {effect.metric.partition(" ")[0] for effect in timed}
    computed = {frozenset({"cpu"}): ", one CPU thread", frozenset({"device"}): ", on a GPU"}.get(frozenset(clocks), "")
    return f"({' and '.join(models)}{computed})" if models else ""


def answer_markdown(verdicts: Iterable[Verdict], dispute: Dispute, *, most: int | None = None) -> str:
    """The same as Markdown: the headline, then the lines that say more. most: how many of these; None for all."""
    conclusion = answer(verdicts, dispute)
    lines = [line for line in conclusion.lines if line.sentence != conclusion.headline]
    listed = "".join(f"- {_markdown_line(line)}\n" for line in lines[:most])
    headline = " ".join((f"**{markdown_text(conclusion.headline)}**", *map(markdown_text, conclusion.beside)))
    return f"{headline}\n{chr(10) if listed else ''}{listed}"


def _markdown_line(line: Line) -> str:
    """A question with its answer in bold, and what stands beside it."""
    sentences = (line.question, f"**{line.answered}**", *line.beside)
    return " ".join(markdown_text(each, LONGEST) for each in sentences)


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
    labels = [question.part, *(each.part for each in question.beside if each.claim == question.claim)]
    there = list(filter(None, (_find(parts, question.claim, label) for label in labels)))
    return next((each for each in there if each.verdict not in UNMEASURED), there[0] if there else None)


def _line(question: MainQuestion, verdict: Verdict, parts: Parts) -> Line:
    asked = question.text.replace("{claimed}", one_text_line(verdict.claimed))
    so_far = _so_far(verdict) if verdict.is_open else ""
    word = so_far or question.words.get(verdict.verdict) or _word(verdict)
    text = _numbers(verdict, question) if so_far else _found(verdict, question)
    beside = tuple(filter(None, (_beside(each, verdict, parts) for each in question.beside)))
    return Line(verdict, asked, word, text, beside=beside, card=question.card)


def _word(verdict: Verdict) -> str:
    more = verdict.word == UNDERSTATED
    return "Yes, and more" if more else verdict.verdict.look.answer


def _beside(beside: Beside, lead: Verdict, parts: Parts) -> str:
    """The sentence, with its verdict in brackets; empty where nothing of it was measured, or it leads already."""
    if beside.claim is None:
        return beside.text
    verdict = _find(parts, beside.claim, beside.part)
    if verdict is None or (verdict is lead and not beside.workloads):
        return ""
    rows = tuple(each for each in verdict.effects if not beside.workloads or each.workload in beside.workloads)
    verdict = replace(verdict, effects=rows)
    if not (numbers := found_text(verdict)):
        return ""
    if verdict.verdict is Word.INCONCLUSIVE and max(each.rounds for each in rows) < FIRST_LOOK:
        numbers = NOT_YET  # an early look is for large differences: what it leaves open, it tells nothing of
    if beside.workloads:
        verdict = replace(verdict, verdict=combine(rows)[0])
    word = (_so_far(verdict) if verdict.is_open else "") or _word(verdict)
    return beside.text.replace(FOUND, f"{numbers} ({word[:1].lower()}{word[1:]})")


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
    words = [_side_word(effect) for effect in effects]
    kinds, total = Counter(words), len(words)
    if len(kinds) == 1:
        return words[0]
    if total <= NAMED:
        names = told_apart([effect.workload for effect in effects])
        return ", ".join(f"{word} on {name}" for word, name in zip(words, names, strict=True))
    settled = ", ".join(f"{word} on {kinds[word]}" for word in ("yes", "no") if word in kinds)
    return f"{settled} of {total}{', rest inconclusive' if 'inconclusive' in kinds else ''}"


def _side_word(effect: Effect) -> str:
    return "inconclusive" if effect.verdict in UNDECIDED else "yes" if effect.verdict == Word.FASTER else "no"


def _where_it_holds(verdict: Verdict) -> str:
    """Of a verdict that holds in some places only: "yes on prefill-7b and decode-7b, no on the other 4"; the fewer ones
    are named. Empty where that are too many, or a workload has several rows."""
    names = told_apart([effect.workload for effect in verdict.effects])
    by_word: dict[str, list[str]] = {}
    for name, effect in zip(names, verdict.effects, strict=True):
        by_word.setdefault(SO_FAR.get(effect.verdict, "inconclusive").lower(), []).append(name)
    settled = {word: by_word[word] for word in ("yes", "no") if word in by_word}
    if len(set(names)) < len(names) or len(settled) < 2:
        return ""
    fewer, more = sorted(settled, key=lambda word: (len(settled[word]), word == "no"))
    if len(settled[fewer]) > MOST_NAMED:
        return ""
    *first, last = settled[fewer]
    named = f"{', '.join(first)} and {last}" if first else last
    count = len(settled[more])
    others = settled[more][0] if count == 1 else f"the other {count}" if "inconclusive" not in by_word else f"{count}"
    left = f", inconclusive on {len(by_word['inconclusive'])}" if "inconclusive" in by_word else ""
    return f"{fewer} on {named}, {more} on {others}{left}"


def told_apart(names: Sequence[str]) -> list[str]:
    """The names of workloads, cut after as many of their parts as still tell them apart: "prefill" and "decode" of
    "prefill-15m-t128" and "decode-15m-c64"."""
    parts = [name.split("-") for name in names]
    for count in range(1, max(map(len, parts), default=1)):
        short = ["-".join(each[:count]) for each in parts]
        if len(set(short)) == len(set(names)):
            return short
    return list(names)


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
        places = (question and _where_it_holds(verdict)) or tally_text(tally(verdict))
        return "; ".join(filter(None, (text, places)))
    span = hull(verdict.effects)
    if span and question and question.consequence and word in (Word.SUPPORTED, Word.REFUTED):
        text += f", {question.follows(span.high)}"
    return text if text or word in (Word.SUPPORTED, Word.REFUTED) else one_text_line(verdict.reason, 200)


def _numbers(verdict: Verdict, question: MainQuestion | None) -> str:
    text = found_text(verdict)
    where = question.where if question and verdict.part == (question.part or "") else ""
    return f"{text} {where}" if text and where else text


def found_words(verdict: Verdict) -> str:
    """What was measured, in a few words; the exact or single value where there is no interval to bound."""
    if text := found_text(verdict):
        return text
    return _measured(verdict.effects)


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
