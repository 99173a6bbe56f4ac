"""The forest plot as SVG text: for a file of its own, and for a page that needs neither script nor network.

Written by hand, since it is lines and words: plotly would need a whole browser to make a still picture. What stands
where is `views.forest`'s.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .. import words
from ..figures.colours import LIGHT, Palette
from ..views.data import Claim, Floor
from ..views.forest import FASTER, FLOOR, SLOWER, TRACK_PX, Forest, Row, forest, in_words, region_name

SMALL = 12  # font size
FONTS = "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', 'Noto Sans', sans-serif"
FIGURE_PX = 760
PHONE_PX = 340  # the least width that a figure without one of its own is made for
MARGIN_PX = 16
LETTER_PX = 6.7  # mean width of a letter of size SMALL; a little too wide, so that no two words touch
LINE_PX = 20
FOOT_PX = 44  # tick labels and title

MARKERS = {
    "circle": '<circle r="4.5" style="fill:{0};stroke:{0};stroke-width:2"/>',
    "circle-open": '<circle r="4.5" style="fill:{1};stroke:{0};stroke-width:2"/>',
    "square-open": '<rect x="-4.5" y="-4.5" width="9" height="9" style="fill:{1};stroke:{0};stroke-width:2"/>',
    "diamond": '<path d="M0-6L6 0L0 6L-6 0Z" style="fill:{0}"/>',
    "triangle-right": '<path d="M-4-6L6 0L-4 6Z" style="fill:{0}"/>',
    "triangle-left": '<path d="M4-6L-6 0L4 6Z" style="fill:{0}"/>',
    "star": '<path d="M0-7L2-2L7-2L3 1.5L4.5 6.5L0 3.5L-4.5 6.5L-3 1.5L-7-2L-2-2Z" style="fill:{0}"/>',
    "cross": '<path d="M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z" style="fill:{0}"/>',
    "x-thin": '<path d="M-5-5L5 5M-5 5L5-5" style="fill:none;stroke:{0};stroke-width:2.5"/>',
}
"""Plotly's names of the markers in `words.LOOKS` as shapes around 0, 0; {0} is the ink and {1} the page."""


@dataclass(frozen=True)
class Plot:
    """Where a share of the axis lies. Without a width everything is in per cent and follows the page's."""

    width: float | None

    def x(self, share: float) -> str:
        return f"{100 * share:.3f}%" if self.width is None else f"{share * self.width:.2f}"

    @property
    def letters(self) -> int:
        """How many letters of size SMALL fit on a line."""
        return int((self.width or PHONE_PX) / LETTER_PX)


def forest_svg(
    claim: Claim,
    floors: Mapping[str, Floor],
    colours: Palette = LIGHT,
    *,
    width: float | None = None,
    title: Sequence[str] = (),
    source: str = "",
) -> str:
    """The figure as one `<svg>` element. Raises ValueError where the claim has no effects.

    Without a `width` (pixels) it takes its parent's and keeps its letters as they are. With one it is a picture that
    stands alone: a ground in the page's colour, the lines of `title` above (the first bold), and `source` below.
    """
    if not claim.effects:
        raise ValueError(f"{claim.id}: a figure needs an effect, and nothing was measured")
    described = forest(claim, floors)
    plot = Plot(None if width is None else width - 2 * MARGIN_PX)
    drawn: list[str] = []
    y = 0.0
    for index, line in enumerate(title):
        style = f"font-weight:{400 if index else 600};font-size:{SMALL if index else 15}px"
        clipped = words.clip(line, int(plot.letters * (1 if index else 0.8)))
        drawn.append(_text(plot.x(0), y + 14, clipped, colours.muted if index else colours.text, more=style))
        y += LINE_PX
    legend, y = _legend(described, colours, plot, y)
    drawn += legend
    base = y + described.height  # of the axis
    for above, name in described.headings:
        drawn.append(_text(plot.x(0), base - above + 4, f"against {name}", colours.text, more="font-weight:600"))
    for row in described.rows:
        drawn += _row(described, row, base - row.y, plot, colours)
    drawn.append(_text(plot.x(1), base - described.height + 12, described.column, colours.muted, "end"))
    drawn += _axis(described, base, plot, colours)
    y = base + FOOT_PX + (LINE_PX if described.is_ratio else 0)
    if source:
        drawn.append(_text(plot.x(0), y + 12, words.clip(source, plot.letters), colours.muted))
        y += LINE_PX
    told = in_words(claim, {} if claim.unit else floors)
    name = f"{claim.title}: {words.look(claim.verdict).word.lower()}. {told}"
    return _whole(_escaped(name, 4000), drawn, width, y, colours.page)


def _whole(name: str, drawn: Sequence[str], width: float | None, height: float, ground: str) -> str:
    style = f"font-family:{FONTS};font-size:{SMALL}px"
    if width is None:
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height:.0f}" role="img" style="{style}">'
        return "\n".join([head, f"<title>{name}</title>", *drawn, "</svg>"])
    tall = height + 2 * MARGIN_PX
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{tall:g}" '
            f'viewBox="0 0 {width:g} {tall:g}" role="img" style="{style}">',
            f"<title>{name}</title>",
            f'<rect width="{width:g}" height="{tall:g}" style="fill:{ground}"/>',
            f'<g transform="translate({MARGIN_PX} {MARGIN_PX})">',
            *drawn,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _legend(described: Forest, colours: Palette, plot: Plot, y: float) -> tuple[list[str], float]:
    """What marks and fills mean, broken into lines; and the height below it."""
    items = [(verdict_mark(verdict, colours), words.look(verdict).word.lower()) for verdict in described.verdicts]
    if described.region is not None:
        items.append((_swatch(colours.region, colours.region_edge, dashed=True), region_name(described.claim)))
    if any(row.floor for row in described.rows):
        items.append((_swatch(colours.floor, colours.floor_edge), f"{FLOOR} (identical code)"))
    drawn: list[str] = []
    x = 0.0
    for mark, name in items:
        name = words.clip(name, plot.letters - 4)
        wide = 22 + LETTER_PX * len(name) + 14
        if x and x + wide > (plot.width or PHONE_PX):
            x, y = 0.0, y + LINE_PX
        drawn.append(f'<g transform="translate({x + 8:.1f} {y + 10:.1f})">{mark}</g>')
        drawn.append(_text(f"{x + 22:.1f}", y + 14, name, colours.text))
        x += wide
    return drawn, y + (LINE_PX if items else 0)


