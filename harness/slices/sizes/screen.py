"""The table at the end of a run and in `workbench show`, and its picture for `workbench report RUN --svg FILE`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from llama_workbench.dashboard.export.svg import LIGHT, Palette

from ...report.text import (
    CALM,
    call_time,
    import_text,
    interval_text,
    side_facts_text,
    size_text,
    three_digits,
    unit_of,
)
from ...spec.words import Word
from ...stats.confidence import Interval
from ...store.files import RunError
from ...store.folder import RunFolder
from .picture import sizes_svg
from .table import CrossingPoint, SizeTable, table_of


def screen(folder: RunFolder) -> RenderableType | None:
    """What is printed of a run, where it compares several sides or sizes and can be read."""
    try:
        table = table_of(folder)
    except RunError:  # the verdicts, which are shown in its place, say so
        return None
    return None if table is None else report(table)


def svg(folder: RunFolder) -> str:
    """The picture of a run that compares at several sizes; empty of others. Raises RunError."""
    table = table_of(folder)
    return drawn(table) if table is not None and any(table.sizes.values()) else ""


def drawn(table: SizeTable, colours: Palette = LIGHT) -> str:
    """The picture."""
    marks = [(f"{after} overtakes {before}", at.low, at.high) for before, after, at in table.crossings]
    return sizes_svg(table.curves(), marks, colours)


def report(table: SizeTable) -> Group:
    """The table, then its sentences."""
    grid = Table(box=None, padding=(0, 2, 0, 0), show_header=True, header_style="bold")
    for heading in headings(table):
        grid.add_column(Text(heading), overflow="fold")
    for before, row in pairwise(([""], *rows(table))):
        grid.add_row(*map(Text, row if row[0] != before[0] else ["", *row[1:]]))
    return Group(grid, Text(), *map(Text, sentences(table)))


def headings(table: SizeTable) -> list[str]:
    """Of the columns."""
    place = "size" if any(table.sizes.values()) else "input"
    return [place, "side", "time a call", f"times as fast as {table.against}", *_works(table), "best"]


def _works(table: SizeTable) -> list[str]:
    """The columns of throughput, as far as the input generator states what a call does."""
    return [f"{what}/s" for what in ("items", "bytes") if any(table.work(name).get(what) for name in table.sizes)]


def rows(table: SizeTable) -> Iterator[list[str]]:
    """One of each side at each size."""
    works = _works(table)
    for name, side in itertools.product(table.sizes, table.sides):
        place = table.named(name), side
        time, effect = table.times.get((name, side)), table.effects.get((name, table.reference(name), side))
        if time is None:
            yield [*place, "left out", *[""] * (len(works) + 2)]
            continue
        word, left = table.best(name)
        ratio = ""
        if effect is not None and effect.value is not None:
            ratio = f"{three_digits(effect.value)}x {interval_text(effect.lower, effect.upper)}"
        rates = [_rate(what, table.work(name).get(what.removesuffix("/s"), 0.0), time) for what in works]
        best = {Word.FASTER: "best", Word.SAME: "same"}.get(word, "inconclusive") if side in left else ""
        yield [*place, _time(time), ratio, *rates, best]


def _rate(what: str, amount: float, time: Interval) -> str:
    each_second = amount / math.exp(time.centre) * 1e9
    if what == "bytes/s":
        return size_text(each_second) if amount else ""
    power, prefix = next((each for each in ((9, "G"), (6, "M"), (3, "k")) if each_second >= 10 ** each[0]), (0, ""))
    return f"{three_digits(each_second / 10**power)} {prefix}".rstrip() if amount else ""


def _time(time: Interval) -> str:
    unit_ns, _ = unit_of(math.exp(time.centre))
    if not (math.isfinite(time.low) and math.isfinite(time.high)):
        return f"{call_time(math.exp(time.centre))} [no interval yet]"
    low, high = (three_digits(math.exp(end) / unit_ns) for end in (time.low, time.high))
    return f"{call_time(math.exp(time.centre))} [{low}, {high}]"


def sentences(table: SizeTable) -> Iterator[str]:
    """What follows from the table, how its calls ran, and how sure all that is."""
    yield from crossing_lines(table)
    yield from growth_lines(table)
    yield from ran_lines(table)
    what = "times, ratios and crossings" if any(table.sizes.values()) else "times and ratios"
    exponents = ", and so do all those of exponents" if table.growth else ""
    sure = f"{100 * (1 - table.evidence.alpha):.4g} %"
    yield f"In brackets: intervals. With {sure} confidence, all those of {what} hold at once{exponents}."


def crossing_lines(table: SizeTable) -> list[str]:
    """A sentence for each crossing; or that there is none."""
    lines = [_crossing_line(*crossing) for crossing in table.crossings]
    none = sum(map(bool, table.sizes.values())) > 1 and not lines
    return lines + ["No two sides are shown to change places between these sizes."] * none


def _crossing_line(before: str, after: str, at: CrossingPoint) -> str:
    size, low, high = (f"{float(f'{each:.3g}'):,g}" for each in (at.size, at.low, at.high))
    first, last = (f"{each:,g}" for each in at.between)
    return (
        f"{after} overtakes {before} at a size of about {size} [{low}, {high}]: {before} is faster at {first}, "
        f"{after} at {last}."
    )


def growth_lines(table: SizeTable) -> Iterator[str]:
    """How each side grows."""
    sizes = [size for size in table.sizes.values() if size]
    for side, grown in table.growth.items():
        yield (
            f"Time of {side} grows with the size to the power of {_exponent(grown.whole)} over all sizes, of "
            f"{_exponent(grown.last)} from {sizes[-2]:,} to {sizes[-1]:,}."
        )


def ran_lines(table: SizeTable) -> Iterator[str]:
    """What a reader should know of how the calls ran at a size, as it is told of two sides."""
    again: dict[str, int] = {}
    for name in table.sizes:
        record, place = table.record(name), table.named(name)
        facts = {side: record.facts[side] for side in table.sides if side in record.facts}
        if inputs := [each.inputs for each in facts.values() if each.inputs]:
            again[f"size {place}" if table.sizes[name] else place] = min(inputs)
        others = {side: each.model_copy(update={"inputs": None}) for side, each in facts.items()}
        calm = CALM if record.workload.kind == "call" and record.workload.calm else ""
        texts = filter(None, (import_text(facts.values()), side_facts_text(others, table.sides), calm))
        if text := " ".join(texts):
            yield f"{'At' if table.sizes[name] else 'On'} {place}: {text}"
    if again:
        of = "each size" if len(again) == len(table.sizes) > 1 else " and ".join(again)
        least = f"{min(again.values()):,}"
        yield f"Each process generated at least {least} inputs of {of} and gave each of them to several calls."


def _exponent(value: Interval) -> str:
    finite = math.isfinite(value.low) and math.isfinite(value.high)
    return f"{value.centre:.2f} " + (f"[{value.low:.2f}, {value.high:.2f}]" if finite else "[inconclusive]")
