"""Two runs from different days: has anything become slower?

Absolute times of two sessions cannot be compared, so each variant is compared as its ratio to the frozen `yardstick`
that both sessions timed (see `standings`). The slow-down is the log ratio t_reference / t_variant of the base run less
that of the new run.

Each fresh process gives one log ratio. The interval of the slow-down is that of two samples (`stats.means`), at the
run's alpha, for one look after both runs have ended: this is a screen, and what it finds is confirmed by timing old and
new code in the same rounds. What sessions of the same code differ by beyond their processes is in it, too, for
functions on a machine left alone (BETWEEN_PERCENT). Elsewhere a regression must lie beyond a tolerance
(`_tolerance_of`); on another machine it is "inconclusive" at best. `python -m studies.session_trials` measured these
numbers.

A workload without a reference benchmark (a component) is compared by the ratio of its pair, which cannot say which
of its sides moved; the row says so. Instructions and memory stand beside the times where both runs have them (see
`counted_rows`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, get_args

from llama_workbench.variants import REFERENCE_BENCHMARKS

from ..evidence.effect import ALPHA
from ..machine.environment import comparable, device_kind
from ..report.standings import read_standings
from ..report.text import one_text_line
from ..slices import faces
from ..spec.comparison import EnteredName
from ..spec.words import VerbExit
from ..stats.confidence import Interval
from ..stats.means import CentredInterval, Mean
from ..store.files import RunError
from ..store.folder import RunFolder
from ..store.passes import MEMORY, Memory
from ..store.schema import Key, RelativeTime, Standings, Workload, WorkloadResult
from .thresholds import DEFAULTS, WHATS, ConfigError, Thresholds, What

# What a comparison of two runs is: a row for each variant and each thing that is compared of it, and one answer.


Answer = Literal["regression", "no regression", "improvement", "inconclusive"]

EXIT_CODES: dict[Answer, VerbExit] = {
    "regression": VerbExit.AGAINST,
    "inconclusive": VerbExit.COULD_NOT,
}
"""Of the answer to the whole comparison; that it is done for all others."""


@dataclass(frozen=True)
class Saved:
    """A ratio t_against / t_variant of one run, with its interval. A missing end is open."""

    ratio: float | None
    low: float | None
    high: float | None
    rounds: int


@dataclass(frozen=True)
class Counted:
    """What was counted in one run: instructions or bytes."""

    value: float
    unit: str


@dataclass(frozen=True)
class Row:
    """One thing of one variant on one workload, in both runs."""

    workload: str
    variant: str
    against: str
    base: Saved | Counted | None
    new: Saved | Counted | None
    change_percent: float | None  # of the variant's time, instructions or bytes: above 0 it became worse
    low_percent: float | None
    high_percent: float | None
    verdict: Answer
    reason: str
    what: What = "time"
    threshold_percent: float = 0.0
    decides: bool = True  # whether the row has a say in the exit code
    between_percent: float | None = None  # what its interval allows for between sessions (SD); None: a tolerance counts

    @property
    def key(self) -> tuple[str, str]:
        """(workload, variant)"""
        return self.workload, self.variant


@dataclass(frozen=True)
class RunComparison:
    """What became of `base` in `new`. `exit_code`: 0 no regression, 1 a regression, 2 inconclusive."""

    base: str
    new: str
    threshold_percent: float
    tolerance_percent: float
    machine_differences: tuple[str, ...]
    rows: tuple[Row, ...]
    only_in_base: tuple[str, ...]
    only_in_new: tuple[str, ...]
    notes: tuple[str, ...]
    gate: tuple[What, ...] = ("time",)

    @property
    def same_machine(self) -> bool:
        """Whether both runs have one machine configuration."""
        return not self.machine_differences

    @property
    def deciding(self) -> tuple[Row, ...]:
        """The rows that have a say in the answer."""
        return tuple(row for row in self.rows if row.decides)

    @property
    def verdict(self) -> Answer:
        """The answer of all rows that decide: the worst of them, "inconclusive" where there are none."""
        answers = {row.verdict for row in self.deciding}
        worst: tuple[Answer, ...] = ("regression", "inconclusive")
        return next((word for word in worst if word in answers), "no regression" if answers else "inconclusive")

    @property
    def exit_code(self) -> VerbExit:
        """Of the command."""
        return EXIT_CODES.get(self.verdict, VerbExit.DONE)

    def summary(self) -> str:
        """The answer in one sentence."""
        counts = {word: sum(row.verdict == word for row in self.deciding) for word in get_args(Answer)}
        parts = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        by = "" if self.gate == ("time",) else f", by {' and '.join(self.gate)}"
        answer = f"{self.verdict} ({parts}{by})"
        if not self.rows:
            answer = "inconclusive: the two runs have nothing in common"
        elif not self.deciding:
            answer = f"inconclusive: the two runs do not both have {' or '.join(self.gate)}"
        return f"{self.new} against {self.base}: {answer}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; the form is described by `workbench compare --help`."""
        answer = {"format": 1, "verdict": self.verdict, "exit_code": self.exit_code, "same_machine": self.same_machine}
        return answer | asdict(self)


