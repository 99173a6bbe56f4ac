"""What a call costs on both sides of a comparison, measure by measure, as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..profilers.peak_memory import MEMORY
from ..spec.regions import MARGIN_PERCENT
from ..store.folder import RunFolder
from ..store.verdict_schema import Effect
from .text import size_text, three_digits

TIME, PEAK, KEPT, INSTRUCTIONS, FAULTS = "time", "peak memory", "memory kept", "instructions", "page faults"

MANY_TIMES = 2
"""From it on what a side takes more is told in times, and in percent below it."""

LEAST_KEPT, LEAST_PEAK = 1 << 20, 1 << 16
"""Bytes. Less memory that is kept is not told: importing the module takes as much. A peak that differs by less is no
price."""

SAME_WITHIN = 1 + MARGIN_PERCENT / 100
"""Within this ratio two times are the same, as in a comparison without a claim."""


@dataclass(frozen=True)
class Measure:
    """What a call costs on both sides, as text. `change`: of the variant, with its interval where there is one.

    ratio, low, high: the variant's over the baseline's; low and high are the ratio where it was counted. more: how many
    bytes more the variant has, of memory.
    """

    what: str
    before: str
    after: str
    ratio: float
    low: float
    high: float
    more: float = 0.0

    @property
    def change(self) -> str:
        """ "-27 % [-31, -25]"; "the same" of what was counted and is as good as equal."""
        percents = [100 * (each - 1) for each in (self.ratio, self.low, self.high)]
        if not math.isfinite(percents[0]):
            return ""
        if self.low == self.high and abs(percents[0]) < 100 * (SAME_WITHIN - 1):
            return "the same"
        value, low, high = (f"{each:+,.0f}" if abs(each) >= 100 else f"{each:+.3g}" for each in percents)
        ends = "" if low == high else f" [{low}, {high}]" if math.isfinite(percents[2]) else " [no interval yet]"
        return f"{value} %{ends}"

    @property
    def amount(self) -> str:
        """What the variant takes of it: "27 % less time", "3.1 times the time", "the same peak memory", "8.3 MiB more
        memory kept"; empty where that is not known."""
        if self.what == KEPT:
            return f"{size_text(abs(self.more))} {'more' if self.more > 0 else 'less'} {self.what}"
        percent = 100 * (self.ratio - 1)
        if not math.isfinite(percent):
            return ""
        if self.ratio >= MANY_TIMES:
            return f"{three_digits(self.ratio)} times the {self.what}"
        if self.what != TIME and abs(percent) < 100 * (SAME_WITHIN - 1):
            return f"the same {self.what}"
        less, more = ("fewer", "more") if self.what.endswith("s") else ("less", "more")
        return f"{abs(percent):{'.0f' if abs(percent) >= 10 else '.2g'}} % {less if percent < 0 else more} {self.what}"


def counted_memory(folder: RunFolder, effect: Effect) -> list[Measure]:
    """The most that a call allocates at a time, and what is left after one, as far as both sides have it."""
    records = {record.variant: record for record in folder.read(MEMORY) if record.workload == effect.workload}
    sides = [records.get(effect.baseline), records.get(effect.variant)]
    peaks = [side and side.peak_transient_bytes for side in sides]
    kept = [side and side.held_bytes for side in sides]
    measures = []
    for what, (before, after) in ((PEAK, peaks), (KEPT, kept)):
        if before is not None and after is not None and (what == PEAK or max(before, after) >= LEAST_KEPT):
            ratio = after / before if before else math.nan if after else 1.0
            measures.append(
                Measure(what, size_text(before), size_text(after), ratio, ratio, ratio, float(after - before))
            )
    return measures


def measure_rows(measures: Sequence[Measure]) -> list[tuple[str, str, str, str]]:
    """Rows of a table: what, before, after, change."""
    return [(each.what, each.before, each.after, each.change) for each in measures]
