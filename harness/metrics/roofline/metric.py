"""What share of this machine's peak a variant reaches."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Literal

from ...evidence.evidence import Evidence
from ...machine.environment import last_level_cache_bytes
from ...measure.measurement import Measurement
from ...measure.participants import ExperimentState, Group, Progress
from ...measure.passes import PASS_SECONDS, ask_about, measured_by
from ...store.files import ROOFLINE
from ...store.folder import RunFolder
from ...store.schema import Effect
from ..base import PassContext, subjects
from ..values import IntervalMetric, VariantHypothesis
from .roofline import reached

ROOFLINE_SECONDS, ROOFLINE_CALLS = 12.0, 2000
"""Of the pass's rounds on a workload, where these are not too few then. It has failed once it takes PASS_SECONDS more
than this and the time of so many calls: some 20 times what it should take."""


class RooflineHypothesis(VariantHypothesis):
    """How much of the roofline `variant` reaches on each of `workloads`, in percent."""

    cpu_only = "the roofs are those of the CPU, and none are measured of a CUDA device"

    metric: Literal["roofline"]

    def intervals(self) -> frozenset[Hashable]:
        return frozenset((self.metric, *pair) for pair in self.subjects())


class RooflineMetric(IntervalMetric[RooflineHypothesis]):
    """Measured in rounds of the variant beside the fastest kernels that compute and that read memory."""

    names = ("roofline",)
    hypothesis = RooflineHypothesis
    title = "roofline: how much of this machine's peak each variant reaches"

    def run(self, hypotheses: Sequence[RooflineHypothesis], context: PassContext) -> None:
        run_roofline(context.measurement, context.folder, context.progress, subjects(hypotheses))

    def read(self, folder: RunFolder) -> list[dict[str, Any]] | None:
        return folder.records(ROOFLINE) or None

    def words(self, hypothesis: RooflineHypothesis) -> str:
        return "share of the roofline"

    def measured(self, effect: Effect, hypothesis: RooflineHypothesis, evidence: Evidence, alpha: float) -> Effect:
        records = evidence.passes.get("roofline")
        if not records:
            raise ValueError("this run has not measured the roofline")
        found = reached(records, effect.workload, hypothesis.variant, alpha=alpha)
        value, low, high = found.share
        above = ("more than the roof: what it is measured with does not reach this machine's peak",)
        return replace(
            effect,
            metric=f"share of the roofline ({found.binds} binds)",
            ratio=value,
            low=low,
            high=high,
            rounds=found.rounds,
            seconds=found.seconds,
            warnings=above if low > 100 else (),
        )


METRIC = RooflineMetric()


# -- the pass ----------------------------------------------------------------------------------------------------------


def run_roofline(
    measurement: Measurement,
    folder: RunFolder,
    progress: Progress,
    wanted: Sequence[tuple[str, str]],
    seconds: float = ROOFLINE_SECONDS,
) -> None:
    """Time each wanted (workload, variant) beside what this machine can do; see `roofline.Record` for what is written.

    Writes roofline.json anew after each workload. Where a workload or a variant has no samples, its record says why.
    """
    places = measured_by(measurement)
    names: dict[str, list[str]] = {}
    for workload, variant in dict.fromkeys(wanted):
        names.setdefault(workload, []).append(variant)
    records: list[dict[str, Any]] = []
    for index, (workload, asked) in enumerate(names.items()):
        left = (len(names) - index) * seconds
        progress.step(f"roofline {workload}: {', '.join(asked)}", index / len(names), left)
        record: dict[str, Any] = {"workload": workload, "reason": None, "variants": {}}
        group, book = places.get(workload, (None, None))
        if group is None or book is None:
            record["reason"] = "the workload is not in this run"
        elif book.experiment.workload.kind == "component":
            record["reason"] = "a component has no roofline: only the work of whole forwards is counted"
        else:
            record |= _measured(measurement, group, book, asked, progress, seconds)
        gone = measurement.excluded | (book.excluded if book else {})
        for name in asked:
            record["variants"].setdefault(name, {"reason": gone.get(name, "it is not measured in this run")})
        records.append(record)
        folder.write_json(ROOFLINE, records)


def _measured(
    measurement: Measurement,
    group: Group,
    book: ExperimentState,
    asked: Sequence[str],
    progress: Progress,
    seconds: float,
) -> dict[str, Any]:
    """What a workload's record holds, from rounds of all its variants."""
    workload = book.experiment.workload
    names = [name for name in asked if name in book.remaining().variants]
    wall = {name for name in names if workload.threads > 1 or name in book.wall_variants}
    entries: dict[str, dict[str, Any]]
    entries = {name: {"clock": "wall" if name in wall else "cpu", "reason": None} for name in names}
    limit = PASS_SECONDS + seconds
    found, lost = ask_about(measurement, group, book, names, "roofline", limit, ROOFLINE_CALLS, seconds=seconds)
    for name, reason in lost.items():
        entries[name]["reason"] = reason
        progress.note(f"roofline of {name} on {workload.name}: {reason}")
    return {"cache_bytes": last_level_cache_bytes(), **(found or {}), "variants": entries}
