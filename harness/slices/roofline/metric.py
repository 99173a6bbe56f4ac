"""What share of this machine's roof a variant reaches: pure functions of the records of roofline.json.

    samples of a round --least_seconds--> least time / measured time --t interval over rounds--> Reached

A round times both roofs and every variant beside each other, and gives one number a variant: the least time that its
work can take at the rates that the roofs showed in this very round, over the time that it took. Times are medians over
the samples of a round (where lengths differ, a median a length, summed). The number of rounds is fixed beforehand, so
an ordinary t interval over the rounds' logarithms holds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from ...evidence.evidence import Evidence
from ...machine.environment import last_level_cache_bytes
from ...measure.passes import PASS_SECONDS, ask_about, measured_by
from ...metrics.base import IntervalMetric, PassContext, VariantHypothesis, subjects
from ...metrics.roof import ForwardWork
from ...stats.confidence import fixed_interval
from ...store.folder import RunFolder
from ...store.forms import MOST, Count, JsonFile, Shape, Some, Text, once, says
from ...store.verdict_schema import Effect

_Tokens = Annotated[int, Field(ge=0, le=MOST)]


class Roof(Shape):
    """A peak kernel that was timed."""

    kernel: Annotated[Text, says("which kernel")]
    amount: Annotated[Some, says("operations, or bytes that it reads, of a call")]


class RoofEntry(Shape):
    """A variant of the roofline pass."""

    clock: Annotated[Literal["cpu", "wall"], says("which of its times counts")] = "cpu"
    reason: Annotated[Text | None, says("why it has no samples")] = None


class RoofSample(NamedTuple):
    """`calls` calls of a peak kernel, one after another: a list of these values."""

    roof: Literal["matmul", "memory"]
    round: Count
    sub_round: Count
    calls: Count
    cpu_ns: Count
    wall_ns: Count


class CallSample(NamedTuple):
    """Calls of a variant worth `calls` calls of `tokens` tokens, one after another: a list of these values."""

    variant: Text
    round: Count
    sub_round: Count
    tokens: Count
    calls: Count
    cpu_ns: Count
    wall_ns: Count


class Roofline(Shape):
    """Variants beside peak kernels on one workload."""

    workload: Annotated[Text, says("on which workload")]
    reason: Annotated[Text | None, says("why there is nothing else")] = None
    variants: Annotated[dict[str, RoofEntry], says("the variants that were asked for")] = {}
    rounds: Annotated[Count, says("number of rounds")] = 0
    roofs: Annotated[dict[Literal["matmul", "memory"], Roof], says("the peak kernels")] = {}
    weight_bytes: Annotated[Count, says("what each forward reads beside keys and values")] = 0
    cache_bytes: Annotated[Some | None, says("size of the last-level cache; null: unknown")] = None
    work: Annotated[
        dict[_Tokens, Annotated[list[tuple[Some, Some]], Field(min_length=1)]],
        says("tokens of a call → [operations, bytes] of each of its forwards"),
    ] = {}
    roof_samples: Annotated[list[RoofSample], says("times of the peak kernels")] = []
    samples: Annotated[list[CallSample], says("times of the variants")] = []


ROOFLINE = JsonFile("roofline.json", Annotated[list[Roofline], once("workload")])

MATMUL: Literal["matmul"] = "matmul"
MEMORY: Literal["memory"] = "memory"


class Estimate(NamedTuple):
    """Geometric mean over rounds, with its interval: 0 to infinity for fewer than two rounds."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Reached:
    """One variant on one workload."""

    workload: str
    variant: str
    share: Estimate  # in percent of the roof
    call_ms: Estimate  # of a call
    gflops: Estimate  # a second, as the roofs showed
    gbytes: Estimate  # likewise
    binds: Literal["computing", "memory"]  # the roof that most of the least time belongs to
    intensity: float  # in operations a byte
    in_cache: bool | None  # whether the weights fit in the last-level cache; None where its size is unknown
    kernels: tuple[str, str]
    rounds: int
    seconds: float  # of samples, the roofs' included

    @property
    def above(self) -> str:
        """Why more than 100 % came out; empty where it did not."""
        if self.share.value <= 100:
            return ""
        does, kernel = ("reads memory", self.kernels[1]) if self.binds == "memory" else ("computes", self.kernels[0])
        why = f"above 100 %: the peak is a measured kernel too ({kernel}), and the call {does} faster than it did"
        return why if self.share.low > 100 else f"{why}; the interval holds 100 %"


