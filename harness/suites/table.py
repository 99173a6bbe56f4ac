"""What a run of a suite shows: a row for each test."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from ..baselines.revisions import INCONCLUSIVE, NOT_SLOWER, SLOWER, RevisionRow, Row, time_text
from ..calls.revisions import revision_text
from ..evidence.effect import ALPHA
from ..report.text import call_times
from ..stats.confidence import fixed_interval
from .driver import Test


def difference(row: Row, percent: float) -> str:
    """What became of a test, in words. percent: how much more time counts as slower."""
    if not isinstance(row, RevisionRow) or row.verdict not in (SLOWER, NOT_SLOWER, INCONCLUSIVE):
        return row.verdict
    effect = row.screen.effect
    if row.screen.is_doubtful or not effect.rounds or math.isinf(effect.high):
        return INCONCLUSIVE
    if effect.high < 1:
        least = 100 * (1 / effect.high - 1)
        return f"slower by at least {least:.2g} %"
    if effect.low > 1:
        return f"faster by at least {100 * (effect.low - 1):.2g} %"
    largest = 100 * (max(1 / effect.low, effect.high) - 1)
    if largest <= percent:
        return f"no difference beyond {largest:.2g} %"
    return f"not {percent:g} % slower" if row.verdict == NOT_SLOWER else INCONCLUSIVE


def by_impact(rows: Sequence[Row]) -> list[Row]:
    """The slowest first, then what became faster, then the rest."""

    def impact(row: Row) -> tuple[int, float]:
        if not isinstance(row, RevisionRow):
            return 2, 0.0
        effect = row.screen.effect
        if effect.rounds and (effect.high < 1 or effect.low > 1):
            return 0, effect.ratio
        return 1, effect.ratio if effect.rounds else 2.0

    return sorted(rows, key=impact)


def own_words(tests: Mapping[str, Test]) -> dict[str, Mapping[str, str]]:
    """What the tests say of themselves, a column each, where any does: head → test → text."""
    extra = {test: ", ".join(f"{key}={value}" for key, value in state.extra.items()) for test, state in tests.items()}
    columns = {"group": {test: state.group or "" for test, state in tests.items()}, "extra info": extra}
    return {head: texts for head, texts in columns.items() if any(texts.values())}


def suite_table(rows: Sequence[Row], revisions: tuple[str, str], percent: float, tests: Mapping[str, Test]) -> Table:
    """A row for each test of two sides; then why those have no number that have none."""
    base, new = map(revision_text, revisions)
    own = own_words(tests)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in (f"time in {new} over {base}", f"in {base}", f"in {new}", "verdict", *own, "test"):
        table.add_column(Text(head), overflow="fold")
    for row in rows:
        before = after = time = ""
        if isinstance(row, RevisionRow) and row.screen.effect.rounds:
            before, after = call_times(row.screen.call_ns)
            time = time_text(row.screen.effect)
        words = [texts.get(row.subject, "") for texts in own.values()]
        table.add_row(*map(Text, (time, before, after, difference(row, percent), *words, row.subject)))
        if row.reason and not time:
            table.add_row(*[""] * (4 + len(own)), Text(f"  {row.reason}"))
    return table


def time_table(seconds: Mapping[str, Sequence[float]], tests: Mapping[str, Test] | None = None) -> Table:
    """A row for each test of one side, group by group: the time of a call over its processes, with its interval."""
    own = own_words(tests or {})
    group = own.get("group", {})
    table = Table("time of a call", "processes", *own, "test", box=None, pad_edge=False, header_style="bold")
    for test, taken in sorted(seconds.items(), key=lambda each: group.get(each[0], "")):
        interval = fixed_interval([math.log(each) for each in taken], ALPHA)
        shown = "not measured"
        if taken:
            middle = 1e9 * math.exp(interval.centre)
            shown = call_times((middle, middle))[0]
        if math.isfinite(interval.high):
            shown += f" ± {100 * math.expm1((interval.high - interval.low) / 2):.2g} %"
        words = [texts.get(test, "") for texts in own.values()]
        table.add_row(*map(Text, (shown, str(len(taken)), *words, test)))
    return table
