"""What a cluster costs, for FLEET.md: `python -m tests.fleet_costs [SECONDS]` prints both of its tables.

The first is counted: how long the reference run's rounds would take on so many nodes. The second is measured: processor
time of Ray's own processes on a node of this machine, and of the driver, while the node measures for so many seconds.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from llama_workbench import ROOT
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.nodes.work import units_of
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.selection import Request
from llama_workbench.harness.store.folder import RunFolder
from tests.local_cluster import LocalCluster, measuring, raylet_of
from tests.runs import Quiet

NODES = (1, 2, 5)
BEGUN_SECONDS = 15.0
"""Of a node's work, gates included, that are left out: what is wanted is what goes on while it measures."""


def on_paper() -> str:
    """Seconds of rounds of the reference run over so many nodes, each taking the longest unit that is left."""
    plan = make_plan(Request(everything=True), load_claims(ROOT / "claims"))
    manifest = RunFolder(ROOT / "results" / "baselines" / "reference").read_manifest()
    took = {each["workload"]["name"]: float(each["seconds"]) for each in manifest["experiments"]}
    units = sorted((sum(took[each.workload.name] for each in unit) for unit in units_of(plan)), reverse=True)
    counts = (*NODES, len(units))
    cells = [str(round(_longest(units, count))) for count in counts]
    return "\n".join(
        (
            f"| nodes | {' | '.join(map(str, counts))} |",
            "|---|" + "---|" * len(counts),
            f"| seconds of rounds, longest unit first | {' | '.join(cells)} |",
        )
    )


def _longest(units: list[float], nodes: int) -> float:
    loads = [0.0] * nodes
    for seconds in units:
        loads[loads.index(min(loads))] += seconds
    return max(loads)


class Spent(NamedTuple):
    """Seconds of a processor, at a time."""

    at: float
    node: float
    driver: float


class Watch(threading.Thread):
    """Looks every second at what Ray's processes on a node and this process have used, while the node measures."""

    def __init__(self, raylet: int) -> None:
        super().__init__(daemon=True)
        self.raylet = psutil.Process(raylet)
        self.seen: list[Spent] = []
        self.ended = threading.Event()

    def run(self) -> None:
        """Until `ended`."""
        while not self.ended.wait(1.0):
            if pids := measuring():
                self.seen.append(Spent(time.monotonic(), self._of_ray({*pids}), time.process_time()))

    def _of_ray(self, pids: set[int]) -> float:
        """Of the raylet and all that it started, but for what measures."""
        left, spent = [self.raylet], 0.0
        while left:
            process = left.pop()
            try:
                if process.pid not in pids:
                    times = process.cpu_times()
                    spent += times.user + times.system
                    left += process.children()
            except psutil.NoSuchProcess:
                continue
        return spent


def measured(seconds: float) -> str:
    """The table of what was used beside the measuring, in percent of one core."""
    cluster = LocalCluster()
    try:
        node = cluster.add()
        os.environ["RAY_ADDRESS"] = cluster.address
        watch = Watch(raylet_of(node))
        watch.start()
        _run(seconds)
        watch.ended.set()
        watch.join()
    finally:
        cluster.close()
    kept = [each for each in watch.seen if each.at - watch.seen[0].at > BEGUN_SECONDS]
    first, last = kept[0], kept[-1]
    span = last.at - first.at
    of_node, of_driver = (100 * (b - a) / span for a, b in ((first.node, last.node), (first.driver, last.driver)))
    return "\n".join(
        (
            f"| while one node measures ({span:.0f} s) | of one core |",
            "|---|---|",
            f"| on the node: raylet, its agents and our worker | {of_node:.1f} % |",
            f"| in the driver | {of_driver:.1f} % |",
        )
    )


class _Quiet(Quiet):
    def of(self, name: str) -> _Quiet:
        return self

    def close(self) -> None:
        pass


def _run(seconds: float) -> None:
    from llama_workbench.harness.fleet_session import spread
    from llama_workbench.harness.run import Options

    with tempfile.TemporaryDirectory(prefix="fleet-costs-") as folder:
        options = Options(budget_seconds=seconds, run_dir=Path(folder) / "run")
        fleet = spread(Request(claims=("single-file-faster",)), options, on="ray", on_each_kind=False)
        fleet.measure(fleet.plan, _Quiet())


if __name__ == "__main__":
    sys.stdout.write(f"{on_paper()}\n\n{measured(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)}\n")
