"""What passes share: they ask a measuring process about several variants of one workload at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .measurement import Measurement
from .participants import ExperimentState, Group
from .processes import WorkerFailed

PASS_SECONDS = 180.0
"""A pass has failed once it takes this much longer than its calls should take."""


def ask_about(
    measurement: Measurement,
    group: Group,
    book: ExperimentState,
    names: Sequence[str],
    verb: str,
    limit_seconds: float,
    limit_calls: int,
    **arguments: Any,
) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """The answer of a pass about several variants at once, and why some have none.

    A variant that fails, or brings the process down, gets a reason, and the rest start anew. They have
    `limit_seconds` and the time of `limit_calls` calls of each.
    """
    left, lost = list(names), dict[str, str]()
    while left:
        calls_seconds = sum(max(book.call_ns.get(name, 0.0) / 1e9, 0.05) for name in left)
        try:
            found: dict[str, Any] = measurement.standing(group).ask(
                verb,
                limit_seconds + limit_calls * calls_seconds,
                workload=book.experiment.workload.name,
                variants=left,
                **arguments,
            )
        except WorkerFailed as failure:
            guilty = left if failure.variant_index is None else [left[failure.variant_index]]
            lost |= dict.fromkeys(guilty, failure.reason)
            left = [name for name in left if name not in guilty]
            continue
        return found, lost
    return None, lost


def measured_by(measurement: Measurement) -> dict[str, tuple[Group, ExperimentState]]:
    """Workload → the process that measures it and the state of its experiment."""
    return {book.experiment.workload.name: (group, book) for group in measurement.groups for book in group.books}


def reason_against(measurement: Measurement, book: ExperimentState | None, variant: str) -> str | None:
    """Why a pass cannot look at a variant on a workload; None where it can."""
    if book is None:
        return "the workload is not in this run"
    if reason := measurement.excluded.get(variant) or book.excluded.get(variant):
        return reason
    return None if variant in book.remaining().entered() else "it is not measured on this workload"
