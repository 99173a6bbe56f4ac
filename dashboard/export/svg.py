"""Pictures as SVG text, for the dashboard, a notebook, a file of their own, and a page without scripts: the forest plot
(`views.forest` says what lies where); and the colours of all figures.

Written by hand, since it is lines and words: plotly would need a whole browser to make a still picture.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_workbench.harness.report.text import duration_text

from .. import words
from ..views import outcomes
from ..views.data import Claim, Floor
from ..views.forest import FASTER, FLOOR, SLOWER, TRACK_PX, Forest, Row, forest, in_words, region_name

# -- colours -----------------------------------------------------------------------------------------------------------
#
# Okabe and Ito's, which people with any of the common colour-vision deficiencies can tell apart; no meaning rests on
# colour alone.


@dataclass(frozen=True)
class Palette:
    """Colours of one appearance; `verdict` follows the theme's green, red, ... of the same names."""

    verdict: Mapping[str, str]
    region: str
    region_edge: str
    band: str
    page: str
    text: str
    muted: str
    rule: str
    track: str
    frames: Mapping[str, str]
    frame_text: str
    difference: tuple[str, ...]  # of a flamegraph: most time saved (blue), ..., none, ..., most time added (red)
    sides: tuple[str, str]


STEPS = 5
"""Shades of each of the two colours of a difference."""


def _diverging(low: str, middle: str, high: str) -> tuple[str, ...]:
    """2 × STEPS + 1 colours from `low` over `middle` to `high`, evenly mixed."""

    def mixed(end: str, share: float) -> str:
        pairs = zip(bytes.fromhex(middle[1:]), bytes.fromhex(end[1:]), strict=True)
        return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in pairs)

    shares = [step / STEPS for step in range(1, STEPS + 1)]
    return (*(mixed(low, s) for s in reversed(shares)), middle, *(mixed(high, s) for s in shares))


def _verdicts(inks: str) -> dict[str, str]:
    return dict(zip(("green", "red", "violet", "gray", "orange", "blue"), inks.split(), strict=True))


LIGHT = Palette(
    verdict=_verdicts("#007A5A #C04A00 #A8447C #5F6B7A #9A6700 #0072B2"),
    region="rgba(86,180,233,0.30)",
    region_edge="rgba(0,114,178,0.75)",
    band="rgba(95,107,122,0.32)",
    page="#FFFFFF",
    text="#0B1016",
    muted="#5F6B7A",
    rule="rgba(95,107,122,0.18)",
    track="rgba(95,107,122,0.07)",
    frames={"variant": "#A9D3EE", "torch": "#F3CF8E", "library": "#DDB5CC", "other": "#D5DAE0"},
    frame_text="#17212B",
    difference=_diverging("#5AA5DA", "#E6E9ED", "#E67E57"),
    sides=("#7A8794", "#0072B2"),
)
DARK = Palette(
    verdict=_verdicts("#2FC49A #F08A4B #DF9CC2 #A3AEBB #E6B450 #6BB8EC"),
    region="rgba(86,180,233,0.26)",
    region_edge="rgba(107,184,236,0.80)",
    band="rgba(163,174,187,0.30)",
    page="#12171D",
    text="#E6EBF0",
    muted="#A3AEBB",
    rule="rgba(163,174,187,0.18)",
    track="rgba(163,174,187,0.09)",
    frames={"variant": "#2B6A92", "torch": "#7F6119", "library": "#7B4767", "other": "#4A545F"},
    frame_text="#F2F5F8",
    difference=_diverging("#1F6FA8", "#343D47", "#A84E28"),
    sides=("#8B97A3", "#6BB8EC"),
)


