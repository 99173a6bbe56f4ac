"""Where a difference is, in words: of each comparison whose sides were sampled (slice `causes`)."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

from llama_workbench.variants.phase_map import OTHER, PHASES

from ..evidence.effect import ALPHA
from ..stats.causes import Division, PlaceDifference, divide
from ..store.folder import RunFolder
from ..store.passes import CAUSES, SIDES, SampledLine, SampledPair
from ..store.verdict_schema import Effect
from .phases import ATTENTION, groups_of, lines_in_sources, phases_of_stack
from .text import call_times, one_text_line, unit_of

_FRAME = re.compile(r"(.*) \(([^()]*):(\d+)\)")  # function, file, line

MOSTLY = 0.8
"""A place that makes up this share of a difference is its cause, unless another one has more than the rest of it."""

MOST_NAMED = 4

LEAST_OF_PLACE = 0.03
"""A line with less of its function's time is not among those that are named."""

LEAST_OF_ROW = 0.1
"""A side with less of a row's time than this share of the other's is not named by it."""

LEAST_OF_CAUSE = 0.2
"""A line with less of a difference than this share is not named as what makes it."""

OFTEN = 1.1
"""A line that runs less than this many times as often as another runs about as often."""

ELSE = "all else: no difference proven"

ALIKE, LEAST_LETTERS = 0.75, 12
"""So alike (`difflib`), and at least so long, two lines do the same work, where one of them was moved to another
function."""

_LIBRARY = re.compile(r"(?:stdlib/|site-packages/)?(\w+)")  # at the begin of a file's name

LETTERS = 40  # of a line that a row is named after

Key = tuple[str, str, str]
"""(workload, variant, baseline)"""

Place = tuple[str, str, int, str]
"""(side, file, line, function)"""


@dataclass(frozen=True)
class FunctionCause:
    """A function whose time differs between the two sides. `name`: of the two that are compared both names.

    `lines`: its lines with samples, those with the most time first.
    """

    name: str
    row: PlaceDifference
    lines: tuple[SampledLine, ...]

    @property
    def place(self) -> str:
        """Its name and where it is: "normalise (a.py:17)"."""
        return f"{self.name} ({self.where})" if self.where else self.name

    @property
    def where(self) -> str:
        """From its first to its last line that takes time, on the side that takes longer: "a.py:17-19"; empty where
        there is no file."""
        side = "baseline" if self.row.ns > 0 else "variant"
        most = next((line for line in self.lines if line.side == side), self.lines[0])
        file = most.file.rpartition("/")[2]
        if not most.line:
            return file
        of_it = {(most.side, most.file, most.function)}
        here = [line for line in self.lines if (line.side, line.file, line.function) in of_it]
        least = LEAST_OF_PLACE * sum(sum(line.samples) for line in here)
        numbers = [line.line for line in here if sum(line.samples) >= least]
        return f"{file}:{min(numbers)}{f'-{max(numbers)}' if max(numbers) > min(numbers) else ''}"


