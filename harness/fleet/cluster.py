"""Ray: which nodes there are, and a worker on each. No other module imports it, and only the driver uses it."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..machine.extras import install
from ..plan.options import PlanError
from .node import NodeWorker

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