# -- the forest plot ---------------------------------------------------------------------------------------------------

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
    "square": '<rect x="-4.5" y="-4.5" width="9" height="9" style="fill:{0}"/>',
    "diamond-open": '<path d="M0-6L6 0L0 6L-6 0Z" style="fill:{1};stroke:{0};stroke-width:2"/>',
    "diamond": '<path d="M0-6L6 0L0 6L-6 0Z" style="fill:{0}"/>',
    "triangle-right": '<path d="M-4-6L6 0L-4 6Z" style="fill:{0}"/>',
    "triangle-left": '<path d="M4-6L-6 0L4 6Z" style="fill:{0}"/>',
    "star": '<path d="M0-7L2-2L7-2L3 1.5L4.5 6.5L0 3.5L-4.5 6.5L-3 1.5L-7-2L-2-2Z" style="fill:{0}"/>',
    "cross": '<path d="M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z" style="fill:{0}"/>',
    "cross-thin": '<path d="M-6 0H6M0-6V6" style="fill:none;stroke:{0};stroke-width:2.5"/>',
    "x-thin": '<path d="M-5-5L5 5M-5 5L5-5" style="fill:none;stroke:{0};stroke-width:2.5"/>',
}
"""Plotly's names of the markers in `words.LOOKS` as shapes around 0, 0; {0} is the ink and {1} the page."""

SWATCH = '<rect x="-7" y="-5" width="14" height="10" style="fill:{};stroke:{};stroke-dasharray:2 2"/>'


@dataclass(frozen=True)
class Plot:
    """What is drawn, and where on the page. Without a width places are in per cent and follow the page's."""

    forest: Forest
    colours: Palette
    width: float | None

    def x(self, share: float) -> str:
        """Where a share of the axis lies."""
        return f"{100 * share:.3f}%" if self.width is None else f"{share * self.width:.2f}"

    def at(self, value: float) -> str:
        """Where a value lies."""
        return self.x(self.forest.share(value))

    @property
    def letters(self) -> int:
        """How many letters of size SMALL fit on a line."""
        return int((self.width or PHONE_PX) / LETTER_PX)

    def text(self, x: float, y: float, text: str, ink: str = "", *, more: str = "") -> str:
        """A line of text at a share of the axis, by default in the text's colour: from the left edge, to the right."""
        align = "start" if x < 0.03 else "end" if x > 0.97 else "middle"
        return line_of_text(self.x(x), y, text, ink or self.colours.text, align, more=more)


def forest_svg(
    claim: Claim,
    floors: Mapping[str, Floor],
    colours: Palette = LIGHT,
    *,
    width: float | None = None,
    title: Sequence[str] = (),
    source: str = "",
    heading: str = "against ",
) -> str:
    """The figure as one `<svg>` element. Raises ValueError where the claim has no effects.

    Without a `width` (pixels) it takes its parent's and keeps its letters as they are. With one it is a picture of
    its own: a ground in the page's colour, the lines of `title` above (the first bold), and `source` below.
    `heading`: before the name of each baseline.
    """
    if not claim.effects:
        raise ValueError(f"{claim.claim}: a figure needs an effect, and nothing was measured")
    plan = forest(claim, floors)
    plot = Plot(plan, colours, None if width is None else width - 2 * MARGIN_PX)
    drawn: list[str] = []
    y = 0.0
    for index, line in enumerate(title):
        style = f"font-weight:{400 if index else 600};font-size:{SMALL if index else 15}px"
        clipped = words.clip(line, int(plot.letters * (1 if index else 0.8)))
        drawn.append(plot.text(0, y + 14, clipped, colours.muted if index else "", more=style))
        y += LINE_PX
    legend, y = _legend(plot, y)
    base = y + plan.height  # of the axis
    drawn += legend
    drawn += [
        plot.text(0, base - above + 4, f"{heading}{name}", more="font-weight:600") for above, name in plan.headings
    ]
    drawn += [shape for row in plan.rows for shape in _row(plot, row, base - row.y)]
    drawn.append(plot.text(1, base - plan.height + 12, plan.column, colours.muted))
    drawn += _axis(plot, base)
    y = base + FOOT_PX + (LINE_PX if plan.is_ratio else 0)
    if source:
        drawn.append(plot.text(0, y + 12, words.clip(source, plot.letters), colours.muted))
        y += LINE_PX
    name = f"{claim.title}: {outcomes.look_of(claim).word.lower()}. {in_words(claim, {} if claim.unit else floors)}"
    return _whole(_escaped(name, 4000), drawn, width, y, colours.page)


