"""What a node of a cluster does: a Ray task runs the ordinary command in a folder there, and returns its run. Ray
imports this file on each node, so it imports little."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import llama_workbench
from llama_workbench.variants import digests

from ...machine.environment import child_environment, device_kind, fingerprint
from ...machine.lifeline import tied

HOME_PREFIX = "llama-workbench-node-"
LOOK_SECONDS = 0.5
OURS = "workbench: "
"""What lines of progress begin with."""

ANOTHER_VERSION = "another version of the workbench than where the run was started"


def kind() -> bytes:
    """What kind of machine this node is."""
    return kind_of(fingerprint(1)).encode()


def measure(name: str, place: str, code_there: str, words: Sequence[str], files: Mapping[str, str]) -> bytes:
    """Run the command with these words in a new folder that holds these files, and return its run (see `packed`).

    place: what its lines of progress begin with; they are printed, and Ray brings them to the driver, whose code this
    must be. Where Ray cancels this task, the command ends in order, as by Ctrl-C.
    """
    if code() != code_there:
        version = llama_workbench.__version__
        raise RuntimeError(f"{ANOTHER_VERSION} (this is {version}): install the same version on all nodes")
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)  # Ray gives its workers less than others; only root may change it
    if (niceness := os.getpriority(os.PRIO_PROCESS, 0)) > 0:
        first = f"other programs there come first (niceness {niceness})"
        print(f"{OURS}{place}: {first}: put RAY_worker_niceness=0 before `ray start`", flush=True)
    cancelled = Event()
    # Ray cancels a task by SIGINT, and again while the run is ending or packed: what was measured would be lost.
    before = signal.signal(signal.SIGINT, lambda *_: cancelled.set())
    try:
        with tempfile.TemporaryDirectory(prefix=f"{HOME_PREFIX}{name}-") as home:
            for path, text in files.items():
                (target := Path(home, path)).parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            run, output = Path(home, "run"), Path(home, "output.log")
            child = _started([f"--run-dir={run.name}", *words], output)
            lines = _follow(child, output, place, cancelled)
            return packed(run, "" if child.returncode == 0 else _reason(lines, child.returncode))
    finally:
        signal.signal(signal.SIGINT, before)


def _started(words: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
    """The command as a process of its own, for Ray has threads in this one. It ends with this process (`tied`)."""
    # What Ray sets for its own processes is none of the child's business; threads are set for each workload.
    environment = {
        name: value
        for name, value in child_environment().items()
        if not name.startswith("RAY_") and name != "OMP_NUM_THREADS"
    }
    command = [sys.executable, "-m", "pytest", "--benchmark", "-p", "no:cacheprovider", *words]
    blocked = signal.pthread_sigmask(signal.SIG_SETMASK, ())  # by Ray; a child inherits it
    try:
        with output.open("wb") as written:
            return subprocess.Popen(
                tied(command), stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT,
                env=environment, cwd=output.parent,
            )  # fmt: skip
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _follow(child: subprocess.Popen[bytes], output: Path, place: str, cancelled: Event) -> list[str]:
    """Print what the command tells until it has ended, which it is asked to once the task is `cancelled`. Returns all
    its lines."""
    lines, rest = list[str](), ""
    with output.open(encoding="utf-8", errors="replace") as written:
        has_ended = was_asked = False
        while not has_ended:
            if cancelled.is_set() and not was_asked:
                child.terminate()  # once: a second time would end it at once
                was_asked = True
            has_ended = child.poll() is not None
            *whole, rest = (rest + written.read()).split("\n")
            for line in whole:
                if line.startswith(OURS):
                    print(f"{OURS}{place}: {line.removeprefix(OURS)}", flush=True)
            lines += whole
            time.sleep(0 if has_ended else LOOK_SECONDS)
    return [*lines, rest]


def _reason(lines: Sequence[str], code: int) -> str:
    """Why a command came to nothing, of what it wrote."""
    written = [line.strip(" !") for line in lines if line.strip(" !=")]
    faults = [line for line in written if "could not measure: " in line or "error: " in line.lower()]
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"the command ended ({how}): {([*written[-1:], *faults] or ['without a word'])[-1][:300]}"


def packed(run: Path, reason: str = "") -> bytes:
    """A run folder as a zip file, whose comment is why the command did not end well."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.comment = reason.encode()
        for path in sorted(run.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                archive.write(path, path.relative_to(run))
    return content.getvalue()


def code() -> str:
    """A digest of what must be the same on all nodes."""
    folders = (llama_workbench.ROOT / name for name in ("harness", "datasets", "variants", "claims"))
    return digests.digest_of_folders(folders, (".py", ".toml"))


_NOISE = re.compile(r"\((?:R|TM|C)\)|\bCPU(?= +\S)|\bProcessor\b|@\s*[\d.]+\s*GHz|\b\w+-Core\b", re.IGNORECASE)


def kind_of(environment: Mapping[str, Any]) -> str:
    """What computes, in a few words: "AMD EPYC 9554, 2 cores", or the GPU where that computes."""
    if device_kind(environment) != "cpu":
        return str(environment["device"].get("name") or "unknown GPU")
    model = " ".join(_NOISE.sub(" ", str(environment.get("cpu_model") or "")).split()) or "unknown processor"
    cores, quota = environment.get("cores"), environment.get("cgroup_quota_cores")
    if cores is None:
        return model
    granted = cores if quota is None else max(1, min(int(cores), int(quota)))
    return f"{model}, {granted} core{'s' * (granted != 1)}"