def gated(rows: Iterable[Row], gate: Iterable[What]) -> tuple[Row, ...]:
    """The rows in the order of their subjects, with `decides` as the gate has it.

    Where a time cannot tell and the same subject's instructions can, and both are in the gate, the count decides.
    """
    marked = [replace(row, decides=row.what in set(gate)) for row in rows]
    counts = (row for row in marked if row.decides and row.what == "instructions")
    counted = {row.key for row in counts if row.verdict != "inconclusive"}
    return tuple(
        replace(row, decides=False)
        if row.what == "time" and row.verdict == "inconclusive" and row.key in counted
        else row
        for row in marked
    )


TOLERANCE_PERCENT, TOLERANCE_UNLIKE_PERCENT = 9.0, 19.0
"""What the ratio of two variants may shift between two sessions on one machine configuration, with 95 % probability:
where their calls differ by less than ALIKE, and where by more. docs/validation.md has the sessions behind it."""

TOLERANCE_SHORT_PERCENT = 50.0
"""The same where a call takes less than a twentieth. Looking a mask up took 70 ns in one session of the register and
97 ns in the next, in each of their processes, while what it stood against took as long as before."""

ALIKE, SHORT = 2.0, 20.0

BETWEEN_PERCENT, BETWEEN_FREEDOM = 0.25, 41.0
"""Standard deviation between sessions of functions that one version of the workbench measured on one machine, while
other programs left it alone, pooled over four kinds of work, and its degrees of freedom. docs/validation.md has it."""

LEFT_ALONE = 0.1
"""Other programs used less than this share of the machine. Beside more, allocations slow down by some percent less than
what waits for the processor does, and sessions of the same code differed by up to 8 %."""

TOLERANCE_OTHER_MACHINE_PERCENT = 20.0


def compare(base: RunFolder, new: RunFolder, *, thresholds: Thresholds = DEFAULTS) -> RunComparison:
    """Compare two run folders. Raises RunError."""
    now = _by_folder(read_standings(new), new)
    # Of samples only what the new run has, too: a baseline of all claims takes seconds.
    old = _by_folder(read_standings(base, now.workloads), base)
    timed = compare_standings(old, now, thresholds=thresholds)
    counted = counted_rows(CountedRun(base, old), CountedRun(new, now), thresholds, same_machine=timed.same_machine)
    rows = (*timed.rows, *counted)
    order = {key: place for place, key in enumerate(dict.fromkeys(row.key for row in rows))}
    return replace(
        timed,
        rows=gated(sorted(rows, key=lambda row: (order[row.key], WHATS.index(row.what))), thresholds.gate),
        gate=thresholds.gate,
    )


def _by_folder(standings: Standings, run: RunFolder) -> Standings:
    """Under the name of the folder: a baseline still has the name of the run that it was copied from."""
    return replace(standings, name=run.path.resolve().name)


