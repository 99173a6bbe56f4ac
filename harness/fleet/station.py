"""One node of a fleet while it is used: its worker, what it does now, and what becomes of that."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import llama_workbench

from ..measure.participants import Progress
from ..store.machine_schema import Machine
from . import kinds
from .cluster import Node, WorkerOnNode
from .mirror import Incoming
from .order import Order
from .work import Piece, Work
from .worker import TOLD

State = Literal["starting", "checking", "idle", "working"]

WAIT_SECONDS = 90.0
"""A worker that has not begun by then will not soon: something else has the node."""

LOOK_SECONDS = 1.0
MOST_FAILURES = 2
"""A node on which so many pieces failed is left out."""

BUSY = "something else in the cluster has its processors: stop that, or wait for it"
ANOTHER = "install the same version of the workbench on all nodes"
CODE = tuple(llama_workbench.ROOT / name for name in ("harness", "datasets"))
"""Code that must be the same on all nodes; that of each variant is compared where it is measured."""

NEEDED = ("torch", "free memory", "cgroup quota")
"""Checks of `workbench doctor` without which a node is left out. Others, such as its load of the last minute, are told;
the controls of each run say how noisy it was."""


class ProgressOfNode(Progress, Protocol):
    """Progress of what one of several machines does."""

    def close(self) -> None:
        """The machine is not used any more."""


class Progresses(Protocol):
    """Progress of a run over several machines."""

    def note(self, text: str) -> None:
        """One line that stays."""

    def of(self, name: str) -> ProgressOfNode:
        """Progress of one machine."""


@dataclass
class Task:
    """A piece on its way to a run."""

    piece: Piece
    work: Work
    machine: Machine
    incoming: Incoming
    given_seconds: float  # how long it may be measured
    begun: float = field(default_factory=time.monotonic)  # when, by the monotonic clock
    stopped: bool = False

    @property
    def unspent_seconds(self) -> float:
        return self.given_seconds - (time.monotonic() - self.begun)


@dataclass
class Station:
    """A node that is used."""

    node: Node
    name: str  # in this fleet
    worker: WorkerOnNode
    progress: ProgressOfNode
    state: State = "starting"
    asked: Any = None  # what it still has to answer
    begun: float = field(default_factory=time.monotonic)
    environment: Mapping[str, Any] = field(default_factory=dict)
    task: Task | None = None
    runs: int = 0  # how many it was given
    failures: int = 0  # how many of these came to nothing

    def __post_init__(self) -> None:
        self.progress.phase("starting")
        self.asked = self.worker.ask("version")

    @property
    def kind(self) -> str:
        return kinds.key_of(self.environment)

    @property
    def is_late(self) -> bool:
        """Whether its worker should have begun by now."""
        return self.state == "starting" and time.monotonic() - self.begun > WAIT_SECONDS

    def check(self, version: str, threads: int, device: str) -> str:
        """Let the node look at itself; why it cannot be used, by its version."""
        if version != llama_workbench.__version__:
            return f"has version {version} of the workbench, and this is {llama_workbench.__version__}: {ANOTHER}"
        self.state = "checking"
        self.progress.phase("checking itself")
        self._begin(json.dumps({"check": {"threads": threads, "device": device}}), "")
        return ""

    def checked(self, facts: Mapping[str, Any], code: str) -> str:
        """Take in what the node says of itself; why it cannot be used. code: digest of `CODE`."""
        if facts["code"] != code:
            return f"its code is another one than here: {ANOTHER}"
        bad = [(name, found) for name, state, found in facts["checks"] if state == "bad"]
        if wrong := [f"{name}: {found}" for name, found in bad if name in NEEDED]:
            return "; ".join(wrong)
        for name, detail in bad:
            self.progress.note(f"{name}: {detail}")
        if facts["niceness"] > 0:
            self.progress.note(
                f"other programs there come first (niceness {facts['niceness']}): put RAY_worker_niceness=0 before "
                "`ray start`"
            )
        self.environment = facts["environment"]
        self.state = "idle"
        self.progress.phase("free")
        return ""

    def work_on(self, task: Task, order: Order) -> None:
        """Give it a piece."""
        self.task = task
        self.state = "working"
        # Asking a GPU what it is leaves memory on it; that process measures nothing.
        self._begin(order.model_dump_json(), order.name, fresh=not self.runs and order.request.device != "cpu")
        self.runs += 1

    def look(self) -> None:
        """Ask what is new."""
        self.asked = self.worker.ask("look", LOOK_SECONDS)

    def heard(self, content: bytes) -> dict[str, Any] | None:
        """Write what came, show what it says; the last event of an order, None while it goes on. Raises ValueError for
        what no worker says."""
        news = TOLD.validate_json(content)
        if self.task is not None:
            for part in news.parts:
                self.task.incoming.take(part)
        last = {"event": "failed", "reason": news.gone} if news.gone else None
        for event in map(json.loads, news.events):
            match event["event"]:
                case "phase":
                    self.progress.phase(event["text"])
                case "note":
                    self.progress.note(event["text"])
                case "step":
                    left = event["left"]
                    self.progress.step(event["text"], event["done"], math.nan if left is None else left)
                case _:
                    last = event
        return last

    def stop(self) -> None:
        """Let it end in order what it measures now."""
        if self.task is not None and not self.task.stopped:
            self.task.stopped = True
            self.worker.ask("stop")

    def _begin(self, order: str, name: str, *, fresh: bool = False) -> None:
        self.asked = self.worker.ask("begin", order, name, fresh)
