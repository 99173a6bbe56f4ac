"""Work for nodes without any: how it is divided, what is sent, what comes back, and what becomes of it on nodes that
are lost, fail or differ."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import llama_workbench
from llama_workbench.harness.calls.digest import digest_of
from llama_workbench.harness.calls.source import Source, parse
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.machine.places import published
from llama_workbench.harness.plan.experiments import Plan, make_plan
from llama_workbench.harness.plan.options import Options, PlanError, Request
from llama_workbench.harness.slices.fleet import driver, node, session
from llama_workbench.harness.slices.fleet.driver import (
    LEAST_SECONDS,
    Cluster,
    Driver,
    Lost,
    Node,
    Order,
    Piece,
    check_address,
    unpack,
)
from llama_workbench.harness.slices.fleet.folder import FleetFolder
from llama_workbench.harness.slices.fleet.node import code, kind, kind_of, measure, packed
from llama_workbench.harness.store.verdict_schema import Machine
from studies.fleet_costs import on_paper
from tests.runs import ENVIRONMENT, write_run

CLAIMS = llama_workbench.ROOT / "claims"
EVERYTHING = Request(everything=True)


@pytest.fixture(scope="module")
def register() -> Plan:
    return make_plan(EVERYTHING, load_claims(CLAIMS))


# -- dividing ----------------------------------------------------------------------------------------------------------


def named(piece: Piece) -> dict[str, Any]:
    """What the words of a piece name, by option."""
    pairs = (word.removeprefix("--").partition("=") for word in piece.words)
    return {option: tuple(names.split(",")) for option, _, names in pairs}


def test_pieces_hold_every_experiment_once(register: Plan) -> None:
    pieces = session.FleetRun("ray", False, register, EVERYTHING, Options()).pieces()
    names = [name for piece in pieces for name in named(piece).get("workloads", ())]
    assert sorted(names) == sorted(each.workload.name for each in register.experiments)
    assert len(pieces) < len(names)
    assert sum(piece.share for piece in pieces) == pytest.approx(1)
    for part in register.hypotheses():  # what is one value of several workloads is measured by one machine
        if part.least_workloads > 1 or part.metric == "share_of_parts":
            places = [piece for piece in pieces if {*part.workload_names()} & {*named(piece).get("workloads", ())}]
            assert len(places) <= 1, part


@pytest.mark.parametrize("request_", [EVERYTHING, Request(claims=("single-file-faster", "own-checks")), Request()])
def test_the_commands_of_nodes_measure_together_what_one_does(request_: Request) -> None:
    """What is named or asked for as a whole is measured once; of the quick ones no less than on one machine."""
    claims = load_claims(CLAIMS)
    whole = make_plan(request_, claims)
    pieces = session.FleetRun("ray", False, whole, request_, Options()).pieces()
    plans = [make_plan(replace(request_, **named(piece)), claims) for piece in pieces]
    measured = {each.workload.name: each for plan in plans for each in plan.experiments}
    assert measured.keys() == {each.workload.name for each in whole.experiments}
    assert sum(len(plan.experiments) for plan in plans) == len(measured)
    for each in whole.experiments:
        there = measured[each.workload.name]
        if request_ == Request():
            assert {*each.variants} <= {*there.variants} and {*each.contrasts} <= {*there.contrasts}
            assert {target.comparison for target in each.targets} <= {target.comparison for target in there.targets}
        else:
            assert {*each.entered()} == {*there.entered()} and each.baseline == there.baseline
            assert {target.comparison for target in each.targets} == {target.comparison for target in there.targets}
    looked_at = [pair for plan in plans for part in plan.hypotheses() for pair in part.subjects()]
    assert {*looked_at} >= {pair for part in whole.hypotheses() for pair in part.subjects()}
    checks = [part.title() for part in whole.hypotheses() if part.metric in ("check", "count")]
    assert {*checks} == {p.title() for plan in plans for p in plan.hypotheses() if p.metric in ("check", "count")}


def test_what_is_measured_already_is_left_out(register: Plan) -> None:
    done = {each.workload.name for each in register.experiments[::2]} | {""}
    pieces = session.FleetRun("ray", False, register, EVERYTHING, Options(), done=done).pieces()
    left = [{*piece.workloads} for piece in pieces]
    assert set[str]().union(*left) >= {each.workload.name for each in register.experiments} - done
    assert not any(names <= done for names in left)


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_request_and_its_files_arrive(tmp_path: Path) -> None:
    home = tmp_path / "secret-place"
    (home / "beside").mkdir(parents=True)
    (home / "mine.py").write_text("from beside import parts\ndef mine(): ...\n", encoding="utf-8")
    (home / "beside" / "__init__.py").write_text("", encoding="utf-8")
    (home / "beside" / "parts.py").write_text("x = 1\n", encoding="utf-8")
    (home / "x.toml").write_text("text", encoding="utf-8")
    added = {"mine": parse(f"{home}/mine.py:mine", option="--add-variant")}
    plan = Plan("claims", (), (), (), added)
    options = Options(claims_folder=home, run_dir=home / "run")
    files, words = session.files_and_words(plan, Request(workloads_file=home / "x.toml"), options)
    assert "secret-place" not in json.dumps([files, words])
    assert words == [
        "--claims-dir=claims",
        "--add-variant=mine=added-0/mine.py:mine",
        "--workloads-file=workloads.toml",
    ]
    for name, text in files.items():
        (target := tmp_path / "there" / name).parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    again = parse(f"mine={tmp_path}/there/added-0/mine.py:mine", option="--add-variant")
    assert digest_of(again) == digest_of(added["mine"])
    assert (tmp_path / "there/claims/x.toml").read_text() == (tmp_path / "there/workloads.toml").read_text() == "text"


def test_a_request_is_typed_again() -> None:
    request = Request(compare=("fast", "mine"), workloads=("a", "b"), threads=2, added=("mine.py:mine",))
    words = session.typed_again(replace(request, everything=True))
    assert words == ["--workloads=a,b", "--compare", "fast", "mine", "--all", "--threads=2"]
    assert session.typed_again(Options(seed=3, strict=True, run_dir=Path("x"), budget_seconds=9)) == [
        "--seed=3",
        "--strict",
    ]


def test_what_lies_in_no_file_of_today_is_not_sent(tmp_path: Path) -> None:
    for source, what in (
        (Source("mine", "package.model", "build"), "a module is not sent"),
        (Source("mine", str(tmp_path / "mine.py"), "build", revision="v1", commit="0" * 40), "a file of a revision"),
    ):
        with pytest.raises(PlanError, match=what):
            session.files_and_words(Plan("claims", (), (), (), {"mine": source}), Request(), Options())


def test_what_one_machine_alone_compares_is_refused(tmp_path: Path) -> None:
    """Functions, and a variant without a claim: what it is compared with is chosen from the whole plan."""
    (tmp_path / "mine.py").write_text("def mine(): ...\n", encoding="utf-8")
    for request, problem in (
        (Request(compare=("a.py:f", "b.py:f"), calls=("mine.py:texts",)), r"--call mine\.py:texts: .* on one machine"),
        (Request(added=(f"{tmp_path}/mine.py:mine",)), "no claim is about"),
    ):
        with pytest.raises(PlanError, match=problem):
            session.spread(request, Options(), on="ray", on_each_kind=False)


@pytest.mark.parametrize("address", ["", "localhost", "ray:/x", "ray://", "http://x"])
def test_an_address_that_is_none_is_named(address: str) -> None:
    with pytest.raises(PlanError, match=r"expected ray \(inside a cluster\) or ray://HEAD"):
        check_address(address)


def test_a_run_tells_of_no_host() -> None:
    assert published("--on=ray://head.example.org:10001") == "--on=ray"
    assert published("lost (node 10.0.0.7:6379, see /tmp/ray/x.log)") == "lost (node ADDRESS, see x.log)"


def test_a_claim_about_functions_is_not_spread(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def old(x): ...\ndef new(x): ...\ndef made(seed): ...\n", encoding="utf-8")
    claim = (CLAIMS / "single-file-faster.toml").read_text(encoding="utf-8").partition("[[hypothesis]]")[0]
    claim += '[[hypothesis]]\nvariant = "new"\nbaseline = "old"\nworkloads = ["made"]\nmetric = "time"\n'
    claim += 'evidence = "operations"\nfaster_than_percent = 1\n[[call]]\nname = "made"\npayload = "mine.py:made"\n'
    claim += "".join(f'[[function]]\nname = "{name}"\nsource = "mine.py:{name}"\n' for name in ("old", "new"))
    (tmp_path / "single-file-faster.toml").write_text(claim, encoding="utf-8")
    options = Options(claims_folder=tmp_path)
    with pytest.raises(PlanError, match=r"--on ray: a claim is about the function old, .* on one machine only"):
        session.spread(Request(), options, on="ray", on_each_kind=False)


def test_the_plan_on_paper_is_that_of_the_reference_run() -> None:
    assert on_paper() in (llama_workbench.ROOT / "docs/reference/cluster.md").read_text(encoding="utf-8")


# -- what comes back ---------------------------------------------------------------------------------------------------


def test_a_run_that_comes_back_is_the_same(tmp_path: Path) -> None:
    run = write_run(tmp_path / "here", only=("prefill-15m-t128",), rounds=12)
    run.seal(run.read_manifest())
    (run.path / "log").mkdir(exist_ok=True)
    (run.path / "log" / "worker-1.log").write_text("said\n", encoding="utf-8")
    (run.path / ".lock").write_text("1\n", encoding="utf-8")
    unpack(packed(run.path), there := tmp_path / "there")
    files = {path.relative_to(run.path): path.read_bytes() for path in run.path.rglob("*.*") if path.is_file()}
    files.pop(Path(".lock"))
    assert {path.relative_to(there): path.read_bytes() for path in there.rglob("*.*") if path.is_file()} == files
    unpack(packed(tmp_path / "nothing"), tmp_path / "empty")
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize(
    "name", ["../run.json", "/etc/passwd", "log/../../x.log", "x.py", "profiles/../../x.folded", ".lock", "log/.log/x"]
)
def test_a_file_that_no_run_has_is_refused(tmp_path: Path, name: str) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("run.json", "{}")
        archive.writestr(name, "x")
    with pytest.raises(ValueError, match="no run has"):
        unpack(content.getvalue(), tmp_path / "run")
    with pytest.raises(ValueError, match="sent no run"):
        unpack(b"x", tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_node_runs_a_command_in_a_folder(tmp_path: Path) -> None:
    words = ["--compare", "nobody", "fast", "--workloads-file=here/x.toml"]
    content = measure("m1", "m1 at here", code(), words, {"here/x.toml": ""})
    reason = unpack(content, tmp_path / "run")
    assert reason.startswith("the command ended (exit code 4): ") and "nobody" in reason
    assert not (tmp_path / "run").exists()


ENDS_IN_ORDER = """
import os, signal, sys, time
from pathlib import Path

