"""The lines of both sides of a comparison that take time."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from ..profilers.causes import SampledLine
from .causes import Explanation
from .text import unit_of


@dataclass(frozen=True)
class CodeLine:
    """A line of one side, with the time of a call that is spent there. runs: how often it runs in one; None where that
    was not counted. is_cause: whether it is where the two sides differ."""

    function: str
    file: str
    line: int
    text: str
    ns: float
    runs: int | None
    is_cause: bool

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

    causes = {(line.file, line.line, line.function) for cause in explained.causes for line in cause.lines}
    return [
        CodeLine(p.function, p.file, p.line, p.text, share * call_ns, p.runs, (p.file, p.line, p.function) in causes)
        for p, share in sorted(shares, key=order)
    ]


LINES = (
    "Time of a call by line, including the libraries that the line calls, and how often the line runs in one call. "
    "All bars have the same scale. The lines where the two differ are marked."
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
