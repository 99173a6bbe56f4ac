"""The measuring processes of a run: which experiments share one, how each is begun and opened, and that all end."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..spec.entered import EnteredName
from .crews import Crew, blamed, shuffled
from .participants import ExperimentState, Setting
from .processes import ASKING_SECONDS, Examination, WorkerProcess

OPEN_SECONDS = 300.0


@dataclass
class Group:
    """Experiments that share a process, because they share a checkpoint.

    processes: the number of the last one that measured. in_environments: a side has an environment of its own, so that
    there is no such process (see `measure.crews`)."""

    folder: Path | None
    parameters: int
    threads: int
    books: list[ExperimentState]
    process: WorkerProcess | None = None
    processes: int = 0
    in_environments: bool = False


class Processes:
    """The processes of a run's groups, and the one that judges outputs. None lives longer than `running`.

    checkpoints and device_facts: what the processes said of them.
    """

    def __init__(self, books: Sequence[ExperimentState], setting: Setting) -> None:
        self.setting = setting
        self.groups = _groups(books, setting)
        self.examination: Examination | None = None
        self.checkpoints: dict[str, dict[str, Any]] = {}
        self.device_facts: dict[str, Any] = {"kind": setting.device}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Ends the processes on the way out, however that is."""
        try:
            yield
        finally:
            for process in (self.examination, *(group.process for group in self.groups)):
                if process is not None:  # all end at the same time: taking torch apart takes each a second
                    process.dismiss()
            for group in self.groups:
                self.end(group)
            if self.examination is not None:
                self.examination.close()
                self.examination = None

    def begin_examination(self) -> None:
        """Begin the process that judges, if a checkpoint is measured and it is not there yet."""
        if self.examination is None and any(group.folder for group in self.groups):
            self.examination = Examination(cache=self.setting.cache, log=self.setting.logs / "examiner.log")

    def start(self, group: Group) -> WorkerProcess:
        """Begin the group's process anew, with all its workloads open. Raises WorkerFailed."""
        self.end(group)
        index = self._next_number()
        group.process = process = self.new(group, index, f"worker-{index}.log")
        group.processes = index
        if self.setting.device != "cpu":
            self.device_facts = process.ask("device", ASKING_SECONDS)
        for book in group.books:
            facts = self._open(process, book)
            if book.folder:
                geometry = book.experiment.workload.geometry
                self.checkpoints[geometry] = {"name": geometry, **facts}
        return process

    def end(self, group: Group) -> None:
        """End the group's process, if it has one; `Gates.standing` begins another."""
        if group.process is not None:
            group.process.close()
            group.process = None

    def another(self, group: Group, book: ExperimentState, log: str) -> WorkerProcess:
        """A process beside the group's, with this workload open, for the caller to close; its output goes to `log`.

        Raises WorkerFailed where it cannot be had.
        """
        process = self.new(group, 0, log)
        try:
            self._open(process, book)
        except BaseException:
            process.close()
            raise
        return process

    @contextmanager
    def crew(self, group: Group, book: ExperimentState, names: Sequence[str]) -> Iterator[Crew]:
        """Fresh processes for these sides, begun at the same time, in random order."""
        group.processes = index = self._next_number()
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="workbench-answers-")))
            members: dict[str, WorkerProcess] = {}
            for name in shuffled(self.setting.seed, names, index):
                source = self.setting.functions[EnteredName(name).original]
                members[name] = process = self.new(group, index, f"side-{name}.log", source.environment)
                stack.callback(process.end)
            for name, process in members.items():
                with blamed(names, name):
                    self._open(process, book, name)
            yield Crew(self.setting, book, index, names, members, folder)

    def new(self, group: Group, index: int, log: str, python: str = "") -> WorkerProcess:
        """A process of this number that has nothing open yet."""
        added, functions = (
            {name: asdict(source) for name, source in sources.items()}
            for sources in (self.setting.added, self.setting.functions)
        )
        draw = self.setting.draw_of(index)
        return WorkerProcess(
            threads=group.threads,
            cache=self.setting.cache,
            log=self.setting.logs / log,
            device=self.setting.device,
            python=python,
            hello={"process": index, "added": added, "functions": functions, "draw": draw},
        )

    def _next_number(self) -> int:
        return 1 + max(group.processes for group in self.groups)

    def _open(self, process: WorkerProcess, book: ExperimentState, side: str = "") -> dict[str, Any]:
        """Let a process open a workload; what it says of the checkpoint. side: the one function that it runs, where it
        runs one alone: this is then its own baseline."""
        folder = str(book.folder) if book.folder else None
        workload = book.experiment.workload.model_dump()
        call = self.setting.calls.get(book.experiment.workload.name)
        if call and side:
            call = replace(call, baseline=self.setting.functions[EnteredName(side).original])
        what = {"workload": workload, "folder": folder, "seed": self.setting.seed, "call": call and asdict(call)}
        return process.ask("open", OPEN_SECONDS, **what)


def _groups(books: Sequence[ExperimentState], setting: Setting) -> list[Group]:
    groups: dict[tuple[Any, ...], Group] = {}
    for book in books:
        workload = book.experiment.workload
        sources = (setting.functions.get(name) for name in book.experiment.variants)
        apart = any(source.environment for source in sources if source)
        key = (book.folder, workload.dtype, workload.threads, apart)
        size = setting.parameters.get(workload.geometry, 0) if book.folder else 0
        group = Group(book.folder, size, workload.threads, [], in_environments=apart)
        groups.setdefault(key, group).books.append(book)
    return list(groups.values())