@dataclass(frozen=True)
class Explanation:
    """What the difference of two sides is made of."""

    sampled: SampledPair

    @property
    def key(self) -> Key:
        """Which comparison it is about."""
        return self.sampled.workload, self.sampled.variant, self.sampled.baseline

    @property
    def call_ns(self) -> tuple[float, float]:
        """Times of a call, of the baseline and of the variant."""
        return self.sampled.call_ns["baseline"], self.sampled.call_ns["variant"]

    @cached_property
    def phases(self) -> dict[str, str]:
        """Of a model whose source says it: a line, with the way to it, → the phases that it may belong to, in words.
        Empty where either side has less than half of its samples in a phase."""
        reached = {_stack(line): line for line in self.sampled.lines}
        lines = lines_in_sources({frame for stack in reached for frame in stack})
        if not lines:
            return {}
        sets = {stack: phases_of_stack(stack, lines)[0] for stack in reached}
        for side, totals in self.sampled.samples.items():
            here = [stack for stack in reached if reached[stack].side == side and sets[stack] != {OTHER}]
            if sum(sum(reached[stack].samples) for stack in here) < sum(totals) / 2:
                return {}
        groups = groups_of(sets.values())
        return {";".join(stack): _in_words(groups[min(phases)]) for stack, phases in sets.items()}

    @cached_property
    def by_function(self) -> dict[str, list[SampledLine]]:
        """The lines of each function: functions of both sides are one where they have one name, and so are the two that
        are compared. Of models, by phase where that is known."""
        lines: dict[str, list[SampledLine]] = {}
        for place in self.sampled.lines:
            lines.setdefault(self._name(place), []).append(place)
        return lines

    def _name(self, place: SampledLine) -> str:
        if self.phases:
            return self.phases[";".join(_stack(place))]
        if (moved := self._moved.get(_place(place))) is not None:
            return moved
        if place.function != self.sampled.roots.get(place.side):
            return place.function
        return self._themselves

    @property
    def _themselves(self) -> str:
        """The row of the two functions that are compared: of their own lines, without what they call."""
        return f"{self.sampled.baseline} and {self.sampled.variant} themselves"

    def _row_name(self, row: PlaceDifference) -> str:
        """What a row is called. That of the two compared functions names one of them where only its lines take time."""
        if row.key == self._themselves:
            side, name = ("baseline", self.sampled.baseline) if row.ns > 0 else ("variant", self.sampled.variant)
            if called := _called([line for line in self.by_function[row.key] if line.side == side]):
                return f"{called}, called by {name}"
            if min(row.baseline_ns, row.variant_ns) < LEAST_OF_ROW * max(row.baseline_ns, row.variant_ns):
                return f"{name} itself"
        return row.key

    @cached_property
    def _moved(self) -> dict[Place, str]:
        """Lines that only moved, by the name of the row that they share: a line of a function that the other side does
        not have, and the line there that is most like it, of such a function or of the compared one. Work that was
        written out elsewhere is not saved."""
        roots, sides = self.sampled.roots, ("baseline", "variant")
        lines = {_place(line): line for line in self.sampled.lines if len(line.text) >= LEAST_LETTERS}
        has = {side: {line.function for line in self.sampled.lines if line.side == side} for side in sides}
        alone = {
            place
            for place, line in lines.items()
            if line.function not in has[sides[line.side == sides[0]]] and line.function != roots.get(line.side)
        }
        open_ = alone | {place for place, line in lines.items() if line.function == roots.get(line.side)}
        alike = [
            (SequenceMatcher(None, lines[one].text, lines[other].text).ratio(), one, other)
            for one in open_
            for other in open_
            if one[0] == sides[0] and other[0] == sides[1] and {one, other} & alone
        ]
        moved: dict[Place, str] = {}
        for ratio, place, other in sorted(alike, reverse=True):
            if ratio >= ALIKE and place not in moved and other not in moved:
                moved[place] = moved[other] = one_text_line(lines[place].text, LETTERS)
        return moved

    @cached_property
    def division(self) -> Division | None:
        """The difference by function; None where nothing was sampled."""
        if self.sampled.reason or not self.sampled.lines or not self.sampled.call_ns:
            return None
        samples = {name: _summed(lines, self.sampled) for name, lines in self.by_function.items()}
        totals = self.sampled.samples["baseline"], self.sampled.samples["variant"]
        return divide(samples, totals, self.call_ns, alpha=ALPHA)

    @cached_property
    def causes(self) -> tuple[FunctionCause, ...]:
        """Functions whose times can be told apart, the largest difference first."""
        rows = self.division.rows if self.division else ()
        return tuple(
            FunctionCause(self._row_name(row), row, tuple(sorted(lines, key=lambda line: -sum(line.samples))))
            for row, lines in ((row, self.by_function[row.key]) for row in rows)
        )

    @property
    def times(self) -> str:
        """ "f 7.85 ms, g 1.68 ms a call"."""
        before, after = call_times(self.call_ns)
        return f"{self.sampled.baseline} {before}, {self.sampled.variant} {after} a call"

    @property
    def sentence(self) -> str:
        """Where the difference is: "mostly in normalise (a.py:17): 5.5 of the 6.2 ms saved a call". Empty where nobody
        looked."""
        if self.division is None:
            return f"not known: {self.sampled.reason}" if self.sampled.reason else ""
        more = self.call_ns[0] - self.call_ns[1]
        unit_ns, unit = unit_of(max(self.call_ns))
        if not self.causes:
            at_most, whole = (f"{ns / unit_ns:.2g}" for ns in (self.division.at_most, abs(more)))
            if self.division.at_most < abs(more) and at_most != whole:
                return f"no single place: none accounts for over {at_most} of the {whole} {unit} {_way(more)} a call"
            return "no place is proven" + (
                ": the lines show where the time goes, not what differs" if self.sampled.lines else ""
            )
        first, *others = self.causes[:MOST_NAMED]
        is_most = first.row.ns * more > 0 and first.row.ns / more >= MOSTLY
        if is_most and not any(abs(each.row.ns) > (1 - MOSTLY) * abs(more) for each in others):
            others = []
        part, whole = (f"{abs(ns) / unit_ns:.2g}" for ns in (first.row.ns, more))
        fits = is_most and (abs(first.row.ns) <= abs(more) or part == whole)
        if fits and not others and part == whole:
            return f"in {first.place}: all {whole} {unit} {_way(more)} a call"
        if fits and not others:
            return f"mostly in {first.place}: {part} of the {whole} {unit} {_way(more)} a call"
        if fits:
            begin = f"mostly in {first.place}: {part} {unit} {_way(more)} a call"
        else:
            begin = f"{part} {unit} {_way(first.row.ns)} a call in {first.place}"
        further = [(each.row.ns, f"in {each.place}") for each in others]
        if self.division.rest.is_told or len(self.causes) > 1 + len(others):
            left = more - first.row.ns - sum(ns for ns, _ in further)
            further.append((_rounded(left / unit_ns, max(self.call_ns) / unit_ns) * unit_ns, "elsewhere"))
        parts = [
            f"{abs(ns) / unit_ns:.2g} {unit} {_way(ns)} {place}" for ns, place in further if round(ns / unit_ns, 9)
        ]
        return "; ".join(filter(None, (begin, ", ".join(parts) or ELSE)))

    @property
    def reason(self) -> str:
        """Which line of the largest cause makes the difference, and how: it stands on the slow side alone, runs more
        often there, or is proven to take longer each time. Empty where lines are not counted, and where no line is."""
        if not self.causes:
            return ""
        first, names = self.causes[0], {"baseline": self.sampled.baseline, "variant": self.sampled.variant}
        slow, fast = ("baseline", "variant") if first.row.ns > 0 else ("variant", "baseline")
        counted = [line for line in self.sampled.lines if line.runs]
        lines = [line for line in first.lines if line.side == slow and line in counted]
        others = [line for line in first.lines if line.side == fast and line in counted]
        if not lines:
            return ""
        if not others:
            return self._runs_alone(lines[0], [line for line in counted if line.side == fast], names[fast])
        here_alone, there_alone = _in_one_only(lines, others), _in_one_only(others, lines)
        edited = next((line for line in here_alone if self._is_part_of(line, first.row.ns)), None)
        if edited is not None:
            text = f"line {_quoted(edited)} runs {_times(edited.runs or 0)} a call in {names[slow]}"
            like = max(there_alone, key=lambda line: _likeness(edited, line), default=None)
            if like is None:
                return f"{text}; {names[fast]} has no such line"
            is_edit = _likeness(edited, like) >= ALIKE
            there = like if is_edit else there_alone[0]
            if (edited.runs or 0) > OFTEN * (there.runs or 0):
                return f"{text}, line {_quoted(there)} {_times(there.runs or 0)} in {names[fast]}"
            if is_edit:
                return self._takes_longer(edited, there, names[slow], names[fast])
            return f"{text}; {names[fast]} has no such line"
        both = [(here, there) for here in lines for there in others if here.text == there.text]
        for here, there in both:
            if (here.runs or 0) > OFTEN * (there.runs or 0) and self._is_part_of(here, first.row.ns):
                runs = f"line {_quoted(here)} runs {_times(here.runs or 0)} a call in {names[slow]}"
                new = min(there_alone, key=lambda line: line.line, default=None)  # such as a guard that returns early
                before = f"; {names[slow]} has no line {_quoted(new)}" if new else ""
                return f"{runs}, line {_quoted(there)} {_times(there.runs or 0)} in {names[fast]}{before}"
        proven = next(((here, there) for here, there in both if self._is_proven_longer(here.text, first)), None)
        return self._takes_longer(*proven, names[slow], names[fast]) if proven else ""

    def _is_part_of(self, line: SampledLine, ns: float) -> bool:
        """Whether a line's time is so much of a difference that it may be named as its cause."""
        call = dict(zip(("baseline", "variant"), self.call_ns, strict=True))[line.side]
        return sum(line.samples) / sum(self.sampled.samples[line.side]) * call >= LEAST_OF_CAUSE * abs(ns)

    def _is_proven_longer(self, text: str, cause: FunctionCause) -> bool:
        """Whether the lines with this text are told apart between the sides by themselves, and in the cause's way."""
        both = _summed([line for line in cause.lines if line.text == text], self.sampled)
        totals = self.sampled.samples["baseline"], self.sampled.samples["variant"]
        rows = divide({text: both}, totals, self.call_ns, alpha=ALPHA).rows
        return any(row.ns * cause.row.ns > 0 for row in rows)

    @staticmethod
    def _takes_longer(here: SampledLine, there: SampledLine, slow: str, fast: str) -> str:
        often = "as often as" if (here.runs or 0) * OFTEN >= (there.runs or 0) else "less often than"
        lines = f"line {_quoted(here)} of {slow} runs {often} line {_quoted(there)} of {fast}"
        return f"{lines}, and takes longer each time"

    @staticmethod
    def _runs_alone(here: SampledLine, there: Sequence[SampledLine], fast: str) -> str:
        """Of a function that the fast side does not have, beside what takes most time there."""
        text = f"line {_quoted(here)} runs {_times(here.runs or 0)} a call"
        most = max(there, key=lambda line: sum(line.samples), default=None)
        if most is None or not 0 < (most.runs or 0) * OFTEN < (here.runs or 0):
            return text
        its = f"the line of {fast} that takes most time, {_quoted(most)}"
        return f"{text}; {its}, runs {_times(most.runs or 0)}"

    @property
    def told(self) -> str:
        """The sentence with what it took to find out: "why: mostly ... (sampled in 9 s)", if anything was sampled."""
        text = "; ".join(filter(None, (self.sentence, self.reason)))
        took = f" (sampled in {self.sampled.seconds:.0f} s)" if self.division is not None else ""
        return f"why: {text}{took}" if text else ""


