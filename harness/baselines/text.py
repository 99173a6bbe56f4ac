"""The answer of a comparison of two runs as text: for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from llama_workbench.variants import REFERENCE_BENCHMARKS

from ..report.markdown import markdown_cell, markdown_rows
from ..report.sessions import NOT_COMPARABLE, RunAgreement
from ..report.text import claim_text, effect_text, measured_text
from .regressions import BETWEEN_PERCENT, LEAST_BYTES, Counted, Row, RunComparison, Saved

MARKER = "<!-- llama-workbench -->"
"""A hidden line of the summary in Markdown, by which a comment on a pull request is found and updated."""

MOST_CHARACTERS = 60_000
"""Of that summary: a comment on a pull request holds 65,536."""

_STYLES = {
    "regression": "red",
    "no regression": "green",
    "improvement": "green",
    "inconclusive": "yellow",
}


def render(comparison: RunComparison) -> Group:
    """For the terminal: a block for each workload, one line a variant, and the answer last."""
    blocks: list[RenderableType] = [
        Text("variant, change in time relative to the reference benchmark [interval], answer", style="bold")
    ]
    worth = [row for row in comparison.rows if _worth(row)]
    width = max((len(_name(row)) for row in worth), default=0)
    change = max((len(change_text(row)) for row in worth), default=0)
    for workload in dict.fromkeys(row.workload for row in worth):
        rows = [row for row in worth if row.workload == workload]
        against = {row.against for row in rows if row.against and row.against not in REFERENCE_BENCHMARKS}
        note = f" (against {', '.join(sorted(against))})" if against else ""
        blocks.append(Text(f"{workload}{note}"))
        for row in rows:
            cells = Column(min_width=width, overflow="fold"), Column(min_width=change, no_wrap=True)
            grid = Table.grid(*cells, Column(overflow="fold"), padding=(0, 2, 0, 0))
            style = _STYLES[row.verdict] if row.decides else "dim"
            grid.add_row(Text(_name(row)), Text(change_text(row)), Text(row.verdict, style=style))
            blocks.append(Padding(grid, (0, 0, 0, 2)))
            if row.reason:
                blocks.append(Padding(Text(row.reason, style="dim"), (0, 0, 0, 4)))
    blocks += ["", *(Text(line) for line in notes_on(comparison))]
    blocks.append(Text(comparison.summary(), style=f"bold {_STYLES[comparison.verdict]}"))
    return Group(*blocks)


def _worth(row: Row) -> bool:
    """Whether the terminal shows a row: what decides, what was measured with an interval, and what changed."""
    return row.decides or row.what in ("time", "instructions") or row.verdict not in ("no regression", "inconclusive")


def _name(row: Row) -> str:
    return row.variant if row.what == "time" else f"{row.variant}: {row.what}"


def change_text(row: Row) -> str:
    """The change of a variant's time, instructions, ...: "+1.2 % [-0.3, +2.7]"; above 0 it became worse."""
    if row.change_percent is None:
        return "–"
    digits = 1 if row.what == "time" else 2
    if row.low_percent == row.high_percent == row.change_percent:
        return f"{_signed(row.change_percent, digits)} %"
    low, high = ("open" if end is None else _signed(end, digits) for end in (row.low_percent, row.high_percent))
    return f"{_signed(row.change_percent, digits)} % [{low}, {high}]"


def side_text(side: Saved | Counted | None) -> str:
    """What one of the two runs has of a row."""
    if side is None:
        return ""
    return (
        measured_text(side.ratio, side.low, side.high) if isinstance(side, Saved) else f"{side.value:,.0f} {side.unit}"
    )


def _signed(percent: float, digits: int) -> str:
    return f"{round(percent, digits) + 0.0:+.{digits}f}"  # adding 0.0 turns -0.0 into 0.0


def to_markdown(comparison: RunComparison) -> str:
    """A summary for a pull request: the answer, the rows that are not "no regression", all rows folded away.

    It ends with MARKER. Where all rows are too many for a comment, the last are left out and counted.
    """
    begin = [f"### {markdown_cell(comparison.summary())}", ""]
    end = [f"- {markdown_cell(note)}" for note in notes_on(comparison)] + ["", MARKER]
    left = MOST_CHARACTERS - len("\n".join([*begin, *end]))
    worth = [row for row in comparison.rows if row.verdict != "no regression" and _worth(row)]
    lines = [*_fitting_table(worth, left), ""] if worth else []
    if len(worth) < len(comparison.rows):
        all_rows = _fitting_table(comparison.rows, left - len("\n".join(lines)) - 100)
        lines += ["<details><summary>all rows</summary>", "", *all_rows, "", "</details>", ""]
    return "\n".join([*begin, *lines, *end]) + "\n"


