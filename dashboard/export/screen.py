"""A comparison as HTML, for its page and for the exported one: what a call costs, and the lines that take its time."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from llama_workbench.harness.report.causes import Explanation
from llama_workbench.harness.report.code_lines import code_of
from llama_workbench.harness.report.comparison import Screen
from llama_workbench.harness.report.text import call_time, unit_of

from .. import words
from ..figures.colours import Palette

STYLE = Path(__file__).with_name("screen.css")
"""What it looks like; its colours are the variables of `css_variables`."""


@cache
def template(name: str) -> Template:
    """A template of this folder; what is put into it is text, and no markup."""
    loader = FileSystemLoader(Path(__file__).parent)
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    jinja.filters |= {"breakable": _breakable, "one_line": words.one_line}
    return jinja.get_template(name)


def css_variables(palette: Palette) -> Markup:
    """The colours by the names of their CSS variables."""
    colours = vars(palette) | dict(palette.verdict) | dict(zip(("before", "after"), palette.sides, strict=True))
    flat = {name.replace("_", "-"): each for name, each in colours.items() if isinstance(each, str)}
    return Markup("".join(f"--{name}:{each};" for name, each in flat.items()))


def costs_html(screen: Screen) -> Markup:
    """Both sides' bars for each measure, from 0, with the change."""
    sides = screen.effect.baseline, screen.effect.variant
    rows = [
        (each, list(zip(sides, (each.before, each.after), _shares(each.ratio), strict=True)))
        for each in screen.measures
    ]
    return Markup(template("screen.html").module.costs(rows, screen.brackets))  # type: ignore[attr-defined]


def _shares(ratio: float) -> tuple[float, float]:
    """Of both sides in the larger one."""
    return (0.0, 0.0) if math.isnan(ratio) else (1 / max(1.0, ratio), min(1.0, ratio))


def code_html(explained: Explanation, side: str, name: str) -> Markup:
    """The lines of a side that take time, marked where it is much; bars of both sides have one scale."""
    longest = max(explained.call_ns)
    unit_ns, unit = unit_of(longest)
    lines = [(line, f"{line.ns / unit_ns:.3g}", round(line.ns / longest, 3)) for line in code_of(explained, side)]
    call = call_time(explained.sampled.call_ns[side])
    return Markup(template("screen.html").module.code(name, call, unit, lines))  # type: ignore[attr-defined]


def _breakable(text: str) -> Markup:
    """`text` for the cell of a table: a name may break behind `_` and `/`, and what is very long anywhere."""
    marked = re.sub(r"[_/](?=\S)|[^\s_/]{24}(?=\S)", lambda part: f"{part[0]}\0", text.replace("\0", ""))
    return Markup("<wbr>").join(marked.split("\0"))
