"""The process that speaks to Ray: `python -m llama_workbench.harness.slices.fleet.driver CLUSTER`.

It gives each node its next piece of the work, and keeps in the fleet's folder what comes back. It is a process of its
own because Ray's threads outlive their use: an interpreter that ends around them may crash. A session that has none of
them ends with its own exit code, and what became of the work is in run.json, however this process ended.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from pydantic import BaseModel

import llama_workbench

from ...machine.extras import install
from ...machine.places import published
from ...plan.options import PlanError
from ...store.files import RunError
from ...store.folder import RunFolder
from ...store.verdict_schema import Machine
from . import kinds
from .folder import FleetFolder
from .node import NodeWorker, code, unpack

# -- Ray, which no other module imports: which nodes there are, and a worker on each -----------------------------------

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

NODE_GONE = ("the node was lost", "the node does not answer")
_ADDRESS = re.compile(r"ray|ray://[^\s/]+")


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    id: str
    address: str
    cpus: float  # that Ray may give away there
    gpus: float  # likewise
    declared: bool  # whether it is meant to measure


class Lost(Exception):
    """A worker did not answer; the text says why. with_node: because its machine is gone."""

    def __init__(self, text: str, *, with_node: bool) -> None:
        super().__init__(text)
        self.with_node = with_node


class Cluster:
    """A connection to a Ray cluster. Raises PlanError where there is none."""

    def __init__(self, on: str) -> None:
        """on: `ray` for the cluster that this machine is in, or ray://HEAD[:PORT]."""
        check_address(on)
        # No reports on how Ray is used, and none of its lines among ours.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            raise PlanError(f"--on {on} needs Ray, which is not installed: {install('fleet')}") from error
        address = os.environ.get("RAY_ADDRESS", "auto") if on == "ray" else on if ":" in on[6:] else f"{on}:{PORT}"
        try:
            _knock(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError, ImportError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise PlanError(f"--on {on}: no Ray cluster answers ({reason}); {HOW_TO_START}") from error
        self._ray = ray

    def nodes(self) -> list[Node]:
        """The nodes that are alive and may measure."""
        alive = [each for each in self._ray.nodes() if each["Alive"]]
        nodes = [
            Node(
                node["NodeID"],
                node["NodeManagerAddress"],
                float(node["Resources"].get("CPU", 0)),
                float(node["Resources"].get("GPU", 0)),
                node["Resources"].get(RESOURCE, 0) >= 1,
            )
            for node in alive
        ]
        declared = [each for each in nodes if each.declared]
        return declared or [each for each in nodes if each.cpus >= 1]

    def worker(self, node: Node, *, gpu: bool) -> WorkerOnNode:
        """Begin a worker on a node. It takes all that Ray may give away there, so that Ray starts nothing beside it."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        resource = RESOURCE if node.declared else f"node:{node.address}"
        options: dict[str, Any] = {
            "num_cpus": node.cpus,
            "num_gpus": node.gpus if gpu else 0,
            "resources": {resource: 1},
            "max_restarts": 0,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=False),
        }
        return WorkerOnNode(self._ray, self._ray.remote(NodeWorker).options(**options).remote())

    def wait(self, answers: Sequence[Any], seconds: float) -> list[Any]:
        """Those of the answers that are there, once the first is; at most so long."""
        there, _ = self._ray.wait(list(answers), num_returns=1, timeout=seconds)
        return list(there)


class WorkerOnNode:
    """A `NodeWorker` on its node."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray = ray
        self._actor = actor

    def ask(self, method: str, *arguments: Any) -> Any:
        """Ask for something; the answer is there later."""
        return getattr(self._actor, method).remote(*arguments)

    def answer(self, asked: Any, seconds: float | None = None) -> Any:
        """The answer. Raises Lost where there will be none."""
        try:
            return self._ray.get(asked, timeout=seconds)
        except self._ray.exceptions.RayError as error:
            reason = _said(error)
            raise Lost(reason, with_node=reason in NODE_GONE) from error

    def kill(self) -> None:
        """End it at once, with the command that it runs."""
        self._ray.kill(self._actor, no_restart=True)


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


def _said(error: Exception) -> str:
    """The reason in a line, out of Ray's many."""
    text = str(error)
    if missing := re.findall(r"(?:ModuleNotFound|Import|Attribute)Error: [^\n]+", text):
        return f"the workbench there cannot be used: {missing[-1]}"
    if "node has died" in text or "node was terminated" in text or "node died" in text.lower():
        return NODE_GONE[0]
    if "unavailable" in text:
        return NODE_GONE[1]
    lines: Iterator[str] = (line.strip() for line in text.splitlines())
    reason = next((line for line in lines if line and not re.match(r"\w+: \S+$|\w+Error", line)), type(error).__name__)
    return f"its worker was lost ({reason[:160]})"


READY = "ready"
"""The first line, once the cluster answers; any other says why it does not."""

PIECES_A_NODE = 3
"""About so many, so that nodes are done at about the same time; each costs the start of a command."""

LEAST_SECONDS = 5.0
"""For a piece with little to settle: each experiment has some rounds."""

MOST_FAILURES, MOST_TRIES = 2, 3
"""A node on which so many pieces failed is left out; a piece that so many nodes could not do is given up."""

NEW_NODES_SECONDS, NO_NODE_SECONDS, AFTER_LOSS_SECONDS = 2.0, 60.0, 20.0
"""How often the cluster is asked for nodes; how long work that has begun waits for one where there is none any more;
and when a node whose worker was lost gets another, for Ray takes some seconds to see that a node is dead."""

WAIT_SECONDS, STOP_SECONDS = 90.0, 60.0
"""A worker that has not begun by then will not soon: something else has the node. What nodes have to end in order."""

OURS = "workbench: "
"""What lines of progress begin with."""

ANOTHER = "install the same version of the workbench on all nodes"
BUSY = "something else in the cluster has its processors: stop that, or wait for it"


class Unit(BaseModel):
    """What only one machine can measure, all together. claims: to be named then, where any must."""

    workloads: tuple[str, ...]
    claims: tuple[str, ...] = ()
    weight: float = 1.0

    def is_in(self, done: Collection[str]) -> bool:
        """Whether these workloads have all of it ("" for what needs none)."""
        return all(name in done for name in self.workloads or ("",))


class Order(BaseModel):
    """What a session wants. words: of the command that measures everything; files: that it needs. kinds_done: of
    machines that have measured everything. about: what `NodeWorker.about` takes. gpu: whether workers take the GPUs of
    their nodes too."""

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
    """The work of one command. words: what it says beside those of the whole."""

    words: list[str]
    weight: float
    tries: int = 0


def pieces_of(units: Sequence[Unit], count: int) -> list[Piece]:
    """Commands that together measure all units: so many or fewer, the longest first, and one for what needs no
    workload, for a command that names workloads leaves that out."""
    timed = sorted((unit for unit in units if unit.workloads), key=lambda unit: -unit.weight)
    piles: list[list[Unit]] = [[] for _ in range(min(count, len(timed)))]
    for unit in timed:
        min(piles, key=_weight).append(unit)
    piles += [[unit] for unit in units if not unit.workloads]
    return [Piece(_words(pile), _weight(pile)) for pile in piles]


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
    """A node that is used. asked: what it still has to answer; None where it waits for work."""

    node: Node
    name: str  # in this fleet
    worker: WorkerOnNode
    asked: Any
    begun: float
    environment: Mapping[str, Any] | None = None  # None until it has said what it is
    machine: Machine | None = None  # what it measures now
    piece: Piece | None = None
    lines: list[str] = field(default_factory=list)  # that the command has written
    runs: int = 0  # how many it was given


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
        self.code = code()
        self.seats: list[Seat] = []
        self.waiting: dict[str, list[Piece]] = {kind: [] for kind in order.kinds_done}  # by kind; "" for all
        self.seconds_a_weight = 0.0
        self.given_up = False
        self.failures = Counter[str]()  # by node
        self.lost: dict[str, float] = {}  # when a node's worker was, by the monotonic clock as all times
        self.looked = -NEW_NODES_SECONDS
        self.idle_since = time.monotonic()  # since when no node does anything
        self.reasons: list[str] = []  # why nodes are used no more

    def run(self) -> None:
        """Until all is measured, nothing more can be, or it was stopped. What became of it is in run.json then."""
        status = self._status()
        for seat in self.seats:
            if seat.piece is not None:
                self._settle(seat, "interrupted", "did not end in time")
        self.fleet.update(self.machines, status)

    def _status(self) -> str:
        """What it ended as."""
        while not self.stopped.is_set():
            self._take_on_nodes()
            for seat in self.seats:
                if seat.asked is None:
                    self._give_work(seat)
            starting = any(seat.environment is None for seat in self.seats)
            left = not self.waiting or any(self.waiting.values()) or any(seat.piece for seat in self.seats)
            if not left and not (starting and self.order.each_kind):
                return "interrupted" if self.given_up else "complete"
            may_come_back = self.lost or any(machine.experiments for machine in self.machines)
            if any(seat.asked is not None for seat in self.seats):
                self.idle_since = time.monotonic()
            elif time.monotonic() - self.idle_since > (NO_NODE_SECONDS if may_come_back else NEW_NODES_SECONDS):
                why = "; ".join(dict.fromkeys(self.reasons)) or "no node of the cluster has a processor to give"
                self.tell(f"no node is left that can measure ({why})")
                return "failed"
            self._hear(1.0)
        end = time.monotonic() + STOP_SECONDS
        for seat in self.seats:
            if seat.piece is not None:
                seat.worker.ask("stop")
        while any(seat.piece for seat in self.seats) and time.monotonic() < end:
            self._hear(1.0)
        return "interrupted"

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _take_on_nodes(self) -> None:
        """Begin a worker on each node that is new."""
        now = time.monotonic()
        if now - self.looked >= NEW_NODES_SECONDS:
            self.looked = now
            nodes = self.cluster.nodes()
            if not self.order.each_kind and not self.waiting and nodes:
                self.waiting[""] = pieces = pieces_of(self.order.units, PIECES_A_NODE * len(nodes))
                self.seconds_a_weight = self.order.seconds * len(nodes) / sum(piece.weight for piece in pieces)
            used = {seat.node.id for seat in self.seats}
            used |= {node for node, when in self.lost.items() if now - when < AFTER_LOSS_SECONDS}
            for node in nodes:
                if node.id not in used and self.failures[node.id] < MOST_FAILURES:
                    worker = self.cluster.worker(node, gpu=self.order.gpu)
                    asked = worker.ask("about", *self.order.about)
                    self.seats.append(Seat(node, self._free_name(), worker, asked, now))

    def _free_name(self) -> str:
        """That no node had in this run."""
        names = [*(machine.name for machine in self.machines), *(seat.name for seat in self.seats)]
        known = {name.partition(".")[0] for name in names}
        return next(name for number in range(1, len(known) + 2) if (name := f"m{number}") not in known)

    def _checked(self, seat: Seat, facts: Mapping[str, Any]) -> None:
        """Take in what a node says of itself."""
        ours, reason = llama_workbench.__version__, facts.get("problem", "")
        if not reason and facts["version"] != ours:
            reason = f"has version {facts['version']} of the workbench, and this is {ours}: {ANOTHER}"
        elif not reason and facts["code"] != self.code:
            reason = f"its code is another one than here: {ANOTHER}"
        if reason:
            self._leave_out(seat, reason)
            return
        seat.environment = facts["environment"]
        if facts["niceness"] > 0:
            first = f"other programs there come first (niceness {facts['niceness']})"
            self._tell(seat, f"{first}: put RAY_worker_niceness=0 before `ray start`")

    def _leave_out(self, seat: Seat, reason: str) -> None:
        """It is not used, or no more."""
        self._tell(seat, f"left out: {reason}")
        self.failures[seat.node.id] = MOST_FAILURES  # for good
        name = seat.name if not seat.runs else f"{seat.name}.out"
        self._put_down(Machine(name=name, status="left out", reason=published(reason)))
        self._let_go(seat, reason)

    def _let_go(self, seat: Seat, reason: str) -> None:
        self.reasons.append(reason)
        self.seats.remove(seat)
        seat.worker.kill()

    # -- work ----------------------------------------------------------------------------------------------------------

    def _give_work(self, seat: Seat) -> None:
        """Give a free node its next piece, where there is one for it."""
        order = self.order
        assert seat.environment is not None
        kind = kinds.key_of(seat.environment) if order.each_kind else ""
        pieces = self.waiting.setdefault(kind, [Piece([], 1.0)] if order.each_kind else [])
        if not pieces:
            return
        seat.piece, seconds = pieces.pop(0), order.seconds
        if not order.each_kind:
            seconds = max(min(self.seconds_a_weight * seat.piece.weight, order.seconds), LEAST_SECONDS)
        seat.runs += 1
        name = seat.name if seat.runs == 1 else f"{seat.name}.{seat.runs}"
        seat.machine = Machine(name=name, kind=kinds.processor(seat.environment), status="running")
        self._put_down(seat.machine)
        seat.lines = []
        words = [*order.words, f"--budget={seconds:.6g}", *seat.piece.words]
        seat.asked = seat.worker.ask("begin", name, words, order.files)

    def _hear(self, seconds: float) -> None:
        """Wait for answers, and take them in."""
        waiting = {seat.asked: seat for seat in self.seats if seat.asked is not None}
        if not waiting:
            time.sleep(seconds)
            return
        for asked in self.cluster.wait(list(waiting), seconds):
            seat = waiting[asked]
            seat.asked = None
            try:
                answer = seat.worker.answer(asked)
                if seat.piece is None:
                    self._checked(seat, json.loads(answer))
                else:
                    self._heard(seat, *(answer or ([], None, b"")))
            except Lost as lost:
                self._lost(seat, lost)
        for seat in list(self.seats):
            if seat.environment is None and time.monotonic() - seat.begun > WAIT_SECONDS:
                self._leave_out(seat, BUSY)

    def _heard(self, seat: Seat, lines: Sequence[str], code: int | None, content: bytes) -> None:
        """Take in what a command wrote, and what it left where it has ended."""
        seat.lines += lines
        for line in lines:
            if line.startswith(OURS):
                self._tell(seat, line.removeprefix(OURS))
        if code is None:
            seat.asked = seat.worker.ask("look", 1.0)
            return
        assert seat.machine is not None
        run = RunFolder(self.fleet.machine(seat.machine.name))
        status, reason = None, _reason(seat.lines, code)
        try:
            unpack(content, run.path)
            status = run.manifest().status
        except ValueError as error:
            reason = str(error)
        except RunError:
            pass  # it has no run.json: the command's own words say why
        if is_fault := status != "complete" and not self.stopped.is_set():
            self.failures[seat.node.id] += 1
            self._again(seat)
        self._settle(seat, "complete" if status == "complete" else "interrupted", reason if is_fault else "")
        if self.failures[seat.node.id] >= MOST_FAILURES:
            self._leave_out(seat, f"{MOST_FAILURES} commands on it came to nothing: {reason}")

    def _lost(self, seat: Seat, lost: Lost) -> None:
        """Its worker is gone, and another node takes what it had."""
        if seat.piece is None:
            self._leave_out(seat, str(lost))
            return
        self.lost[seat.node.id] = time.monotonic()
        self._again(seat, counts=not lost.with_node)
        self._settle(seat, "interrupted", str(lost))
        self._let_go(seat, str(lost))

    def _again(self, seat: Seat, *, counts: bool = True) -> None:
        """Its piece was not measured to its end. counts: whether that may be its own fault."""
        piece, kind = seat.piece, kinds.key_of(seat.environment or {}) if self.order.each_kind else ""
        assert piece is not None
        piece.tries += counts
        if piece.tries < MOST_TRIES:
            self.waiting[kind].insert(0, piece)
        else:
            self.given_up = True
            self.tell(f"no node could measure {' '.join(piece.words) or 'it'}")

    def _settle(self, seat: Seat, status: str, reason: str) -> None:
        """A piece has ended: put down what was measured of it."""
        assert seat.machine is not None
        measured: list[str] = []
        with suppress(RunError):  # there is no run
            run = RunFolder(self.fleet.machine(seat.machine.name))
            measured = [each.workload.name for each in run.manifest().experiments]
        if reason:
            self._tell(seat, reason)
        self.machines.remove(seat.machine)
        if status == "complete" and not self.order.each_kind:  # of what others had begun of it nothing counts
            for index, begun in enumerate(self.machines):
                if begun.status == "interrupted":
                    kept = [name for name in begun.experiments if name not in measured]
                    self.machines[index] = begun.model_copy(update={"experiments": kept})
        ended = {"status": status, "reason": published(reason), "experiments": measured}
        self._put_down(seat.machine.model_copy(update=ended))
        seat.piece = seat.machine = None

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
    driver = Driver(cluster, Order.model_validate_json(sys.stdin.readline()), tell, stopped)
    driver.run()
    for seat in driver.seats:
        seat.worker.kill()
    os._exit(0)  # not through an interpreter's end with Ray's threads in it


if __name__ == "__main__":
    main(sys.argv[1])