def _whole(name: str, drawn: Sequence[str], width: float | None, height: float, ground: str) -> str:
    """The element around everything; a picture of its own `width` has a margin, and a ground in that colour."""
    size = f'width="100%" height="{height:.0f}"'
    if width is not None:
        tall = height + 2 * MARGIN_PX
        size = f'width="{width:g}" height="{tall:g}" viewBox="0 0 {width:g} {tall:g}"'
        below = f'<rect width="{width:g}" height="{tall:g}" style="fill:{ground}"/>'
        drawn = [below, f'<g transform="translate({MARGIN_PX} {MARGIN_PX})">', *drawn, "</g>"]
    style = f"font-family:{FONTS};font-size:{SMALL}px;background:{ground}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" style="{style}">'
    return "\n".join([head, f"<title>{name}</title>", *drawn, "</svg>", ""])


def _legend(plot: Plot, y: float) -> tuple[list[str], float]:
    """What marks and fills mean, broken into lines; and the height below it."""
    plan, colours = plot.forest, plot.colours
    items = [(verdict_mark(look, colours), look.word.lower()) for look in plan.looks]
    if plan.region is not None:
        items.append((SWATCH.format(colours.region, colours.region_edge), region_name(plan.claim)))
    if any(row.floor for row in plan.rows):
        items.append((_thin("-7", "7", "0", 0, colours.muted), FLOOR))
    drawn: list[str] = []
    x = 0.0
    for mark, name in items:
        name = words.clip(name, plot.letters - 4)
        wide = 22 + LETTER_PX * len(name) + 14
        if x and x + wide > (plot.width or PHONE_PX):
            x, y = 0.0, y + LINE_PX
        drawn.append(f'<g transform="translate({x + 8:.1f} {y + 10:.1f})">{mark}</g>')
        drawn.append(line_of_text(f"{x + 22:.1f}", y + 14, name, colours.text))
        x += wide
    return drawn, y + (LINE_PX if items else 0)


def _row(plot: Plot, row: Row, y: float) -> list[str]:
    """A line of text, and under it the track with everything on it; `y` is the track's middle."""
    plan, colours = plot.forest, plot.colours
    effect, half = row.effect, TRACK_PX / 2
    # As wide as its parent, the row cannot tell where its name ends: the numbers cover what reaches them.
    ground = "" if plot.width else f"paint-order:stroke;stroke:{colours.page};stroke-width:8px"
    numbers = plot.text(1, y - half - 6, row.told, more=ground)
    if plot.width:
        above = [
            plot.text(0, y - half - 6, words.clip(effect.where, max(12, plot.letters - len(row.told) - 2))),
            numbers,
        ]
    else:
        above = [plot.text(0, y - half - 6, effect.where), numbers]
    drawn = ["<g>", f"<title>{_hover(row, plan)}</title>", *above]
    drawn.append(_box(plot, plan.left, plan.right, y, half, colours.track))
    if plan.region:
        drawn.append(_box(plot, *plan.ends(*plan.region), y, half, colours.region))
        edges = [edge for edge in plan.region if edge is not None]
        drawn += [_upright(plot.at(edge), y, half, colours.region_edge, "2 2") for edge in edges]
    if floor := row.floor:
        low, high, middle = map(plot.at, (floor.low, floor.high, floor.value))
        drawn.append(_thin(low, high, middle, y + row.y - row.lane, colours.muted))
    if plan.is_ratio:
        drawn.append(_upright(plot.at(1), y, half, colours.muted))
    if effect.value is None:
        return [*drawn, "</g>"]
    look = plan.look(effect)
    ink = colours.verdict[look.colour]
    start, end = map(plot.at, plan.ends(effect.lower, effect.upper))
    drawn.append(straight_line(start, y, end, y, ink, wide=2))
    # An open end has no cap.
    drawn += [_upright(plot.at(end), y, 5, ink, wide=2) for end in (effect.lower, effect.upper) if end is not None]
    # Only a nested <svg> has a place in per cent; a <g> would need pixels.
    mark = verdict_mark(look, colours)
    drawn.append(f'<svg x="{plot.at(effect.value)}" y="{y:.1f}" style="overflow:visible">{mark}</svg>')
    return [*drawn, "</g>"]


