"""From timed samples to one array of log times, and from it to one number a process.

    samples --log_times--> log time a call [process, sub-round, variant] --differences--> one log ratio a process

Everything that compares times takes this array: the stopping rule, the judge, the controls, grids, trends, relative
times and the dashboard. Clock and metric are chosen once, when it is made. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..spec.comparison import Metric
from ..spec.sample import Round, Sample
from ..spec.table import NameColumn, Table

Clock = Literal["cpu", "wall", "device"]


@dataclass(frozen=True)
class Clocks:
    """Which clock counts."""

    device: str = "cpu"
    wall_default: frozenset[str] = frozenset()  # workloads timed by wall altogether, because they use several threads
    # workload → variants timed by wall, because they compute in threads of their own
    wall_variants: Mapping[str, Collection[str]] = field(default_factory=dict)

    def of(self, workload: str, *variants: str) -> Clock:
        """The clock that serves all of these variants: wall as soon as one needs it; a device's own, if it has one."""
        if self.device != "cpu":
            return "device"
        by_wall = self.wall_variants.get(workload, ())
        return "wall" if workload in self.wall_default or any(name in by_wall for name in variants) else "cpu"


@dataclass(frozen=True)
class LogTimes:
    """Log time of a call (ns) of every variant in every sub-round of one workload, by one clock and metric.

    The sub-rounds of a process are those of all its rounds. quantile: of the sub-rounds of a process, which share of
    their times the compared one is not below; None: they are paired, and the median of the pairs counts.
    """

    variants: tuple[str, ...]
    starts: tuple[tuple[int, int], ...]  # (process, its first round), in this order
    # [process, sub-round, variant]; NaN where there is no sample, -inf where its time is not positive
    logs: NDArray[np.float64]
    faults: NDArray[np.float64]  # minor page faults a call, of the same shape; 0 where there is no sample
    wall_ns: NDArray[np.float64]  # wall time of a sample, of the same shape; 0 where there is none
    quantile: float | None = None

    def of(self, names: Sequence[str]) -> LogTimes:
        """The same for these variants, in this order; one without a sample has NaN throughout."""
        places = {name: index for index, name in enumerate(self.variants)}
        columns = [places.get(name, -1) for name in names]
        lacking = [index for index, column in enumerate(columns) if column < 0]
        if not self.variants:
            empty = np.empty((0, 0, len(names)))
            return LogTimes(tuple(names), (), empty, empty, empty, self.quantile)
        logs, faults, wall_ns = (values[:, :, columns] for values in (self.logs, self.faults, self.wall_ns))
        logs[:, :, lacking] = np.nan
        return LogTimes(tuple(names), self.starts, logs, faults, wall_ns, self.quantile)


def call_times_ns(
    samples: Table | Mapping[str, NDArray[Any]], *, clock: Clock, metric: Metric = "time", new_tokens: int = 0
) -> NDArray[np.float64]:
    """Time a call of every sample by one metric, in nanoseconds.

    time: a whole call. time_to_first_token: from the start of a generation until its first token was there.
    time_per_output_token: what came after that, over the `new_tokens` - 1 other tokens of each sequence. Not positive
    where the samples' workload generates nothing, NaN without calls. `samples` has the columns of samples.parquet.

    Raises ValueError for time_per_output_token without `new_tokens` of 2 or more.
    """
    if metric == "time_per_output_token" and new_tokens < 2:
        raise ValueError(f"time_per_output_token needs the workload's new_tokens, 2 or more, not {new_tokens}")
    repeats = np.asarray(samples["repeats"], dtype=np.float64)
    total = np.asarray(samples[f"{clock}_ns"], dtype=np.float64) / np.where(repeats > 0, repeats, np.nan)
    if metric == "time":
        return total
    first = np.asarray(samples[f"first_{clock}_ns"], dtype=np.float64)
    return first if metric == "time_to_first_token" else np.where(first > 0, (total - first) / (new_tokens - 1), 0.0)


def tokens_per_second(call_ns: float, *, new_tokens: int, batch: int = 1) -> float:
    """Throughput of a generation that takes `call_ns` for `batch` times `new_tokens` tokens, prefill included."""
    return batch * new_tokens / call_ns * 1e9