def _fitting_table(rows: Sequence[Row], most: int) -> list[str]:
    """The lines of a table of so many characters at most; of rows that are left out, their number."""
    lines, size = [], 0
    for line in _markdown_table(rows).split("\n"):
        size += len(line) + 1
        if size > most:
            break
        lines.append(line)
    missing = len(rows) - max(len(lines) - 2, 0)
    return [*lines, "", f"{missing} more rows do not fit here; --json prints all."] if missing else lines


def _markdown_table(rows: Iterable[Row]) -> str:
    cells = (
        (
            *(row.workload, row.variant, row.what),
            *(side_text(side) for side in (row.base, row.new)),
            *(change_text(row), f"**{row.verdict}**" if row.decides else row.verdict, row.reason),
        )
        for row in rows
    )
    headings = ("workload", "variant", "what", "base", "new", "change", "answer", "reason")
    return markdown_rows(headings, (tuple(map(markdown_cell, row)) for row in cells))


def render_repeats(pairs: Mapping[tuple[str, str], RunAgreement], unlike: Sequence[str]) -> Group:
    """Of each two repeat runs, for the terminal: how much they have in common, and what of it contradicts. unlike: why
    they need not agree."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("runs", "intervals in both", "not overlapping", "verdicts in both", "changed"):
        table.add_column(Text(heading), overflow="fold")
    lines = []
    for names, pair in pairs.items():
        counts = (pair.intervals, len(pair.disjoint), pair.verdicts, len(pair.changed))
        table.add_row(Text(", ".join(names)), *map(str, counts))
        for effect, later in pair.disjoint:
            both = f"{effect_text(effect)} and {effect_text(later)}"
            lines.append(f"not overlapping: {effect.sides} on {effect.where}: {both}")
        lines += [f"changed: {claim_text(a)}: {a.verdict} and {b.verdict}" for a, b in pair.changed]
    if unlike:
        lines.append(f"{NOT_COMPARABLE}: {'; '.join(unlike)}")
    return Group(table, *map(Text, lines))


def notes_on(comparison: RunComparison) -> list[str]:
    """What a reader should know besides the rows: thresholds, what is allowed for, what only one run has."""
    lines = [*_notes_on_times(comparison), *_notes_on_counts(comparison)]
    if comparison.gate != ("time",):
        lines.append(f"The exit code is set by {' and '.join(comparison.gate)}.")
    if differences := "; ".join(comparison.machine_differences):
        lines.append(f"Different machine or software, so nothing here is a failure by itself: {differences}.")
    lines += comparison.notes
    for title, names in (("base", comparison.only_in_base), ("new", comparison.only_in_new)):
        if names:
            lines.append(f"Only in the {title} run: {_some(names)}.")
    if any(row.verdict == "regression" and row.what == "time" for row in comparison.rows):
        lines.append(
            "Saved runs only find candidates: confirm a regression by timing old and new code in the same rounds "
            "(pytest --benchmark --compare OLD NEW)."
        )
    return lines


def _notes_on_times(comparison: RunComparison) -> Iterator[str]:
    """From where on a slow-down is a regression, and what is allowed for between sessions."""
    threshold, tolerance = comparison.threshold_percent, comparison.tolerance_percent
    least = ((1 + threshold / 100) * (1 + tolerance / 100) - 1) * 100
    between = f", tolerance {tolerance:g} % between runs" if tolerance else ""
    yield (
        f"Threshold {threshold:g} % more time{between}: a regression is a slow-down whose whole interval is above "
        f"{least:.3g} %."
    )
    if any(row.between_percent for row in comparison.rows):
        where = " Where this is known, the interval" if tolerance else " The interval"
        yield (
            f"Runs of the same code differ by {BETWEEN_PERCENT:.2g} % (standard deviation).{where} includes it"
            f"{', and no tolerance is added' if tolerance else ''}."
        )


def _notes_on_counts(comparison: RunComparison) -> Iterator[str]:
    """What counts as a regression where something was counted, and what was not counted that decides."""
    for what, more in (("instructions", ""), ("memory", f"; less than {LEAST_BYTES // 1024} KiB is no change")):
        if limits := {row.threshold_percent for row in comparison.rows if row.what == what and row.new}:
            yield f"Threshold {max(limits):g} % more {what}{more}."
    for what in comparison.gate:
        lacking = {row.key for row in comparison.rows} - {row.key for row in comparison.rows if row.what == what}
        if lacking and what != "time":
            names = _some([" on ".join(reversed(key)) for key in sorted(lacking)])
            yield f"No {what} in both runs, so these are not decided by {what}: {names}."


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
