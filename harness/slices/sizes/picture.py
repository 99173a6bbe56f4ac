"""Time against size as SVG text: both axes logarithmic, a band for each interval, a strip where sides change places."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from llama_workbench.dashboard.export.svg import FIGURE_PX, FONTS, LIGHT, LINE_PX, Palette, line_of_text, straight_line

from ...report.text import call_time

HEIGHT, LEFT, RIGHT, BOTTOM = 420, 76, 20, 52
DASHES = ("none", "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "1 2", "6 2 1 2 1 2")
"""Of the lines: sides differ in more than in colour."""

SizedTime = tuple[float, float, float, float]
"""A size, nanoseconds of a call, and both ends of their interval (NaN: open)."""

Scale = Callable[[float], float]


def sizes_svg(
    curves: Mapping[str, Sequence[SizedTime]],
    crossings: Sequence[tuple[str, float, float]],
    colours: Palette = LIGHT,
) -> str:
    """One `<svg>` element. curves: by side, each in the order of its sizes. crossings: what happens, and between
    which sizes. Raises ValueError where there is no point."""
    points = [point for curve in curves.values() for point in curve]
    if not points:
        raise ValueError("nothing was measured, so there is no picture")
    sizes = sorted({size for size, *_ in points})
    times = [each for _, *ends in points for each in ends if each > 0]
    top = 14 + LINE_PX * (len(curves) + len(crossings))
    x = _scale(sizes[0], sizes[-1], LEFT, FIGURE_PX - RIGHT)
    y = _scale(min(times), max(times), HEIGHT + top - BOTTOM, top + 10)
    inks = dict(zip(curves, itertools.cycle(colours.verdict.values()), strict=False))
    dashes = dict(zip(curves, itertools.cycle(DASHES), strict=False))
    drawn = [f'<rect width="{FIGURE_PX}" height="{HEIGHT + top}" style="fill:{colours.page}"/>']
    for number, (name, low, high) in enumerate(crossings, start=len(curves)):
        left, right = x(low), max(x(high), x(low) + 2)
        box = f'x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{HEIGHT - BOTTOM}"'
        drawn.append(f'<rect {box} style="fill:{colours.band}"/>')
        drawn.append(
            f'<rect x="{LEFT}" y="{LINE_PX * number + 8}" width="26" height="10" style="fill:{colours.band}"/>'
        )
        drawn.append(line_of_text(LEFT + 36, LINE_PX * number + 17, f"{name}: {low:.3g} to {high:.3g}", colours.text))
    drawn += _axes(sizes, times, x, y, top, colours)
    for number, (name, curve) in enumerate(curves.items()):
        ink, height = inks[name], LINE_PX * number + 13
        drawn += _curve([(x(size), *(y(end) for end in ends if end > 0)) for size, *ends in curve], ink, dashes[name])
        drawn.append(straight_line(LEFT, height, LEFT + 26, height, ink, dashes[name], 2))
        drawn.append(line_of_text(LEFT + 36, height + 4, name, colours.text))
    text = "; ".join(
        f"{name}: {', '.join(f'{call_time(ns)} at {size:g}' for size, ns, *_ in curve)}"
        for name, curve in curves.items()
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{FIGURE_PX}" height="{HEIGHT + top}" '
    head += f'viewBox="0 0 {FIGURE_PX} {HEIGHT + top}" role="img" style="font-family:{FONTS};font-size:12px">'
    return "\n".join([head, f"<title>{html.escape(f'Time of a call by size. {text}')}</title>", *drawn, "</svg>", ""])


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    """Where a number lies between two places, by its logarithm."""
    return lambda number: start + (end - start) * math.log(number / low) / (math.log(high / low) or 1.0)


def _axes(
    sizes: Sequence[float], times: Sequence[float], x: Scale, y: Scale, top: float, colours: Palette
) -> Iterator[str]:
    base = HEIGHT + top - BOTTOM
    for size in sizes:
        yield straight_line(x(size), top, x(size), base, colours.rule)
        yield line_of_text(x(size), base + 18, f"{size:,g}" if size < 1e6 else f"{size:.3g}", colours.muted, "middle")
    decades = range(math.ceil(math.log10(min(times))), math.floor(math.log10(max(times))) + 1)
    for ns in [10.0**decade for decade in decades] if len(decades) > 1 else [min(times), max(times)]:
        yield straight_line(LEFT, y(ns), FIGURE_PX - RIGHT, y(ns), colours.rule)
        yield line_of_text(LEFT - 8, y(ns) + 4, call_time(ns), colours.muted, "end")
    yield straight_line(LEFT, base, FIGURE_PX - RIGHT, base, colours.muted)
    yield line_of_text((LEFT + FIGURE_PX - RIGHT) / 2, base + 40, "size of the input", colours.text, "middle")


def _curve(points: Sequence[Sequence[float]], ink: str, dash: str) -> Iterator[str]:
    """points: x, then y of the time, and of both ends where these are known."""
    whole = [point for point in points if len(point) == 4]
    outline = [(x, low) for x, _, low, _ in whole] + [(x, high) for x, _, _, high in reversed(whole)]
    yield f'<polygon points="{_places(outline)}" style="fill:{ink};fill-opacity:0.18;stroke:none"/>'
    places = _places([(x, middle) for x, middle, *_ in points])
    yield f'<polyline points="{places}" style="fill:none;stroke:{ink};stroke-width:2;stroke-dasharray:{dash}"/>'
    for x, middle, *_ in points:
        yield f'<circle cx="{x:.1f}" cy="{middle:.1f}" r="3" style="fill:{ink}"/>'


def _places(points: Sequence[Sequence[float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
