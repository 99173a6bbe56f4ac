"""Code of one's own is trusted: what it does beside answering is measured, undone and said; cheating stays caught."""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llama_workbench.harness.measure import gating
from llama_workbench.harness.measure.measurement import ask_for_round
from llama_workbench.harness.measure.participants import ExperimentState
from llama_workbench.harness.plan.options import Options, Request, kept, typed
from llama_workbench.harness.report.outcome import command_of
from llama_workbench.harness.report.text import side_facts_text
from llama_workbench.harness.session.run import plan_run
from llama_workbench.harness.spec.sample import RoundAnswer
from llama_workbench.harness.spec.words import SessionExit
from llama_workbench.harness.store.schema import ChangedSetting, SideFacts, manifest_of
from llama_workbench.harness.worker.devices import Spent
from llama_workbench.harness.worker.watch import Notes, Watch
from llama_workbench.variants import FUNCTION_REFERENCE
from tests.plugin.test_pytest_plugin import pytest_process
from tests.runs import measurement_of
from tests.unchanged import SESSIONS
from tests.verdicts import a_verdict, an_effect

pytestmark = [pytest.mark.covers(*SESSIONS), pytest.mark.usefixtures("warm")]

MINE = """
import concurrent.futures, gc, hashlib, multiprocessing, os, subprocess, sys, tempfile, threading, time
from pathlib import Path

HERE = Path(__file__).parent
DIGITS = "0123456789"


def text(seed):
    return DIGITS * (20 + seed % 7)


def plain(text):
    return len(text)


# -- what starts something

def counted(text):
    return int(subprocess.run(["wc", "-c"], input=text, capture_output=True, text=True, check=True).stdout)


CALLS = [0]


def counted_later(text):
    "Its gate sees no child process."
    CALLS[0] += 1
    return counted(text) if (HERE / "late").exists() else len(text)


def size_of(part):
    return len(part)


def in_pool(kind, parts):
    with multiprocessing.get_context(kind).Pool(1) as pool:
        return sum(pool.map(size_of, parts))


def spawned(text):
    return in_pool("spawn", [text[:5], text[5:]])


def forked(text):
    return in_pool("fork", [text[:5], text[5:]])


def served(text):
    return in_pool("forkserver", [text[:5], text[5:]])


KEPT = []


def pooled(text):
    "Its workers stay for the next call."
    if not KEPT:
        KEPT.append(concurrent.futures.ProcessPoolExecutor(1))
    sizes = list(KEPT[0].map(size_of, [text]))
    with (HERE / "workers").open("a") as file:
        print(*KEPT[0]._processes, file=file)
    return sizes[0]


def apart(text):
    "It starts what leaves its session, and does not end."
    if not KEPT:
        KEPT.append(subprocess.Popen(["sleep", "1000"], start_new_session=True))
        with (HERE / "workers").open("a") as file:
            print(KEPT[0].pid, file=file)
    return len(text)


def threaded(text):
    out = []
    def work():
        hashlib.pbkdf2_hmac("sha256", b"a", b"b", 3000)
        out.append(len(text))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return out[0]


# -- what changes something for everybody

def hook(phase, info):
    pass


def state():
    there = hook in gc.callbacks, sys.getswitchinterval() == 0.02, sys.getrecursionlimit() == 900
    return (*there, os.getcwd() == "/", "MINE" in os.environ, os.getpriority(os.PRIO_PROCESS, 0) > 0)


def changes(text):
    if not CALLS[0]:
        gc.callbacks.append(hook)
        sys.setswitchinterval(0.02)
        sys.setrecursionlimit(900)
        os.chdir("/")
        os.environ["MINE"] = "1"
        os.nice(1)
    CALLS[0] += 1
    assert all(state()), state()
    return len(text)


def looks(text):
    assert not any((sys.getswitchinterval() == 0.02, sys.getrecursionlimit() == 900, os.getcwd() == "/")), "felt"
    assert "MINE" not in os.environ and all(each.__name__ != "hook" for each in gc.callbacks), "felt"
    return len(text)


def stops_clock(text):
    time.perf_counter_ns = lambda: 0
    return len(text)


# -- files

def opened(seed):
    file = tempfile.TemporaryFile("w+")
    file.write(text(seed))
    file.seek(0)
    return file, text(seed)


def read_whole(file, text):
    with (HERE / "open").open("a") as log:
        print(len(os.listdir("/proc/self/fd")), file=log)
    return len(file.read())


def read_and_close(file, text):
    with file:
        return len(file.read())


class Kept:
    "In a cycle, as a connection to a database is."
    def __init__(self, seed):
        self.itself, self.path, self.more = self, HERE / "mine.py", None


def connected(seed):
    return Kept(seed), text(seed)


def opens_more(kept, text):
    kept.more = open(kept.path)
    return len(text)


def leaves(file, text):
    KEPT.append(open(os.devnull))
    return len(file.read())


# -- what ends nothing

def hangs(text):
    while (HERE / "hangs").exists():
        time.sleep(0.01)
    return len(text)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@dataclass
class Seen:
    """What a measuring process said of both sides: the state after the gates, and the answers of its rounds."""

    state: ExperimentState
    answers: list[RoundAnswer]

    @property
    def bad(self) -> dict[str, str]:
        """Everybody of whom something is said to be wrong."""
        found = dict(self.state.excluded)
        for answer in self.answers:
            found |= {**answer.changed, **answer.elsewhere, **answer.wrong, **answer.failed}
        return found

    def facts(self, name: str) -> SideFacts:
        """All that is known of a side."""
        return SideFacts(**self.state.facts[name])


@contextmanager
def measured(
    folder: Path, sides: Sequence[str], payload: str = "text", *, rounds: int = 2, before: Callable[[], Any] = str,
    **given: Any,
) -> Iterator[Seen]:  # fmt: skip
    """Gates and some rounds in a real process, which lives within this block. before: called between the two."""
    plan = plan_run(Request(compare=(f"mine.py:{sides[0]}", sides[1]), calls=(f"mine.py:{payload}",)), Options())
    measurement = measurement_of(plan, folder, **given)
    with measurement.processes.running():
        measurement.gates.pass_gates()
        [state] = measurement.participants.states
        before()
        answers, active = [], list(state.remaining().entered())
        for _ in range(rounds if len(active) > 1 else 0):
            assert measurement.processes.groups[0].current is not None
            answers.append(ask_for_round(measurement.processes.groups[0].current.worker, state, active, "", 0.0))
            state.time_by_wall(answers[-1].by_wall)
            state.note_facts(answers[-1].facts)
        yield Seen(state, answers)


# -- child processes and threads ---------------------------------------------------------------------------------------


def test_child_processes_and_threads_count_by_wall_time_and_nobody_is_blamed(mine: Path) -> None:
    with measured(mine, ("threaded", "mine.py:counted")) as seen:
        assert not seen.bad
    assert {*seen.state.wall_variants} >= {"counted", "threaded"}
    assert 0 < (seen.facts("counted").children_share or 0) < 1 and seen.facts("threaded").threads_share
    assert seen.facts("threaded").children_share is None
    assert FUNCTION_REFERENCE in {sample.variant for sample in seen.answers[0].samples}


def test_one_that_begins_after_its_gate_is_timed_by_wall_from_then_on(mine: Path) -> None:
    with measured(mine, ("plain", "mine.py:counted_later"), before=(mine / "late").touch) as seen:
        assert not seen.bad and [*seen.answers[0].by_wall] == ["counted_later"]
    assert seen.state.wall_variants == ["counted_later"] and seen.facts("counted_later").children_share


@pytest.mark.parametrize("kind", ["spawned", "forked", "served"])
def test_children_import_a_file_under_its_own_name(mine: Path, kind: str) -> None:
    with measured(mine, ("plain", f"mine.py:{kind}"), rounds=1) as seen:
        assert not seen.bad
    assert kind in seen.state.wall_variants


def test_two_files_of_one_name_stay_apart_also_in_their_children(mine: Path) -> None:
    (mine / "other").mkdir()
    other = MINE.replace("return len(part)", "return sum(1 for _ in part)")
    assert other != MINE
    (mine / "other" / "mine.py").write_text(other)
    with measured(mine, ("spawned", "theirs=other/mine.py:spawned"), rounds=1) as seen:
        assert not seen.bad
    (mine / "other" / "mine.py").write_text(MINE.replace("return len(part)", "return 1 + len(part)"))
    with measured(mine, ("spawned", "theirs=other/mine.py:spawned"), rounds=0) as seen:
        assert "theirs" in seen.bad and "spawned" not in seen.bad


@pytest.mark.parametrize("kind", ["pooled", "apart"])
def test_children_that_stay_live_until_their_process_ends(mine: Path, kind: str) -> None:
    with measured(mine, ("plain", f"mine.py:{kind}")) as seen:
        assert not seen.bad
        children = {int(word) for word in (mine / "workers").read_text().split()}
        assert any(map(alive, children))
    end = time.monotonic() + 60
    while any(map(alive, children)):
        assert time.monotonic() < end
        time.sleep(0.01)


def alive(process: int) -> bool:
    with suppress(OSError):
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    return False


# -- settings ----------------------------------------------------------------------------------------------------------


def test_what_a_side_changes_is_there_in_its_turns_alone(mine: Path) -> None:
    with measured(mine, ("looks", "mine.py:changes"), rounds=3) as seen:
        assert not seen.bad
    changes = {each.what: each.felt for each in seen.facts("changes").changes}
    wanted = {
        "the callbacks of garbage collection", "the interval between threads", "how deep calls may nest",
        "the working directory", "environment variables", "the priority of the process",
    }  # fmt: skip
    assert changes.keys() == wanted
    assert not any(felt for what, felt in changes.items() if what != "the priority of the process")
    assert not seen.facts("looks").changes


def test_who_stops_a_clock_is_left_out(mine: Path) -> None:
    with measured(mine, ("plain", "mine.py:stops_clock"), rounds=0) as seen:
        assert "time.perf_counter_ns, a clock that measures it: leave it alone" in seen.bad["stops_clock"]
        assert seen.bad.keys() == {"stops_clock"}


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_of_inputs_are_nobodys_fault_and_do_not_pile_up(mine: Path) -> None:
    with measured(mine, ("read_whole", "mine.py:read_and_close"), payload="opened", rounds=6) as seen:
        assert not seen.bad
    assert seen.facts("read_whole").files_left is None and seen.facts("read_and_close").files_left is None
    open_files = [int(line) for line in (mine / "open").read_text().split()]
    place = 3 * len(open_files) // 4
    assert max(open_files[place:]) <= max(open_files[:place])


def test_files_that_only_an_inputs_garbage_holds_are_nobodys(mine: Path) -> None:
    with measured(mine, ("opens_more", "again=mine.py:opens_more"), payload="connected") as seen:
        assert not seen.bad
    assert seen.facts("opens_more").files_left is None


def test_files_that_a_call_leaves_open_are_said(mine: Path) -> None:
    with measured(mine, ("read_and_close", "mine.py:leaves"), payload="opened", rounds=0) as seen:
        assert not seen.bad and 0.5 < (seen.facts("leaves").files_left or 0) <= 1


def test_who_leaves_so_many_open_that_none_are_left_is_left_out() -> None:
    """The next to open one would raise, whoever that is."""
    notes, limits, files = Notes(Watch()), resource.getrlimit(resource.RLIMIT_NOFILE), []
    notes.turn("leaves")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * len(os.listdir("/proc/self/fd")) + 40, limits[1]))
        notes.begin()
        while not notes.of("leaves").fault:
            files.append(open(os.devnull))  # noqa: SIM115
            notes.end(1, Spent(None, 1, 1, 0, around_ns=1))
            notes.gone("leaves")
            notes.start()
        assert re.match(r"leaves files open, [\d,]+ after [\d,]+ calls.*: close them", notes.of("leaves").fault)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for file in files:
            file.close()


# -- what hangs --------------------------------------------------------------------------------------------------------


def test_a_gate_takes_no_longer_than_the_budget(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gating, "LEAST_GATE_SECONDS", 1.0)
    (mine / "hangs").touch()
    with measured(mine, ("plain", "mine.py:hangs"), rounds=0, budget_seconds=9.0) as seen:
        said = (
            "hangs: no answer to its first calls in 9 s "
            "(no longer, because of --budget 9: give more if its calls take so long)"
        )
        assert seen.bad == {"hangs": said}


# -- strict checking ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("side", "payload", "told"),
    [
        ("counted", "text", "has processes of its own compute|something else computes for it"),
        ("changes", "text", "changes .* for everybody"),
        ("leaves", "opened", "more files? open after a call"),
    ],
)
def test_strict_checking_leaves_them_out_and_names_the_way(mine: Path, side: str, payload: str, told: str) -> None:
    base = "plain" if payload == "text" else "read_whole"
    with measured(mine, (base, f"mine.py:{side}"), payload=payload, strict=True) as seen:
        assert seen.bad.keys() == {side}
        assert re.search(told, seen.bad[side]) and "--strict" in seen.bad[side]


def test_strict_inputs_may_hold_files_too(mine: Path) -> None:
    with measured(mine, ("read_whole", "again=mine.py:read_whole"), payload="opened", strict=True) as seen:
        assert not seen.bad


def test_strictness_is_kept_and_given_again() -> None:
    options = typed(Options, {"strict": True})
    assert options.strict and kept(options)["strict"] is True and kept(Options())["strict"] is False
    pair = a_verdict(an_effect(verdict="same"), claim="ad-hoc", verdict="same")
    command = ["pytest", "--benchmark", "--compare", "a.py:f", "a.py:g", "--strict", "--call", "a.py:x"]
    again = command_of(pair, manifest_of({"command": command, "seed": 0}))
    assert again == "pytest --benchmark --compare a.py:f a.py:g --strict --call a.py:x"


def test_strict_means_ours_too_though_pytest_has_such_an_option(mine: Path) -> None:
    """A short name that someone else has taken would be ignored in silence."""
    words = ["--compare", "mine.py:plain", "mine.py:counted", "--call", "mine.py:text", "--budget", "1"]
    said = pytest_process("--benchmark", "--strict", "-p", "no:cacheprovider", *words, cwd=mine)
    assert said.returncode == SessionExit.NO_VERDICT and "checked strictly" in said.stdout, said.stdout


# -- what is said ------------------------------------------------------------------------------------------------------


def test_what_is_said_beside_the_number() -> None:
    changes = [ChangedSetting(what="the working directory"), ChangedSetting(what="its priority", felt=True)]
    facts = SideFacts(children_share=0.5, threads_share=1.5, files_left=2, changes=changes)
    text = side_facts_text({"mine": facts, "plain": SideFacts()}, ["mine", "plain"])
    for part in (
        "mine starts child processes: its time is wall time, of which 50 % is theirs.",
        "mine computes in threads of its own: its time is wall time, and 1.5 times as much CPU time is the",
        "mine leaves files open: 2 a call.",
        "mine changes the working directory for its whole process: this is undone after each of",
        "mine changes its priority for its whole process: this affects the other functions.",
    ):
        assert part in text
    assert "plain" not in text
