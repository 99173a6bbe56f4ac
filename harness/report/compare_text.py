"""The answer of a comparison of two runs as text: for the terminal, as Markdown and as JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from .compare import Comparison, Row
from .markdown import markdown_cell, markdown_rows
from .standings import YARDSTICK
from .text import effect_text

_STYLES = {"regression": "red", "no regression": "green", "improvement": "green", "cannot tell": "yellow"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(comparison: Comparison) -> Group:
    """For the terminal: a block for each workload, one line a variant, and the answer last."""
    blocks: list[RenderableType] = [
        Text("variant, change of its time against the yardstick [interval], answer", style="bold")
    ]
    width = max((len(row.variant) for row in comparison.rows), default=0)
    change = max((len(change_text(row)) for row in comparison.rows), default=0)
    for workload in dict.fromkeys(row.workload for row in comparison.rows):
        rows = [row for row in comparison.rows if row.workload == workload]
        against = {row.against for row in rows if row.against and row.against != YARDSTICK}
        note = f" (against {', '.join(sorted(against))})" if against else ""
        blocks.append(Text(f"{workload}{note}"))
        for row in rows:
            cells = Column(min_width=width, overflow="fold"), Column(min_width=change, no_wrap=True)
            grid = Table.grid(*cells, Column(overflow="fold"), padding=(0, 2, 0, 0))
            grid.add_row(Text(row.variant), Text(change_text(row)), Text(row.verdict, style=_STYLES[row.verdict]))
            blocks.append(Padding(grid, (0, 0, 0, 2)))
            if row.reason:
                blocks.append(Padding(Text(row.reason, style="dim"), (0, 0, 0, 4)))
    blocks += ["", *(Text(line) for line in _notes(comparison))]
    blocks.append(Text(comparison.summary(), style=f"bold {_STYLES[comparison.verdict]}"))
    return Group(*blocks)


def change_text(row: Row) -> str:
    """The change of a variant's time: "+1.2 % [-0.3, +2.7]"; above 0 it became slower."""
    if row.change_percent is None:
        return "–"
    low, high = ("open" if end is None else _signed(end) for end in (row.low_percent, row.high_percent))
    return f"{_signed(row.change_percent)} % [{low}, {high}]"


def _signed(percent: float) -> str:
    return f"{round(percent, 1) + 0.0:+.1f}"  # adding 0.0 turns -0.0 into 0.0


def to_markdown(comparison: Comparison) -> str:
    """A summary for a pull request: the answer, the rows that are not "no regression", all rows folded away."""
    lines = [f"### {markdown_cell(comparison.summary())}", ""]
    worth = [row for row in comparison.rows if row.verdict != "no regression"]
    if worth:
        lines += [_markdown_table(worth), ""]
    if len(worth) < len(comparison.rows):
        lines += ["<details><summary>all rows</summary>", "", _markdown_table(comparison.rows), "", "</details>", ""]
    lines += [f"- {markdown_cell(note)}" for note in _notes(comparison)]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_table(rows: Iterable[Row]) -> str:
    cells = (
        (
            *(row.workload, row.variant),
            *(effect_text(asdict(side)) if side else "" for side in (row.base, row.new)),
            *(change_text(row), f"**{row.verdict}**", row.reason),
        )
        for row in rows
    )
    headings = ("workload", "variant", "base", "new", "change of time", "answer", "reason")
    return markdown_rows(headings, (tuple(map(markdown_cell, row)) for row in cells))


def to_junit(comparison: Comparison) -> str:
    """JUnit XML: a test case for each row; a regression is a failure, "cannot tell" is skipped."""
    verdicts = [row.verdict for row in comparison.rows]
    suite = ElementTree.Element(
        "testsuite",
        name="workbench compare",
        tests=str(max(len(verdicts), 1)),
        failures=str(verdicts.count("regression")),
        skipped=str(verdicts.count("cannot tell") if verdicts else 1),
        errors="0",
    )
    for row in comparison.rows:
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(row.workload), name=_xml(row.variant))
        message = _xml(f"{change_text(row)} {row.reason}")
        if row.verdict == "regression":
            ElementTree.SubElement(case, "failure", message=message, type="regression")
        elif row.verdict == "cannot tell":
            ElementTree.SubElement(case, "skipped", message=message)
    if not verdicts:  # CI systems take a suite without cases for a success
        case = ElementTree.SubElement(suite, "testcase", classname="workbench", name="compare")
        ElementTree.SubElement(case, "skipped", message=_xml(comparison.summary()))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def write_text(path: Path, text: str) -> None:
    """Write a report file, with the folder it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _notes(comparison: Comparison) -> list[str]:
    threshold, tolerance = comparison.threshold_percent, comparison.tolerance_percent
    least = ((1 + threshold / 100) * (1 + tolerance / 100) - 1) * 100
    lines = [
        f"Threshold {threshold:g} % more time, tolerance {tolerance:g} % between sessions: a regression is a slow-down "
        f"whose whole interval lies above {least:.3g} %."
    ]
    if differences := "; ".join(comparison.machine_differences):
        lines.append(f"Different machine or software, so nothing here is a failure by itself: {differences}.")
    lines += comparison.notes
    for title, names in (("base", comparison.only_in_base), ("new", comparison.only_in_new)):
        if names:
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            lines.append(f"Only in the {title} run: {', '.join(names[:6])}{more}.")
    if any(row.verdict == "regression" for row in comparison.rows):
        lines.append(
            "This is a screen: confirm a regression by timing old and new code in the same rounds "
            "(pytest --benchmark --compare OLD NEW)."
        )
    return lines


def _xml(text: str) -> str:
    """Without the characters that XML cannot hold even when escaped."""
    return _NOT_XML.sub("?", text)
