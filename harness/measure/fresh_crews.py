"""Beginning the processes of a round in which each side has one, and those of the next round beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..spec.entered import EnteredName
from .crews import Crew, blamed, shuffled
from .groups import Group, Processes
from .participants import ExperimentState
from .processes import WorkerProcess


@contextmanager
def fresh_crew(processes: Processes, group: Group, book: ExperimentState, names: Sequence[str]) -> Iterator[Crew]:
    """Fresh processes for these sides, which end with the block: those that were begun ahead, or new ones."""
    ahead, group.crew_ahead = group.crew_ahead, None
    if ahead is not None and (ahead.book is not book or [*ahead.names] != [*names]):
        ahead.opened.close()
        ahead = None
    crew = ahead or _begun(processes, group, book, names)
    group.processes = crew.index
    with crew.opened:
        for name, process in crew.members.items():
            with blamed(names, name):
                process.ready_at()
        yield crew


def begin_crew_ahead(processes: Processes, group: Group, book: ExperimentState, names: Sequence[str]) -> None:
    """Begin the processes of the next round beside this one, where there is a core for them; nobody waits for them."""
    if processes.is_beside(group) and not book.wall_variants and group.crew_ahead is None:
        group.crew_ahead = _begun(processes, group, book, names)


def _begun(processes: Processes, group: Group, book: ExperimentState, names: Sequence[str]) -> Crew:
    """Processes that begin now, at the same time, in random order. Those of a divided group know their side alone,
    which must still pass its gate; others have taken in what its gate found."""
    index, setting = processes.next_number(), processes.setting
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="workbench-answers-")))
        members: dict[str, WorkerProcess] = {}
        for name in shuffled(setting.seed, names, index):
            source, log = setting.functions[EnteredName(name).original], f"side-{name}.log"
            prepare: list[dict[str, Any]] = [
                {"do": "open", **processes.what(book, name if group.divided else "")},
            ]
            if not group.divided:
                workload, learnt = book.experiment.workload.name, book.learnt[name]
                prepare.append({"do": "admit", "workload": workload, "variant": name, "learnt": learnt})
            with blamed(names, name):
                members[name] = process = processes.new(group, index, log, source, prepare)
            stack.callback(process.end)
        return Crew(setting, book, index, names, members, folder, stack.pop_all())