def log_times(
    samples: Table,
    *,
    workload: str,
    clock: Clock,
    metric: Metric = "time",
    new_tokens: int = 0,
    quantile: float | None = None,
) -> LogTimes:
    """The array of one workload; `samples` has the columns of samples.parquet, in any order.

    Raises ValueError where a variant occurs twice in one sub-round, and as `call_times_ns` does.
    """
    here = samples.where(workload=workload)
    variants = NameColumn.of(here.names("variant").tolist())
    columns = {name: here[name] for name in here.columns if name not in ("workload", "variant")}
    return _array(columns, variants.codes, variants.values, workload, clock, metric, new_tokens, quantile)


def log_times_of_rounds(
    taken: Sequence[Round],
    *,
    clock: Clock,
    metric: Metric = "time",
    new_tokens: int = 2,
    quantile: float | None = None,
) -> LogTimes:
    """The same for a few rounds of one workload, as the measuring loop has them. Where only ratios count, `new_tokens`
    does not."""
    samples = [(each, sample) for each in taken for sample in each.samples]
    names = tuple(dict.fromkeys(sample.variant for _, sample in samples))
    codes = np.array([names.index(sample.variant) for _, sample in samples], dtype=np.intp)
    numbers = np.array([sample[1:] for _, sample in samples], dtype=np.int64).reshape(
        len(codes), len(Sample._fields) - 1
    )
    columns = dict(zip(Sample._fields[1:], numbers.T, strict=True))
    of_round = {
        "process": np.array([each.process for each, _ in samples], dtype=np.int64),
        "round": np.array([each.number for each, _ in samples], dtype=np.int64),
    }
    return _array(columns | of_round, codes, names, taken[0].workload, clock, metric, new_tokens, quantile)


def _array(
    columns: Mapping[str, NDArray[Any]],
    codes: NDArray[np.integer[Any]],
    names: tuple[str, ...],
    workload: str,
    clock: Clock,
    metric: Metric,
    new_tokens: int,
    quantile: float | None,
) -> LogTimes:
    keys = np.stack([columns["process"], columns["round"], columns["sub_round"]], axis=1).astype(np.int64)
    sub_rounds, of_sample = np.unique(keys, axis=0, return_inverse=True)  # in order of process, round, sub-round
    processes, first, row = np.unique(sub_rounds[:, 0], return_index=True, return_inverse=True)
    place = np.arange(len(sub_rounds)) - first[row]  # which sub-round of its process
    shape = (len(processes), int(place.max(initial=-1)) + 1, len(names))
    where = (row[of_sample.reshape(-1)], place[of_sample.reshape(-1)], codes)
    if len(codes) > len(np.unique(np.ravel_multi_index(where, shape))):
        raise ValueError(f"{workload}: a variant has two samples in one sub-round")
    times = call_times_ns(columns, clock=clock, metric=metric, new_tokens=new_tokens)
    logs, faults, wall_ns = np.full(shape, np.nan), np.zeros(shape), np.zeros(shape)
    positive = times > 0
    logs[where] = np.log(times, where=positive, out=np.full(times.shape, -np.inf))
    faults[where] = np.where(columns["repeats"] > 0, columns["faults"] / np.maximum(columns["repeats"], 1), 0.0)
    wall_ns[where] = columns["wall_ns"]
    starts = tuple((int(process), int(number)) for process, number, _ in sub_rounds[first])
    return LogTimes(names, starts, logs, faults, wall_ns, quantile)


# -- one number a process ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WholeProcesses:
    """The processes in which some variants are all timed, in their order, one number a variant."""

    starts: tuple[tuple[int, int], ...]  # (process, its first round)
    logs: NDArray[np.float64]  # [process, variant], median (or the quantile) over the sub-rounds that have them all
    faults: NDArray[np.float64]  # mean over processes of the median page faults a call, by variant
    incomplete: int  # processes that have some of them, and no sub-round that has all
    invalid: int  # processes left out because a time was not positive
    seconds: float  # wall time of the samples behind them


