"""Two runs from different days: has anything become slower?

Absolute times of two sessions cannot be compared, so each variant is compared as its ratio to the frozen `yardstick`
that both sessions timed in the same rounds. With d the log ratio t_yardstick / t_variant, the slow-down is

    delta = d(base) - d(new),    between  low(base) - high(new)  and  high(base) - low(new),

where low and high are the ends of the two confidence intervals. There are three answers:

- *regression* where even the lower end, less a tolerance tau, lies beyond the threshold. tau allows for what shifts a
  ratio from one session to the next: 2 % on the same machine configuration. On another one (CPU, torch, libc, threads,
  allocator or GPU differ) it is 10 %, and the answer is "cannot tell" even then: such an alarm asks for a run of both
  versions on one machine.
- *no regression* where the upper end lies within the threshold (*improvement* where the variant is faster beyond
  threshold and tolerance).
- *cannot tell* otherwise, with the reason.

Every interval stands at the run's alpha, not at a share of it for each row: threshold and tolerance lie between noise
and an alarm. This is a screen. What it finds is confirmed by timing old and new code in the same rounds
(`pytest --benchmark --compare OLD NEW`).

A workload without a yardstick (the components have none) is compared by the ratio of its pair. Such a ratio cannot say
which of the two sides moved, and the row says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..machine.environment import comparable, device_kind
from ..stats.confidence import Interval
from ..store.folder import RunFolder
from .markdown import markdown_cell
from .standings import YARDSTICK, Key, Standing, Standings, measure_standings
from .text import effect_text, one_text_line

THRESHOLD_PERCENT = 5.0
"""A variant that takes this much more time than in the base run is a regression."""

TOLERANCE_PERCENT = 2.0
"""What the ratio of two variants may shift between two sessions on one machine configuration."""

TOLERANCE_OTHER_MACHINE_PERCENT = 10.0

Answer = Literal["regression", "no regression", "improvement", "cannot tell"]

_STYLES = {"regression": "red", "no regression": "green", "improvement": "green", "cannot tell": "yellow"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Saved:
    """A ratio t_against / t_variant of one run, with its interval. A missing end is open."""

    ratio: float | None
    low: float | None
    high: float | None
    rounds: int


@dataclass(frozen=True)
class Row:
    """One variant on one workload, in both runs. `change_percent` is of the variant's time: above 0 it is slower."""

    workload: str
    variant: str
    against: str
    base: Saved | None
    new: Saved | None
    change_percent: float | None
    low_percent: float | None
    high_percent: float | None
    verdict: Answer
    reason: str


