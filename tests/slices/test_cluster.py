"""A run over the nodes of a real Ray cluster: three raylets on this machine, one of which has another version."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from llama_workbench.harness.slices.fleet.folder import FleetFolder
from llama_workbench.harness.spec.regions import FAIL_IF, Condition
from llama_workbench.harness.store.folder import RunFolder
from tests import kills
from tests.runs import code_by_intervals
from tests.slices.local_cluster import (
    LocalCluster,
    another_version,
    machine_of,
    measuring,
    on_one_core,
    raylet_of,
    until,
)

pytestmark = pytest.mark.covers("harness/plugin", "harness/session", "harness/slices/fleet")

PYTEST = Path(sys.executable).with_name("pytest")

PAIR = ("--compare", *kills.COMPONENTS)

WORKLOAD = "prefill-tiny-t16"
MASKS = ("mask-get-t128", "mask-get-t512", "mask-get-t2048")
"""Work of a component: its rounds are over soon."""


class Nodes:
    """The cluster, and its nodes that are alive and may measure."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.alive = [cluster.add(), cluster.add()]

    def kill_the_one_with(self, machine: str) -> None:
        """Kill the node that measures into this run folder."""
        [parents] = until(lambda: measuring(machine), f"a process that measures {machine}").values()
        [node] = [each for each in self.alive if raylet_of(each) in parents]
        self.alive.remove(node)
        self.cluster.kill(node)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with closing(LocalCluster()) as cluster:
        yield Nodes(cluster)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a user works."""
    yield tmp_path
    assert not until_none_is_left(), "processes were left behind"


def until_none_is_left() -> dict[int, list[int]]:
    until(lambda: not measuring(), "the measuring processes to end")
    return measuring()


def started(folder: Path, *words: str, address: str) -> subprocess.Popen[str]:
    command = [str(PYTEST), "--benchmark", "-p", "no:cacheprovider", "-q", "--on", "ray", *words]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "RAY_ADDRESS": address},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str], fleet: Path) -> str:
    """All that it said; its exit code must be 0, 1 where a condition of this fleet fails, or 7 without an interval."""
    said, _ = process.communicate(timeout=240)
    listed = json.loads((fleet / "verdicts.json").read_text(encoding="utf-8"))
    fails = [Condition.parse(each["part"]).fails(each["verdict"]) for each in listed if each["claim"] == FAIL_IF]
    assert process.returncode == (any(fails) or code_by_intervals(fleet)), said
    return said


def manifest(fleet: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((fleet / "run.json").read_text(encoding="utf-8"))
    return content


def rounds(fleet: Path, machine: str) -> int:
    return sum(RunFolder(FleetFolder(fleet).machine(machine)).finished_rounds().values())


def at_work() -> str:
    """A machine whose command runs; empty while there is none."""
    for pid in measuring():
        with suppress(psutil.Error):
            return machine_of(psutil.Process(pid))
    return ""


def with_rounds() -> str:
    """A machine that has finished rounds and is not done; empty while there is none. They lie with the node."""
    for pid in measuring():
        with suppress(OSError, psutil.Error):
            process = psutil.Process(pid)
            if (Path(process.cwd()) / "run" / "samples.jsonl").read_bytes().count(b"\n") >= 2:
                return machine_of(process)
    return ""


def left_out(fleet: Path) -> list[dict[str, Any]]:
    """Machines with another version; none while there is no record."""
    known = manifest(fleet)["machines"] if (fleet / "run.json").exists() else []
    return [each for each in known if "this is 0.0.1" in each["reason"] and each["status"] == "left out"]


def effects(fleet: Path) -> dict[str, int]:
    """Workload → rounds of its effect in the verdicts over all machines."""
    listed = json.loads((fleet / "verdicts.json").read_text(encoding="utf-8"))
    [verdict] = [each for each in listed if each["claim"] != FAIL_IF]
    return {each["workload"]: each["rounds"] for each in verdict["effects"]}


def test_without_a_cluster_it_says_how_to_start_one(folder: Path) -> None:
    process = started(folder, *PAIR, "--workloads", WORKLOAD, address="127.0.0.1:1")
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 3
    assert "--on ray: no Ray cluster answers (" in said and "`ray start --head`" in said
    assert not (folder / "results").exists()


@pytest.mark.long
def test_a_node_is_killed_and_another_joins(
    nodes: Nodes, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old = nodes.cluster.add(PYTHONPATH=str(another_version(tmp_path_factory.mktemp("old"))))
    fleet = folder / "fleet"
    words = (*PAIR, "--workloads", ",".join(MASKS), "--budget", "6", "--run-dir", "fleet")
    process = started(folder, *words, address=nodes.cluster.address)
    lost = until(lambda: at_work() if left_out(fleet) else "", "a command, and an answer of the other version")
    nodes.kill_the_one_with(lost)
    nodes.alive.append(nodes.cluster.add())
    said = ended(process, fleet)
    nodes.cluster.kill(old)

    machines = {each["name"]: each for each in manifest(fleet)["machines"]}
    assert manifest(fleet)["status"] == "complete"
    assert machines[lost]["status"] == "interrupted" and "node" in machines[lost]["reason"], said
    assert machines[lost]["folder"] is None and f"{lost.partition('.')[0]} at " in " ".join(said.split())
    [other] = left_out(fleet)
    assert other["folder"] is None
    complete = [each for each in machines.values() if each["status"] == "complete"]
    assert sorted(name for each in complete for name in each["experiments"]) == sorted(MASKS)
    for each in complete:
        run = RunFolder(FleetFolder(fleet).machine(each["name"]))
        assert run.changed() == [] and run.read_manifest()["sealed"]
        assert {*run.finished_rounds()} == {*each["experiments"]}
    assert {*effects(fleet)} == {*MASKS} and min(effects(fleet).values()) > 0
    assert "verdict" in said and PAIR[2] in said


@pytest.mark.long
def test_a_run_goes_on_after_its_driver_was_killed(nodes: Nodes, folder: Path) -> None:
    fleet = folder / "fleet"
    words = (*PAIR, "--workloads", ",".join(MASKS), "--budget", "4", "--run-dir", "fleet")
    process = started(folder, *words, address=nodes.cluster.address)

    def complete() -> list[str]:
        known = manifest(fleet)["machines"] if (fleet / "run.json").exists() else []
        return [each["name"] for each in known if each["status"] == "complete"]

    until(complete, "a machine that is done")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not until_none_is_left()
    finished = {name: (fleet / "machines" / name / "run.json").read_bytes() for name in complete()}
    measured = {
        name for each in manifest(fleet)["machines"] if each["status"] == "complete" for name in each["experiments"]
    }
    assert measured and measured < {*MASKS}

    ended(started(folder, "--continue", "fleet", address=nodes.cluster.address), fleet)
    for name, content in finished.items():
        assert (fleet / "machines" / name / "run.json").read_bytes() == content
    machines = manifest(fleet)["machines"]
    done = [name for each in machines if each["status"] == "complete" for name in each["experiments"]]
    assert sorted(done) == sorted(MASKS), "each was measured to its end once"
    assert {*effects(fleet)} == {*MASKS}


@pytest.mark.long
def test_a_signal_ends_it_in_order_and_each_kind_of_machine_goes_on(nodes: Nodes, folder: Path) -> None:
    on_one_core(nodes.alive[0])
    (folder / "mine.py").write_text(MINE, encoding="utf-8")
    fleet = folder / "fleet"
    words = ("--compare", kills.MODELS[0], "mine", *kills.ENDLESS, "--workloads", WORKLOAD, "--on-each-kind")
    words += ("--add-variant", "mine.py:mine", "--budget", "300", "--run-dir", "fleet")
    process = started(folder, *words, address=nodes.cluster.address)
    until(with_rounds, "rounds")
    process.send_signal(signal.SIGTERM)  # as Ctrl-C, which a shell lets its background jobs ignore
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert "what was measured is kept" in said
    assert manifest(fleet)["status"] == "interrupted"
    kept = [each["name"] for each in manifest(fleet)["machines"] if each["folder"]]
    assert kept and max(rounds(fleet, name) for name in kept) >= 2, said
    assert (fleet / "verdicts.json").exists()

    words = ("--continue", "fleet", "--add-variant", "mine.py:mine", "--budget", "4")
    ended(started(folder, *words, address=nodes.cluster.address), fleet)
    complete = [each for each in manifest(fleet)["machines"] if each["status"] == "complete"]
    assert (manifest(fleet)["spending"], manifest(fleet)["status"]) == ("replicate", "complete")
    assert [each["experiments"] for each in complete] == [[WORKLOAD], [WORKLOAD]]
    assert len({each["kind"].partition(" #")[0] for each in complete}) == 2, "one core and two are two kinds"
    [effect, *_] = json.loads((fleet / "machines.json").read_text(encoding="utf-8"))
    assert len(effect["kinds"]) == 2


MINE = """
from llama_workbench.variants.presets import presets


def mine(config, weights, *, max_length):
    return presets()["team005_proposal"].build(config, weights, max_length=max_length)
"""