@dataclass(frozen=True)
class CauseRow:
    """A row of the list behind the sentence: what a place adds to a call of the variant (below 0: saves), in `unit`."""

    name: str
    unit: str
    value: float
    low: float
    high: float

    @property
    def is_told(self) -> bool:
        """Whether the interval leaves out that there is no change."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        """ "-0.68 ms [-0.87, -0.48]"."""
        return f"{_signed(self.value)} {self.unit} [{_signed(self.low)}, {_signed(self.high)}]"


def changes(explained: Explanation, difference: Effect | None = None) -> list[CauseRow]:
    """A row for each cause, the largest first, and one for the rest: together they are the difference. None where no
    place is proven to differ. `difference`: the effect that is explained: no part of it is surer than the whole."""
    if explained.division is None or not explained.causes:
        return []
    rows = [(each.place, each.row) for each in explained.causes]
    rest = explained.division.rest
    rows.append(("all else" if rest.is_told else ELSE, rest))
    longest = max(explained.call_ns)
    unit_ns, unit = unit_of(longest)
    doubt = _doubt(difference, explained.call_ns) if difference is not None else 0.0

    def ends(row: PlaceDifference) -> tuple[float, float, float]:
        of_whole = abs(row.ns) * doubt
        return row.ns, row.ns + math.hypot(row.high - row.ns, of_whole), row.ns - math.hypot(row.ns - row.low, of_whole)

    return [
        CauseRow(name, unit, *(_rounded(-ns / unit_ns, longest / unit_ns) for ns in ends(row))) for name, row in rows
    ]


def _doubt(difference: Effect, call_ns: tuple[float, float]) -> float:
    """How far the ends of the interval of a difference in time lie from it, as a share of it. 0 where they are open,
    and where it may be none: its parts may be sure and make up for each other."""
    before, after = call_ns
    is_proven = 1 < difference.low <= difference.high < math.inf or 0 < difference.low <= difference.high < 1
    if not is_proven or before == after:
        return 0.0
    return max(abs(before / end - after) for end in (difference.low, difference.high)) / abs(before - after)


def explanations_in(folder: RunFolder) -> dict[Key, Explanation]:
    """What a run found, by comparison. Raises RunError."""
    explanations = [Explanation(sampled) for sampled in folder.read(CAUSES)]
    return {explanation.key: explanation for explanation in explanations}


def of_effect(explained: Mapping[Key, Explanation], effect: Effect) -> Explanation | None:
    """What was found of the comparison that an effect is about."""
    return explained.get((effect.workload, effect.variant, effect.baseline))


def why(explained: Mapping[Key, Explanation], effects: Iterable[Effect]) -> list[str]:
    """The sentence of each of these effects, once."""
    explanations = (of_effect(explained, effect) for effect in effects)
    sentences = [one_text_line(explanation.sentence, 300) for explanation in explanations if explanation is not None]
    return [sentence for sentence in dict.fromkeys(sentences) if sentence]


def _in_one_only(lines: Sequence[SampledLine], others: Sequence[SampledLine]) -> list[SampledLine]:
    """Those whose text none of the others has: new or edited lines, and those that went."""
    texts = {line.text for line in others}
    return [line for line in lines if line.text not in texts]


def _likeness(one: SampledLine, other: SampledLine) -> float:
    return SequenceMatcher(None, one.text, other.text).ratio()


def _place(line: SampledLine) -> Place:
    return line.side, line.file, line.line, line.function


def _stack(line: SampledLine) -> tuple[str, ...]:
    """The frames to a line, as `phases_of_stack` reads them."""
    return (*line.way, f"{line.function} ({line.file}:{line.line})", *line.below)


def _called(lines: Sequence[SampledLine]) -> str:
    """The function of a library, such as "asyncio.run", in which these lines spend most of their time; else empty."""
    times = Counter[str]()
    for line in lines:
        function, file = _FRAME.fullmatch(line.below[0]).groups()[:2] if line.below else ("", "")  # type: ignore[union-attr]
        times[f"{_LIBRARY.match(file)[1]}.{function}" if line.below else ""] += sum(line.samples)  # type: ignore[index]
    return next((called for called, most in times.items() if most >= MOSTLY * times.total() > 0), "")


def _in_words(phases: Collection[str]) -> str:
    if {*phases} >= ATTENTION:
        rest = _in_words({*phases} - ATTENTION)
        return " + ".join(filter(None, ("attention from mask to output", rest)))
    return " + ".join(phase.replace("_", " ") for phase in PHASES if phase in phases)


def _summed(lines: Sequence[SampledLine], sampled: SampledPair) -> tuple[list[int], list[int]]:
    processes = len(sampled.samples["baseline"])
    sums: dict[str, list[int]] = {"baseline": [0] * processes, "variant": [0] * processes}
    for line in lines:
        sums[line.side] = [one + more for one, more in zip(sums[line.side], line.samples, strict=True)]
    return sums["baseline"], sums["variant"]


def _times(count: int) -> str:
    """ "once", "twice", "19,286 times"."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _way(ns: float) -> str:
    """Of a time that one side takes more than the other."""
    return "saved" if ns > 0 else "added"


