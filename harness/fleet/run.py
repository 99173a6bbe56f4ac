"""A run over the nodes of a cluster: one folder, in it an ordinary run for each stretch of work on each machine."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llama_workbench.variants import digests

from ..machine.interrupts import Interrupts
from ..machine.locks import Lock
from ..machine.places import called_as
from ..measure.participants import MeasureError
from ..plan.experiments import Plan
from ..plan.options import Options
from ..plan.sources import sources_of
from ..session.run import Result
from ..store.machine_schema import Machine
from . import kinds
from .cluster import Cluster, Lost, Node
from .folder import FleetFolder
from .mirror import Incoming
from .order import Order
from .record import Before, Record, Spread
from .station import BUSY, CODE, MOST_FAILURES, Progresses, Station, Task
from .work import Piece, Work, pieces_of

NEW_NODES_SECONDS = 2.0
"""How often the cluster is asked for nodes that have joined."""

NO_NODE_SECONDS = 60.0
"""So long a run that has begun waits for a node where there is none any more."""

AFTER_LOSS_SECONDS = 20.0
"""A node whose worker was lost gets another after this long: Ray takes some seconds to see that a node is dead."""

STOP_SECONDS = 60.0
"""What nodes have to end in order; judging what they have takes some seconds."""


class FleetRun:
    """One run over a cluster. Options are those of each of its runs; their budget is for the whole, not for each."""

    def __init__(self, plan: Plan, spread: Spread, options: Options, before: Before | None = None) -> None:
        self.plan = plan
        self.spread = spread
        self.options = options
        self.before = before
        self.code = digests.digest_of_folders(CODE)
        self.stations: list[Station] = []
        self.works: dict[str, Work] = {}  # what is left, by kind of machine ("" for all)
        self.seen: dict[str, int] = {}  # nodes that were given a worker, and how often
        self.at_first = 0  # how many nodes there were
        self.lost: dict[str, float] = {}  # when a node's worker was, as all times by the monotonic clock
        self.looked = -NEW_NODES_SECONDS  # when the cluster was last asked for nodes
        self.empty_since = time.monotonic()  # since when none is used
        self.reasons: list[str] = []  # why nodes are used no more

    def measure(self, plan: Plan, progress: Progresses) -> Result:
        """Everything. Ctrl-C and SIGTERM end it in order, and what was measured until then is judged; after a second
        one it is left to `workbench judge`. plan: what was selected of the whole. Raises `run.USER_ERRORS`."""
        self.plan, self.progress = plan, progress
        sources = sources_of(plan)
        assert sources is not None  # no functions are sent
        self.sources = sources.model_dump(mode="json")
        self.begun = time.monotonic()
        with contextlib.closing(Lock()) as lock, contextlib.closing(Cluster(self.spread.on)) as self.cluster:
            if self.before is None:
                folder = FleetFolder.create(self.options.run_dir, lock=lock)
            else:
                folder = self.before.folder
                folder.run.hold(lock)
            self.record = Record(folder, plan, self.spread, self.options, self.sources, self.before)
            with Interrupts() as interrupts:
                try:
                    status = self._measured(interrupts)
                    if status != "complete":
                        command = f"pytest --benchmark --on {self.spread.on} --continue {folder.path}"
                        self.progress.note(f"to continue: {command}")
                    if not interrupts.again:
                        return self.record.finish(status)
                except KeyboardInterrupt:
                    pass
                self.record.write("interrupted")
                self.progress.note(f"there are no verdicts yet; to compute them: workbench judge {folder.path}")
                return self.record.result()

    def _measured(self, interrupts: Interrupts) -> str:
        """The status that it ended with."""
        try:
            self._serve(interrupts)
        except KeyboardInterrupt:
            self.progress.note(f"interrupted ({interrupts.name or 'Ctrl-C'}): what was measured is kept")
            self._stop(interrupts)
            return "interrupted"
        except MeasureError as error:
            if not self.record.folder.runs():
                self.record.write("failed")
                raise
            self.progress.note(f"not all was measured: {error}")
            return "interrupted"
        given_up = [piece for work in self.works.values() for piece in work.given_up]
        for piece in given_up:
            self.progress.note(f"no node could measure {', '.join(piece.workloads)}")
        return "interrupted" if given_up else "complete"

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _serve(self, interrupts: Interrupts) -> None:
        """Until all is measured. Raises MeasureError where no node is left that could."""
        while True:
            interrupts.raise_lost()
            self._take_on_nodes()
            for station in self.stations:
                if station.state == "idle":
                    self._give_work(station)
            if self._is_done():
                return
            self._hear(1.0)

    def _is_done(self) -> bool:
        starting = any(each.state in ("starting", "checking") for each in self.stations)
        works = self.works.values()
        return bool(works) and all(work.is_done for work in works) and not (self.spread.on_each_kind and starting)

    def _hear(self, seconds: float) -> None:
        """Wait for answers, and take them in."""
        waiting = {each.asked: each for each in self.stations if each.state != "idle"}
        if not waiting:
            time.sleep(seconds)
            return
        for asked in self.cluster.wait(list(waiting), seconds):
            station = waiting[asked]
            try:
                self._heard(station, station.worker.answer(asked))
            except Lost as lost:
                self._lost(station, str(lost), by_itself=not lost.with_node)
            except ValueError as error:  # what it sent is no part of a run
                self._lost(station, str(error))
        for station in [each for each in self.stations if each.is_late]:
            self._leave_out(station, BUSY)

    def _heard(self, station: Station, answer: Any) -> None:
        if station.state == "starting":
            threads = self.plan.most_threads
            if why := station.check(str(answer), threads, self.plan.device):
                self._leave_out(station, why)
            return
        event = station.heard(answer) if answer is not None else None
        if event is None:
            station.look()
        elif station.state == "working":
            self._ended(station, event)
        elif why := event.get("reason") or station.checked(event, self.code):
            self._leave_out(station, why)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _take_on_nodes(self) -> None:
        """Begin a worker on each node that is new. Raises MeasureError where there has been none for long."""
        now = time.monotonic()
        if now - self.looked >= NEW_NODES_SECONDS:
            self.looked = now
            nodes = self.cluster.nodes()
            used = {each.node.id for each in self.stations}
            used |= {node for node, when in self.lost.items() if now - when < AFTER_LOSS_SECONDS}
            for node in nodes:
                if node.id not in used and self.seen.get(node.id, 0) < MOST_FAILURES:
                    self._take_on(node, len(nodes))
        if self.stations:
            self.empty_since = now
        elif now - self.empty_since > (NO_NODE_SECONDS if self.record.has_begun else NEW_NODES_SECONDS):
            why = "; ".join(dict.fromkeys(self.reasons)) or "no node of the cluster has a processor to give"
            raise MeasureError(f"--on {self.spread.on}: no node is left that can measure ({why})")

    def _take_on(self, node: Node, nodes: int) -> None:
        if not self.works and not self.spread.on_each_kind:
            self.works[""] = self._work("", nodes)
            self.at_first = nodes
        elif len(self.seen) >= self.at_first and node.id not in self.seen and "" in self.works:
            left = self.options.budget_seconds - (time.monotonic() - self.begun)
            self.works[""].pool_seconds += max(left, 0.0)  # it joined later, and its time comes on top
        self.seen[node.id] = self.seen.get(node.id, 0) + 1
        name = self.record.free_name({each.name for each in self.stations})
        worker = self.cluster.worker(node, gpu=self.plan.device != "cpu")
        self.stations.append(Station(node, name, worker, self.progress.of(f"{name} at {node.address}")))

    def _work(self, kind: str, nodes: int) -> Work:
        """What is to be measured: in all, or on one kind of machine."""
        done = self.before.done.get(kind, frozenset()) if self.before else frozenset()
        pieces = pieces_of(self.plan, nodes, without=done, rest="" not in done)
        seconds = self.options.budget_seconds
        return Work(pieces, seconds, seconds * nodes)

    def _give_work(self, station: Station) -> None:
        """Give a free node its next piece, where there is one for it."""
        kind = station.kind if self.spread.on_each_kind else ""
        work = self.works.setdefault(kind, self._work(kind, 1))
        one_of_its_kind = not (self.spread.on_each_kind and work.taken)
        if work.waiting and one_of_its_kind:
            piece, seconds = work.take()
            name = station.name if not station.runs else f"{station.name}.{station.runs + 1}"
            machine = Machine(name=name, kind=kinds.processor(station.environment), status="running")
            incoming = Incoming(self.record.folder.machine(name))
            incoming.folder.mkdir(parents=True)
            self.record.begin(machine)
            station.work_on(Task(piece, work, machine, incoming, seconds), self._order(name, piece, seconds))

    def _order(self, name: str, piece: Piece, seconds: float) -> Order:
        return Order(
            name=name,
            request=self.spread.request,
            options=replace(self.options, budget_seconds=seconds),
            files=self.spread.files,
            select=piece.select,
            entered=piece.entered,
            rest=piece.rest,
            sources=self.sources,
            command=called_as(),
        )

    # -- what becomes of work ------------------------------------------------------------------------------------------

    def _ended(self, station: Station, event: Mapping[str, Any]) -> None:
        """An order came to its end."""
        task = station.task
        assert task is not None
        station.task, station.state = None, "idle"
        station.progress.phase("free")
        if event["event"] == "done" and event["status"] == "complete":
            task.work.done(task.piece, task.unspent_seconds)
            self._settle(task, "complete", "")
            return
        reason = "" if task.stopped else str(event.get("reason") or "interrupted on the node")
        task.work.failed(task.piece, task.unspent_seconds, counts=not task.stopped)
        self._settle(task, "interrupted" if event["event"] == "done" else "failed", reason)
        station.failures += not task.stopped
        if station.failures >= MOST_FAILURES:
            self._leave_out(station, f"{MOST_FAILURES} runs on it came to nothing: {reason}")

    def _lost(self, station: Station, reason: str, *, by_itself: bool = True) -> None:
        """Its worker is gone: finished rounds are kept, and another node takes what it had. by_itself: what it measured
        may be the cause."""
        task, station.task = station.task, None
        self.lost[station.node.id] = time.monotonic()
        if task is None:
            self._leave_out(station, reason)
            return
        task.work.failed(task.piece, task.unspent_seconds, counts=by_itself)
        self._settle(task, "interrupted", reason)
        self._let_go(station, reason)

    def _settle(self, task: Task, status: str, reason: str) -> None:
        """Put down what a machine measured."""
        if note := self.record.settle(task.machine, status, reason):
            self.progress.note(f"{task.machine.name}: {note}")

    def _leave_out(self, station: Station, reason: str) -> None:
        self.progress.note(f"{station.name} at {station.node.address} is left out: {reason}")
        self.seen[station.node.id] = MOST_FAILURES  # for good
        self.record.leave_out(station.name, reason)
        self._let_go(station, reason)

    def _let_go(self, station: Station, reason: str) -> None:
        self.reasons.append(reason)
        self.stations.remove(station)
        station.progress.close()
        station.worker.kill()

    def _stop(self, interrupts: Interrupts) -> None:
        """Let all nodes end in order, and keep what they have; at once after a second signal."""
        end = time.monotonic() + STOP_SECONDS
        for station in self.stations:
            station.stop()
        while any(each.task for each in self.stations) and not interrupts.again:
            if (left := end - time.monotonic()) <= 0:
                break
            self._hear(min(left, 1.0))
        for station in [each for each in self.stations if each.task]:
            self._lost(station, "did not end in time")
