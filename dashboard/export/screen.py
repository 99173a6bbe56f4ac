"""A comparison as HTML, for its page and for the exported one: what a call costs, and the code of both sides."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from llama_workbench.harness.report.causes import DiffLine, Explanation, diff_of, has_all_code
from llama_workbench.harness.report.comparison import Screen
from llama_workbench.harness.report.text import unit_of

from .. import words
from ..figures.colours import Palette

STYLE = Path(__file__).with_name("screen.css")
"""What it looks like; its colours are the variables of `css_variables`."""

LEAST_TOLD = 0.002
"""Of a call: less is not told beside a line."""


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


def diff_html(explained: Explanation) -> Markup:
    """The code of both sides as a diff, with the time of a call beside each line; empty where nothing was sampled.
    Functions in which the sides are proven to differ come first; marked are the lines that make the difference."""
    if explained.division is None or not (diffs := diff_of(explained)):
        return Markup()
    unit_ns, unit = unit_of(max(explained.call_ns))

    def times(line: DiffLine) -> tuple[str, ...]:
        ends = zip(line.ns, explained.call_ns, strict=True)
        return tuple(f"{ns / unit_ns:.3g}" if ns and ns >= LEAST_TOLD * call_ns else "" for ns, call_ns in ends)

    parts = [(diff.name, [(line, times(line)) for line in diff.lines]) for diff in diffs]
    sides = explained.sampled.baseline, explained.sampled.variant
    counted = any(line.often for diff in diffs for line in diff.lines)
    kept = "" if has_all_code(explained) else " This run kept the lines with samples alone: others are not shown."
    note = f"Marked: where the two differ. Bold: what takes most. − is only in the old code, + only in the new.{kept}"
    most = max(ns for diff in diffs for line in diff.lines for ns in line.ns if ns is not None)
    return Markup(template("screen.html").module.diff(parts, unit, sides, counted, note, most))  # type: ignore[attr-defined]


def _breakable(text: str) -> Markup:
    """`text` for the cell of a table: a name may break behind `_` and `/`, and what is very long anywhere."""
    marked = re.sub(r"[_/](?=\S)|[^\s_/]{24}(?=\S)", lambda part: f"{part[0]}\0", text.replace("\0", ""))
    return Markup("<wbr>").join(marked.split("\0"))
