"""Runs that somebody ends: begun as real processes, signalled at some stage, and looked at afterwards."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from llama_workbench import ROOT
from llama_workbench.harness.stats.confidence import RESOLUTION

MODELS = ("team005_hybrid", "team005_proposal")
"""Alike: the same operations, in several files and in one."""

ENDLESS = tuple(f"--fail-if=not-between:0.5:{math.exp(1.8 * RESOLUTION * step):.6f}" for step in range(-30, 31))
"""Conditions that no number of rounds decides as long as the effect lies within 0.5 % of 1: their upper bounds lie so
close together that one is always inside the interval, which is never narrower than RESOLUTION to either side."""

COMPONENTS = ("team006_before", "team006_after")
PATIENCE_SECONDS = 120.0
_MARK = "WORKBENCH_TEST_RUN"


@dataclass(frozen=True)
class Begun:
    """A run that goes on. Everything that it begins carries its mark in the environment."""

    folder: Path
    process: subprocess.Popen[bytes]
    output: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def said(self) -> str:
        """What it has printed so far."""
        return self.output.read_text(errors="replace")

    def lines(self) -> int:
        """Finished rounds in its journal."""
        journal = self.folder / "samples.jsonl"
        return journal.read_bytes().count(b"\n") if journal.exists() else 0

    def others(self) -> list[psutil.Process]:
        """Living processes that it began, itself left out."""
        found = []
        for process in psutil.process_iter():
            try:
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and process.pid != self.process.pid and process.environ().get(_MARK) == self.mark:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def wait_until(self, reached: Callable[[], object]) -> None:
        """Wait for a state; AssertionError where the run ends before, or never comes there."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not reached():
            assert self.process.poll() is None and time.monotonic() < end, self.said()
            time.sleep(0.05)

    def ended(self) -> int:
        """Its exit status; AssertionError with where it stands and what it printed, where it goes on for too long."""
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            command = [str(Path(sys.executable).with_name("py-spy")), "dump", "--pid", str(self.process.pid)]
            stack = subprocess.run(command, capture_output=True, text=True, check=False)
            raise AssertionError(f"{stack.stdout}{stack.stderr}\n{self.said()}") from None

    def orphans(self) -> list[psutil.Process]:
        """What it left behind, once that had time to end."""
        end = time.monotonic() + 15.0
        while (found := self.others()) and time.monotonic() < end:
            time.sleep(0.1)
        return found


@contextmanager
def begun(place: Path, *words: str, component: bool = False, of: Sequence[str] = ()) -> Iterator[Begun]:
    """A small comparison whose run lies in `place`/run; it and all that it began is killed at the end.

    Of two models, which goes on for long, and with ENDLESS for as long as it may; or of a component, whose rounds are
    over in a second or two. Or what the words `of` ask for.
    """
    variants, workload = (COMPONENTS, "mask-get-t128") if component else (MODELS, "prefill-tiny-t16")
    command = [
        sys.executable, "-m", "pytest", "--benchmark", *(of or ("--compare", *variants, f"--workloads={workload}")),
        f"--run-dir={place / 'run'}", "-p", "no:cacheprovider", *words,
    ]  # fmt: skip
    mark = uuid.uuid4().hex
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    output = place / "output.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=ours | {_MARK: mark}, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell ignores it in what it begins
        )  # fmt: skip
    run = Begun(place / "run", process, output, mark)
    try:
        yield run
    finally:
        process.kill()
        process.wait()
        for other in run.others():
            other.kill()


def loads_torch(run: Begun) -> bool:
    """Whether a process of the run is alive that has torch in its memory."""
    return any("libtorch" in _maps(process.pid) for process in run.others())


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


STAGES: dict[str, Callable[[Begun], object]] = {
    "starting": lambda run: any("harness.worker" in word for other in run.others() for word in _words(other)),
    "gates": loads_torch,
    "rounds": lambda run: run.lines() >= 2,
    "profiles": lambda run: "profiles and memory" in run.said() and any("py-spy" in p.name() for p in run.others()),
}
"""How each is told from outside."""
