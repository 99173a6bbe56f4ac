"""What a measuring process is asked for at a time: a round of samples, or a block of a pair."""

from __future__ import annotations

from collections.abc import Sequence

from ..spec.answer import RoundAnswer
from .participants import ExperimentState
from .processes import WorkerProcess

ROUND_SECONDS = 30.0
"""A variant that has not answered after this long hangs (a round: and 20 times what its calls should take)."""


def ask_for_round(
    process: WorkerProcess, book: ExperimentState, active: Sequence[str], outputs: str, each_seconds: float
) -> RoundAnswer:
    """A round that samples each side for so many seconds at least. Raises WorkerFailed, as the other does."""
    where = {"workload": book.experiment.workload.name, "round_index": book.begun, "outputs": outputs}
    arguments = {"active": active, "least_ns": each_seconds * 1e9, **where}
    return RoundAnswer.from_json(process.ask("round", _limit(book, active), **arguments))


def ask_for_block(
    process: WorkerProcess, book: ExperimentState, active: Sequence[str], outputs: str, seconds: float
) -> RoundAnswer:
    """A block that samples for so many seconds."""
    limit = _limit(book, active)
    where = {"workload": book.experiment.workload.name, "round_index": book.begun, "outputs": outputs}
    arguments = {"sides": active, "seconds": seconds, "limit": limit, **where}
    return RoundAnswer.from_json(process.ask("block", 2 * limit, **arguments))


def _limit(book: ExperimentState, active: Sequence[str]) -> float:
    return ROUND_SECONDS + 20 * 60 * sum(book.call_ns.get(name, 0.0) for name in active) / 1e9