def compare_standings(old: Standings, now: Standings, *, thresholds: Thresholds = DEFAULTS) -> RunComparison:
    """Compare two runs by their relative times alone."""
    machine = comparable(old.environment, now.environment)
    here, there = old.subjects, now.subjects
    compared = [key for key in here if key in there or key in now.reasons]
    rows = [_row(key, old, now, thresholds, same_machine=not machine) for key in compared]
    cautious = {
        row.key: _tolerance_of(row.key, old, now, same_machine=not machine)
        for row in rows
        if row.between_percent is None
    }
    usual = TOLERANCE_OTHER_MACHINE_PERCENT if machine else min(cautious.values(), default=TOLERANCE_PERCENT)
    return RunComparison(
        base=old.name,
        new=now.name,
        threshold_percent=thresholds.time,
        tolerance_percent=usual if cautious or not rows else 0.0,
        machine_differences=tuple(machine),
        rows=tuple(rows),
        only_in_base=tuple(" on ".join(reversed(key)) for key in here if key not in compared),
        only_in_new=tuple(" on ".join(reversed(key)) for key in there if key not in here),
        notes=(*_notes_on(old), *_notes_on(now), *_of_code(old, now, cautious)),
    )


def _between(key: Key, old: Standings, now: Standings) -> Mean | None:
    """What sessions of the same code add to a difference of two of them: known for functions that one version of the
    workbench measured while other programs left the machine alone. None elsewhere."""
    sides = old.times.get(key), now.times.get(key)
    if any(side is None or side.over_processes is None for side in sides):
        return None
    is_short = old.times[key].interval.centre > math.log(SHORT)
    is_function = old.workloads[key[0]].workload.get("kind") == "call"
    if not is_function or not measured_alike((old, now)) or is_short or not (left_alone(old) and left_alone(now)):
        return None
    return Mean(0.0, math.sqrt(2) * math.log1p(BETWEEN_PERCENT / 100), BETWEEN_FREEDOM)


def left_alone(run: Standings) -> bool:
    """Whether other programs are known to have left the machine alone while this was measured."""
    return run.others is not None and run.others < LEFT_ALONE


def measured_alike(runs: Iterable[Standings]) -> bool:
    """Whether the same version of the workbench's code measured all of these. One that does not say which is of
    another."""
    digests = {run.measured_by for run in runs}
    return len(digests) == 1 and "" not in digests


def _tolerance_of(key: Key, old: Standings, now: Standings, *, same_machine: bool) -> float:
    """In percent. Larger where a variant's call is far longer or shorter than the one that it stands against: what
    changes between two sessions, such as what caches keep, then meets the two differently."""
    centre = old.times[key].interval.centre if key in old.times else 0.0
    if centre > math.log(SHORT):
        return TOLERANCE_SHORT_PERCENT
    if not same_machine:
        return TOLERANCE_OTHER_MACHINE_PERCENT
    return TOLERANCE_UNLIKE_PERCENT if abs(centre) > math.log(ALIKE) else TOLERANCE_PERCENT


def _of_code(old: Standings, now: Standings, cautious: Iterable[Key]) -> Iterator[str]:
    """What to do where different code measured the two, or other programs ran beside one. cautious: what is held to a
    tolerance; of functions alone a quiet machine would need none."""
    of_functions = any(old.workloads[workload].workload.get("kind") == "call" for workload, _ in cautious)
    for run in (old, now):
        if of_functions and run.others is not None and not left_alone(run):
            yield (
                f"other programs used {run.others:.0%} of the machine while {run.name} was measured, so small changes "
                "cannot be found: measure it again without them, or both in one job (workbench compare-revisions)"
            )
    if now.rows and not measured_alike((old, now)):
        yield (
            f"{old.name} was measured by another version of the workbench, so small changes cannot be found: save it "
            "again with this version, or measure both in one job (workbench compare-revisions)"
        )