def _rounded(value: float, call: float) -> float:
    """To the third digit of a call's time: what is less than that cannot be told."""
    return round(value, 2 - math.floor(math.log10(call))) if call > 0 else value


def _quoted(line: SampledLine) -> str:
    """A line by its number and its code, as far as there is room: "7 (for word in text.split(): if w…)"."""
    text = one_text_line(line.text, LETTERS)
    return f"{line.line} ({text})" if text else f"{line.line}"


def _signed(value: float) -> str:
    return f"{round(value, 9):+.2g}" if round(value, 9) else "0"


# The lines of both sides of a comparison that take time, side by side and as a diff.


@dataclass(frozen=True)
class CodeLine:
    """A line of one side, with the time of a call that is spent there. runs: how often it runs in one; None where that
    was not counted."""

    function: str
    file: str
    line: int
    text: str
    ns: float
    runs: int | None

    @property
    def often(self) -> str:
        """ "19,286×"; empty where it was not counted."""
        return "" if self.runs is None else f"{self.runs:,}×"


LEAST_OF_CALL = 0.01
"""Lines with less of a call are not shown."""

BAR = 8  # letters of the bar of a line that takes a whole call


def code_of(explained: Explanation, side: str) -> list[CodeLine]:
    """The lines of a side that take time, function by function, that with the most time on both sides first."""
    total, call_ns = sum(explained.sampled.samples[side]), explained.sampled.call_ns[side]
    reached: dict[tuple[str, int, str], list[SampledLine]] = {}
    for line in explained.sampled.lines:
        if line.side == side:
            reached.setdefault((line.file, line.line, line.function), []).append(line)
    samples = [(lines[0], sum(sum(line.samples) for line in lines) / total) for lines in reached.values()]
    shares = [(line, share) for line, share in samples if share >= LEAST_OF_CALL]
    weight: dict[str, float] = {}  # by function, of both sides, so that both have one order
    for line in explained.sampled.lines:
        of_call = sum(line.samples) / sum(explained.sampled.samples[line.side])
        ns = of_call * explained.sampled.call_ns[line.side]
        weight[line.function] = weight.get(line.function, 0.0) + ns

    def order(item: tuple[SampledLine, float]) -> tuple[float, str, str, int]:
        place = item[0]
        return -weight[place.function], place.file, place.function, place.line

    return [
        CodeLine(line.function, line.file, line.line, line.text, share * call_ns, line.runs)
        for line, share in sorted(shares, key=order)
    ]