def whole_processes(times: LogTimes) -> WholeProcesses:
    """Reduce the array to the processes in which all of its variants are timed; see `LogTimes.of` to choose them."""
    kept, valid, paired = _kept(times)
    return WholeProcesses(
        starts=tuple(each for each, good in zip(times.starts, valid, strict=True) if good),
        logs=_central(times.logs, kept, times.quantile)[valid],
        faults=_faults(times, kept, valid),
        incomplete=int((~np.isnan(times.logs).all(axis=(1, 2)) & ~paired).sum()),
        invalid=int((paired & ~valid).sum()),
        seconds=float(times.wall_ns[kept].sum()) / 1e9,
    )


@dataclass(frozen=True)
class Differences:
    """One comparison, a number a process."""

    # log t_baseline - log t_variant, in the order of the processes: the median over their sub-rounds, or the difference
    # of their quantiles
    values: NDArray[np.float64]
    seconds: float  # wall time of the samples behind them, both sides
    # minor page faults a call, mean over processes; counted as time is (median over the pairs of each), so that a fault
    # in a few of them counts as little as it weighs
    faults_baseline: float
    faults_variant: float  # likewise
    invalid_share: float  # of the processes with both sides, those left out because a time was not positive
    call_baseline_ns: float = math.nan  # typical time of a call
    call_variant_ns: float = math.nan  # likewise


def differences(times: LogTimes, *, baseline: str, variant: str) -> Differences:
    """Pair the samples of two variants: sub-rounds in which a side is missing are skipped, a process with a time that
    is not positive is left out whole."""
    sides = times.of((baseline, variant))
    kept, valid, paired = _kept(sides)
    if not valid.any():
        return Differences(np.empty(0), 0.0, 0.0, 0.0, 1.0 if paired.any() else 0.0)
    central = _central(sides.logs, kept, sides.quantile)[valid]
    if sides.quantile is None:
        values = np.nanmedian(np.where(kept, sides.logs[:, :, 0] - sides.logs[:, :, 1], np.nan)[valid], axis=1)
    else:
        values = central[:, 0] - central[:, 1]
    faults = _faults(sides, kept, valid)
    typical = np.median(central, axis=0)
    return Differences(
        values=values,
        seconds=float(sides.wall_ns[kept].sum()) / 1e9,
        faults_baseline=float(faults[0]),
        faults_variant=float(faults[1]),
        invalid_share=1 - valid.sum() / paired.sum(),
        call_baseline_ns=math.exp(typical[0]),
        call_variant_ns=math.exp(typical[1]),
    )


def call_ns(times: LogTimes) -> NDArray[np.float64]:
    """Nanoseconds a call of the one variant of these times, one number a process: its sub-rounds' median."""
    kept, valid, _ = _kept(times)
    values = np.exp(times.logs[:, :, 0])
    return np.nanmedian(np.where(kept, values, np.nan)[valid], axis=1) if valid.any() else np.empty(0)


def _kept(times: LogTimes) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """[process, sub-round] that count; [process] that are valid; [process] with a sub-round that has all variants."""
    there: NDArray[np.bool_] = np.all(~np.isnan(times.logs), axis=2)
    paired: NDArray[np.bool_] = np.any(there, axis=1)
    invalid: NDArray[np.bool_] = np.any(there & np.any(np.isneginf(times.logs), axis=2), axis=1)
    valid = paired & ~invalid
    return there & valid[:, None], valid, paired


def _central(
    values: NDArray[np.float64], kept: NDArray[np.bool_], quantile: float | None = None
) -> NDArray[np.float64]:
    """[process, variant]: the median or quantile over the sub-rounds that count, NaN for a process without."""
    central = np.full((values.shape[0], values.shape[2]), np.nan)
    some = kept.any(axis=1)
    if some.any():
        counted = np.where(kept[:, :, None], values, np.nan)[some]
        central[some] = np.nanmedian(counted, axis=1) if quantile is None else np.nanquantile(counted, quantile, axis=1)
    return central


def _faults(times: LogTimes, kept: NDArray[np.bool_], valid: NDArray[np.bool_]) -> NDArray[np.float64]:
    if not valid.any():
        return np.zeros(len(times.variants))
    return np.asarray(_central(times.faults, kept)[valid].mean(axis=0), dtype=np.float64)
