"""The process that speaks to Ray: `python -m llama_workbench.harness.slices.fleet.driver CLUSTER`.

Each node gets its next piece of the work as a task, and what comes back is kept in the fleet's folder. It is a process
of its own because Ray's threads outlive their use: an interpreter that ends around them may crash. What became of the
work is in run.json, however this process ended.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from pydantic import BaseModel

from ...machine.extras import install
from ...machine.places import published
from ...plan.options import PlanError
from ...store.errors import RunError
from ...store.folder import RunFolder
from ...store.machine_schema import Machine
from . import kinds
from .folder import FleetFolder
from .node import OURS, about, measure, unpack, version

# -- Ray, which no other module imports: which nodes there are, and a task on each -------------------------------------

RESOURCE = "llama_workbench"
"""A node that declares it (`ray start --resources='{"llama_workbench": 1}'`) may measure; where one does, others do
not."""

HOW_TO_START = (
    "start one: `ray start --head` here, `ray start --address=HEAD:6379` on each other machine, both with "
    "RAY_USAGE_STATS_ENABLED=0 and RAY_worker_niceness=0 before them"
)
PORT = 10001
"""Where a head listens for ray://, if it was not told otherwise."""

KNOCK_SECONDS = 10.0

_ADDRESS = re.compile(r"ray|ray://[^\s/]+")


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    id: str
    address: str
    cpus: float  # that Ray may give away there
    gpus: float  # likewise


@dataclass(frozen=True)
class Lost:
    """Stands for the answer of a task that has none. with_node: because its machine is gone."""

    reason: str
    with_node: bool = False