# -- both sides as a diff ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DiffLine:
    """A line of a function on both sides, or on one. mark: "-" of the baseline alone, "+" of the variant alone.

    ns: time of a call there, of the baseline and of the variant; None on a side that does not have the line. runs: how
    often it runs in one call, the same; None too where that was not counted.
    is_cause: whether it is where the two sides differ: an edit of such a function, or of one without edits a line
    whose time changed.
    """

    mark: str
    text: str
    numbers: tuple[int | None, int | None]
    ns: tuple[float | None, float | None]
    runs: tuple[int | None, int | None]
    is_cause: bool

    @property
    def often(self) -> str:
        """ "19,286×", "4,000× → 300×"; empty where it was not counted."""
        return " → ".join(dict.fromkeys(f"{count:,}×" for count in self.runs if count is not None))


@dataclass(frozen=True)
class FunctionDiff:
    """The code of a function of both sides; of the two that are compared both names."""

    name: str
    lines: tuple[DiffLine, ...]


@dataclass(frozen=True)
class _Line:
    number: int
    text: str
    ns: float = 0.0
    runs: int | None = None


def has_all_code(explained: Explanation) -> bool:
    """Whether the run kept whole functions, and not their lines with samples alone."""
    return {each.side for each in explained.sampled.code} == {*SIDES}


