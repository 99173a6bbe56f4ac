"""Runs that are killed, ended or disturbed: finished rounds stay readable, and no process is left behind."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from llama_workbench import ROOT
from llama_workbench.commands.app import main
from llama_workbench.harness.machine.environment import granted_cores
from llama_workbench.harness.machine.lifeline import LOCK, Interrupts, Lock, tied
from llama_workbench.harness.plan.options import Options, Request
from llama_workbench.harness.plugin.benchmarks import ReplayedCase, load
from llama_workbench.harness.session import run as session
from llama_workbench.harness.session.judging import rejudge
from llama_workbench.harness.store import files
from llama_workbench.harness.store.files import RunError, RunWarning
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import Manifest, manifest_of
from tests import kills, runs
from tests.runs import Quiet

KILL, TERM, INT = signal.SIGKILL, signal.SIGTERM, signal.SIGINT


@pytest.fixture(autouse=True)
def hears_ctrl_c() -> Iterator[None]:
    """Also where these tests were begun with & by a shell, which makes them ignore it."""
    before = signal.signal(INT, signal.default_int_handler)
    yield
    signal.signal(INT, before)


def judged(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What `workbench judge` makes of a run."""
    with pytest.raises(SystemExit) as ended:
        main(["judge", str(folder), "--json"])
    said = capsys.readouterr()
    assert ended.value.code == 0, said.err
    verdicts: list[dict[str, Any]] = json.loads(said.out)
    return verdicts


# -- real runs ---------------------------------------------------------------------------------------------------------


def end(run: kills.Begun, signals: list[signal.Signals], capsys: pytest.CaptureFixture[str]) -> int:
    """Signal a run and look at what is left of it; the rounds that are kept."""
    before = run.lines()
    for number in signals:
        run.process.send_signal(number)
        time.sleep(0.05)  # two at once are one
    assert run.ended() != 0
    assert not run.orphans()
    assert "Traceback" not in run.said()
    assert KILL in signals or f"interrupted ({signals[0].name})" in run.said()
    verdict, *_ = judged(run.folder, capsys)
    kept = sum(RunFolder(run.folder).finished_rounds().values())
    assert kept >= max(before, run.lines())
    rounds = sum(effect["rounds"] for effect in verdict["effects"])
    assert kept >= rounds  # one without a valid time does not count
    status = json.loads((run.folder / "run.json").read_text())["status"]
    assert status == ("running" if signals == [KILL] else "interrupted")
    assert (run.folder / LOCK).exists() == (signals == [KILL])
    return kept


@pytest.mark.covers("harness/machine", "harness/measure", "harness/plugin", "harness/session", "harness/worker")
@pytest.mark.long
@pytest.mark.parametrize(
    ("stage", "signals"),
    [("starting", [KILL]), ("gates", [TERM, INT]), ("profiles", [KILL])],
    ids=["starting, kill -9", "gates, SIGTERM and Ctrl-C", "profiles, kill -9"],
)
@pytest.mark.whole
def test_no_signal_at_any_stage_loses_a_round_or_leaves_a_process(tmp_path, capsys, stage, signals):
    """tests/measure/test_measure.py has more: kill -9 between rounds. Gates are those of two checkpoints at once."""
    words = {
        "starting": ["--budget=600"],
        "gates": ["--budget=600", "--workloads=prefill-tiny-t16,decode-width-256-c1"],
        "profiles": ["--budget=1", "--profile"],
    }
    workers = min(2, granted_cores()) if stage == "gates" else 0
    with kills.begun(tmp_path, *words[stage], component=stage != "gates") as run:
        run.wait_until(
            lambda: kills.STAGES[stage](run) and len([*(run.folder / "log").glob("worker-*.log")]) >= workers
        )
        rounds = end(run, signals, capsys)
        assert (rounds > 0) == (stage == "profiles")