def _hover(row: Row, plan: Forest) -> str:
    """What a row tells where the mouse lies on it."""
    effect, floor = row.effect, row.floor
    lines = [
        effect.where,
        effect.sides,
        f"{words.effect(effect)} · {plan.look(effect).word.lower()}",
        f"{effect.rounds} rounds, {duration_text(effect.seconds or 0)}",
        region_name(plan.claim) if plan.claim.claimed else "",
        f"{FLOOR}: {floor.text}, {floor.rounds} rounds" if floor else "",
        *effect.said,
    ]
    return "\n".join(map(_escaped, filter(None, lines)))


def _axis(plot: Plot, base: float) -> list[str]:
    """Ticks with their labels, the title, and for ratios which side is which."""
    plan, quiet = plot.forest, plot.colours.muted
    drawn = [straight_line(plot.x(0), base, plot.x(1), base, quiet)]
    for value, text in plan.ticks.items():
        drawn.append(_upright(plot.at(value), base + 3, 3, quiet))
        drawn.append(plot.text(plan.share(value), base + 19, text))
    if plan.is_ratio:
        drawn += [plot.text(0, base + 38, SLOWER, quiet), plot.text(1, base + 38, FASTER, quiet)]
    drawn.append(plot.text(0.5, base + (56 if plan.is_ratio else 38), words.clip(plan.title, plot.letters)))
    return drawn


def verdict_mark(shown: words.Appearance, colours: Palette) -> str:
    """The marker of a verdict as an SVG shape around 0, 0, twelve pixels wide."""
    return MARKERS[shown.symbol].format(colours.verdict[shown.colour], colours.page)


def _thin(start: str, end: str, middle: str, y: float, ink: str) -> str:
    """How identical code came out: a thin line with a dot."""
    return f'{straight_line(start, y, end, y, ink)}<circle cx="{middle}" cy="{y:.1f}" r="2.5" style="fill:{ink}"/>'


def _box(plot: Plot, low: float, high: float, y: float, half: float, fill: str) -> str:
    """A rectangle from one value to another, `half` above and below the height `y`."""
    left, right = map(plot.forest.share, (low, high))
    return (
        f'<rect x="{plot.x(left)}" width="{plot.x(max(0.0, right - left))}" y="{y - half:.1f}" height="{2 * half:g}" '
        f'style="fill:{fill};stroke:none"/>'
    )


def straight_line(
    x1: float | str, y1: float, x2: float | str, y2: float, ink: str, dash: str = "none", wide: float = 1
) -> str:
    return (
        f'<line x1="{_placed(x1)}" y1="{y1:.1f}" x2="{_placed(x2)}" y2="{y2:.1f}" '
        f'style="stroke:{ink};stroke-width:{wide:g};stroke-dasharray:{dash}"/>'
    )


def _upright(x: str, y: float, half: float, ink: str, dash: str = "none", wide: float = 1) -> str:
    return straight_line(x, y - half, x, y + half, ink, dash, wide)


def line_of_text(x: float | str, y: float, text: str, ink: str, align: str = "start", *, more: str = "") -> str:
    style = f"fill:{ink};text-anchor:{align};{more}"
    return f'<text x="{_placed(x)}" y="{y:.1f}" style="{style}">{_escaped(text)}</text>'


def _placed(x: float | str) -> str:
    """In pixels, or in per cent as it is."""
    return x if isinstance(x, str) else f"{x:.1f}"


def _escaped(text: str, limit: int = 400) -> str:
    """Text of a file in SVG: also without the control characters that XML has no way to write."""
    return html.escape("".join(letter for letter in words.clip(text, limit) if letter.isprintable()), quote=True)