def least_seconds(
    work: Sequence[ForwardWork], *, flops_per_second: float, bytes_per_second: float
) -> tuple[float, float]:
    """(seconds of forwards that computing bounds, seconds of those that memory bounds): their sum is the least time.

    Forwards come one after another, so that each takes at least the longer of its two.
    """
    compute = memory = 0.0
    for forward in work:
        by_flops, by_bytes = forward.flops / flops_per_second, forward.nbytes / bytes_per_second
        if by_flops >= by_bytes:
            compute += by_flops
        else:
            memory += by_bytes
    return compute, memory


def reached(records: Sequence[Roofline], workload: str, variant: str, *, alpha: float) -> Reached:
    """Share of the roof that the variant reaches. Raises ValueError with the reason why there are no numbers."""
    record = next((record for record in records if record.workload == workload), None)
    if record is None:
        raise ValueError("this run has not measured it")
    entry = record.variants.get(variant, RoofEntry(reason=f"this run has not measured {variant}"))
    if reason := record.reason or entry.reason:
        raise ValueError(reason)
    clock = entry.clock
    rows = [sample for sample in record.samples if sample.variant == variant]
    if lacking := {MATMUL, MEMORY} - set(record.roofs) or {row.tokens for row in rows} - set(record.work):
        raise ValueError(f"roofline.json is damaged: nothing about {', '.join(map(str, sorted(lacking, key=str)))}")
    spent: list[float] = []
    logs: dict[str, list[float]] = {name: [] for name in ("share", "call", MATMUL, MEMORY)}
    compute_seconds = memory_seconds = 0.0
    for number in sorted({row.round for row in rows}):
        roofs = [sample for sample in record.roof_samples if sample.round == number]
        mine = [row for row in rows if row.round == number]
        rates = {
            name: _rate(roof, [one for one in roofs if one.roof == name], clock) for name, roof in record.roofs.items()
        }
        if not all(rates.values()) or not all(_seconds(row, clock) > 0 for row in mine):
            continue
        lengths = sorted({row.tokens for row in mine})
        times = [statistics.median(_seconds(row, clock) for row in mine if row.tokens == n) for n in lengths]
        work = [ForwardWork(*forward) for length in lengths for forward in record.work[length]]
        compute, memory = least_seconds(work, flops_per_second=rates[MATMUL], bytes_per_second=rates[MEMORY])
        compute_seconds += compute
        memory_seconds += memory
        logs["share"].append(math.log((compute + memory) / sum(times)))
        logs["call"].append(math.log(statistics.fmean(times)))
        for name, rate in rates.items():
            logs[name].append(math.log(rate))
        spent += [sample.wall_ns / 1e9 for sample in roofs] + [row.wall_ns / 1e9 for row in mine]
    if not spent:
        raise ValueError("no round with a valid time of the variant and of both peak kernels")
    forwards = [forward for length in sorted({row.tokens for row in rows}) for forward in record.work[length]]
    return Reached(
        workload=record.workload,
        variant=variant,
        share=_estimate(logs["share"], alpha, 100.0),
        call_ms=_estimate(logs["call"], alpha, 1e3),
        gflops=_estimate(logs[MATMUL], alpha, 1e-9),
        gbytes=_estimate(logs[MEMORY], alpha, 1e-9),
        binds="computing" if compute_seconds >= memory_seconds else "memory",
        intensity=sum(flops for flops, _ in forwards) / sum(nbytes for _, nbytes in forwards),
        in_cache=None if record.cache_bytes is None else record.weight_bytes <= record.cache_bytes,
        kernels=(record.roofs[MATMUL].kernel, record.roofs[MEMORY].kernel),
        rounds=len(logs["share"]),
        seconds=sum(spent),
    )


def all_reached(records: Sequence[Roofline], *, alpha: float) -> tuple[list[Reached], list[str]]:
    """Every variant's share, and a line with the reason for each that has none."""
    rows, missing = [], []
    for record in records:
        for name in record.variants:
            try:
                rows.append(reached([record], record.workload, name, alpha=alpha))
            except ValueError as error:
                missing.append(f"{name} on {record.workload}: {error}")
    return rows, missing


def _seconds(sample: RoofSample | CallSample, clock: Literal["cpu", "wall"]) -> float:
    """Of one call."""
    taken = sample.cpu_ns if clock == "cpu" else sample.wall_ns
    return taken / 1e9 / sample.calls if sample.calls > 0 else 0.0


