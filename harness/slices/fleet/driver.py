"""The process that speaks to Ray: it gives each node its next piece of the work, and keeps in the fleet's folder what
comes back.

The driver (`main`) is a process of its own because Ray's threads outlive their use: an interpreter that ends around
them may crash. A session that has none of them ends with its own exit code, and what became of the work is in run.json,
however the driver ended. No other module imports Ray.
"""

from __future__ import annotations

import io
import logging
import os
import re
import signal
import socket
import sys
import time
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from threading import Event
from typing import Any

from pydantic import BaseModel

import llama_workbench

from ...machine.extras import install
from ...machine.places import published
from ...plan.options import PlanError
from ...store.files import JOURNAL, SUMS, RunError
from ...store.folder import RunFolder
from ...store.verdict_schema import Machine
from .folder import FleetFolder
from .node import NodeWorker, code

_RUN_FILE = re.compile(
    r"log/[A-Za-z0-9._-]+\.log|profiles/(?:[A-Za-z0-9@._+-]+/)*[A-Za-z0-9@._+-]+\.folded|[\w-]+\.(json|parquet)"
)


def unpack(content: bytes, run: Path) -> None:
    """Write a run folder that came from another machine; nothing where it is empty. Raises ValueError for a file that
    no run has: none may lead out of the folder."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = archive.namelist()
            for name in names:
                plain = ".." not in PurePosixPath(name).parts and (name in (JOURNAL, SUMS) or _RUN_FILE.fullmatch(name))
                if not plain:
                    raise ValueError(f"sent a file that no run has: {name[:100]!r}")
            partial = run.with_name(f".{run.name}.part")
            archive.extractall(partial)
            if names:
                os.replace(partial, run)
    except zipfile.BadZipFile as error:
        raise ValueError(f"sent no run ({error})") from error


# -- the cluster -------------------------------------------------------------------------------------------------------

HOW_TO_START = (
    "start one: `ray start --head` here, `ray start --address=HEAD:6379` on each other machine, both with "
    "RAY_USAGE_STATS_ENABLED=0 and RAY_worker_niceness=0 before them"
)
PORT = 10001
"""Where a head listens for ray://, if it was not told otherwise."""

