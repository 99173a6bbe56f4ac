"""`workbench export`"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
import typer

from llama_workbench.commands.shared import ON_RUNS, Failure, Listed, RunArgument, print_json, run_of_one_machine
from llama_workbench.datasets.lengths import PERCENTILES

from ...report.standings import read_standings
from ...stats.samples import Clock, call_times_ns
from ...store.folder import RunFolder

VERB = "export"
LISTED = Listed(13, ON_RUNS, {"export results/runs/ID": "its times, for a service that plots them over commits"})


def command(
    run: RunArgument,
    as_format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Format to print: bencher or github-action-benchmark.")
    ] = "bencher",
) -> None:
    """Print a run's times as JSON for a service that plots them over commits.

    For each variant on each workload: the time of a call in nanoseconds and, where there is an interval, its time
    relative to the reference benchmark. Relative times can be compared between different machines.

    \b
    Examples:
      workbench export results/runs/ID > bmf.json      # bencher run --adapter json --file bmf.json
      workbench export results/runs/ID --format github-action-benchmark > out.json   # tool: customSmallerIsBetter
    """
    from llama_workbench.variants.spelling import did_you_mean

    if as_format not in FORMATS:
        raise Failure(f"--format {as_format}: {did_you_mean(as_format, FORMATS, ' or '.join(FORMATS))}")
    print_json(FORMATS[as_format](run_of_one_machine(run)))


# Each variant on each workload has two figures. Its relative time is against the reference benchmark's calls in the
# same processes (or the baseline's, where there is none), with its interval, once it has one: runs of unlike machines
# can be compared by it. The time of a call in nanoseconds, the median or the percentile that is compared, has no
# interval: the next machine would leave it.


@dataclass(frozen=True)
class Tracked:
    """The figures of one variant on one workload. relative: its time over the reference's, low, high: the interval of
    that; None where an end is open."""

    name: str
    relative: tuple[float, float, float] | None
    reference: str
    call_ns: float


def tracked(folder: RunFolder) -> Iterator[Tracked]:
    """Those of a run, in its order. Raises RunError."""
    standings, samples = read_standings(folder), folder.read_samples()
    for row in standings.rows:
        if row.rounds:
            result = standings.workloads[row.workload]
            of_row = samples.where(workload=row.workload, variant=row.variant)
            times = call_times_ns(of_row, clock=cast(Clock, row.clock))
            quantile = PERCENTILES.get(result.workload.get("statistic") or "", 0.5)
            relative = (math.exp(-row.log_ratio), math.exp(-row.high), math.exp(-row.low))
            yield Tracked(
                f"{row.workload}/{row.variant}",
                relative if math.isfinite(relative[1]) and math.isfinite(relative[2]) else None,
                result.reference or "",
                float(np.nanquantile(times, quantile)),
            )


def bencher(folder: RunFolder) -> dict[str, dict[str, dict[str, float]]]:
    """Bencher Metric Format: benchmark → measure → value, and its bounds (bencher.dev, reference). Raises RunError."""
    measures: dict[str, dict[str, dict[str, float]]] = {}
    for figures in tracked(folder):
        measures[figures.name] = {"latency": {"value": figures.call_ns}}
        if figures.relative:
            relative = zip(("value", "lower_value", "upper_value"), figures.relative, strict=True)
            measures[figures.name]["relative-time"] = dict(relative)
    return measures


def github_action_benchmark(folder: RunFolder) -> list[dict[str, Any]]:
    """What benchmark-action/github-action-benchmark takes as `customSmallerIsBetter`: name, unit and value of each
    figure, here with `range` and `extra` (its README). Raises RunError."""
    entries: list[dict[str, Any]] = []
    for figures in tracked(folder):
        if figures.relative:
            value, low, high = figures.relative
            unit = f"times {figures.reference}"
            entries.append({"name": figures.name, "unit": unit, "value": value, "range": f"± {(high - low) / 2:.4g}"})
        call = {"unit": "ns", "value": figures.call_ns, "extra": "of this machine"}
        entries.append({"name": f"{figures.name}, a call", **call})
    return entries


FORMATS: dict[str, Callable[[RunFolder], Any]] = {
    "bencher": bencher,
    "github-action-benchmark": github_action_benchmark,
}
"""By the name that a user gives."""