def _slow_down(saved: RelativeTime, fresh: RelativeTime, between: Mean | None) -> CentredInterval:
    """From the relative times of both runs, in log units; above 0 the new run is slower."""
    if saved.over_processes is None or fresh.over_processes is None:  # fewer than two processes
        return CentredInterval(saved.interval.centre - fresh.interval.centre, -math.inf, math.inf)
    apart = saved.over_processes.minus(fresh.over_processes)
    if between is not None:
        apart = apart.plus(between)
    return CentredInterval(apart.centre, *apart.ends(ALPHA))


def _notes_on(run: Standings) -> list[str]:
    """What a reader should know about a run as a whole."""
    notes = []
    if run.status != "complete":
        notes.append(f"{run.name} did not finish; the rounds that it finished are compared")
    if run.fired:
        notes.append(
            f"{run.name}: A/A checks failed ({', '.join(run.fired)}); the tolerance is widened by what they show"
        )
    return notes


def _row(key: Key, old: Standings, now: Standings, thresholds: Thresholds, *, same_machine: bool) -> Row:
    workload, variant = key
    limit = thresholds.time
    against = old.workloads[workload].reference
    reason = why_not(key, old, now)
    if reason or against is None:
        return replace(cannot_tell(key, "time", thresholds, reason), against=against or "")
    saved, fresh = old.times[key], now.times[key]
    before, today = saved.interval, fresh.interval
    slack = old.workloads[workload].bias + now.workloads[workload].bias  # what fired controls say may be bias
    between = _between(key, old, now) if same_machine else None
    slow_down = _slow_down(saved, fresh, between)
    tolerance = (
        0.0 if between is not None else math.log1p(_tolerance_of(key, old, now, same_machine=same_machine) / 100)
    )
    pair = "" if against in REFERENCE_BENCHMARKS else against
    threshold = math.log1p(limit / 100)
    if before.unstable or today.unstable:
        drifted = (old if before.unstable else now).name
        verdict, reason = INCONCLUSIVE, f"the ratio drifted while {drifted} was measured"
    elif same_machine:
        verdict, reason = _answer(slow_down, threshold, tolerance + slack, slack, pair)
    else:
        slower = slow_down.low - tolerance - slack > threshold
        reason = "slower, but on a different machine; time both versions on one machine" if slower else ELSEWHERE
        verdict, reason = INCONCLUSIVE, f"{reason}{_or_the_other(pair) if slower else ''}"
    more = fresh.faults - saved.faults
    faults = f"page faults a call changed by {more:+.0f}" if abs(more) > 1 else ""
    return Row(
        workload=workload,
        variant=variant,
        against=against,
        base=_saved(before),
        new=_saved(today),
        change_percent=_percent(slow_down.centre),
        low_percent=_percent(slow_down.low),
        high_percent=_percent(slow_down.high),
        verdict=verdict,
        reason="; ".join(filter(None, (reason, faults))),
        threshold_percent=limit,
        between_percent=None if between is None else BETWEEN_PERCENT,
    )


INCONCLUSIVE: Answer = "inconclusive"
ELSEWHERE = "different machine"


def _or_the_other(pair: str) -> str:
    """What a slow-down may be too where two variants stand against each other alone."""
    return f"; it may be {pair} that changed" if pair else ""


def _answer(
    slow_down: CentredInterval, threshold: float, tolerance: float, slack: float, pair: str
) -> tuple[Answer, str]:
    """Answer and reason from a slow-down on one machine. All in log units. pair: what it stands against that is no
    reference benchmark."""
    low, high = slow_down.low, slow_down.high
    if low - tolerance > threshold:
        return "regression", f"slower by at least {_percent(low):.1f} %{_or_the_other(pair)}"
    if high + tolerance < -threshold:
        # A pair whose baseline became slower looks just like this, so it is no all-clear.
        return (INCONCLUSIVE, f"faster, or {pair} became slower") if pair else ("improvement", "")
    if high + slack < threshold:
        return "no regression", ""
    if math.isinf(high):
        return INCONCLUSIVE, "too few processes for an interval"
    if low > 0:
        which = "possibly slower, but below what saved runs can detect; time both versions in one run"
        return INCONCLUSIVE, f"{which}{_or_the_other(pair)}"
    up_to = f"a slow-down of up to {_percent(high + slack):.1f} % is not excluded"
    return INCONCLUSIVE, f"{up_to}; measure longer: --to-compare with a larger --budget"