def _row(described: Forest, row: Row, y: float, plot: Plot, colours: Palette) -> list[str]:
    """A line of text, and under it the track with everything on it; `y` is the track's middle."""
    effect, half = row.effect, TRACK_PX / 2
    where = words.clip(effect.where, max(12, plot.letters - len(row.told) - 2))
    drawn = [
        _text(plot.x(0), y - half - 6, where, colours.text),
        _text(plot.x(1), y - half - 6, row.told, colours.text, "end"),
        _box(plot, 0, 1, y, half, colours.track),
    ]

    def place(value: float) -> str:
        return plot.x(described.share(value))

    if described.region:
        low, high = map(described.share, described.ends(*described.region))
        drawn.append(_box(plot, low, high, y, half, colours.region))
        edges = [edge for edge in described.region if edge is not None]
        drawn += [_upright(place(edge), y, half, colours.region_edge, "2 2") for edge in edges]
    if row.floor:
        low, high = described.share(row.floor.low), described.share(row.floor.high)
        drawn.append(_box(plot, low, high, y, half - 3, colours.floor, colours.floor_edge))
    if described.is_ratio:
        drawn.append(_upright(place(1), y, half, colours.muted))
    if effect.value is None:
        return drawn
    ink = colours.verdict[words.look(effect.verdict).colour]
    start, end = map(place, described.ends(effect.low, effect.high))
    drawn.append(f'<line x1="{start}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}" style="stroke:{ink};stroke-width:2"/>')
    # An open end has no cap: it goes on.
    drawn += [_upright(place(end), y, 5, ink, wide=2) for end in (effect.low, effect.high) if end is not None]
    # Only a nested <svg> has a place in per cent; a <g> would need pixels.
    mark = verdict_mark(effect.verdict, colours)
    drawn.append(f'<svg x="{place(effect.value)}" y="{y:.1f}" style="overflow:visible">{mark}</svg>')
    return drawn


def _axis(described: Forest, base: float, plot: Plot, colours: Palette) -> list[str]:
    """Ticks with their labels, the title, and for ratios which side is which."""
    drawn = [
        f'<line x1="{plot.x(0)}" x2="{plot.x(1)}" y1="{base:.1f}" y2="{base:.1f}" '
        f'style="stroke:{colours.muted};stroke-width:1"/>'
    ]
    for value, text in described.ticks.items():
        share = described.share(value)
        align = "start" if share < 0.03 else "end" if share > 0.97 else "middle"
        drawn.append(_upright(plot.x(share), base + 3, 3, colours.muted))
        drawn.append(_text(plot.x(share), base + 19, text, colours.text, align))
    if described.is_ratio:
        drawn.append(_text(plot.x(0), base + 38, SLOWER, colours.muted))
        drawn.append(_text(plot.x(1), base + 38, FASTER, colours.muted, "end"))
    below = base + (56 if described.is_ratio else 38)
    drawn.append(_text(plot.x(0.5), below, words.clip(described.title, plot.letters), colours.text, "middle"))
    return drawn


def verdict_mark(verdict: str, colours: Palette) -> str:
    """The marker of a verdict as an SVG shape around 0, 0, twelve pixels wide."""
    shown = words.look(verdict)
    return MARKERS[shown.symbol].format(colours.verdict[shown.colour], colours.page)


def _swatch(fill: str, edge: str, *, dashed: bool = False) -> str:
    dash = ";stroke-dasharray:2 2" if dashed else ""
    return f'<rect x="-7" y="-5" width="14" height="10" style="fill:{fill};stroke:{edge}{dash}"/>'


def _box(plot: Plot, low: float, high: float, y: float, half: float, fill: str, edge: str = "none") -> str:
    return (
        f'<rect x="{plot.x(low)}" width="{plot.x(max(0.0, high - low))}" y="{y - half:.1f}" height="{2 * half:g}" '
        f'style="fill:{fill};stroke:{edge}"/>'
    )


def _upright(x: str, y: float, half: float, ink: str, dash: str = "none", wide: float = 1) -> str:
    return (
        f'<line x1="{x}" x2="{x}" y1="{y - half:.1f}" y2="{y + half:.1f}" '
        f'style="stroke:{ink};stroke-width:{wide:g};stroke-dasharray:{dash}"/>'
    )


def _text(x: str, y: float, text: str, ink: str, align: str = "start", *, more: str = "") -> str:
    return f'<text x="{x}" y="{y:.1f}" style="fill:{ink};text-anchor:{align};{more}">{_escaped(text)}</text>'


def _escaped(text: str, limit: int = 400) -> str:
    """Text of a file in SVG: also without the control characters that XML has no way to write."""
    return html.escape("".join(letter for letter in words.clip(text, limit) if letter.isprintable()), quote=True)