KNOCK_SECONDS = 10.0


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, and how much Ray may give away there."""

    id: str
    address: str
    cpus: float
    gpus: float


class Lost(Exception):
    """A worker did not answer; the text says why."""


def check_address(on: str) -> None:
    """Raises PlanError where this is no address."""
    if not re.fullmatch(r"ray|ray://[^\s/]+", on):
        raise PlanError(f"--on {on}: expected ray (inside a cluster) or ray://HEAD[:PORT]")


class Cluster:
    """A connection to a Ray cluster. Raises PlanError where there is none."""

    def __init__(self, on: str) -> None:
        """on: `ray` for the cluster that this machine is in, or ray://HEAD[:PORT]."""
        check_address(on)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            raise PlanError(f"--on {on} needs Ray, which is not installed: {install('fleet')}") from error
        address = os.environ.get("RAY_ADDRESS", "auto") if on == "ray" else on if ":" in on[6:] else f"{on}:{PORT}"
        try:
            host, separator, port = address.removeprefix("ray://").rpartition(":")
            if separator and port.isdecimal():  # where nobody listens, Ray itself would try for minutes
                with socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS):
                    pass
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError, ImportError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise PlanError(f"--on {on}: no Ray cluster answers ({reason}); {HOW_TO_START}") from error
        self._ray = ray

    def nodes(self, *, gpu: bool) -> list[Node]:
        """The nodes that are alive and may measure. gpu: on a GPU."""
        alive = [node for node in self._ray.nodes() if node["Alive"]]
        resources = [(float(node["Resources"].get("CPU", 0)), float(node["Resources"].get("GPU", 0))) for node in alive]
        return [
            Node(node["NodeID"], node["NodeManagerAddress"], cpus, gpus)
            for node, (cpus, gpus) in zip(alive, resources, strict=True)
            if cpus >= 1 and (gpus or not gpu)
        ]

    def worker(self, node: Node) -> Any:
        """Begin a worker on a node. It takes all that Ray may give away there, so that Ray starts nothing beside it."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node.id, soft=False)
        options = {"num_cpus": node.cpus, "num_gpus": node.gpus, "max_restarts": 0, "scheduling_strategy": there}
        return self._ray.remote(NodeWorker).options(**options).remote()

    def ask(self, worker: Any, method: str, *arguments: Any) -> Any:
        """Ask a worker for something; the answer is there later."""
        return getattr(worker, method).remote(*arguments)

    def wait(self, answers: Sequence[Any], seconds: float) -> list[Any]:
        """Those of the answers that are there, once the first is; at most so long."""
        there, _ = self._ray.wait(list(answers), num_returns=1, timeout=seconds)
        return list(there)

    def answer(self, asked: Any) -> Any:
        """The answer. Raises Lost where there will be none."""
        try:
            return self._ray.get(asked)
        except self._ray.exceptions.RayError as error:
            text = str(error)
            if missing := re.findall(r"(?:ModuleNotFound|Import|Attribute)Error: [^\n]+", text):
                raise Lost(f"the workbench there cannot be used: {missing[-1]}") from error
            if re.search(r"node (has |was )?(died|terminated)|unavailable", text, re.IGNORECASE):
                raise Lost("the node was lost, or does not answer") from error
            raise Lost(f"its worker was lost ({' '.join(text.split())[:160]})") from error

    def kill(self, worker: Any) -> None:
        """End a worker at once, with the command that it runs."""
        self._ray.kill(worker, no_restart=True)


# -- the driver --------------------------------------------------------------------------------------------------------

READY = "ready"
"""The first line, once the cluster answers; any other says why it does not."""

PIECES_A_NODE = 3
"""About so many, so that nodes are done at about the same time; each costs the start of a command and its checks."""

LEAST_SECONDS = 5.0
"""For a piece with little to settle: each experiment has some rounds."""

MOST_FAILURES, MOST_TRIES = 2, 3
"""A node on which so many pieces failed is left out; a piece that so many nodes could not do is given up."""

NEW_NODES_SECONDS, NO_NODE_SECONDS, AFTER_LOSS_SECONDS = 2.0, 30.0, 20.0
"""How often the cluster is asked for nodes; how long work waits where no node can do it; and when a node whose worker
was lost gets another, for Ray takes some seconds to see that a node is dead."""

WAIT_SECONDS, STOP_SECONDS = 90.0, 60.0
"""A worker that has not begun by then will not soon: something else has the node. What nodes have to end in order."""

OURS = "workbench: "
"""What lines of progress begin with."""

ANOTHER = "install the same version of the workbench on all nodes"
BUSY = "something else in the cluster has its processors: stop that, or wait for it"


class Piece(BaseModel):
    """The work of one command: all of it, or these workloads, with these claims alone where any must be named.
    share: of all work, which decides about its seconds."""

    workloads: list[str] = []
    claims: list[str] = []
    share: float = 1.0
    tries: int = 0

    @property
    def words(self) -> list[str]:
        """What the command says beside that of the whole."""
        named = {"workloads": self.workloads, "claims": self.claims}
        return [f"--{option}={','.join(names)}" for option, names in named.items() if names]

    def is_in(self, done: Collection[str]) -> bool:
        """Whether these workloads have all of it ("" for what needs none)."""
        return all(name in done for name in self.workloads or ("",))


def joined(pieces: Sequence[Piece], count: int) -> list[Piece]:
    """So many or fewer that together have all, from pieces of which the longest come first. What needs no workload
    stays alone, for a command that names workloads leaves that out."""
    timed = [piece for piece in pieces if piece.workloads]
    piles: list[list[Piece]] = [[] for _ in range(min(count, len(timed)))]
    for piece in timed:
        min(piles, key=lambda pile: sum(part.share for part in pile)).append(piece)
    piles += [[piece] for piece in pieces if not piece.workloads]
    return [
        Piece(
            workloads=[name for piece in pile for name in piece.workloads],
            claims=[*dict.fromkeys(name for piece in pile for name in piece.claims)],
            share=sum(piece.share for piece in pile),
        )
        for pile in piles
    ]


class Order(BaseModel):
    """What a session wants. pieces: of the work, or each kind of machine's; kinds_done: of machines that have measured
    everything. words: of the command that measures everything; files: that it needs. gpu: whether on GPUs."""

    folder: Path
    pieces: list[Piece]
    each_kind: bool = False
    kinds_done: list[str] = []
    seconds: float
    words: list[str]
    files: dict[str, str]
    gpu: bool = False


@dataclass
class Seat:
    """A node that is used. asked: what it still has to answer; None where it waits for work."""

    node: Node
    name: str  # in this fleet
    worker: Any
    asked: Any
    begun: float
    kind: str | None = None  # None until it has said what it is
    machine: Machine | None = None  # what it measures now
    piece: Piece | None = None
    lines: list[str] = field(default_factory=list)  # that the command has written
    runs: int = 0  # how many it was given
    failures: int = 0


class Driver:
    """The work of one session over the nodes of a cluster."""

    def __init__(self, cluster: Cluster, order: Order, tell: Callable[[str], object], stopped: Event) -> None:
        """tell: takes lines of progress. stopped: set once all nodes shall end in order, and nothing more begin."""
        self.cluster, self.order, self.tell, self.stopped = cluster, order, tell, stopped
        self.fleet = FleetFolder(order.folder)
        self.machines = {machine.name: machine for machine in self.fleet.machines()}
        self.code = code()
        self.seats: list[Seat] = []
        # By kind, where each measures everything; else all under "".
        self.waiting = {kind: list[Piece]() for kind in order.kinds_done} if order.each_kind else {"": order.pieces}
        self.nodes = 0  # how many there are when the work begins
        self.given_up = False
        self.not_before: dict[str, float] = {}  # when a node may be used again; all times by the monotonic clock
        self.looked = -NEW_NODES_SECONDS
        self.idle_since = time.monotonic()  # since when no node does anything
        self.reasons: list[str] = []  # why nodes are used no more

    def run(self) -> None:
        """Until all is measured, nothing more can be, or it was stopped. What became of it is in run.json then."""
        status = self._status()
        for seat in self.seats:
            if seat.piece is not None:
                self._settle(seat, "interrupted", "did not end in time")
        self.fleet.update(self.machines.values(), status)

    def _status(self) -> str:
        """What it ended as."""
        while not self.stopped.is_set():
            self._take_on_nodes()
            for seat in self.seats:
                if seat.asked is None:
                    self._give_work(seat)
            starting = self.order.each_kind and any(seat.kind is None for seat in self.seats)
            left = not self.waiting or any(self.waiting.values()) or any(seat.piece for seat in self.seats)
            if not left and not starting:
                return "interrupted" if self.given_up else "complete"
            if any(seat.asked is not None for seat in self.seats):
                self.idle_since = time.monotonic()
            elif time.monotonic() - self.idle_since > NO_NODE_SECONDS:
                why = "; ".join(dict.fromkeys(self.reasons)) or "no node of the cluster has a processor to give"
                self.tell(f"no node is left that can measure ({why})")
                return "failed"
            self._hear(1.0)
        end = time.monotonic() + STOP_SECONDS
        for seat in self.seats:
            if seat.piece is not None:
                self.cluster.ask(seat.worker, "stop")
        while any(seat.piece for seat in self.seats) and time.monotonic() < end:
            self._hear(1.0)
        return "interrupted"

    def _take_on_nodes(self) -> None:
        """Begin a worker on each node that is new."""
        now = time.monotonic()
        if now - self.looked < NEW_NODES_SECONDS:
            return
        self.looked = now
        nodes = self.cluster.nodes(gpu=self.order.gpu)
        if nodes and not self.nodes:
            self.nodes = len(nodes)
            if not self.order.each_kind:
                self.waiting[""] = joined(self.order.pieces, PIECES_A_NODE * self.nodes)
        used = {seat.node.id for seat in self.seats} | {node for node, when in self.not_before.items() if now < when}
        for node in nodes:
            if node.id not in used:
                taken = {name.partition(".")[0] for name in (*self.machines, *(seat.name for seat in self.seats))}
                free = next(name for number in range(1, len(taken) + 2) if (name := f"m{number}") not in taken)
                worker = self.cluster.worker(node)
                self.seats.append(Seat(node, free, worker, self.cluster.ask(worker, "about"), now))

    def _checked(self, seat: Seat, facts: Mapping[str, Any]) -> None:
        """Take in what a node says of itself."""
        if facts["version"] != (ours := llama_workbench.__version__):
            self._leave_out(seat, f"has version {facts['version']} of the workbench, and this is {ours}: {ANOTHER}")
        elif facts["code"] != self.code:
            self._leave_out(seat, f"its code is another one than here: {ANOTHER}")
        else:
            seat.kind = facts["kind"]
            if facts["niceness"] > 0:
                first = f"other programs there come first (niceness {facts['niceness']})"
                self._tell(seat, f"{first}: put RAY_worker_niceness=0 before `ray start`")

    def _leave_out(self, seat: Seat, reason: str) -> None:
        """It is not used, or no more."""
        self._tell(seat, f"left out: {reason}")
        name = seat.name if not seat.runs else f"{seat.name}.out"
        self._put_down(Machine(name=name, status="left out", reason=published(reason)))
        self._let_go(seat, reason, for_seconds=float("inf"))

    def _let_go(self, seat: Seat, reason: str, for_seconds: float) -> None:
        self.not_before[seat.node.id] = time.monotonic() + for_seconds
        self.reasons.append(reason)
        self.seats.remove(seat)
        self.cluster.kill(seat.worker)

    def _waiting_for(self, seat: Seat) -> list[Piece]:
        """What a node may measure."""
        pieces = [piece.model_copy() for piece in self.order.pieces]
        return self.waiting.setdefault(str(seat.kind), pieces) if self.order.each_kind else self.waiting[""]

    def _give_work(self, seat: Seat) -> None:
        """Give a free node its next piece, where there is one for it."""
        if not (pieces := self._waiting_for(seat)):
            return
        seat.piece, order = pieces.pop(0), self.order
        seconds = max(order.seconds * min(self.nodes * seat.piece.share, 1.0), LEAST_SECONDS)
        seat.runs += 1
        seat.lines = []
        name = seat.name if seat.runs == 1 else f"{seat.name}.{seat.runs}"
        seat.machine = Machine(name=name, kind=str(seat.kind), status="running")
        self._put_down(seat.machine)
        words = [*order.words, f"--budget={seconds:.6g}", *seat.piece.words]
        seat.asked = self.cluster.ask(seat.worker, "begin", name, words, order.files)

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
                answer = self.cluster.answer(asked)
                if seat.piece is None:
                    self._checked(seat, answer)
                else:
                    self._heard(seat, *(answer or ([], None, b"")))
            except Lost as lost:
                if seat.piece is None:
                    self._leave_out(seat, str(lost))
                    continue
                self._again(seat)
                self._settle(seat, "interrupted", str(lost))
                self._let_go(seat, str(lost), AFTER_LOSS_SECONDS)
        for seat in list(self.seats):
            if seat.kind is None and time.monotonic() - seat.begun > WAIT_SECONDS:
                self._leave_out(seat, BUSY)

    def _heard(self, seat: Seat, lines: Sequence[str], code: int | None, content: bytes) -> None:
        """Take in what a command wrote, and what it left where it has ended."""
        seat.lines += lines
        for line in lines:
            if line.startswith(OURS):
                self._tell(seat, line.removeprefix(OURS))
        if code is None:
            seat.asked = self.cluster.ask(seat.worker, "look", 1.0)
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
        if status == "complete":
            self._settle(seat, "complete", "")
        elif self.stopped.is_set():
            self._settle(seat, "interrupted", "")
        else:
            seat.failures += 1
            self._again(seat)
            self._settle(seat, "interrupted", reason)
            if seat.failures >= MOST_FAILURES:
                self._leave_out(seat, f"{MOST_FAILURES} commands on it came to nothing: {reason}")

    def _again(self, seat: Seat) -> None:
        """Its piece was not measured to its end: another node takes it, if not too many have tried."""
        assert seat.piece is not None
        seat.piece.tries += 1
        if seat.piece.tries < MOST_TRIES:
            self._waiting_for(seat).insert(0, seat.piece)
        else:
            self.given_up = True
            self.tell(f"no node could measure {' '.join(seat.piece.words) or 'it'}")

    def _settle(self, seat: Seat, status: str, reason: str) -> None:
        """A piece has ended: put down what was measured of it."""
        assert seat.machine is not None
        measured: list[str] = []
        with suppress(RunError):  # there is no run
            run = RunFolder(self.fleet.machine(seat.machine.name))
            measured = [each.workload.name for each in run.manifest().experiments]
        if reason:
            self._tell(seat, reason)
        if status == "complete" and not self.order.each_kind:  # of what others had begun of it nothing counts
            for begun in [machine for machine in self.machines.values() if machine.status == "interrupted"]:
                kept = [name for name in begun.experiments if name not in measured]
                self.machines[begun.name] = begun.model_copy(update={"experiments": kept})
        ended = {"status": status, "reason": published(reason), "experiments": measured}
        self._put_down(seat.machine.model_copy(update=ended))
        seat.piece = seat.machine = None

    def _put_down(self, machine: Machine) -> None:
        self.machines[machine.name] = machine
        self.fleet.update(self.machines.values(), "running")

    def _tell(self, seat: Seat, text: str) -> None:
        self.tell(f"{seat.name} at {seat.node.address}: {text}")


def _reason(lines: Sequence[str], code: int) -> str:
    """Why a command came to nothing, of what it wrote."""
    written = [line.strip(" !") for line in lines if line.strip(" !=")]
    faults = [line for line in written if "could not measure: " in line or "error: " in line.lower()]
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"the command ended ({how}): {([*written[-1:], *faults] or ['without a word'])[-1][:300]}"


def main(on: str) -> None:
    """Serve one session, whose order comes as a line."""

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
        cluster.kill(seat.worker)
    os._exit(0)  # not through an interpreter's end with Ray's threads in it