@dataclass(frozen=True)
class Comparison:
    """What became of `base` in `new`. `exit_code`: 0 no regression, 1 a regression, 2 cannot tell."""

    base: str
    new: str
    threshold_percent: float
    tolerance_percent: float
    machine_differences: tuple[str, ...]
    rows: tuple[Row, ...]
    only_in_base: tuple[str, ...]
    only_in_new: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def same_machine(self) -> bool:
        """Whether both runs have one machine configuration."""
        return not self.machine_differences

    @property
    def verdict(self) -> Answer:
        """The answer for all rows together: the worst of them, "cannot tell" where there are none."""
        answers = {row.verdict for row in self.rows}
        if "regression" in answers:
            return "regression"
        if "cannot tell" in answers or not answers:
            return "cannot tell"
        return "no regression"

    @property
    def exit_code(self) -> int:
        """0 no regression, 1 a regression, 2 cannot tell."""
        return {"regression": 1, "cannot tell": 2}.get(self.verdict, 0)

    def summary(self) -> str:
        """The answer in one sentence."""
        counts = {word: sum(row.verdict == word for row in self.rows) for word in _STYLES}
        told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        if not self.rows:
            return f"{self.new} against {self.base}: cannot tell: the two runs have nothing in common"
        return f"{self.new} against {self.base}: {self.verdict} ({told})"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; the form is described by `workbench compare --help`."""
        return {
            "format": 1,
            "base": self.base,
            "new": self.new,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "threshold_percent": self.threshold_percent,
            "tolerance_percent": self.tolerance_percent,
            "same_machine": self.same_machine,
            "machine_differences": list(self.machine_differences),
            "rows": [asdict(row) for row in self.rows],
            "only_in_base": list(self.only_in_base),
            "only_in_new": list(self.only_in_new),
            "notes": list(self.notes),
        }


def compare(base: RunFolder, new: RunFolder, *, threshold_percent: float = THRESHOLD_PERCENT) -> Comparison:
    """Compare two run folders.

    Raises:
        ValueError: the threshold is not above 0.
        RunError: a folder cannot be read.
    """
    _check_threshold(threshold_percent)
    now = measure_standings(new)
    # Of the base only what the new run has, too: a baseline of the whole register takes seconds.
    return compare_standings(measure_standings(base, now.courses), now, threshold_percent=threshold_percent)


def compare_standings(
    old: Standings, now: Standings, *, threshold_percent: float = THRESHOLD_PERCENT, only: Sequence[Key] | None = None
) -> Comparison:
    """Compare two runs by their standings; with `only`, these variants and workloads alone.

    Raises ValueError where the threshold is not above 0.
    """
    _check_threshold(threshold_percent)
    machine = comparable(old.environment, now.environment)
    tolerance = TOLERANCE_OTHER_MACHINE_PERCENT if machine else TOLERANCE_PERCENT
    limits = _Limits(math.log1p(threshold_percent / 100), math.log1p(tolerance / 100), not machine)
    here, there = ([key for key in run.subjects if only is None or key in only] for run in (old, now))
    compared = [key for key in here if key in there or key in now.dropped]
    return Comparison(
        base=old.name,
        new=now.name,
        threshold_percent=threshold_percent,
        tolerance_percent=tolerance,
        machine_differences=tuple(machine),
        rows=tuple(_row(key, old, now, limits) for key in compared),
        only_in_base=tuple(
            f"{variant} on {workload}" for workload, variant in here if (workload, variant) not in compared
        ),
        only_in_new=tuple(f"{variant} on {workload}" for workload, variant in there if (workload, variant) not in here),
        notes=tuple(note for run in (old, now) for note in _notes_on(run)),
    )


def _check_threshold(percent: float) -> None:
    if not (percent > 0 and math.isfinite(percent)):
        raise ValueError(f"the threshold must be a number of percent above 0, not {percent:g}")


# -- one row -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Limits:
    threshold: float  # log units
    tolerance: float  # log units
    same_machine: bool


def _notes_on(run: Standings) -> list[str]:
    """What a reader should know about a run as a whole."""
    found = []
    if run.status != "complete":
        found.append(f"{run.name} did not run to its end: compared are the rounds that it finished")
    if run.fired:
        found.append(f"{run.name}: controls fired ({', '.join(run.fired)}); tolerance is widened by what they show")
    return found


def _row(key: Key, old: Standings, now: Standings, limits: _Limits) -> Row:
    workload, variant = key
    against = old.courses[workload].against
    reason = why_not(key, old, now)
    if reason or against is None:
        return Row(workload, variant, against or "", None, None, None, None, None, "cannot tell", reason)
    saved, fresh = old.rows[key], now.rows[key]
    before, today = saved.interval, fresh.interval
    slack = old.courses[workload].bias + now.courses[workload].bias
    low, high = before.low - today.high, before.high - today.low
    verdict, reason = _answer(low, high, limits, slack, pair=None if against == YARDSTICK else against)
    if before.unstable or today.unstable:
        verdict, reason = "cannot tell", f"the ratio moved while {(old if before.unstable else now).name} was measured"
    return Row(
        workload=workload,
        variant=variant,
        against=against,
        base=_saved(before),
        new=_saved(today),
        change_percent=_percent(before.centre - today.centre),
        low_percent=_percent(low),
        high_percent=_percent(high),
        verdict=verdict,
        reason="; ".join(part for part in (reason, _faults(saved, fresh)) if part),
    )


def _answer(low: float, high: float, limits: _Limits, slack: float, *, pair: str | None) -> tuple[Answer, str]:
    """Answer and reason from the ends of the slow-down (log units). `slack`: what fired controls say may be bias."""
    tolerance = limits.tolerance + slack
    side = f"; it may be {pair} that moved" if pair else ""
    if low - tolerance > limits.threshold:
        if not limits.same_machine:
            return "cannot tell", f"slower, but on a different machine: confirm with both versions on one{side}"
        return "regression", f"slower by at least {_percent(low):.1f} %{side}"
    if not limits.same_machine:
        return "cannot tell", "different machine"
    if high + tolerance < -limits.threshold:
        # A pair whose baseline became slower looks just like this, so it is no all-clear.
        return ("cannot tell", f"faster, or {pair} became slower") if pair else ("improvement", "")
    if high + slack < limits.threshold:
        return "no regression", ""
    if math.isinf(high):
        return "cannot tell", "too few rounds for an interval"
    if low > 0:
        return "cannot tell", f"slower, by too little for this screen: confirm with both versions in one run{side}"
    return "cannot tell", f"a slow-down of up to {_percent(high + slack):.1f} % is not excluded: measure longer"


def why_not(key: Key, old: Standings, now: Standings) -> str:
    """Why the numbers of a variant in two runs cannot be put against each other, whatever the machine; empty where
    they can."""
    workload, _ = key
    ours, theirs = device_kind(now.environment), device_kind(old.environment)
    if ours != theirs:
        return f"{old.name} measured on {theirs}, {now.name} on {ours}"
    if key in now.dropped:
        return f"{now.name} has no number for it: {one_text_line(now.dropped[key], 160)}"
    before, today = old.courses[workload], now.courses[workload]
    # Descriptions are for people, and do not change what is measured.
    changed = sorted(
        name
        for name in before.workload.keys() | today.workload.keys()
        if name != "description" and before.workload.get(name) != today.workload.get(name)
    )
    if changed:
        return f"the workload is another one now ({', '.join(changed)})"
    if before.checkpoint != today.checkpoint:
        return "the checkpoints differ"
    if before.against is None or before.against != today.against:
        return "no yardstick in both runs"
    if before.against != YARDSTICK and before.workload.get("kind") != "component":
        return "no yardstick in either run"
    if old.rows[key].clock != now.rows[key].clock:
        return "one run has CPU time, the other wall time"
    return ""


def _faults(saved: Standing, fresh: Standing) -> str:
    more = fresh.faults - saved.faults
    return f"page faults a call changed by {more:+.0f}" if abs(more) > 1 else ""


def _saved(interval: Interval) -> Saved:
    low, high = (math.exp(end) if math.isfinite(end) else None for end in (interval.low, interval.high))
    return Saved(math.exp(interval.centre) if interval.n else None, low, high, interval.n)


def _percent(log_ratio: float) -> float | None:
    return math.expm1(log_ratio) * 100 if math.isfinite(log_ratio) else None


# -- the answer as text ------------------------------------------------------------------------------------------------


def render(comparison: Comparison) -> Group:
    """For the terminal: a block for each workload, one line a variant, and the answer last."""
    blocks: list[RenderableType] = [
        Text("variant, change of its time against the yardstick [interval], answer", style="bold")
    ]
    width = max((len(row.variant) for row in comparison.rows), default=0)
    change = max((len(change_text(row)) for row in comparison.rows), default=0)
    for workload, rows in _by_workload(comparison.rows):
        against = {row.against for row in rows if row.against and row.against != YARDSTICK}
        note = f" (against {', '.join(sorted(against))})" if against else ""
        blocks.append(Text(f"{workload}{note}"))
        for row in rows:
            grid = Table.grid(padding=(0, 2, 0, 0))
            grid.add_column(min_width=width, overflow="fold")
            grid.add_column(min_width=change, no_wrap=True)
            grid.add_column(overflow="fold")
            answer = Text(row.verdict, style=_STYLES[row.verdict])
            grid.add_row(Text(row.variant), Text(change_text(row)), answer)
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
        lines += [*_markdown_rows(worth), ""]
    if len(worth) < len(comparison.rows):
        lines += ["<details><summary>all rows</summary>", "", *_markdown_rows(comparison.rows), "", "</details>", ""]
    for note in _notes(comparison):
        lines += [f"- {markdown_cell(note)}"]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_rows(rows: Iterable[Row]) -> list[str]:
    lines = [
        "| workload | variant | base | new | change of time | answer | reason |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        saved = [effect_text(asdict(side)) if side else "" for side in (row.base, row.new)]
        cells = [row.workload, row.variant, *saved, change_text(row), f"**{row.verdict}**", row.reason]
        lines.append(f"| {' | '.join(markdown_cell(cell) for cell in cells)} |")
    return lines


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
    lines = [
        f"Threshold {comparison.threshold_percent:g} % more time, tolerance {comparison.tolerance_percent:g} %"
        " between sessions."
    ]
    if not comparison.same_machine:
        differences_ = "; ".join(comparison.machine_differences)
        lines.append(f"Different machine or software, so nothing here is a failure by itself: {differences_}.")
    lines += comparison.notes
    for title, names in (("base", comparison.only_in_base), ("new", comparison.only_in_new)):
        if names:
            shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
            lines.append(f"Only in the {title} run: {shown}.")
    if any(row.verdict == "regression" for row in comparison.rows):
        lines.append(
            "This is a screen: confirm a regression by timing old and new code in the same rounds "
            "(pytest --benchmark --compare OLD NEW)."
        )
    return lines


def _by_workload(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.workload, []).append(row)
    return list(groups.items())


def _xml(text: str) -> str:
    """Without the characters that XML cannot hold even when escaped."""
    return _NOT_XML.sub("?", text)