class Cluster:
    """A connection to a Ray cluster. Raises PlanError where there is none."""

    def __init__(self, on: str) -> None:
        """on: `ray` for the cluster that this machine is in, or ray://HEAD[:PORT]."""
        # No reports on how Ray is used; all that nodes print, as it is.
        os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0", RAY_COLOR_PREFIX="0")
        try:
            import ray
        except ImportError as error:
            raise PlanError(f"--on {on} needs Ray, which is not installed: {install('fleet')}") from error
        address = os.environ.get("RAY_ADDRESS", "auto") if on == "ray" else on if ":" in on[6:] else f"{on}:{PORT}"
        try:
            _knock(address)
            ray.init(address=address, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError, ImportError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise PlanError(f"--on {on}: no Ray cluster answers ({reason}); {HOW_TO_START}") from error
        self._ray: Any = ray

    def nodes(self) -> list[Node]:
        """The nodes that are alive and may measure."""
        alive = [each for each in self._ray.nodes() if each["Alive"]]
        chosen = [each for each in alive if each["Resources"].get(RESOURCE)] or alive
        nodes = []
        for node in chosen:
            has = node["Resources"].get
            nodes.append(Node(node["NodeID"], node["NodeManagerAddress"], has("CPU", 0), has("GPU", 0)))
        return [each for each in nodes if each.cpus]

    def begin(self, node: Node, task: Callable[..., object], *arguments: object, gpu: bool) -> Any:
        """Begin a task on a node, in a process of its own. It takes all that Ray may give away there, so that Ray
        starts nothing beside it."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = self._ray.remote(
            num_cpus=node.cpus,
            num_gpus=node.gpus if gpu else 0,
            resources={f"node:{node.address}": 1},
            max_retries=0,
            max_calls=1,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        )
        return there(task).remote(*arguments)

    def wait(self, tasks: Sequence[Any], seconds: float) -> list[Any]:
        """Those of the tasks that have ended, once the first has; at most so long."""
        return list(self._ray.wait(list(tasks), num_returns=1, timeout=seconds)[0])

    def answer(self, task: Any) -> Any:
        """What a task that has ended returned, or Lost."""
        known = self._ray.exceptions
        try:
            return self._ray.get(task)
        except (known.NodeDiedError, known.TaskUnschedulableError):
            return Lost("the node was lost", with_node=True)
        except known.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            # Of a traceback there the last line says what it was, of Ray's own words the first.
            return Lost(f"its task was lost ({lines[-isinstance(error, known.RayTaskError)][:160]})")

    def stop(self, task: Any) -> None:
        """Let a task end in order: it has an answer then, unless it has not begun."""
        self._ray.cancel(task)


def _knock(address: str) -> None:
    """Raises OSError where nobody listens at an address: Ray itself would try for minutes."""
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if separator and port.isdecimal():
        with socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS):
            pass


def check_address(on: str) -> None:
    """Raises PlanError where this is no address."""
    if not _ADDRESS.fullmatch(on):
        raise PlanError(f"--on {on}: expected ray (inside a cluster) or ray://HEAD[:PORT]")


# -- the work ----------------------------------------------------------------------------------------------------------

READY = "ready"
"""The first line, once the cluster answers; any other says why it does not."""

PIECES_A_NODE = 3
"""About so many, so that nodes are done at about the same time; each costs the start of a command."""

LEAST_SECONDS = 5.0
"""For a piece with little to settle: each experiment has some rounds."""

MOST_FAILURES, MOST_TRIES = 2, 3
"""A node on which so many pieces failed gets no more; a piece that was tried so often is given up."""

HEAR_SECONDS, NO_NODE_SECONDS = 1.0, 20.0
"""How often the cluster is asked for new nodes; how long work waits for one where none is left."""

STOP_SECONDS = 60.0
"""What nodes have to end in order."""


class Unit(BaseModel):
    """What only one machine can measure, all together. claims: to be named then, where any must."""

    workloads: tuple[str, ...]
    claims: tuple[str, ...] = ()
    weight: float = 1.0

    def is_in(self, done: Collection[str]) -> bool:
        """Whether these workloads have all of it ("" for what needs none)."""
        return {*(self.workloads or ("",))} <= {*done}


class Order(BaseModel):
    """What a session wants. words: of the command that measures everything; files: that it needs. kinds_done: of
    machines that have measured everything. about: what `node.about` takes. gpu: whether tasks take the GPUs of their
    nodes too."""

    folder: Path
    units: list[Unit]
    each_kind: bool
    kinds_done: list[str]
    seconds: float
    words: list[str]
    files: dict[str, str]
    about: tuple[int, bool, str]
    gpu: bool


@dataclass
class Piece:
    """The work of one command. words: what it says beside those of the whole; kind: of a machine that may do it."""

    words: list[str]
    seconds: float
    kind: str = ""
    tries: int = 0


def pieces_of(units: Sequence[Unit], nodes: int, seconds: float) -> list[Piece]:
    """Commands that together measure all units, some for each node, the longest first, and one for what needs no
    workload, for a command that names workloads leaves that out."""
    timed = sorted((unit for unit in units if unit.workloads), key=lambda unit: -unit.weight)
    piles: list[list[Unit]] = [[] for _ in range(min(PIECES_A_NODE * nodes, len(timed)))]
    for unit in timed:
        min(piles, key=_weight).append(unit)
    piles += [[unit] for unit in units if not unit.workloads]
    seconds_a_weight = seconds * nodes / _weight(units)
    return [Piece(_words(pile), max(min(seconds_a_weight * _weight(pile), seconds), LEAST_SECONDS)) for pile in piles]


def _weight(units: Sequence[Unit]) -> float:
    return sum(unit.weight for unit in units)


def _words(units: Sequence[Unit]) -> list[str]:
    """What a command says of these alone."""
    words = []
    for option in ("workloads", "claims"):
        if names := dict.fromkeys(name for unit in units for name in getattr(unit, option)):
            words.append(f"--{option}={','.join(names)}")
    return words


@dataclass
class Seat:
    """A node. task: what it does now. environment: None until it has said what it is, and once it gets no more."""

    node: Node
    name: str  # in this fleet
    task: Any
    environment: Mapping[str, Any] | None = None
    piece: Piece | None = None
    runs: int = 0  # how many it was given
    failures: int = 0

    @property
    def run(self) -> str:
        """The folder of its last piece."""
        return self.name if self.runs == 1 else f"{self.name}.{self.runs}"


class Driver:
    """The work of one session over the nodes of a cluster."""

    def __init__(self, cluster: Cluster, order: Order, tell: Callable[[str], object], stopped: Event) -> None:
        """tell: takes lines of progress. stopped: set once all nodes shall end in order, and nothing more begin."""
        self.cluster = cluster
        self.order = order
        self.tell = tell
        self.stopped = stopped
        self.fleet = FleetFolder(order.folder)
        self.machines = self.fleet.machines()
        self.seats: dict[str, Seat] = {}  # by node
        self.kinds = {*order.kinds_done}
        self.pieces: list[Piece] | None = None  # that wait; None until there is a node
        self.given_up = False
        self.reasons: list[str] = []  # why nodes get no more
        named = (int(name[1][1:]) for each in self.machines if (name := kinds.PIECE_FOLDER.fullmatch(each.name)))
        self.numbers = itertools.count(max(named, default=0) + 1)

    def run(self) -> None:
        """Until all is measured, nothing more can be, or it was stopped. What became of it is in run.json then."""
        status, idle_since = "", time.monotonic()
        while not (status or self.stopped.is_set()):
            self._take_on_nodes()
            self._give_work()
            seats = self.seats.values()
            waits_for_kinds = self.order.each_kind and any(seat.task and not seat.environment for seat in seats)
            if self.pieces == [] and not waits_for_kinds and not any(seat.piece for seat in seats):
                status = "interrupted" if self.given_up else "complete"
            elif any(seat.task for seat in seats):
                self._hear()
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > NO_NODE_SECONDS:
                why = "; ".join(dict.fromkeys(self.reasons)) or "no node of the cluster has a processor to give"
                self.tell(f"no node is left that can measure ({why})")
                status = "failed"
            else:
                time.sleep(HEAR_SECONDS)
        if self.stopped.is_set():
            self._stop()
        self.fleet.update(self.machines, status or "interrupted")

    def _stop(self) -> None:
        """Let what nodes do end in order, and keep it."""
        end = time.monotonic() + STOP_SECONDS
        for seat in self.seats.values():
            if seat.piece:
                self.cluster.stop(seat.task)
        while any(seat.piece for seat in self.seats.values()) and time.monotonic() < end:
            self._hear()
        for seat in self.seats.values():
            if seat.piece:
                self._settle(seat, "interrupted", "did not end in time")

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _take_on_nodes(self) -> None:
        """Ask each node that is new what it is."""
        nodes = self.cluster.nodes()
        if nodes and self.pieces is None and not self.order.each_kind:
            self.pieces = pieces_of(self.order.units, len(nodes), self.order.seconds)
        for node in nodes:
            if node.id not in self.seats:
                task = self.cluster.begin(node, about, *self.order.about, gpu=self.order.gpu)
                self.seats[node.id] = Seat(node, f"m{next(self.numbers)}", task)

    def _checked(self, seat: Seat, facts: Mapping[str, Any]) -> None:
        """Take in what a node says of itself."""
        if facts["problem"]:
            self._leave_out(seat, facts["problem"])
        elif facts["version"] != (ours := version()):
            differs = f"has version {facts['version']} of the workbench, and this is {ours}"
            self._leave_out(seat, f"{differs}: install the same version of the workbench on all nodes")
        else:
            seat.environment = facts["environment"]
            if self.order.each_kind:
                self.pieces = self.pieces or []
                if (kind := kinds.key_of(facts["environment"])) not in self.kinds:
                    self.kinds.add(kind)
                    self.pieces.append(Piece([], self.order.seconds, kind))

    def _leave_out(self, seat: Seat, reason: str) -> None:
        """It gets no work, or no more."""
        self._tell(seat, f"left out: {reason}")
        seat.environment = None
        self.reasons.append(reason)
        if not seat.runs:
            self._put_down(Machine(name=seat.name, status="left out", reason=published(reason)))

    # -- work ----------------------------------------------------------------------------------------------------------

    def _give_work(self) -> None:
        """Give each free node its next piece, where there is one for it."""
        for seat in self.seats.values():
            if seat.environment is None or seat.task:
                continue
            kind = kinds.key_of(seat.environment) if self.order.each_kind else ""
            if piece := next((each for each in self.pieces or () if each.kind == kind), None):
                assert self.pieces
                self.pieces.remove(piece)
                seat.piece = piece
                seat.runs += 1
                words = [*self.order.words, f"--budget={piece.seconds:.6g}", *piece.words]
                arguments = (seat.run, words, self.order.files)
                seat.task = self.cluster.begin(seat.node, measure, *arguments, gpu=self.order.gpu)
                self._tell(seat, f"measures {' '.join(piece.words) or 'everything'}")

    def _hear(self) -> None:
        """Wait for what nodes do, and take in what has ended."""
        at_work = {seat.task: seat for seat in self.seats.values() if seat.task}
        for task in self.cluster.wait([*at_work], HEAR_SECONDS):
            seat = at_work[task]
            seat.task = None
            answer = self.cluster.answer(task)
            if seat.piece is not None:
                self._came_back(seat, answer)
            elif isinstance(answer, Lost):
                self._leave_out(seat, answer.reason)
            else:
                self._checked(seat, answer)

    def _came_back(self, seat: Seat, answer: Lost | tuple[int, list[str], dict[str, bytes]]) -> None:
        """Take in what a command left."""
        if isinstance(answer, Lost):
            self._settle(seat, "interrupted", answer.reason)
            if answer.with_node:
                seat.environment = None
                self.reasons.append(answer.reason)
            return
        code, lines, files = answer
        run = RunFolder(self.fleet.machine(seat.run))
        unpack(files, run.path)
        is_complete = False
        with suppress(RunError):  # it has no run.json: the command's own words say why
            is_complete = run.manifest().status == "complete"
        is_in_order = is_complete or self.stopped.is_set()
        self._settle(seat, "complete" if is_complete else "interrupted", "" if is_in_order else _reason(lines, code))

    def _settle(self, seat: Seat, status: str, reason: str) -> None:
        """A piece has ended: put down what was measured of it, and let a node try again where that was not all."""
        piece, measured = seat.piece, list[str]()
        assert piece is not None and self.pieces is not None
        seat.piece = None
        with suppress(RunError):  # there is no run
            run = RunFolder(self.fleet.machine(seat.run))
            measured = [each.workload.name for each in run.manifest().experiments]
        if reason:
            self._tell(seat, reason)
        if status == "complete" and not self.order.each_kind:  # of what others had begun of it nothing counts
            for index, begun in enumerate(self.machines):
                if begun.status == "interrupted":
                    kept = [name for name in begun.experiments if name not in measured]
                    self.machines[index] = begun.model_copy(update={"experiments": kept})
        kind = kinds.processor(seat.environment or {})
        ended = Machine(name=seat.run, kind=kind, status=status, reason=published(reason), experiments=measured)
        self._put_down(ended)
        if not reason:
            return
        piece.tries += 1
        seat.failures += 1
        if piece.tries < MOST_TRIES:
            self.pieces.insert(0, piece)
        else:
            self.given_up = True
            self.tell(f"no node could measure {' '.join(piece.words) or 'it'}")
        if seat.failures >= MOST_FAILURES:
            self._leave_out(seat, f"{MOST_FAILURES} commands on it came to nothing: {reason}")

    def _put_down(self, machine: Machine) -> None:
        self.machines.append(machine)
        self.fleet.update(self.machines, "running")

    def _tell(self, seat: Seat, text: str) -> None:
        self.tell(f"{seat.name} at {seat.node.address}: {text}")


def _reason(lines: Sequence[str], code: int) -> str:
    """Why a command came to nothing, of what it wrote."""
    written = [line.strip(" !") for line in lines if line.strip(" !=")]
    faults = [line for line in written if "could not measure: " in line or "error: " in line.lower()]
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"the command ended ({how}): {([*written[-1:], *faults] or ['without a word'])[-1][:300]}"


def main(on: str) -> None:
    """Serve one session."""

    def tell(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    stopped = Event()
    try:
        cluster = Cluster(on)
    except PlanError as error:
        tell(str(error))
        return
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())  # Ray's own would end the process at once
    tell(READY)
    order = Order.model_validate_json(sys.stdin.readline())
    Driver(cluster, order, lambda text: tell(f"{OURS}{text}"), stopped).run()
    os._exit(0)  # not through an interpreter's end with Ray's threads in it


if __name__ == "__main__":
    main(sys.argv[1])
