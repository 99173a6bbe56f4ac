"""The measuring processes of a run: which experiments share one, how each is begun and opened, and that all end."""

from __future__ import annotations

import random
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..calls.source import Source
from ..machine.environment import granted_cores
from ..spec.comparison import Comparison, EnteredName
from .crews import Crew, blamed, shuffled
from .participants import Begin, ExperimentState, Setting
from .processes import ALLOCATOR, ASKING_SECONDS, START_SECONDS, Examination, WorkerFailed, WorkerProcess

THREADS = "OMP_NUM_THREADS"
"""From it torch knows its number of threads where nobody sets it."""

MOST_TIMES_USUAL = 5.0
"""A life may take so many times as long to begin as the one before it, where that is more than START_SECONDS."""

OPEN_SECONDS, ADMIT_SECONDS = 300.0, 600.0
"""Compiled code is looked up on disk, and an engine loads its own form of the weights."""

MOST_BALLAST, MOST_FILLING = 1 << 20, 1 << 12
"""Bytes: of memory that a life holds before anything is imported, and in the environment, above its first stack frame.
Both move what comes after them."""


@dataclass(eq=False)
class Life:
    """A process of a group from its beginning to its end: whatever a process draws once (the hashes of its strings, the
    addresses of its memory, which side was imported first) is drawn anew in each.

    number: in the run. begun: when (`time.monotonic`); start_seconds: from then until it could measure. whole: all
    of its group is in it, with the verbs of all passes. opened: workloads; admitted: (workload, variant) that it has
    gated or taken in; used: those that it measured. had: what has had a round in it, as (workload, pair); None for what
    is measured together. prepared: whom each command is about that it began with, as (workload, variant); None for
    nobody.
    """

    process: WorkerProcess
    number: int
    begun: float
    whole: bool = False
    opened: list[str] = field(default_factory=list)
    admitted: list[tuple[str, str]] = field(default_factory=list)
    used: dict[tuple[str, str], None] = field(default_factory=dict)
    had: set[tuple[str, Comparison | None]] = field(default_factory=set)
    start_seconds: float = 0.0
    measured_seconds: float = 0.0
    prepared: Sequence[tuple[str, str] | None] = ()


