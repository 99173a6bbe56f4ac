"""The process that speaks to Ray: each experiment is a task on a node that is free, and what it returns is kept in the
fleet's folder.

The driver (`main`) is a process of its own because Ray's threads outlive their use: an interpreter that ends around
them may crash. A session that has none of them ends with its own exit code, and what became of the work is in run.json,
however the driver ended. No other module imports Ray.
"""

from __future__ import annotations

import io
import itertools
import logging
import os
import re
import signal
import socket
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Event
from typing import Any, NamedTuple

from pydantic import BaseModel

from ...machine.extras import install
from ...machine.places import published
from ...plan.options import PlanError
from ...store.files import JOURNAL, SUMS, RunError
from ...store.folder import RunFolder
from ...store.verdict_schema import Machine
from .folder import FleetFolder
from .node import OURS, code, kind, kind_of, measure

HOW_TO_START = (
    "start one: `ray start --head` here, `ray start --address=HEAD:6379` on each other machine, both with "
    "RAY_USAGE_STATS_ENABLED=0 and RAY_worker_niceness=0 before them"
)
PORT = 10001
"""Where a head listens for ray://, if it was not told otherwise."""

KNOCK_SECONDS = 10.0

READY = "ready"
"""The driver's first line, once the cluster answers; any other says why it does not."""

LEAST_SECONDS = 5.0
"""For a piece with little to settle: each experiment has some rounds."""

NO_NODE_SECONDS = 30.0
"""How long work waits where no node can do it."""

KIND_SECONDS, STOP_SECONDS, LOOK_SECONDS = 90.0, 60.0, 1.0
"""What nodes have to say of what kind they are, and to end in order; how often the cluster is asked for nodes."""

_RUN_FILE = re.compile(
    r"log/[A-Za-z0-9._-]+\.log|profiles/(?:[A-Za-z0-9@._+-]+/)*[A-Za-z0-9@._+-]+\.folded|[\w-]+\.(json|parquet)"
)


def unpack(content: bytes, run: Path) -> str:
    """Write a run folder that came from another machine; nothing where it is empty. Returns why the command did not end
    well. Raises ValueError for a file that no run has: none may lead out of the folder."""
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
            return archive.comment.decode(errors="replace")
    except zipfile.BadZipFile as error:
        raise ValueError(f"sent no run ({error})") from error


# -- the cluster -------------------------------------------------------------------------------------------------------


@dataclass
class Node:
    """A machine of the cluster, and how much Ray may give away there. name: in this fleet; kind: where that is asked;
    tasks: how many it was given."""

    id: str
    address: str
    cpus: float
    gpus: float
    name: str = ""
    kind: str = ""
    tasks: int = 0
    is_left_out: bool = False

    @property
    def place(self) -> str:
        """As lines of progress name it."""
        return f"{self.name} at {self.address}"


class Lost(Exception):
    """A task has no answer; the text says why."""


def check_address(on: str) -> None:
    """Raises PlanError where this is no address."""
    if not re.fullmatch(r"ray|ray://[^\s/]+", on):
        raise PlanError(f"--on {on}: expected ray (inside a cluster) or ray://HEAD[:PORT]")


