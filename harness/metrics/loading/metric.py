"""What loading the weights of a checkpoint adds to the time to first token."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from ...evidence.evidence import Evidence
from ...spec.hypotheses import Name, Names, Quantity, RangeHypothesis
from ...store.files import LOADING
from ...store.folder import RunFolder
from ...store.schema import Effect
from ..base import PassContext
from ..values import IntervalMetric
from .loading import LEAST_ROUNDS, LOADED_INTO, load_shares, measure_loading

LOADING_SECONDS = 60.0
"""Of loading each checkpoint over and over; a large one takes longer (`plan_rounds`)."""


class LoadingHypothesis(RangeHypothesis):
    """How much of the time to first token goes into loading each workload's checkpoint, in percent.

    `quantity` is the loader, `of` the page cache: cold or warm.
    """

    cpu_only = "loading is measured until the weights lie in main memory, and not on to a CUDA device"

    metric: Literal["loading"]
    workloads: Names
    quantity: Quantity
    of: Annotated[Name, Field(description='"cold" or "warm"')]

    def subjects(self) -> tuple[tuple[str, str], ...]:
        return tuple((workload, LOADED_INTO) for workload in self.workloads)

    def intervals(self) -> frozenset[Hashable]:
        return frozenset((self.metric, workload, self.quantity, self.of) for workload in self.workloads)


class LoadingMetric(IntervalMetric[LoadingHypothesis]):
    """Measured in rounds of all loaders, each load in a process that has loaded nothing."""

    names = ("loading",)
    hypothesis = LoadingHypothesis
    title = "loading: how long weights take from their files"
    needs_cache = True

    def run(self, hypotheses: Sequence[LoadingHypothesis], context: PassContext) -> None:
        """Load the checkpoint of each workload with every loader; write loading.json."""
        wanted = {workload for hypothesis in hypotheses for workload in hypothesis.workloads}
        folders = {
            book.experiment.workload.geometry: book.folder
            for book in context.measurement.books
            if book.experiment.workload.name in wanted and book.folder is not None
        }
        records: list[dict[str, Any]] = []
        for folder in folders.values():
            records += measure_loading(
                folder,
                cache=context.cache,
                log=context.log("loading"),
                seed=context.seed,
                seconds=LOADING_SECONDS,
                progress=context.progress,
                asked={(hypothesis.quantity, hypothesis.of) for hypothesis in hypotheses},
            )
            context.folder.write_json(LOADING, records)

    def read(self, folder: RunFolder) -> list[dict[str, Any]] | None:
        return folder.records(LOADING) or None

    def words(self, hypothesis: LoadingHypothesis) -> str:
        return f"share of the time to first token: {hypothesis.quantity}, {hypothesis.of} page cache"

    def measured(self, effect: Effect, hypothesis: LoadingHypothesis, evidence: Evidence, alpha: float) -> Effect:
        asked = (evidence.geometries.get(effect.workload), hypothesis.quantity, hypothesis.of)
        records = [
            record
            for record in evidence.passes.get("loading", ())
            if (record["checkpoint"], record["loader"], record["cache"]) == asked
        ]
        if not records:
            raise ValueError("this run has not loaded it")
        [found] = load_shares(records, alpha=alpha)
        if found.reason or not found.rounds:
            raise ValueError(found.reason or "no rounds")
        value, low, high = (100 * part for part in (found.share, found.low, found.high))
        few = f"too few rounds for an interval ({found.rounds} of about {LEAST_ROUNDS})"
        warnings = (few,) if math.isinf(low) else ()
        return replace(effect, ratio=value, low=low, high=high, rounds=found.rounds, warnings=warnings)


METRIC = LoadingMetric()
