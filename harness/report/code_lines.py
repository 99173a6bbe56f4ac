"""The lines of both sides of a comparison that take time, side by side and as a diff."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

from ..profilers.causes import SIDES, SampledLine
from .causes import LEAST_OF_CAUSE, Explanation
from .text import unit_of


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

    @property
    def is_edited(self) -> bool:
        """Whether the two sides have different lines."""
        return any(line.mark != " " for line in self.lines)


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
        diff = FunctionDiff(name, tuple(lines))
        if lines and (name in changed or (diff.is_edited and has_all_code(explained))):
            diffs.append((name not in changed, -most, diff))
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
    return [_diff_line(*pair, edited, changed_ns) for pair in pairs]


def _diff_line(one: _Line | None, other: _Line | None, edited: bool, changed_ns: float | None) -> DiffLine:
    apart = abs((one.ns if one else 0.0) - (other.ns if other else 0.0))
    moved = changed_ns is not None and apart >= LEAST_OF_CAUSE * abs(changed_ns)
    alone = one is None or other is None
    shown = other or one
    return DiffLine(
        mark="+" if one is None else "-" if other is None else " ",
        text=shown.text if shown else "",
        numbers=(one.number if one else None, other.number if other else None),
        ns=(one.ns if one else None, other.ns if other else None),
        runs=(one.runs if one else None, other.runs if other else None),
        is_cause=changed_ns is not None and (alone if edited else moved),
    )


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