def _rate(roof: Roof, samples: Sequence[RoofSample], clock: Literal["cpu", "wall"]) -> float:
    """Operations or bytes a second in a round; 0 where it has no valid time."""
    times = [_seconds(sample, clock) for sample in samples]
    return roof.amount / statistics.median(times) if times and min(times) > 0 else 0.0


def _estimate(logs: Sequence[float], alpha: float, unit: float) -> Estimate:
    interval = fixed_interval(logs, alpha)
    return Estimate(*(unit * math.exp(end) for end in (interval.centre, interval.low, interval.high)))


ROOFLINE_SECONDS, ROOFLINE_CALLS = 12.0, 2000
"""Of the pass's rounds on a workload, where these are not too few then. It has failed once it takes PASS_SECONDS more
than this and the time of so many calls: some 20 times what it should take."""


class RooflineHypothesis(VariantHypothesis):
    """How much of the roofline `variant` reaches on each of `workloads`, in percent."""

    cpu_only = "the roofs are those of the CPU, and none are measured of a CUDA device"

    metric: Literal["roofline"]


class RooflineMetric(IntervalMetric[RooflineHypothesis]):
    """Measured in rounds of the variant beside the fastest kernels that compute and that read memory."""

    names = ("roofline",)
    about = "The roofline fraction: how much of this machine's measured peak a call reaches."
    page = "roofline"
    hypothesis = RooflineHypothesis
    files = (ROOFLINE,)
    title = "roofline"
    does = "how much of this machine's peak each variant reaches"

    def run(self, hypotheses: Sequence[RooflineHypothesis], context: PassContext) -> None:
        """Time each (workload, variant) beside what this machine can do (`Roofline` says what is written).

        Writes roofline.json anew after each workload. Where one or a variant has no samples, its record says why.
        """
        measurement, progress = context.measurement, context.progress
        places = measured_by(measurement)
        names: dict[str, list[str]] = {}
        for workload, variant in subjects(hypotheses):
            names.setdefault(workload, []).append(variant)
        records: list[dict[str, Any]] = []
        for index, (workload, asked) in enumerate(names.items()):
            left = (len(names) - index) * ROOFLINE_SECONDS
            progress.step(f"roofline {workload}: {', '.join(asked)}", index / len(names), left)
            group, state = places.get(workload, (None, None))
            gone = measurement.participants.excluded | (state.excluded if state else {})
            entries: dict[str, dict[str, Any]]
            entries = {name: {"reason": gone.get(name, "it is not measured in this run")} for name in asked}
            record: dict[str, Any] = {"workload": workload, "reason": None, "variants": entries}
            if group is None or state is None:
                record["reason"] = "the workload is not in this run"
            elif state.experiment.workload.kind == "component":
                record["reason"] = "a component has no roofline: only the work of whole forwards is counted"
            else:
                here = [name for name in asked if name in state.remaining().variants]
                limit, what = PASS_SECONDS + ROOFLINE_SECONDS, {"seconds": ROOFLINE_SECONDS}
                answer, lost = ask_about(measurement, group, state, here, "roofline", limit, ROOFLINE_CALLS, **what)
                for name, reason in lost.items():
                    progress.note(f"roofline of {name} on {workload}: {reason}")
                for name in here:
                    wall = state.experiment.workload.threads > 1 or name in state.wall_variants
                    entries[name] = {"clock": "wall" if wall else "cpu", "reason": lost.get(name)}
                record |= {"cache_bytes": last_level_cache_bytes(), **(answer or {})}
            records.append(record)
            context.folder.write_json(ROOFLINE, records)

    def read(self, folder: RunFolder) -> list[Roofline] | None:
        return folder.read(ROOFLINE) or None

    def words(self, hypothesis: RooflineHypothesis) -> str:
        return "roofline fraction"

    def measured(self, effect: Effect, hypothesis: RooflineHypothesis, evidence: Evidence, alpha: float) -> Effect:
        records = evidence.passes.get("roofline")
        if not records:
            raise ValueError("this run has not measured the roofline")
        row = reached(records, effect.workload, hypothesis.variant, alpha=alpha)
        value, low, high = row.share
        metric, notes = f"roofline fraction (limited by {row.binds})", (row.above,) if row.above else ()
        effect = replace(effect, metric=metric, notes=notes)
        return replace(effect, ratio=value, low=low, high=high, rounds=row.rounds, seconds=row.seconds)


METRIC = RooflineMetric()
