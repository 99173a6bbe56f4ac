"""What a cluster costs: `python -m studies.fleet_costs [SECONDS [PAIRS [EACH]]]` prints its three tables.

The first is counted: how long the reference run's rounds would take on so many nodes. The second is measured: processor
time of Ray's own processes on a node of this machine, and of the driver, while the node measures for so many seconds.
The third compares wall times: one comparison is measured for EACH seconds, through Ray and without it, by turns.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from llama_workbench import ROOT
from llama_workbench.datasets.workloads import workloads
from llama_workbench.harness.claims.model import Claim
from llama_workbench.harness.claims.reading import stored_claims
from llama_workbench.harness.evidence.effect import ALPHA
from llama_workbench.harness.fleet.folder import FleetFolder
from llama_workbench.harness.fleet.work import units_of
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import Request
from llama_workbench.harness.stats.confidence import fixed_interval
from llama_workbench.harness.store.folder import RunFolder
from tests.local_cluster import LocalCluster, measuring, raylet_of
from tests.runs import Quiet

NODES = (1, 2, 5)
BEGUN_SECONDS = 15.0
"""Of a node's work, gates included, that are left out: what is wanted is what goes on while it measures."""


def on_paper() -> str:
    """Seconds of rounds of the reference run over so many nodes, each taking the longest unit that is left."""
    reference = RunFolder(ROOT / "results" / "baselines" / "reference")
    measured = [
        claim for claim in stored_claims(reference) if claim.hypothesis[0].metric != "check" and _is_asked(claim)
    ]
    plan, manifest = make_plan(Request(everything=True), measured), reference.read_manifest()
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


def _is_asked(claim: Claim) -> bool:
    """Whether all workloads of a stored claim still ship."""
    return {name for part in claim.hypothesis for name in part.workload_names()} <= workloads().keys()


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
    from llama_workbench.harness.fleet.session import spread
    from llama_workbench.harness.plan.options import Options

    with tempfile.TemporaryDirectory(prefix="fleet-costs-") as folder:
        options = Options(budget_seconds=seconds, run_dir=Path(folder) / "run")
        fleet = spread(Request(claims=("single-file-faster",)), options, on="ray", on_each_kind=False)
        fleet.measure(fleet.plan, _Quiet())


class Cost(NamedTuple):
    """What one run took."""

    a_second: float
    """Seconds of rounds for each second inside a timed sample: how fast the machine is at the time cancels."""
    around: float
    """Seconds of the command before, between and after the rounds: start, gates, verdicts."""


def by_turns(seconds: float, pairs: int) -> str:
    """The table of Ray's share in the wall time of a run."""
    cluster = LocalCluster()
    try:
        cluster.add()
        os.environ["RAY_ADDRESS"] = cluster.address
        found = [_pair(seconds, plain_first=index % 2 == 0) for index in range(pairs)]
    finally:
        cluster.close()
    rounds = fixed_interval([math.log(ray.a_second / plain.a_second) for plain, ray in found], ALPHA)
    start = fixed_interval([ray.around - plain.around for plain, ray in found], ALPHA)
    low, middle, high = (100 * math.expm1(each) for each in (rounds.low, rounds.centre, rounds.high))
    return "\n".join(
        (
            f"| through Ray, against the same without it ({pairs} pairs of {seconds:g} s) | more |",
            "|---|---|",
            f"| wall time of the rounds, for each second inside samples | {middle:+.1f} % [{low:+.1f}, {high:+.1f}] |",
            f"| the rest of the command, once | {start.centre:+.1f} s [{start.low:+.1f}, {start.high:+.1f}] |",
        )
    )


def _pair(seconds: float, *, plain_first: bool) -> tuple[Cost, Cost]:
    """Without Ray and through it."""
    if plain_first:
        plain = _timed(seconds)
        return plain, _timed(seconds, "--on", "ray")
    ray = _timed(seconds, "--on", "ray")
    return _timed(seconds), ray


def _timed(seconds: float, *words: str) -> Cost:
    """One run of a comparison that no time decides."""
    with tempfile.TemporaryDirectory(prefix="fleet-costs-") as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "pytest", "--benchmark", "-p", "no:cacheprovider", "-q", *words]
        command += ["--compare", "team005_hybrid", "team005_proposal", "--workloads", "prefill-tiny-t16"]
        command += ["--fail-if", "slower:0", "--budget", f"{seconds:g}", "--run-dir", str(run)]
        begun = time.monotonic()
        ended = subprocess.run(command, cwd=folder, check=False, stdout=subprocess.PIPE, text=True)
        took = time.monotonic() - begun
        if ended.returncode not in (0, 1):  # 1: the condition was proven
            raise RuntimeError(ended.stdout)
        each = RunFolder(FleetFolder(run).machine("m1") if words else run)
        spent = sum(float(one["seconds"]) for one in each.read_manifest()["experiments"])
        return Cost(spent / (each.read_samples()["wall_ns"].sum() / 1e9), took - spent)


def main(seconds: float = 60.0, pairs: float = 6.0, each: float = 35.0) -> None:
    """Print the tables."""
    for table in (on_paper, partial(measured, seconds), partial(by_turns, each, int(pairs))):
        sys.stdout.write(f"{table()}\n\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