def end(*_):
    signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
    time.sleep(1)
    Path("run").mkdir()
    Path("run/run.json").write_text("{}")
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
Path(sys.argv[1]).touch()
time.sleep(60)
"""


def test_a_task_that_is_cancelled_again_and_again_keeps_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"

    def started(words: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
        output.touch()
        return subprocess.Popen([sys.executable, "-c", ENDS_IN_ORDER, str(ready)], cwd=output.parent)

    def cancel() -> None:
        while not ready.exists():
            time.sleep(0.05)
        for _ in range(5):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)

    monkeypatch.setattr(node, "_started", started)
    before, asking = signal.getsignal(signal.SIGINT), Thread(target=cancel)
    asking.start()
    try:
        content = measure("m1", "m1 at here", code(), [], {})
    finally:
        held = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the last of them may come now
        asking.join()
        signal.signal(signal.SIGINT, held)
    assert held is before
    assert unpack(content, tmp_path / "run") == "" and (tmp_path / "run" / "run.json").read_text("utf-8") == "{}"


def test_a_node_with_other_code_measures_nothing() -> None:
    with pytest.raises(RuntimeError, match="another version of the workbench"):
        measure("m1", "m1 at here", "x", [], {})


# -- what becomes of it ------------------------------------------------------------------------------------------------

WORKLOADS = ("prefill-15m-t128", "decode-15m-c64")
KIND = kind_of(ENVIRONMENT)
Say = Callable[[list[str]], bytes]


class FakeNode:
    """A node: says what kind it is, and to each command what `say` returns or raises."""

    def __init__(self, name: str, say: Say, kind: str = KIND) -> None:
        self.node = Node(name, f"at-{name}", 1, 0)
        self.say, self.kind = say, kind
        self.commands: list[list[str]] = []


class FakeCluster(Cluster):
    def __init__(self, *nodes: FakeNode) -> None:
        self.all = list(nodes)

    def nodes(self, *, gpu: bool) -> list[Node]:
        return [replace(each.node) for each in self.all]

    def submit(self, node: Node, function: Callable[..., bytes], *arguments: Any) -> Any:
        asked = next(each for each in self.all if each.node.id == node.id)
        if function is not kind:
            asked.commands.append(arguments[3])
        return asked, function

    def wait(self, answers: Sequence[Any], seconds: float) -> list[Any]:
        return list(answers)

    def content(self, answer: tuple[FakeNode, Any]) -> bytes:
        asked, function = answer
        return asked.kind.encode() if function is kind else asked.say(asked.commands[-1])

    def cancel(self, answer: Any) -> None:
        """It ends as `say` has it."""


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetFolder:
    for name in ("NO_NODE_SECONDS", "LOOK_SECONDS"):
        monkeypatch.setattr(driver, name, 0.0)
    made = FleetFolder.create(tmp_path / "fleet")
    made.write([], claims=[], spending="split")
    return made


@pytest.fixture
def measured(tmp_path: Path) -> Say:
    """A command that ends well."""

    def say(words: list[str]) -> bytes:
        names = [word.partition("=")[2].split(",") for word in words if word.startswith("--workloads=")]
        only = names[0] if names else WORKLOADS
        run = write_run(tmp_path / f"node{len(list(tmp_path.iterdir()))}", only=only, rounds=12)
        return packed(run.path)

    return say


def driven(
    fleet: FleetFolder, *nodes: FakeNode, stopped: Event | None = None, cluster: FakeCluster | None = None, **more: Any
) -> tuple[str, dict[str, Machine], list[str]]:
    """Status, machines by name, and what was told."""
    told: list[str] = []
    pieces = [Piece(workloads=[name], share=0.5) for name in WORKLOADS]
    order: dict[str, Any] = {"pieces": pieces, "seconds": 60.0, "words": ["--seed=1"], "files": {}}
    Driver(
        cluster or FakeCluster(*nodes), Order(folder=fleet.path, **order | more), told.append, stopped or Event()
    ).run()
    return str(fleet.run.manifest().status), {each.name: each for each in fleet.machines()}, told


def workloads_of(machines: Iterable[Machine]) -> list[str]:
    return sorted(name for each in machines if each.status == "complete" for name in each.experiments)


def test_work_is_shared_by_weight_and_kept(fleet: FleetFolder, measured: Say) -> None:
    pieces = [Piece(workloads=[name], share=share) for name, share in ((WORKLOADS[0], 0.49), (WORKLOADS[1], 0.01))]
    nodes = [FakeNode("a", measured), FakeNode("b", measured)]
    status, machines, told = driven(fleet, *nodes, pieces=pieces)
    assert status == "complete" and workloads_of(machines.values()) == sorted(WORKLOADS)
    assert {*machines} == {"m1", "m2"} and not told and len(fleet.runs()) == 2
    given = [words[:2] for node in nodes for words in node.commands]
    assert given == [["--seed=1", "--budget=58.8"], ["--seed=1", f"--budget={LEAST_SECONDS:g}"]]


def test_what_a_lost_node_had_is_measured_by_another(fleet: FleetFolder, measured: Say) -> None:
    def lost(words: list[str]) -> bytes:
        raise Lost("the node was lost")

    weak = FakeNode("weak", lost)
    status, machines, told = driven(fleet, weak, FakeNode("b", measured))
    assert machines["m1"].status == "interrupted" and machines["m1"].reason == "the node was lost"
    assert machines["m1.out"].status == "left out" and len(weak.commands) == 1
    assert "m1 at at-weak: left out: the node was lost" in told
    assert status == "complete" and workloads_of(machines.values()) == sorted(WORKLOADS)


def test_what_no_node_can_measure_is_said(fleet: FleetFolder, measured: Say) -> None:
    def say(words: list[str]) -> bytes:
        failed = packed(Path("nothing"), "the command ended (SIGKILL): no memory")
        return failed if WORKLOADS[0] in words[-1] else measured(words)

    nodes = [FakeNode(name, say) for name in "ab"]
    status, machines, told = driven(fleet, *nodes)
    assert status == "interrupted" and told[-1].startswith("no node is left that can measure (the command ended (SIG")
    failed = [each for each in machines.values() if each.reason == "the command ended (SIGKILL): no memory"]
    assert [each.status for each in failed] == ["interrupted", "interrupted"], "each node has tried it once"
    assert workloads_of(machines.values()) == [WORKLOADS[1]]


@pytest.mark.parametrize("each_kind", [False, True])
def test_a_cluster_without_a_node_that_measures_is_not_taken_for_done(fleet: FleetFolder, each_kind: bool) -> None:
    status, machines, told = driven(fleet, each_kind=each_kind)
    assert status == "interrupted" and not machines
    assert told == ["no node is left that can measure (no node of the cluster has a processor to give)"]


def test_each_kind_of_machine_measures_everything_once(fleet: FleetFolder, measured: Say) -> None:
    nodes = [FakeNode("a", measured), FakeNode("b", measured), FakeNode("c", measured, "ARM Neoverse, 4 cores")]
    status, machines, _ = driven(fleet, *nodes, each_kind=True, pieces=[Piece()])
    assert status == "complete" and len(machines) == 2
    assert all(sorted(each.experiments) == sorted(WORKLOADS) for each in machines.values())
    assert [len(node.commands) for node in nodes] == [1, 0, 1]
    third = FakeNode("d", measured, "ARM Neoverse, 64 cores")
    done = [KIND, "ARM Neoverse, 4 cores"]
    driven(fleet, *nodes, third, each_kind=True, pieces=[Piece()], kinds_done=done)
    assert [len(node.commands) for node in (*nodes, third)] == [1, 0, 1, 1]


def test_what_nodes_have_when_it_is_stopped_is_kept(fleet: FleetFolder, tmp_path: Path, measured: Say) -> None:
    stopped = Event()

    def say(words: list[str]) -> bytes:
        stopped.set()
        run = write_run(tmp_path / "node", only=WORKLOADS[:1], rounds=12, status="interrupted")
        return packed(run.path, "the command ended (exit code 2): interrupted")

    status, machines, _ = driven(fleet, FakeNode("a", say), stopped=stopped)
    assert status == "interrupted" and [each.status for each in machines.values()] == ["interrupted"]
    assert machines["m1"].folder == "machines/m1" and not machines["m1"].reason
    assert machines["m1"].experiments == [WORKLOADS[0]]
    status, machines, _ = driven(fleet, FakeNode("a", measured))  # it goes on
    assert status == "complete" and workloads_of(machines.values()) == sorted(WORKLOADS)
    assert machines["m1"].experiments == [], "another measured it to its end"


RAY = """
import os, signal
def init(**how): pass
def nodes(): os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_a_crash_around_ray_is_none_of_the_session(tmp_path: Path) -> None:
    """What speaks to Ray is a process of its own: the session says how that ended, and ends with its own code."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text(RAY, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-m", "pytest", "--benchmark", "-p", "no:cacheprovider", "-q", "--on", "ray"]
        command += ["--compare", "team006_before", "fast", "--workloads", "prefill-tiny-t16", "--run-dir", "fleet"]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "RAY_ADDRESS": address}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done
    assert "the process that speaks to Ray ended (-11)" in done.stdout
    assert FleetFolder(tmp_path / "fleet").run.manifest().status == "interrupted"