def diff_of(explained: Explanation) -> list[FunctionDiff]:
    """Functions that take time or were edited, matched by name; those first in which the sides are proven to differ.

    Older runs kept only the lines with samples: what is not there may be there and take no time.
    """
    sides = [_functions(explained, side) for side in SIDES]
    changed: dict[str, float] = {}
    for cause in explained.causes:
        for line in cause.lines:
            changed.setdefault(_matched(explained, line.side, line.function), cause.row.ns)
    diffs: list[tuple[bool, float, FunctionDiff]] = []
    for name in dict.fromkeys([*changed, *sides[0], *sides[1]]):
        before, after = (side.get(name, {}) for side in sides)
        lines = _diff(before, after, changed.get(name))
        most = max((sum(line.ns for line in side.values()) for side in (before, after)), default=0.0)
        is_edited = any(line.mark != " " for line in lines)
        if lines and (name in changed or (is_edited and has_all_code(explained))):
            diffs.append((name not in changed, -most, FunctionDiff(name, tuple(lines))))
    return [diff for _, _, diff in sorted(diffs, key=lambda each: each[:2])]


def _matched(explained: Explanation, side: str, function: str) -> str:
    """The name by which the functions of both sides are one."""
    roots = explained.sampled.roots
    if function != roots.get(side):
        return function
    return " and ".join(dict.fromkeys(roots.get(each, function) for each in SIDES))


