"""What stands on a node of a cluster: it runs the ordinary command in a folder there, and hands on what that wrote.

It is a Ray actor. Ray has threads of its own in an actor's process, and takes it away at any time; so nothing is
measured in it. The command is a child of it, dies with it (`tied`), and knows nothing of Ray.

As a program it prints what the node says of itself:
`python -m llama_workbench.harness.slices.fleet.node THREADS CALM DEVICE`.
"""

from __future__ import annotations

import io
import json
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
from pathlib import Path, PurePosixPath
from typing import Any

import llama_workbench
from llama_workbench.variants import digests

from ...machine.environment import child_environment, fingerprint
from ...machine.lifeline import Lock, Taken, tied
from ...measure.processes import ALLOCATOR
from ...store.files import JOURNAL, SUMS

HOME_PREFIX = "llama-workbench-node-"
LOOK_SECONDS = 0.5
OUTPUT, RUN = "output.log", "run"

_RUN_FILE = re.compile(
    r"log/[A-Za-z0-9._-]+\.log|profiles/(?:[A-Za-z0-9@._+-]+/)*[A-Za-z0-9@._+-]+\.folded|[\w-]+\.(json|parquet)"
)


class NodeWorker:
    """The actor. One command at a time; `look` is called again and again while it runs."""

    def __init__(self) -> None:
        _remove_left_behind()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)  # Ray gives its workers less than others; only root may change it
        self._home = Path(tempfile.mkdtemp(prefix=HOME_PREFIX))
        self._lock = Lock()
        self._lock.take(self._home)

    def about(self, threads: int, calm: bool, device: str) -> str:
        """What `about` finds, in a process of its own, as JSON; or why that found nothing."""
        child = self._begun([__name__, str(threads), "calm" * calm, device], self._home, subprocess.PIPE)
        last = (child.communicate()[0].strip() or "it ended").splitlines()[-1]
        return json.dumps({"problem": f"cannot say what it is: {last[:200]}"}) if child.returncode else last

    def begin(self, name: str, words: Sequence[str], files: Mapping[str, str]) -> None:
        """Start the command with these words, in a new folder of this name that holds these files."""
        self._folder = self._home / name
        self._folder.mkdir()
        for path, text in files.items():
            (target := self._folder / path).parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        self._seen = 0
        command = ["pytest", "--benchmark", "-p", "no:cacheprovider", f"--run-dir={RUN}", *words]
        with (self._folder / OUTPUT).open("wb") as output:
            self._child = self._begun(command, self._folder, output)

    def look(self, seconds: float) -> tuple[list[str], int | None, bytes]:
        """What is new: lines that the command wrote, and once it has ended its exit code and its run (a zip file).
        Waits for it at most so long."""
        end = time.monotonic() + seconds
        while True:
            code = self._child.poll()
            lines = self._new_lines()
            if lines or code is not None or time.monotonic() >= end:
                return lines, code, b"" if code is None else packed(self._folder / RUN)
            time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """Let the command end in order, as by Ctrl-C."""
        self._child.terminate()

    def _begun(self, command: Sequence[str], folder: Path, output: Any) -> subprocess.Popen[str]:
        # What Ray sets for its own processes is none of the child's business; threads are set for each workload.
        environment = {
            name: value
            for name, value in child_environment().items()
            if not name.startswith("RAY_") and name != "OMP_NUM_THREADS"
        }
        blocked = signal.pthread_sigmask(signal.SIG_SETMASK, ())  # by Ray; a child inherits it
        try:
            return subprocess.Popen(
                tied([sys.executable, "-m", *command]), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, env=environment, cwd=folder, text=True,
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _new_lines(self) -> list[str]:
        with (self._folder / OUTPUT).open("rb") as file:
            file.seek(self._seen)
            content = file.read()
        content = content[: content.rfind(b"\n") + 1]
        self._seen += len(content)
        return content.decode(errors="replace").splitlines()


def _remove_left_behind() -> None:
    """Remove the folders of workers that are gone: nobody holds them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{HOME_PREFIX}*"):
        lock = Lock()
        with suppress(Taken, OSError):
            lock.take(folder)
            shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def packed(run: Path) -> bytes:
    """A run folder as a zip file."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in sorted(run.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                archive.write(path, path.relative_to(run))
    return content.getvalue()


def unpack(content: bytes, run: Path) -> None:
    """Write a run folder that came from another machine; nothing where it is empty. Raises ValueError for a file that
    no run has: none may lead out of the folder."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = archive.namelist()
            for name in names:
                plain = ".." not in PurePosixPath(name).parts and (name in (JOURNAL, SUMS) or _RUN_FILE.fullmatch(name))
                if not plain:
                    raise ValueError(f"sent a file that no run has: {name[:100]!r}")
            partial = run.with_name(f".{run.name}.part")
            archive.extractall(partial)
            if names:
                os.replace(partial, run)
    except zipfile.BadZipFile as error:
        raise ValueError(f"sent no run ({error})") from error


def code() -> str:
    """A digest of what must be the same on all nodes."""
    folders = (llama_workbench.ROOT / name for name in ("harness", "datasets", "variants", "claims"))
    return digests.digest_of_folders(folders, (".py", ".toml"))


def about(threads: int, calm: bool, device: str) -> dict[str, Any]:
    """What this machine says of itself: the version and the code of the workbench, and its fingerprint; or a problem.

    niceness: of this process, above 0 where others of the same machine come first.
    """
    facts = fingerprint(threads, allocator=ALLOCATOR if calm else None, device=device)
    if device != "cpu":
        from ...worker.devices import device_of, problem  # imports torch

        if why := problem(device):
            return {"problem": f"--device {device}: {why}"}
        facts |= {"device": device_of(device).facts()}
    return {
        "version": llama_workbench.__version__,
        "code": code(),
        "environment": facts,
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(about(int(sys.argv[1]), bool(sys.argv[2]), sys.argv[3])))