@pytest.mark.covers("harness/machine", "harness/measure", "harness/plugin", "harness/session", "harness/worker")
@pytest.mark.long
def test_a_second_run_in_one_folder_is_refused_and_ctrl_c_ends_the_first_in_order(tmp_path, capsys):
    with kills.begun(tmp_path, "--budget=600", *kills.ENDLESS) as run:
        run.wait_until(lambda: (run.folder / LOCK).exists() and (run.folder / LOCK).read_bytes())
        second = subprocess.run(
            run.process.args, cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        said = second.stdout + second.stderr
        assert second.returncode == 3, said
        assert "Traceback" not in said
        assert f"{run.folder}: another run, process {run.process.pid}, is writing to this folder" in said
        assert f"kill {run.process.pid}" in said and "--run-dir" in said
        run.wait_until(lambda: run.lines() > 5)  # as if nothing had been
        assert [path.name for path in tmp_path.glob("run*")] == ["run"]
        assert end(run, [INT], capsys) >= 5
        assert run.process.returncode == pytest.ExitCode.INTERRUPTED
        assert "was interrupted" in run.said()
    kept = RunFolder(run.folder)
    assert kept.read_manifest()["sealed"] and kept.changed() == []
    assert (run.folder / files.SAMPLES).is_file() and (run.folder / files.VERDICTS).is_file()


# -- what processes are begun with -------------------------------------------------------------------------------------

PARENT = """
import os, subprocess, sys
from llama_workbench.harness.machine.lifeline import tied
read, write = os.pipe()
child = "import subprocess, time; subprocess.Popen(['sleep', '60']); print(1, flush=True); time.sleep(60)"
subprocess.Popen(tied([sys.executable, "-c", child], lifeline=read), pass_fds=[read], start_new_session=True)
{}
"""


def marked(mark: str) -> list[str]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("OURS") == mark:
                found.append(" ".join(process.cmdline()))
    return found


def wait_for(state, seconds=30.0):
    end = time.monotonic() + seconds
    while not state() and time.monotonic() < end:
        time.sleep(0.02)
    return state()


def test_what_a_process_began_dies_with_the_parent_too(tmp_path):
    mark = str(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT.format("sys.stdin.read()")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {"OURS": mark}, cwd=ROOT,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"1\n"
        assert wait_for(lambda: "sleep 60" in marked(mark)), marked(mark)  # what the child began
        parent.kill()
    assert wait_for(lambda: not marked(mark)), marked(mark)


BEGINS_A_PROCESS = """
import os, subprocess, sys, time
from llama_workbench.harness.machine.bootstrap import tied
read, write = os.pipe()
subprocess.Popen(tied([sys.executable], "harness.worker.main", lifeline=read), pass_fds=[read], start_new_session=True)
time.sleep({seconds})
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.1, 3.0])
def test_a_process_ends_with_the_parent_at_whatever_point_of_its_start_that_dies(tmp_path, seconds):
    """Its input stays open, so that only the tie can end it."""
    mark = str(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", BEGINS_A_PROCESS.format(seconds=seconds)], stdin=subprocess.PIPE,
        env=os.environ | {"OURS": mark}, cwd=ROOT,
    ) as parent:  # fmt: skip
        assert wait_for(lambda: parent.poll() == -9)
        assert wait_for(lambda: not marked(mark)), marked(mark)


def test_a_tied_command_is_the_command():
    done = subprocess.run(tied([sys.executable, "-c", "print(7)"]), capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("7\n", "")
    gone = subprocess.run(tied(["no-such-tool"]), capture_output=True, text=True, check=False)
    assert (gone.returncode, gone.stderr.strip()) == (1, "no-such-tool cannot be started (No such file or directory)")


@pytest.mark.whole
def test_every_process_of_a_run_is_begun_tied():
    """All but short questions to the system, which end by themselves, and commands and imports that are timed: these
    belong to the group of their measuring process, and end with it."""
    asking = {"command", "cuda", "examination", "environment", "imports"}
    begun = 0
    for path in sorted((ROOT / "harness").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func).startswith("subprocess.")):
                continue
            if path.stem not in asking:
                begun += 1
                assert ast.unparse(node.args[0]).startswith("tied("), f"{path.name}:{node.lineno}"
    assert begun == 14


# -- signals within one process ----------------------------------------------------------------------------------------


def test_a_second_signal_waits_while_the_first_is_on_its_way_out():
    done = []
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
            try:
                signal.raise_signal(TERM)
            finally:
                signal.raise_signal(INT)
                with contextlib.suppress(ValueError):
                    raise ValueError("an error of the ending")
                done.append("ended")
        assert done == ["ended"] and interrupts.again and interrupts.name == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):  # and one that comes later is heard
            signal.raise_signal(INT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(INT)
    assert signal.getsignal(TERM) is signal.SIG_DFL


class Dying:
    """An exception in its destructor is lost, as Python has it."""

    def __del__(self) -> None:
        signal.raise_signal(INT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_got_lost_is_heard_with_the_next_round(tmp_path, monkeypatch):
    run, told = a_run(tmp_path, monkeypatch)
    rounds = iter(runs.write_run(tmp_path / "other", only=("prefill-15m-t128",), compare=COMPARED).rounds())

    def measure(begun: float) -> None:
        run._keep(next(rounds))
        dying = Dying()
        del dying
        run._keep(next(rounds))
        raise AssertionError("it goes on")

    monkeypatch.setattr(run, "_measure", measure)
    result = run.measure()
    assert result.interrupted and sum(result.folder.finished_rounds().values()) == 2
    assert "interrupted (SIGINT): what was measured is kept" in told.notes


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(INT, signal.SIG_IGN)
    try:
        with Interrupts():
            signal.raise_signal(INT)
    finally:
        signal.signal(INT, before)


def a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[session.Run, Quiet]:
    """A run whose rounds were measured elsewhere: only its ending is real."""
    measured = runs.write_run(tmp_path / "measured", only=("prefill-15m-t128",), compare=COMPARED, rounds=12)
    written = measured.read_manifest()
    told = Quiet()
    options = Options(run_dir=tmp_path / "run")
    run = session.Run(
        session.plan_run(Request(compare=COMPARED, workloads=("prefill-15m-t128",)), options), options, told
    )
    samples = (measured.path / files.SAMPLES).read_bytes()

    def measure(begun: float) -> None:
        (run.folder.path / files.SAMPLES).write_bytes(samples)
        run.folder.write_json(files.CLAIMS, [])

    monkeypatch.setattr(run, "_measure", measure)
    monkeypatch.setattr(run, "_manifest", lambda status: manifest_of(written | {"status": status}))
    return run, told


COMPARED = ("team006_before", "team006_after")


def signalled(function, *numbers):
    """The function, interrupted before it begins."""

    def interrupted(*arguments, **options):
        for number in numbers:
            signal.raise_signal(number)
        return function(*arguments, **options)

    return interrupted


@pytest.mark.parametrize(
    ("of", "where"), [(session, "judge_run"), (session, "write_standings"), (Manifest, "with_rounds")]
)
def test_a_signal_while_a_run_is_judged_keeps_it_for_later(tmp_path, monkeypatch, capsys, of, where):
    run, told = a_run(tmp_path, monkeypatch)
    heard = iter([TERM])
    original = getattr(of, where)
    monkeypatch.setattr(of, where, lambda *given: signalled(original, *[n for n in [next(heard, None)] if n])(*given))
    result = run.measure()
    assert result.interrupted and not result.verdicts
    assert run.folder.read_manifest()["status"] == "interrupted"
    assert any("workbench judge" in note for note in told.notes)
    assert not list(run.folder.path.glob(".*"))
    [verdict] = judged(run.folder.path, capsys)
    assert verdict["effects"][0]["rounds"] == 12


def test_two_signals_leave_the_judging_out(tmp_path, monkeypatch, capsys):
    run, told = a_run(tmp_path, monkeypatch)
    measure = run._measure

    def interrupted(begun: float) -> None:
        measure(begun)
        try:
            signal.raise_signal(INT)
        finally:
            signal.raise_signal(INT)

    monkeypatch.setattr(run, "_measure", interrupted)
    monkeypatch.setattr(session, "judge_run", None)  # is not called
    result = run.measure()
    assert result.interrupted and not result.verdicts
    assert any("interrupted (SIGINT)" in note for note in told.notes)
    monkeypatch.undo()
    [verdict] = judged(run.folder.path, capsys)
    assert verdict["effects"][0]["rounds"] == 12


# -- the samples are the truth -----------------------------------------------------------------------------------------


def uncounted(run: RunFolder) -> None:
    """As run.json stood before the first round."""
    manifest = run.read_manifest()
    manifest["experiments"] = [one | {"rounds": 0, "seconds": 0.0} for one in manifest["experiments"]]
    run.write_json("run.json", manifest)


@pytest.mark.parametrize("killed", [True, False])
def test_rounds_that_the_manifest_does_not_count_are_judged(tmp_path, capsys, killed):
    run = runs.write_run(tmp_path / "run", only=("prefill-15m-t128",), compare=COMPARED, rounds=12, killed=killed)
    expected = [effect["rounds"] for effect in judged(run.path, capsys)[0]["effects"]]
    uncounted(run)
    [verdict] = judged(run.path, capsys)
    assert [effect["rounds"] for effect in verdict["effects"]] == expected and expected[0] >= 11
    assert run.finished_rounds() == {"prefill-15m-t128": expected[0]}
    assert run.manifest().with_rounds(run.finished_rounds()).experiments[0].rounds == expected[0]
    assert (run.path / files.STANDINGS).exists()
    case = ReplayedCase("prefill-15m-t128", COMPARED[0])
    load({(case.workload, case.variant): case}, session.Result(run, run.manifest(), ()))
    assert len(case.seconds) >= expected[0]


def test_a_manifest_that_counts_rounds_which_are_gone_is_an_error(tmp_path):
    run = runs.write_run(tmp_path / "run", only=("prefill-15m-t128",), compare=COMPARED, rounds=12)
    (run.path / files.SAMPLES).unlink()
    with pytest.raises(RunError, match="holds no samples"):
        rejudge(run)


# -- one run in one folder ---------------------------------------------------------------------------------------------


def test_a_folder_is_held_until_its_run_ends(tmp_path):
    lock = Lock()
    run = RunFolder.create(tmp_path / "run", lock=lock)
    for _ in range(2):
        with pytest.raises(
            RunError, match=rf"run: another run, process {os.getpid()}, is writing .*kill {os.getpid()}"
        ):
            RunFolder.create(run.path)
    run.write_json("run.json", {"format": 1, "unit": "process"})
    with pytest.raises(RunError, match="another run"):
        RunFolder.create(run.path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    lock.close()
    assert not (run.path / LOCK).exists()
    with pytest.warns(RunWarning, match="was kept as"):
        RunFolder.create(run.path, lock=lock)
    with pytest.raises(RunError, match="another run"):
        RunFolder.create(run.path)
    assert not (tmp_path / "run.earlier-1" / LOCK).exists()
    lock.close()


def test_the_lock_of_a_killed_run_holds_nobody_up(tmp_path):
    program = textwrap.dedent(
        """
        import os, sys
        from llama_workbench.harness.machine.lifeline import Lock
        from llama_workbench.harness.store.folder import RunFolder
        lock = Lock()
        RunFolder.create(sys.argv[1], lock=lock)
        os.kill(os.getpid(), 9)
        """
    )
    folder = tmp_path / "run"
    subprocess.run([sys.executable, "-c", program, str(folder)], cwd=ROOT, check=False)
    assert [path.name for path in folder.iterdir()] == [LOCK]
    (folder / ".run.json.123.tmp").write_text("half a fi")
    RunFolder.create(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="holds no run"):
        RunFolder.create(folder)
