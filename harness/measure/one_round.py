"""What measuring processes are asked for at a time: a round of samples, a block of a pair, or a round in which each
side has a process of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence

from llama_workbench.variants import FUNCTION_YARDSTICK

from ..calls.yardstick import SELDOM, is_beside
from ..spec.answer import RoundAnswer
from ..spec.entered import EnteredName
from .apart import MOST_BLOCK_SECONDS, block_seconds, is_sliced
from .crews import blamed
from .fresh_crews import begin_crew_ahead, fresh_crew
from .gating import Gates
from .groups import Group, Processes
from .inputs import inputs_told
from .participants import ExperimentState
from .processes import WorkerProcess
from .remaining import Remaining

ROUND_SECONDS = 30.0
"""A variant that has not answered after this long hangs (a round: and 20 times what its calls should take)."""

ASKED_SECONDS = 0.2
"""Of samples of each side in a life, where the first screen asks for a part of a layer: its calls are short, so that a
round would else be over after a few hundredths."""

MOST_SECONDS = 4.0
"""A round with a process for each side samples for as long as beginning these took, but no longer than this."""


def taking_part(book: ExperimentState, chosen: Remaining, number: int) -> list[str]:
    """Who takes part in a round of this number where each side has a process: controls in one of SELDOM, the yardstick
    in every second one, and never both. Beginning a process takes as long for them as for what is compared."""
    compared = [name for name in chosen.variants if not is_beside(name)]
    if len(compared) < 2:
        return list(chosen.variants)
    controls = [name for name in chosen.variants if EnteredName(name).is_control]
    yardstick = [name for name in chosen.variants if name == FUNCTION_YARDSTICK]
    return [*compared, *(controls if number % SELDOM == 0 else yardstick if number % 2 else ())]


def ask(
    processes: Processes,
    gates: Gates,
    group: Group,
    book: ExperimentState,
    chosen: Remaining,
    pace: float,
    alike: int,
) -> RoundAnswer:
    """What the processes answer to a round or block. pace: see `block_seconds`. alike: how much is open in the group,
    which this life should measure. Raises WorkerFailed with the place of the side in what takes part."""
    if group.life is None:
        active, then = (taking_part(book, chosen, number) for number in (book.rounds, book.rounds + 1))
        return ask_for_turns(processes, gates, group, book, active, then)
    active = list(chosen.variants)
    processes.take_in(group, book, active)
    part = group.life.start_seconds / max(alike, 1)  # a life measures for as long as it took to begin
    outputs = str(processes.examination.file) if processes.examination else ""
    if chosen.pair is None:
        is_asked = chosen.asked is not None and book.experiment.workload.kind == "component"
        side_seconds = book.side_seconds or max(part / len(active), ASKED_SECONDS * is_asked)
        return ask_for_round(group.life.process, book, active, outputs, side_seconds)
    usual = block_seconds(book, active, pace if chosen.needs_precision else 0.0)
    seconds = max(usual, min(part, MOST_BLOCK_SECONDS))
    if is_sliced(book, chosen.pair):
        return ask_for_block(group.life.process, book, active, outputs, seconds)
    return ask_for_round(group.life.process, book, active, outputs, seconds / len(active))


def ask_for_round(
    process: WorkerProcess, book: ExperimentState, active: Sequence[str], outputs: str, each_seconds: float
) -> RoundAnswer:
    """A round that samples each side for so many seconds at least. Raises WorkerFailed, as the other does."""
    where = {"workload": book.experiment.workload.name, "round_index": book.begun, "outputs": outputs}
    arguments = {"active": active, "least_ns": each_seconds * 1e9, **inputs_told(book, each_seconds), **where}
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
    processes: Processes,
    gates: Gates,
    group: Group,
    book: ExperimentState,
    active: Sequence[str],
    next_active: Sequence[str],
) -> RoundAnswer:
    """A round in which each side has a process of its own: begin them anew and let them take turns. Those of a divided
    group are gated before, and their answers compared. next_active: who takes part in the next round. Raises
    WorkerFailed with the place of the side in `active`."""
    begun = time.monotonic()
    with fresh_crew(processes, group, book, active) as crew:
        begin_crew_ahead(processes, group, book, next_active)
        if not group.divided:
            return crew.take_turns(_seconds_of_turns(book, begun))
        gated = {name: gates.begin(crew.members[name], group, book, name) for name in active}
        results = {}
        for name, gate in gated.items():
            with blamed(active, name):
                results[name] = gate.result()["gate"]
        if failed := {name: each["detail"] for name, each in results.items() if not each["passed"]}:
            return RoundAnswer(wrong=failed)
        if wrong := crew.compared(1):
            return RoundAnswer(wrong=wrong)
        return crew.take_turns(_seconds_of_turns(book, begun))


def _seconds_of_turns(book: ExperimentState, begun: float) -> float:
    return min(max(time.monotonic() - begun, 2 * book.side_seconds), MOST_SECONDS)