@dataclass(eq=False)
class Group:
    """Experiments that share a process, because they share a checkpoint.

    processes: the number of the last one that was begun. life: the process that measures now; ahead: the next one,
    begun already, and crew_ahead the same where each side has a process. used: what the last life measured, as
    (workload, variant). torch: whether they import it. calm: how their processes are (see `Worker`). divided: no
    process could hold all sides, because one has an environment or variables of its own: their answers are compared
    through files.
    """

    folder: Path | None
    parameters: int
    threads: int
    books: list[ExperimentState]
    life: Life | None = None
    ahead: Life | None = None
    crew_ahead: Crew | None = None
    used: dict[tuple[str, str], None] = field(default_factory=dict)
    processes: int = 0
    calm: bool = True
    divided: bool = False
    torch: bool = True
    begin: Begin = field(default_factory=Begin)

    @property
    def process(self) -> WorkerProcess | None:
        """The process that measures now."""
        return self.life.process if self.life is not None else None


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
            for group in self.groups:
                self.end(group)
            if self.examination is not None:
                self.examination.close()
                self.examination = None

    def begin_examination(self) -> None:
        """Begin the process that judges, if a checkpoint is measured and it is not there yet."""
        if self.examination is None and any(group.folder for group in self.groups):
            self.examination = Examination(cache=self.setting.cache, log=self.setting.logs / "examiner.log")

    def start(self, group: Group, variables: Mapping[str, str] | None = None) -> Life:
        """Begin the group's process anew, with all its workloads open. variables: of its environment, in place of those
        that its processes have. Raises WorkerFailed."""
        self.end(group)
        group.life = life = self._begun(group, variables=variables)
        group.begin.beside = self.is_beside(group)
        if self.setting.device != "cpu":
            self.device_facts = life.process.ask("device", ASKING_SECONDS)
        for book in group.books:
            facts = self._open(life.process, book)
            life.opened.append(book.experiment.workload.name)
            if book.folder:
                geometry = book.experiment.workload.geometry
                self.checkpoints[geometry] = {"name": geometry, **facts}
        group.begin.note(time.monotonic() - life.begun)
        return life

    def next_life(self, group: Group) -> Life:
        """End the group's life; the next one takes over, which was begun ahead, or begins now."""
        ahead, group.ahead = group.ahead, None
        if group.life is not None:
            group.used = group.life.used
        usual = group.life.start_seconds if group.life else 0.0
        self.end(group)
        group.life = ahead or self._begun(group, group.used, usual)
        return group.life

    def expect(self, group: Group, book: ExperimentState, names: Sequence[str]) -> None:
        """These will be measured first: two lives begin at once. After one that was lost, each begins alone."""
        if group.life is None and not group.used and not book.lost_lives:
            group.used = {(book.experiment.workload.name, name): None for name in names}

    def is_beside(self, group: Group) -> bool:
        """Whether a life begins while the one before measures: where there is a core for each."""
        return self.setting.device == "cpu" and granted_cores() > group.threads

    def begin_ahead(self, group: Group) -> None:
        """Begin the next life beside this one, where there is a core for it, with all that this one and the last one
        measured; nobody waits for it."""
        if self.is_beside(group) and group.ahead is None and group.life is not None:
            group.ahead = self._begun(group, group.used | group.life.used, group.life.start_seconds)

    def take_in(self, group: Group, book: ExperimentState, names: Sequence[str]) -> None:
        """Let the group's life open a workload, and admit those of these variants that it does not have yet.

        They passed their gates before. Raises WorkerFailed with the place of the variant in `names`.
        """
        life, workload, asked = group.life, book.experiment.workload.name, time.monotonic()
        assert life is not None
        if workload not in life.opened:
            self._open(life.process, book)
            life.opened.append(workload)
        new = [name for name in names if (workload, name) not in life.admitted]
        for name in shuffled(self.setting.seed, new, life.number):
            with blamed(names, name):
                life.process.ask("admit", ADMIT_SECONDS, workload=workload, variant=name, learnt=book.learnt[name])
            life.admitted.append((workload, name))
        ready = life.process.ready_at()
        if not life.start_seconds:
            life.start_seconds = ready - life.begun + time.monotonic() - max(ready, asked)
            group.begin.note(life.start_seconds)
        life.used |= dict.fromkeys((workload, name) for name in names)
        if new:
            life.process.ask("freeze", ASKING_SECONDS)

    def failed_to_begin(self, group: Group) -> tuple[str, str | None, str] | None:
        """Of a life that died or hung while it began: the workload and variant that it was at (empty and None where it
        was at neither), and why. None where it began; waits for that."""
        assert group.life is not None
        try:
            group.life.process.ready_at()
        except WorkerFailed as failure:
            place, prepared = failure.variant_index, group.life.prepared
            workload, name = (
                prepared[place] or ("", None) if place is not None and place < len(prepared) else ("", None)
            )
            return workload, name, failure.reason
        return None

    def should_wait(self, group: Group) -> bool:
        """Whether the group's life should go on: the next one is not ready, or could not be begun beside it and this
        one has not measured for as long as beginning it took."""
        assert group.life is not None
        if self.is_beside(group):
            return group.ahead is not None and not group.ahead.process.is_ready()
        return group.life.measured_seconds < group.life.start_seconds

    def end(self, group: Group) -> None:
        """End the group's life, if it has one, and the one that was begun ahead."""
        lives, group.life, group.ahead = (group.life, group.ahead), None, None
        for life in filter(None, lives):
            life.process.end()
        crew, group.crew_ahead = group.crew_ahead, None
        if crew is not None:
            crew.opened.close()

    def _begun(
        self,
        group: Group,
        used: Mapping[tuple[str, str], None] | None = None,
        usual_seconds: float = 0.0,
        variables: Mapping[str, str] | None = None,
    ) -> Life:
        """A process that begins now, and opens and admits what is `used`, in an order of its own. usual_seconds: what
        the life before it took for that."""
        number = group.processes = self.next_number()
        books = {book.experiment.workload.name: book for book in group.books}
        wanted = [(workload, name) for workload, name in used or () if name not in books[workload].excluded]
        opened = list(dict.fromkeys(workload for workload, _ in wanted))
        prepare: list[dict[str, Any]] = [{"do": "open", **self.what(books[workload])} for workload in opened]
        order = shuffled(self.setting.seed, wanted, number)
        for workload, name in order:
            prepare.append(
                {"do": "admit", "workload": workload, "variant": name, "learnt": books[workload].learnt[name]}
            )
        begun = time.monotonic()
        prepare += [{"do": "freeze"}] if wanted else []
        log, limit = f"worker-{1 + self.groups.index(group)}.log", max(START_SECONDS, MOST_TIMES_USUAL * usual_seconds)
        process = self.new(group, number, log, prepare=prepare, start_seconds=limit, variables=variables)
        return Life(process, number, begun, opened=opened, admitted=wanted, prepared=[*[None] * len(opened), *order])

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

    def new(
        self,
        group: Group,
        index: int,
        log: str,
        side: Source | None = None,
        prepare: Sequence[Mapping[str, Any]] = (),
        start_seconds: float = START_SECONDS,
        variables: Mapping[str, str] | None = None,
    ) -> WorkerProcess:
        """A process of this number, which begins with the commands in `prepare`, in `start_seconds` at most. side:
        the one function that it is for, whose interpreter and variables it has; None: it is for several."""
        variables = dict(variables or (ALLOCATOR if group.calm else {}))
        added, functions = (
            {name: asdict(source) for name, source in sources.items()}
            for sources in (self.setting.added, self.setting.functions)
        )
        python, own = (side.environment, side.variables) if side and side.is_alone else ("", {})
        draw, rng = self.setting.draw_of(index), random.Random(f"life {self.setting.seed} {index}")
        ballast = rng.randrange(MOST_BALLAST)
        drawn = {"PYTHONHASHSEED": str(rng.randrange(1 << 32)), "WORKBENCH_LIFE": "x" * rng.randrange(MOST_FILLING)}
        return WorkerProcess(
            threads=group.threads,
            cache=self.setting.cache,
            log=self.setting.logs / log,
            device=self.setting.device,
            python=python,
            own=own,
            options=shlex.split(side.options) if side else (),
            start_seconds=start_seconds,
            hello={
                "process": index,
                "added": added,
                "functions": functions,
                "draw": draw,
                "strict": self.setting.strict,
                "torch": group.torch,
                "calm": group.calm,
                "functions_only": bool(python),
                "own_threads": THREADS in own,
                "ballast": ballast,
                "prepare": list(prepare),
            },
            variables=variables | drawn,
        )

    def next_number(self) -> int:
        """Of a process, or of those of a round, that begin now."""
        crews = [group.crew_ahead.index for group in self.groups if group.crew_ahead is not None]
        return 1 + max([*crews, *(group.processes for group in self.groups)])

    def _open(self, process: WorkerProcess, book: ExperimentState) -> dict[str, Any]:
        """Let a process open a workload; what it says of the checkpoint."""
        return process.ask("open", OPEN_SECONDS, **self.what(book))

    def what(self, book: ExperimentState, side: str = "") -> dict[str, Any]:
        """What a process is told of a workload that it opens. side: the one function that it can run: this is then its
        own baseline."""
        folder = str(book.folder) if book.folder else None
        workload = book.experiment.workload.model_dump()
        call = self.setting.calls.get(book.experiment.workload.name)
        if call and side:
            call = replace(call, baseline=self.setting.functions[EnteredName(side).original])
        return {"workload": workload, "folder": folder, "seed": self.setting.seed, "call": call and asdict(call)}


def _groups(books: Sequence[ExperimentState], setting: Setting) -> list[Group]:
    groups: dict[tuple[Any, ...], Group] = {}
    for book in books:
        workload = book.experiment.workload
        sources = (setting.functions.get(name) for name in book.experiment.variants)
        divided = any(source.is_alone for source in sources if source)
        key = (book.folder, workload.dtype, workload.threads, divided, workload.calm)
        is_single = bool(workload.statistic) and not workload.calm and setting.device == "cpu"
        book.own_processes = divided or is_single  # a percentile of single calls must see collections
        size = setting.parameters.get(workload.geometry, 0) if book.folder else 0
        torch = workload.kind != "call" or setting.device != "cpu"  # functions that use it will say so
        group = Group(book.folder, size, workload.threads, [], calm=workload.calm, divided=divided, torch=torch)
        group = groups.setdefault(key, group)
        group.books.append(book)
        if not book.own_processes:  # those of a round begin anew, and are counted with it
            book.begin = group.begin
    return list(groups.values())


# -- the processes of a round in which each side has one, and those of the next round beside it ------------------------


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
