"""What measuring processes are asked for at a time: a round of samples, a block of a pair, or a round in which each
side has a process of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..spec.answer import RoundAnswer
from .crews import blamed
from .gating import Gates
from .groups import Group, Processes
from .participants import ExperimentState
from .processes import WorkerProcess

ROUND_SECONDS = 30.0
"""A variant that has not answered after this long hangs (a round: and 20 times what its calls should take)."""

SAMPLING_SHARE = 0.5
"""A round with a process for each side samples for so many times as long as beginning these took, within the bounds
below: beginning is what a round mostly costs, and what processes differ by is what its value mostly varies by."""

LEAST_SECONDS, MOST_SECONDS = 0.2, 4.0


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


def ask_for_turns(
    processes: Processes, gates: Gates, group: Group, book: ExperimentState, active: Sequence[str]
) -> RoundAnswer:
    """A round in which each side has a process of its own: begin them anew and let them take turns. Those of a divided
    group are gated before, and their answers compared. Raises WorkerFailed with the place of the side in `active`."""
    begun = time.monotonic()
    with processes.crew(group, book, active) as crew:
        if not group.divided:
            return crew.take_turns(_seconds_of_turns(begun), max(map(book.make_ns, active)))
        gated = {name: gates.begin(crew.members[name], group, book, name) for name in active}
        results = {}
        for name, gate in gated.items():
            with blamed(active, name):
                results[name] = gate.result()["gate"]
        if failed := {name: each["detail"] for name, each in results.items() if not each["passed"]}:
            return RoundAnswer(wrong=failed)
        compared = crew.compared(1)
        if compared.wrong:
            return RoundAnswer(wrong=compared.wrong)
        return crew.take_turns(_seconds_of_turns(begun), compared.make_ns)


def _seconds_of_turns(begun: float) -> float:
    return min(max(SAMPLING_SHARE * (time.monotonic() - begun), LEAST_SECONDS), MOST_SECONDS)
