"""A Ray cluster of several nodes on this machine, each a raylet of its own, and what is looked for in its processes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from llama_workbench import ROOT
from llama_workbench.harness.slices.fleet.node import HOME_PREFIX

STORE_BYTES = 80_000_000
WAIT_SECONDS = 180.0
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}


@contextmanager
def _signals_kept() -> Iterator[None]:
    """What Ray makes of SIGTERM in this process ends with this block: other tests look at it."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class LocalCluster:
    """A head that measures nothing, and nodes."""

    def __init__(self) -> None:
        os.environ.update(QUIET)
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        with _signals_kept():
            self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.address = str(self._cluster.address)

    def add(self, **environment: str) -> Any:
        """A node with one processor, its environment beside that of this process."""
        with _signals_kept():
            return self._cluster.add_node(
                num_cpus=1, object_store_memory=STORE_BYTES, include_dashboard=False, env_vars=environment or None
            )

    def kill(self, node: Any) -> None:
        """End a node at once."""
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()


def raylet_of(node: Any) -> int:
    """The process id of a node's raylet."""
    [info] = node.all_processes["raylet"]
    return int(info.process.pid)


def on_one_core(node: Any) -> None:
    """Leave one core to all that the node starts from now on: another kind of machine."""
    for thread in Path(f"/proc/{raylet_of(node)}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {min(os.sched_getaffinity(0))})


def machine_of(process: psutil.Process) -> str:
    """Into which run folder a command on a node measures; empty for other processes."""
    folder = Path(process.cwd()).name
    return folder.removeprefix(HOME_PREFIX).rpartition("-")[0] if folder.startswith(HOME_PREFIX) else ""


def measuring(machine: str = "") -> dict[int, list[int]]:
    """Commands that measure on nodes: process id → those of its parents. machine: only those of this run folder."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        if "pytest" in (words := process.info["cmdline"] or []) and "--benchmark" in words:
            try:
                if machine_of(process) and machine in ("", machine_of(process)):
                    found[process.pid] = [each.pid for each in process.parents()]
            except psutil.Error:
                continue
    return found


def until(true: Callable[[], Any], what: str) -> Any:
    """Wait until something is true, and return it."""
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {WAIT_SECONDS:g} s for {what}")


def another_version(folder: Path) -> Path:
    """The workbench as an installed package of another version; the folder that PYTHONPATH needs."""
    package = folder / "llama_workbench"
    shutil.copytree(ROOT / "llama_workbench", package)
    text = (ROOT / "llama_workbench" / "__init__.py").read_text(encoding="utf-8")
    (package / "__init__.py").write_text(re.sub(r'__version__ = ".*"', '__version__ = "0.0.1"', text), encoding="utf-8")
    for name in ("harness", "datasets", "variants"):
        shutil.copytree(ROOT / name, package / name)
    return folder