def why_not(key: Key, old: Standings, now: Standings) -> str:
    """Why the times of a variant in two runs cannot be compared, whatever the machine; empty where they can."""
    if reason := unlike_runs(key, old, now):
        return reason
    before, today = old.workloads[key[0]], now.workloads[key[0]]
    if before.reference is None or before.reference != today.reference:
        return "no reference benchmark in both runs"
    if before.reference not in REFERENCE_BENCHMARKS and before.workload.get("kind") not in ("component", "call"):
        return "no reference benchmark in either run"
    # In another Python functions are other work.
    pythons = [".".join(str(run.environment.get("python")).split(".")[:2]) for run in (old, now)]
    if before.workload.get("kind") == "call" and pythons[0] != pythons[1]:
        return f"Python {pythons[0]} against {pythons[1]}"
    if old.times[key].clock != now.times[key].clock:
        return "one run has CPU time, the other wall time"
    return ""


def _saved(interval: Interval) -> Saved:
    low, high = (math.exp(end) if math.isfinite(end) else None for end in (interval.low, interval.high))
    return Saved(math.exp(interval.centre) if interval.n else None, low, high, interval.n)


def _percent(log_ratio: float) -> float | None:
    return math.expm1(log_ratio) * 100 if math.isfinite(log_ratio) else None


# -- what was counted in both: it does not vary as times do, so there are no rounds behind it --------------------------

LEAST_BYTES = 16_384
"""Peaks of the same code differ by Python's own objects; less than this is no change."""


@dataclass(frozen=True)
class CountedRun:
    """One of the two runs, and what its passes counted."""

    folder: RunFolder
    standings: Standings

    @cached_property
    def memory(self) -> dict[Key, Memory]:
        """Its memory, where it was measured. Raises RunError."""
        records: list[Memory] = MEMORY.form.validate_python(self.folder.records(MEMORY))
        return {(each.workload, each.variant): each for each in records}

    @cached_property
    def inputs(self) -> dict[str, str]:
        """Workload → SHA-256 of the code that makes what functions are called with."""
        sources = self.folder.manifest().sources
        return {} if sources is None else {name: each.payload.digest for name, each in sources.calls.items()}

    def has(self, key: Key) -> bool:
        """Whether the run took the variant on, with or without a number in the end. What others are compared with was
        counted, too."""
        course = self.standings.workloads.get(key[0])
        is_reference = course is not None and course.reference == key[1]
        return is_reference or key in self.standings.subjects or key in self.standings.reasons


def counted_rows(old: CountedRun, now: CountedRun, thresholds: Thresholds, *, same_machine: bool) -> list[Row]:
    """The rows of everything that is no time. Raises RunError where something cannot be read that decides, what is
    only shown is left out then; ConfigError where something decides that nothing here counts."""
    rows: list[Row] = []
    every: dict[What, Callable[[], Iterator[Row]]]
    every = {face.WHAT: partial(face.rows, old, now, thresholds) for face in faces("beside")}
    every["memory"] = lambda: _memory_rows(old, now, thresholds, same_machine=same_machine)
    if lacking := {*thresholds.gate} - {"time", *every}:
        raise ConfigError(f"gate: {', '.join(sorted(lacking))} cannot be compared, for nothing here counts them")
    for what, rows_of in every.items():
        try:
            rows += rows_of()
        except RunError:
            if what in thresholds.gate:
                raise
    return rows


