"""The code of both sides of a comparison as a diff in HTML, with the time of a call beside each line."""

from __future__ import annotations

from markupsafe import Markup

from llama_workbench.harness.report.causes import Explanation
from llama_workbench.harness.report.code_lines import DiffLine, diff_of
from llama_workbench.harness.report.text import unit_of

from .screen import template

LEAST_TOLD = 0.002
"""Of a call: less is not told beside a line."""


def diff_html(explained: Explanation) -> Markup:
    """Functions in which the sides are proven to differ first; marked are the lines that make the difference."""
    unit_ns, unit = unit_of(max(explained.call_ns))

    def times(line: DiffLine) -> tuple[str, ...]:
        ends = zip(line.ns, explained.call_ns, strict=True)
        return tuple(f"{ns / unit_ns:.3g}" if ns and ns >= LEAST_TOLD * call_ns else "" for ns, call_ns in ends)

    parts = [(diff.name, [(line, times(line)) for line in diff.lines]) for diff in diff_of(explained)]
    sides = explained.sampled.baseline, explained.sampled.variant
    return Markup(template("diff.html").module.diff(parts, unit, sides)) if parts else Markup()  # type: ignore[attr-defined]
