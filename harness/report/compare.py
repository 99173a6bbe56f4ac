"""Two runs from different days: has anything become slower?

Absolute times of two sessions cannot be compared, so each variant is compared as its ratio to the frozen `yardstick`
that both sessions timed (see `standings`). With d the log ratio t_yardstick / t_variant, the slow-down is

    delta = d(base) - d(new),    between  low(base) - high(new)  and  high(base) - low(new),

where low and high are the ends of the two confidence intervals. The answer is

- *regression* where even the lower end, less a tolerance, lies beyond the threshold. The tolerance is for what shifts a
  ratio between sessions: 2 % on one machine configuration; on another one 10 %, and even then only "cannot tell".
- *no regression* where the upper end lies within the threshold (*improvement*: faster beyond threshold and tolerance).
- *cannot tell* otherwise, with the reason.

Every interval is at the run's alpha, not at a share of it: this is a screen, and what it finds is confirmed by timing
old and new code in the same rounds (`pytest --benchmark --compare OLD NEW`). A workload without a yardstick (a
component) is compared by the ratio of its pair, which cannot say which of its sides moved; the row says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from ..machine.environment import comparable, device_kind
from ..stats.confidence import Interval
from ..store.folder import RunFolder
from ..store.schema import Key, Standings
from .standings import YARDSTICK, measure_standings
from .text import one_text_line

THRESHOLD_PERCENT = 5.0
"""A variant that takes this much more time than in the base run is a regression."""

TOLERANCE_PERCENT = 2.0
"""What the ratio of two variants may shift between two sessions on one machine configuration."""

TOLERANCE_OTHER_MACHINE_PERCENT = 10.0

Answer = Literal["regression", "no regression", "improvement", "cannot tell"]


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
        return "cannot tell" if "cannot tell" in answers or not answers else "no regression"

    @property
    def exit_code(self) -> int:
        """Of the command."""
        return {"regression": 1, "cannot tell": 2}.get(self.verdict, 0)

    def summary(self) -> str:
        """The answer in one sentence."""
        counts = {word: sum(row.verdict == word for row in self.rows) for word in get_args(Answer)}
        parts = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        answer = f"{self.verdict} ({parts})" if self.rows else "cannot tell: the two runs have nothing in common"
        return f"{self.new} against {self.base}: {answer}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; the form is described by `workbench compare --help`."""
        answer = {"format": 1, "verdict": self.verdict, "exit_code": self.exit_code, "same_machine": self.same_machine}
        return answer | asdict(self)


def compare(base: RunFolder, new: RunFolder, *, threshold_percent: float = THRESHOLD_PERCENT) -> Comparison:
    """Compare two run folders. Raises RunError, and ValueError for a threshold that is not above 0."""
    now = measure_standings(new)
    # Of the base only what the new run has, too: a baseline of the whole register takes seconds.
    return compare_standings(measure_standings(base, now.workloads), now, threshold_percent=threshold_percent)


def compare_standings(
    old: Standings, now: Standings, *, threshold_percent: float = THRESHOLD_PERCENT, only: Sequence[Key] | None = None
) -> Comparison:
    """Compare two runs by their relative times; `only`: these (workload, variant) alone. Raises ValueError likewise."""
    if not (threshold_percent > 0 and math.isfinite(threshold_percent)):
        raise ValueError(f"the threshold must be a number of percent above 0, not {threshold_percent:g}")
    machine = comparable(old.environment, now.environment)
    tolerance = TOLERANCE_OTHER_MACHINE_PERCENT if machine else TOLERANCE_PERCENT
    limits = _Limits(math.log1p(threshold_percent / 100), math.log1p(tolerance / 100), not machine)
    here, there = ([key for key in run.subjects if only is None or key in only] for run in (old, now))
    compared = [key for key in here if key in there or key in now.reasons]
    return Comparison(
        base=old.name,
        new=now.name,
        threshold_percent=threshold_percent,
        tolerance_percent=tolerance,
        machine_differences=tuple(machine),
        rows=tuple(_row(key, old, now, limits) for key in compared),
        only_in_base=tuple(" on ".join(reversed(key)) for key in here if key not in compared),
        only_in_new=tuple(" on ".join(reversed(key)) for key in there if key not in here),
        notes=tuple(note for run in (old, now) for note in _notes_on(run)),
    )


@dataclass(frozen=True)
class _Limits:
    threshold: float  # log units
    tolerance: float  # log units
    same_machine: bool


def _notes_on(run: Standings) -> list[str]:
    """What a reader should know about a run as a whole."""
    notes = []
    if run.status != "complete":
        notes.append(f"{run.name} did not run to its end: compared are the rounds that it finished")
    if run.fired:
        notes.append(f"{run.name}: controls fired ({', '.join(run.fired)}); tolerance is widened by what they show")
    return notes


def _row(key: Key, old: Standings, now: Standings, limits: _Limits) -> Row:
    workload, variant = key
    against = old.workloads[workload].reference
    reason = why_not(key, old, now)
    if reason or against is None:
        return Row(workload, variant, against or "", None, None, None, None, None, "cannot tell", reason)
    saved, fresh = old.times[key], now.times[key]
    before, today = saved.interval, fresh.interval
    slack = old.workloads[workload].bias + now.workloads[workload].bias
    low, high = before.low - today.high, before.high - today.low
    verdict, reason = _answer(low, high, limits, slack, pair=None if against == YARDSTICK else against)
    if before.unstable or today.unstable:
        verdict, reason = "cannot tell", f"the ratio moved while {(old if before.unstable else now).name} was measured"
    more = fresh.faults - saved.faults
    faults = f"page faults a call changed by {more:+.0f}" if abs(more) > 1 else ""
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
        reason="; ".join(filter(None, (reason, faults))),
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
    """Why the numbers of a variant in two runs cannot be compared, whatever the machine; empty where they can."""
    ours, theirs = device_kind(now.environment), device_kind(old.environment)
    if ours != theirs:
        return f"{old.name} measured on {theirs}, {now.name} on {ours}"
    if key in now.reasons:
        return f"{now.name} has no number for it: {one_text_line(now.reasons[key], 160)}"
    before, today = old.workloads[key[0]], now.workloads[key[0]]
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
    if before.reference is None or before.reference != today.reference:
        return "no yardstick in both runs"
    if before.reference != YARDSTICK and before.workload.get("kind") != "component":
        return "no yardstick in either run"
    if old.times[key].clock != now.times[key].clock:
        return "one run has CPU time, the other wall time"
    return ""


def _saved(interval: Interval) -> Saved:
    low, high = (math.exp(end) if math.isfinite(end) else None for end in (interval.low, interval.high))
    return Saved(math.exp(interval.centre) if interval.n else None, low, high, interval.n)


def _percent(log_ratio: float) -> float | None:
    return math.expm1(log_ratio) * 100 if math.isfinite(log_ratio) else None