def _memory_rows(old: CountedRun, now: CountedRun, thresholds: Thresholds, *, same_machine: bool) -> Iterator[Row]:
    """Of each variant whose memory both runs measured: weights, caches and the most that a call adds to them."""
    for key, before in old.memory.items():
        if not now.memory or not is_subject(key) or not now.has(key):
            continue
        after = now.memory.get(key)
        if (base := _peak(before, after)) is None:
            continue
        new = None if after is None else _peak(after, before)
        reason = unlike_runs(key, old.standings, now.standings)
        if reason or after is None or new is None:
            missing = (after and after.reason) or "not measured"
            reason = reason or f"{now.standings.name} has no memory of it: {one_text_line(missing, 160)}"
            yield cannot_tell(key, "memory", thresholds, reason)
            continue
        limit = thresholds.memory
        least = max(base * limit / 100, LEAST_BYTES)
        percent, detail = 100 * (new / base - 1) if base else None, _grown(before, after)
        verdict: Answer = "no regression"
        if new - base > least:
            verdict = "regression" if same_machine else "inconclusive"
            detail = detail if same_machine else f"more memory, but on a different machine: {detail}"
        elif base - new > least:
            verdict = "improvement"
        base_bytes, new_bytes = Counted(base, "bytes"), Counted(new, "bytes")
        yield Row(*key, "", base_bytes, new_bytes, percent, percent, percent, verdict, detail, "memory", limit)


def unlike_runs(key: Key, old: Standings, now: Standings) -> str:
    """Why nothing of a variant in two runs can be compared, whatever the machine; empty where it can be."""
    ours, theirs = device_kind(now.environment), device_kind(old.environment)
    if ours != theirs:
        return f"{old.name} measured on {theirs}, {now.name} on {ours}"
    if key in now.reasons:
        return f"{now.name} has no number for it: {one_text_line(now.reasons[key], 160)}"
    if key[0] not in old.workloads or key[0] not in now.workloads:
        return "one of the runs lacks the workload"
    before, today = old.workloads[key[0]], now.workloads[key[0]]
    # Descriptions are for people, and do not change what is measured.
    changed = sorted(
        name
        for name in before.workload.keys() | today.workload.keys()
        if name != "description" and _of_workload(before, name) != _of_workload(today, name)
    )
    if changed:
        return f"the workload changed ({', '.join(changed)})"
    return "the checkpoints differ" if before.checkpoint != today.checkpoint else ""


def _of_workload(result: WorkloadResult, name: str) -> Any:
    """What a workload says there; an older run does not say what it could not have been otherwise."""
    known = Workload.model_fields.get(name)
    return result.workload.get(name, None if known is None or known.is_required() else known.default)


def is_subject(key: Key) -> bool:
    """Neither a control nor what others are compared with."""
    return not EnteredName(key[1]).is_control and key[1] not in REFERENCE_BENCHMARKS


def cannot_tell(key: Key, what: What, thresholds: Thresholds, reason: str) -> Row:
    """A row without an answer, and why."""
    reason = one_text_line(reason, 300)
    limit = getattr(thresholds, what)
    return Row(*key, "", None, None, None, None, None, "inconclusive", reason, what, limit)


def _sizes(memory: Memory, other: Memory | None) -> dict[str, float | None]:
    """Of each part that counts, in bytes. What is kept counts where the other run knows it too: older ones do not."""
    sizes = {"weights": memory.parameter_bytes, "caches": memory.cache_bytes}
    sizes |= {"temporary tensors": memory.peak_transient_bytes}
    has_kept = other is not None and None not in (memory.kept_bytes, other.kept_bytes)
    return sizes | ({"what is kept": memory.kept_bytes} if has_kept else {})


def _peak(memory: Memory, other: Memory | None) -> float | None:
    """All parts together."""
    sizes = [*_sizes(memory, other).values()]
    return None if None in sizes else float(sum(size or 0 for size in sizes))


def _grown(before: Memory, after: Memory) -> str:
    """The parts that changed by more than what Python's own objects do, in words."""
    then, now = _sizes(before, after), _sizes(after, before)
    moved = {part: (size or 0) - (then[part] or 0) for part, size in now.items()}
    return ", ".join(f"{part} {change:+,.0f} bytes" for part, change in moved.items() if abs(change) > LEAST_BYTES)
