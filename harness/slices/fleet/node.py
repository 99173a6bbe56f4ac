"""What stands on a node of a cluster: it runs the ordinary command in a folder there, and hands on what that wrote. Ray
imports this file on each node, so it imports little."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import llama_workbench
from llama_workbench.variants import digests

from ...machine.environment import child_environment, device_kind, fingerprint
from ...machine.lifeline import Lock, Taken, tied

HOME_PREFIX = "llama-workbench-node-"
LOOK_SECONDS = 0.5
OUTPUT, RUN = "output.log", "run"


class NodeWorker:
    """A Ray actor. Ray has threads of its own in its process, and takes it away at any time; so nothing is measured in
    it. The command is a child of it, dies with it (`tied`), and knows nothing of Ray. One command at a time."""

    def __init__(self) -> None:
        for left_behind in Path(tempfile.gettempdir()).glob(f"{HOME_PREFIX}*"):  # by workers that are gone
            lock = Lock()
            with suppress(Taken, OSError):
                lock.take(left_behind)
                shutil.rmtree(left_behind, ignore_errors=True)
            lock.close()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)  # Ray gives its workers less than others; only root may change it
        self._home = Path(tempfile.mkdtemp(prefix=HOME_PREFIX))
        self._lock = Lock()
        self._lock.take(self._home)

    def about(self) -> dict[str, Any]:
        """What this node says of itself. niceness: above 0 where other programs of the machine come first."""
        return {
            "version": llama_workbench.__version__,
            "code": code(),
            "kind": kind_of(fingerprint(1)),
            "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        }

    def begin(self, name: str, words: Sequence[str], files: Mapping[str, str]) -> None:
        """Start the command with these words, in a new folder of this name that holds these files."""
        self._folder = self._home / name
        self._folder.mkdir()
        for path, text in files.items():
            (target := self._folder / path).parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        self._seen = 0
        command = [sys.executable, "-m", "pytest", "--benchmark", "-p", "no:cacheprovider", f"--run-dir={RUN}", *words]
        # What Ray sets for its own processes is none of the child's business; threads are set for each workload.
        environment = {
            name: value
            for name, value in child_environment().items()
            if not name.startswith("RAY_") and name != "OMP_NUM_THREADS"
        }
        blocked = signal.pthread_sigmask(signal.SIG_SETMASK, ())  # by Ray; a child inherits it
        try:
            with (self._folder / OUTPUT).open("wb") as output:
                self._child = subprocess.Popen(
                    tied(command), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    env=environment, cwd=self._folder,
                )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def look(self, seconds: float) -> tuple[list[str], int | None, bytes]:
        """What is new: lines that the command wrote, and once it has ended its exit code and its run (a zip file).
        Waits for it at most so long."""
        end = time.monotonic() + seconds
        while True:
            code = self._child.poll()
            with (self._folder / OUTPUT).open("rb") as file:
                file.seek(self._seen)
                content = file.read()
            content = content[: content.rfind(b"\n") + 1]
            self._seen += len(content)
            if content or code is not None or time.monotonic() >= end:
                packed_run = b"" if code is None else packed(self._folder / RUN)
                return content.decode(errors="replace").splitlines(), code, packed_run
            time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """Let the command end in order, as by Ctrl-C."""
        self._child.terminate()


def code() -> str:
    """A digest of what must be the same on all nodes."""
    folders = (llama_workbench.ROOT / name for name in ("harness", "datasets", "variants", "claims"))
    return digests.digest_of_folders(folders, (".py", ".toml"))


def packed(run: Path) -> bytes:
    """A run folder as a zip file."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in sorted(run.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                archive.write(path, path.relative_to(run))
    return content.getvalue()


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
