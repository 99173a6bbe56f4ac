"""What the figures are drawn with: shapes, notes and ticks.

Text that is ours lies on a fill that is ours, if only one that looks like the page: the server learns late that
somebody's browser turned dark, and text must be readable until then. Strings from files go through `words.label`, since
plotly reads HTML tags in every label.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from llama_workbench.dashboard import words

SMALL = 12  # font size of labels inside a figure
TRACK_PX = 20  # height of a row's track

Layout = dict[str, Any]
"""One shape or annotation, as plotly takes it."""

FLOOR = "A/A floor"


def box(
    y: float, x0: float, x1: float, half_px: float, fill: str, edge: str = "rgba(0,0,0,0)", name: str = ""
) -> Layout:
    """A rectangle around a row's track; a `name` is for the legend."""
    return {
        "type": "rect",
        "x0": x0,
        "x1": x1,
        "y0": y - half_px,
        "y1": y + half_px,
        "fillcolor": fill,
        "line": {"width": 1 if name == FLOOR else 0, "color": edge},
        "layer": "below",
        "name": words.label(name, 40),
        "showlegend": False,
    }


def rule(y: float, x: float, colour: str, dash: str) -> Layout:
    """An upright line over a row's track."""
    return {
        "type": "line",
        "x0": x,
        "x1": x,
        "y0": y - TRACK_PX / 2,
        "y1": y + TRACK_PX / 2,
        "line": {"color": colour, "width": 1, "dash": dash},
        "layer": "below",
        "name": "",
    }


def note(x: float, y: float, text: str, align: str, ink: tuple[str, str], *, under: bool = False) -> Layout:
    """Text in `ink` (its colour and the fill behind it) at the left or right edge of the plot.

    `y` is a height on the y axis, or for text `under` the x axis a distance from it in pixels.
    """
    return {
        "x": x,
        "xref": "paper",
        "y": 0 if under else y,
        "yref": "paper" if under else "y",
        "yshift": y if under else 0,
        "text": text,
        "showarrow": False,
        "xanchor": align,
        "yanchor": "middle",
        "borderpad": 0,
        "bgcolor": ink[1],
        "font": {"size": SMALL, "color": ink[0]},
    }


def legend(colour: str) -> Layout:
    """A legend along the figure's upper edge, whatever the height; it explains and switches nothing."""
    return {
        "orientation": "h",
        "x": 0,
        "y": 1,
        "yref": "container",
        "yanchor": "top",
        "font": {"size": SMALL, "color": colour},
        "itemclick": False,
        "itemdoubleclick": False,
    }


def ratio_ticks(left: float, right: float) -> dict[float, str]:
    """Up to eight round ratios between the ends with their labels: evenly stepped on a short axis, else 1-2-5."""
    air = 0.02 * math.log(right / left)  # plotly hides a label that does not fit in at the edge, but not its tick
    low, high = left * math.exp(air), right * math.exp(-air)
    if right / left > 4:
        digits = (1,) if right / left > 500 else (1, 2, 5) if right / left > 12 else (1, 1.5, 2, 3, 4, 5, 7)
        values = [digit * 10.0**power for power in range(-9, 10) for digit in digits]
        return {value: f"{value:.10g}×" for value in values if low <= value <= high}
    for step in (digit * 10.0**power for power in range(-4, 9) for digit in (1, 2, 5)):
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first < 6:
            places = max(0, -math.floor(math.log10(step) + 1e-9))
            return {round(step * k, 6): f"{step * k:,.{places}f}×" for k in range(first, last + 1)}
    return {1.0: "1×"}


def linear_ticks(left: float, right: float) -> dict[float, str]:
    """Two to five round values between the ends with their labels, evenly stepped."""
    step = round_step(right - left)
    places = max(0, -int(Decimal(f"{step:g}").as_tuple().exponent))
    first, last = math.ceil(left / step - 1e-9), math.floor(right / step + 1e-9)
    return {step * k: f"{step * k:,.{places}f}" for k in range(first, last + 1)}


def byte_unit(largest: float) -> tuple[float, str]:
    """Divisor and name of the binary unit in which `largest` is below a thousand."""
    divisor = 1.0
    for unit in ("B", "KiB", "MiB", "GiB"):
        if largest / divisor < 1000:
            return divisor, unit
        divisor *= 1024
    return divisor, "TiB"


def round_step(largest: float) -> float:
    """A round tick step with two to four ticks up to `largest`."""
    if largest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next(step * power for step in (0.25, 0.5, 1, 2.5, 5) if largest / (step * power) < 4.5)