def _functions(explained: Explanation, side: str) -> dict[str, dict[int, _Line]]:
    """The lines of each function of a side by number: all that the run kept, with the time of those that were seen."""
    sampled = explained.sampled
    functions: dict[str, dict[int, _Line]] = {}
    for function in sampled.code:
        if function.side == side:
            lines = functions.setdefault(_matched(explained, side, function.function), {})
            kept = enumerate(textwrap.dedent("\n".join(function.code)).splitlines(), function.line)
            lines |= {number: _Line(number, text) for number, text in kept}
    unit_ns = sampled.call_ns[side] / sum(sampled.samples[side])
    for line in sampled.lines:
        if line.side == side and line.line:
            lines = functions.setdefault(_matched(explained, side, line.function), {})
            have = lines.get(line.line, _Line(line.line, line.text))
            lines[line.line] = _Line(line.line, have.text, have.ns + unit_ns * sum(line.samples), line.runs)
    if not has_all_code(explained):
        least = LEAST_OF_CALL * sampled.call_ns[side]
        functions = {name: {at: each for at, each in of.items() if each.ns >= least} for name, of in functions.items()}
    return functions


def _diff(before: Mapping[int, _Line], after: Mapping[int, _Line], changed_ns: float | None) -> list[DiffLine]:
    """changed_ns: by how much the function's own time differs, where that is proven."""
    old, new = ([side[number] for number in sorted(side)] for side in (before, after))
    matcher = SequenceMatcher(None, [line.text.strip() for line in old], [line.text.strip() for line in new], False)
    pairs: list[tuple[_Line | None, _Line | None]] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            pairs += zip(old[i:j], new[k:m], strict=True)
        else:
            pairs += [(line, None) for line in old[i:j]] + [(None, line) for line in new[k:m]]
    edited = any(one is None or other is None for one, other in pairs)
    lines = []
    for one, other in pairs:
        apart = abs((one.ns if one else 0.0) - (other.ns if other else 0.0))
        moved = changed_ns is not None and apart >= LEAST_OF_CAUSE * abs(changed_ns)
        alone, shown = one is None or other is None, other or one
        line = DiffLine(
            mark="+" if one is None else "-" if other is None else " ",
            text=shown.text if shown else "",
            numbers=(one.number if one else None, other.number if other else None),
            ns=(one.ns if one else None, other.ns if other else None),
            runs=(one.runs if one else None, other.runs if other else None),
            is_cause=changed_ns is not None and (alone if edited else moved),
        )
        lines.append(line)
    return lines


LINES = (
    "Time of a call by line, including the libraries that the line calls, and how often the line runs in one call. "
    "All bars have the same scale."
)
"""What stands beside the lines of both sides."""


EIGHTHS = ("", *"▏▎▍▌▋▊▉")
"""The ends of a bar."""


def code_text(explained: Explanation, side: str, width: int = 88) -> str:
    """The same as lines of text: time of a call with a bar, number, code; a long line of code wraps. A
    function's name stands above its lines."""
    unit_ns, unit = unit_of(max(explained.call_ns))
    code = code_of(explained, side)
    room = max((len(line.often) for line in code), default=0)
    front = 19 + BAR + room
    runs = "runs" if room >= len("runs") else ""
    lines = [f"{unit:>7}  {'':<{BAR}} {runs:>{room}} {'line':>5}"]
    function = None
    for line in code:
        if line.function != function:
            lines.append(f"{'':>{11 + BAR + room}}{line.function} ({line.file.rpartition('/')[2]})")
            function = line.function
        text, *more = textwrap.wrap(line.text, width - front) or [""]
        whole, eighths = divmod(round(8 * BAR * line.ns / max(explained.call_ns)), 8)
        bar = "█" * whole + EIGHTHS[eighths]
        lines.append(f"{line.ns / unit_ns:>7.3g}  {bar:<{BAR}} {line.often:>{room}} {line.line or '':>5}  {text}")
        lines += [f"{'':>{front}}{rest}" for rest in more]
    return "\n".join(lines)