class Cluster:
    """A connection to a Ray cluster. Raises PlanError where there is none."""

    def __init__(self, on: str) -> None:
        """on: `ray` for the cluster that this machine is in, or ray://HEAD[:PORT]."""
        check_address(on)
        # Each line of a task comes, also where that of another node differs by a number only.
        os.environ |= {"RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": os.environ.get("RAY_USAGE_STATS_ENABLED", "0")}
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
            ray.init(address=address, log_to_driver=True, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError, ImportError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise PlanError(f"--on {on}: no Ray cluster answers ({reason}); {HOW_TO_START}") from error
        self._ray = ray

    def nodes(self, *, gpu: bool) -> list[Node]:
        """The nodes that are alive and may measure. gpu: on a GPU."""
        alive = [
            Node(
                node["NodeID"],
                node["NodeManagerAddress"],
                float(node["Resources"].get("CPU", 0)),
                float(node["Resources"].get("GPU", 0)),
            )
            for node in self._ray.nodes()
            if node["Alive"]
        ]
        return [node for node in alive if node.cpus >= 1 and (node.gpus or not gpu)]

    def submit(self, node: Node, function: Callable[..., bytes], *arguments: Any) -> Any:
        """Have a task on a node; the answer is there later. It takes all that Ray may give away there, so that Ray
        starts nothing beside it."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node.id, soft=False)
        options = {"num_cpus": node.cpus, "num_gpus": node.gpus, "max_retries": 0, "scheduling_strategy": there}
        return self._ray.remote(function).options(**options).remote(*arguments)

    def wait(self, answers: Sequence[Any], seconds: float) -> list[Any]:
        """Those of the answers that are there, once the first is; at most so long."""
        there, _ = self._ray.wait(list(answers), num_returns=1, timeout=seconds)
        return list(there)

    def content(self, answer: Any) -> bytes:
        """What a task returned. Raises Lost where there will be nothing."""
        try:
            return bytes(self._ray.get(answer))
        except self._ray.exceptions.RayError as error:
            text = str(error)
            if isinstance(error, self._ray.exceptions.RayTaskError):
                raise Lost(f"the workbench there cannot be used: {text.strip().splitlines()[-1]}") from error
            if re.search(r"node (has |was )?(died|terminated)|unavailable|unschedulable", text, re.IGNORECASE):
                raise Lost("the node was lost, or does not answer") from error
            raise Lost(f"its worker was lost ({' '.join(text.split())[:160]})") from error

    def cancel(self, answer: Any) -> None:
        """Let a task end in order."""
        self._ray.cancel(answer, force=False)


# -- the driver --------------------------------------------------------------------------------------------------------


class Piece(BaseModel):
    """The work of one task: all of it, or these workloads, with these claims alone where any must be named. share: of
    all work, which decides about its seconds. kind: of the machine that is to measure it; tried: nodes that could
    not."""

    workloads: list[str] = []
    claims: list[str] = []
    share: float = 1.0
    kind: str = ""
    tried: list[str] = []

    @property
    def words(self) -> list[str]:
        """What the command says beside that of the whole."""
        named = {"workloads": self.workloads, "claims": self.claims}
        return [f"--{option}={','.join(names)}" for option, names in named.items() if names]


class Order(BaseModel):
    """What a session wants. each_kind: one node of each kind of machine measures everything, but kinds_done; else the
    pieces are shared. words: of the command that measures everything; files: that it needs. gpu: whether on GPUs."""

    folder: Path
    pieces: list[Piece]
    each_kind: bool = False
    kinds_done: list[str] = []
    seconds: float
    words: list[str]
    files: dict[str, str]
    gpu: bool = False


class Task(NamedTuple):
    """What a node measures, into the folder of this name."""

    node: Node
    piece: Piece
    name: str


class Driver:
    """The work of one session over the nodes of a cluster."""

    def __init__(self, cluster: Cluster, order: Order, tell: Callable[[str], object], stopped: Event) -> None:
        """tell: takes lines of progress. stopped: set once all nodes shall end in order, and nothing more begin."""
        self.cluster, self.order, self.tell, self.stopped = cluster, order, tell, stopped
        self.fleet = FleetFolder(order.folder)
        self.machines = {machine.name: machine for machine in self.fleet.machines()}
        self.code = code()
        self.nodes: dict[str, Node] = {}  # by their ids, all that were seen
        self.tasks: dict[Any, Task] = {}  # by what Ray will answer
        self.waiting = [*order.pieces]
        self.sharing = 0  # nodes when the work begins, which share the time
        self.reasons: list[str] = []  # why something was not measured

    def run(self) -> None:
        """Until all is measured, nothing more can be, or it was stopped. What became of it is in run.json then."""
        self._find_nodes()
        if self.order.each_kind:
            self._ask_kinds()
        idle_since = time.monotonic()
        while (self.waiting or self.tasks) and not self.stopped.is_set():
            for node in self._find_nodes():
                self._give_work(node)
            if self.tasks:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > NO_NODE_SECONDS:
                why = "; ".join(dict.fromkeys(self.reasons)) or "no node of the cluster has a processor to give"
                self.tell(f"no node is left that can measure ({why})")
                break
            self._hear()
        for answer in self.tasks:
            self.cluster.cancel(answer)
        end = time.monotonic() + STOP_SECONDS
        while self.tasks and time.monotonic() < end:
            self._hear()
        for task in self.tasks.values():
            self._again(task, "did not end in time")
        self.fleet.update(self.machines.values(), "interrupted" if self.waiting else "complete")

    def _find_nodes(self) -> list[Node]:
        """The nodes that are free."""
        alive = self.cluster.nodes(gpu=self.order.gpu)
        self.sharing = self.sharing or len(alive)
        for node in alive:
            taken = {name.partition(".")[0] for name in self.machines} | {seen.name for seen in self.nodes.values()}
            node.name = next(name for number in itertools.count(1) if (name := f"m{number}") not in taken)
            self.nodes.setdefault(node.id, node)
        busy = {task.node.id for task in self.tasks.values()}
        return [self.nodes[node.id] for node in alive if node.id not in busy]

    def _ask_kinds(self) -> None:
        """Each kind of machine measures everything once. Nodes that join later are of no kind, and measure only where
        no other could be asked."""
        asked = {self.cluster.submit(node, kind): node for node in self.nodes.values()}
        end = time.monotonic() + KIND_SECONDS
        while asked and time.monotonic() < end and not self.stopped.is_set():
            for answer in self.cluster.wait([*asked], LOOK_SECONDS):
                node = asked.pop(answer)
                try:
                    node.kind = self.cluster.content(answer).decode()
                except Lost as lost:
                    self._leave_out(node, str(lost))
        for answer, node in asked.items():
            self.cluster.cancel(answer)
            self._leave_out(node, "something else in the cluster has its processors: stop that, or wait for it")
        if kinds := {node.kind for node in self.nodes.values() if node.kind}:
            missing = sorted(kinds - {*self.order.kinds_done})
            self.waiting = [piece.model_copy(update={"kind": name}) for name in missing for piece in self.order.pieces]

    def _give_work(self, node: Node) -> None:
        """Give a free node its next piece, where there is one for it."""
        order = self.order
        fitting = (piece for piece in self.waiting if piece.kind == node.kind and node.id not in piece.tried)
        if node.is_left_out or (piece := next(fitting, None)) is None:
            return
        self.waiting.remove(piece)
        seconds = max(order.seconds * min(self.sharing * piece.share, 1.0), LEAST_SECONDS)
        words = [*order.words, f"--budget={seconds:.6g}", *piece.words]
        node.tasks += 1
        task = Task(node, piece, node.name if node.tasks == 1 else f"{node.name}.{node.tasks}")
        self.tasks[self.cluster.submit(node, measure, task.name, node.place, self.code, words, order.files)] = task

    def _hear(self) -> None:
        """Wait for answers, and take them in."""
        if not self.tasks:
            time.sleep(LOOK_SECONDS)
            return
        for answer in self.cluster.wait([*self.tasks], LOOK_SECONDS):
            task = self.tasks.pop(answer)
            try:
                self._take_in(task, self.cluster.content(answer))
            except Lost as lost:
                self._again(task, str(lost))
                self._leave_out(task.node, str(lost))

    def _leave_out(self, node: Node, reason: str) -> None:
        """It is used no more."""
        self.tell(f"{node.place}: left out: {reason}")
        self.reasons.append(reason)
        node.is_left_out = True
        name = f"{node.name}.out" if node.tasks else node.name
        self.machines[name] = Machine(name=name, status="left out", reason=published(reason))
        self.fleet.update(self.machines.values(), "running")

    def _take_in(self, task: Task, content: bytes) -> None:
        """Keep what a command left."""
        run, status = RunFolder(self.fleet.machine(task.name)), None
        try:
            reason = unpack(content, run.path)
            status = run.manifest().status
        except ValueError as error:
            reason = str(error)
        except RunError:
            pass  # it has no run.json: the command's own words say why
        if status != "complete":
            if self.stopped.is_set():
                reason = ""
            else:
                self.tell(f"{task.node.place}: {reason}")
                self.reasons.append(reason)
            self._again(task, reason)
            return
        measured = {experiment.workload.name for experiment in run.manifest().experiments}
        if not self.order.each_kind:  # of what others had begun of it nothing counts
            for begun in [machine for machine in self.machines.values() if machine.status == "interrupted"]:
                kept = [name for name in begun.experiments if name not in measured]
                self.machines[begun.name] = begun.model_copy(update={"experiments": kept})
        self._put_down(task, "complete")

    def _again(self, task: Task, reason: str) -> None:
        """Its piece was not measured to its end: a node that has not tried it takes it."""
        self._put_down(task, "interrupted", reason)
        task.piece.tried = [*task.piece.tried, task.node.id]
        self.waiting.append(task.piece)

    def _put_down(self, task: Task, status: str, reason: str = "") -> None:
        """List a machine with the workloads that it measured."""
        measured, kind = list[str](), task.node.kind
        with suppress(RunError):  # there is no run
            manifest = RunFolder(self.fleet.machine(task.name)).manifest()
            measured = [experiment.workload.name for experiment in manifest.experiments]
            kind = kind_of(manifest.machine_facts)
        self.machines[task.name] = Machine(
            name=task.name, kind=kind, status=status, experiments=measured, reason=published(reason)
        )
        self.fleet.update(self.machines.values(), "running")


def main(on: str) -> None:
    """Serve one session, whose order comes as a line."""
    stopped = Event()
    try:
        cluster = Cluster(on)
    except PlanError as error:
        print(error, flush=True)
        return
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())  # Ray's own would end the process at once
    print(READY, flush=True)
    order = Order.model_validate_json(sys.stdin.readline())
    Driver(cluster, order, lambda text: print(f"{OURS}{text}", flush=True), stopped).run()
    os._exit(0)  # not through an interpreter's end with Ray's threads in it
