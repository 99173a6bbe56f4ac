"""Loading of checkpoints as the Memory page shows it: times, ratios, and shares of the time to the first token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from llama_workbench.harness.metrics.loading.metric import METRICS, load_effects, load_shares
from llama_workbench.harness.stats.confidence import Interval, fixed_interval
from llama_workbench.harness.store import pass_schema
from llama_workbench.harness.store.files import LOADING
from llama_workbench.harness.store.folder import RunFolder

from . import data
from .samples import ratios

METRIC = "share of the time to first token"


@dataclass(frozen=True)
class Time:
    """Milliseconds of one thing over `count` loads: geometric mean with its t interval (None with too few)."""

    value: float
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True)
class Load:
    """One loader with a cold or warm page cache. `times`: by "open", "touched" (every byte read too), "first_token"."""

    row: pass_schema.Loading
    times: Mapping[str, Time]
    against: Mapping[str, Interval]
    share: Interval

    @property
    def peak_bytes(self) -> float | None:
        """The most of all loads."""
        return max((load.peak_bytes for load in self.row.loads if load.peak_bytes is not None), default=None)


def read_loads(run: data.Run) -> list[Load]:
    """The records of loading.json and what they mean; each family of intervals holds at once. Raises RunError."""
    records = RunFolder(run.path).records(LOADING)
    alpha = run.alpha
    against = load_effects(records, alpha=alpha)
    return [
        Load(
            row=row,
            times=_times(row, alpha / (len(records) * len(METRICS))),
            against=against.get((row.checkpoint, row.loader, row.cache), {}),
            share=share,
        )
        for row, share in zip(
            pass_schema.LOADING.validate_python(records), load_shares(records, alpha=alpha), strict=True
        )
    ]


def _times(row: pass_schema.Loading, alpha: float) -> dict[str, Time]:
    samples = {
        "open": [load.open_ns for load in row.loads],
        "touched": [load.touched_ns for load in row.loads],
        "first_token": [first.open_ns + first.build_ns + first.first_ns for first in row.first_tokens],
    }
    times = {}
    for metric, interval in ((name, fixed_interval(np.log(ns) - math.log(1e6), alpha)) for name, ns in samples.items()):
        value, low, high = ratios(interval)
        if value is not None:
            times[metric] = Time(value, low, high, interval.n)
    return times


def shares(run: data.Run, geometry: str, here: Sequence[Load]) -> data.Claim:
    """The shares as rows of a forest plot: as judged where a claim asked, else with the page's own interval."""
    judged: dict[str, tuple[data.Claim, data.Effect]] = {}
    for claim in run.claims:
        for effect in claim.effects:
            if effect.unit and data.experiment(run, effect.workload).workload.geometry == geometry:
                judged.setdefault(effect.metric, (claim, effect))
    asked: list[data.Claim] = []
    rows = []
    for load in here:
        name, share = f"{load.row.loader}, {load.row.cache}", load.share
        if known := judged.get(f"{METRIC}: {name} page cache"):
            asked.append(known[0])
            rows.append(replace(known[1], workload=name, variant="", baseline="", metric=METRIC))
        elif share.n:
            value, low, high = (
                100 * end if math.isfinite(end) else None for end in (share.centre, share.low, share.high)
            )
            own = data.Effect(name, "", "", METRIC, "%", value, low, high, share.n, verdict="not asked")
            rows.append(own)
    shown = asked[0] if asked else data.Claim(id="loading", title="Loading", alpha=run.alpha, effects=())
    return replace(shown, alpha=run.alpha, effects=tuple(rows))
