"""What a node of a cluster does, as tasks of Ray: it says what it is, and runs the ordinary command in a folder there.

Ray has threads of its own in a task's process, and takes it away at any time; so nothing is measured in it. The command
is a child of it, dies with it (`tied`), and knows nothing of Ray.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import llama_workbench
from llama_workbench.variants import digests

from ...machine.environment import child_environment, fingerprint
from ...machine.lifeline import tied
from ...measure.processes import ALLOCATOR

LOOK_SECONDS = 0.5

OURS = "workbench: "
"""What lines of progress begin with: of a command, and of all that the session is told."""


def version() -> str:
    """What must be the same on all nodes: the number, and a digest of the code."""
    folders = (llama_workbench.ROOT / name for name in ("harness", "datasets", "variants", "claims"))
    return f"{llama_workbench.__version__} (code {digests.digest_of_folders(folders, ('.py', '.toml'))[:12]})"


def about(threads: int, calm: bool, device: str) -> dict[str, Any]:
    """What this machine says of itself: the version of the workbench, and its fingerprint; or a problem."""
    facts = fingerprint(threads, allocator=ALLOCATOR if calm else None, device=device)
    problem = None
    if device != "cpu":
        from ...worker import devices  # imports torch

        if (problem := devices.problem(device)) is None:
            facts |= {"device": devices.device_of(device).facts()}
    return {"version": version(), "environment": facts, "problem": problem and f"--device {device}: {problem}"}


def measure(name: str, words: Sequence[str], files: Mapping[str, str]) -> tuple[int, list[str], dict[str, bytes]]:
    """Run the command with these words, in a new folder of this name that holds these files: its exit code, the lines
    that it wrote, and its run. Lines of progress are printed too, for Ray hands them on. `ray.cancel` lets it end in
    order, as Ctrl-C does."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)  # Ray gives its workers less than others; only root may change it
    if (niceness := os.getpriority(os.PRIO_PROCESS, 0)) > 0:
        first = f"other programs there come first (niceness {niceness})"
        sys.stdout.write(f"{OURS}{name}: {first}: put RAY_worker_niceness=0 before `ray start`\n")
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # what Ray blocks a child would inherit
    with tempfile.TemporaryDirectory(prefix="llama-workbench-node-") as home:
        for path, text in files.items():
            (target := Path(home, name, path)).parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        (folder := Path(home, name)).mkdir(exist_ok=True)
        child = subprocess.Popen(
            tied([sys.executable, "-m", "pytest", "--benchmark", "-p", "no:cacheprovider", "--run-dir=run", *words]),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environment(), cwd=folder,
            text=True, errors="replace",
        )  # fmt: skip
        lines: list[str] = []
        reader = threading.Thread(target=_read, args=(child, name, lines), daemon=True)
        reader.start()
        code = None
        while code is None:
            try:
                with suppress(subprocess.TimeoutExpired):
                    code = child.wait(LOOK_SECONDS)
            except KeyboardInterrupt:
                child.terminate()
        reader.join(LOOK_SECONDS)
        return code, lines, packed(folder / "run")


def _environment() -> dict[str, str]:
    """What Ray sets for its own processes is none of the child's business; threads are set for each workload."""
    variables = child_environment().items()
    return {name: value for name, value in variables if not name.startswith("RAY_") and name != "OMP_NUM_THREADS"}


def _read(child: subprocess.Popen[str], name: str, lines: list[str]) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        lines.append(line.rstrip())
        if line.startswith(OURS):
            sys.stdout.write(f"{OURS}{name}: {line.removeprefix(OURS)}")
            sys.stdout.flush()


def packed(run: Path) -> dict[str, bytes]:
    """The files of a run folder, by their names there; without hidden ones."""
    paths = (path for path in sorted(run.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in paths}


def unpack(files: Mapping[str, bytes], run: Path) -> None:
    """Write a run folder that came from another machine, all of it or nothing; nothing where it has no files."""
    partial = run.with_name(f".{run.name}.part")
    for name, content in files.items():
        (target := partial / name).parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    if files:
        partial.replace(run)
