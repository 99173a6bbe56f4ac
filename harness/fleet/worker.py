"""What stands on a node: it starts the process that measures, and hands on what that process writes.

It is a Ray actor. Ray has threads of its own in an actor's process, and takes it away at any time; so nothing is
measured in it. The process that measures is a child of it, dies with it (`tied`), and knows nothing of Ray.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pydantic import ConfigDict, TypeAdapter

import llama_workbench

from ..machine.environment import child_environment
from ..machine.lifeline import tied
from ..machine.locks import Lock, Taken
from .mirror import FilePart, Outgoing

HOME_PREFIX = "llama-workbench-node-"
LOOK_SECONDS = 0.5
ANSWER_BYTES = 8 << 20
"""About so much is in one answer."""

EVENTS = "events.jsonl"
OUTPUT = "output.log"
DONE = ("done", "failed")
"""Events that end an order."""


class Told(NamedTuple):
    """What is new on a node."""

    events: list[str]  # as texts of JSON
    parts: list[FilePart]  # of the run folder, to be written before the events count
    gone: str  # why the measuring process has ended; empty while it lives


TOLD = TypeAdapter(Told, config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64"))
"""To and from JSON."""


class NodeWorker:
    """The actor. One order at a time; `look` is called again and again while it is measured."""

    def __init__(self) -> None:
        _remove_left_behind()
        self._home = Path(tempfile.mkdtemp(prefix=HOME_PREFIX))
        self._lock = Lock()
        self._lock.take(self._home)
        self._events = 0
        self._folder: Outgoing | None = None
        self._parts: list[FilePart] = []
        self._child: subprocess.Popen[bytes] | None = None

    def version(self) -> str:
        """Of the workbench that is installed here."""
        return llama_workbench.__version__

    def begin(self, order: str, name: str, fresh: bool) -> None:
        """Give the measuring process an order, as JSON; its run will lie in a folder of this name. fresh: whether it
        must be a new process."""
        if fresh and self._child is not None:
            self._child.kill()
            self._child.wait()
        if self._child is None or self._child.poll() is not None:
            self._child = self._started()
        self._folder = Outgoing(self._home / name) if name else None
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # `look` says why
            self._child.stdin.write(order.encode() + b"\n")
            self._child.stdin.flush()

    def look(self, seconds: float) -> bytes:
        """What is new, as JSON; waits for it at most so long."""
        end = time.monotonic() + seconds
        while True:
            gone = self._why_gone()
            events = self._new_events()
            ended = bool(gone) or any(json.loads(each)["event"] in DONE for each in events)
            if self._folder is not None:
                self._parts += self._folder.parts(ended=ended)
            if events or gone or self._parts or time.monotonic() >= end:
                return TOLD.dump_json(Told(events, self._batch(all_=ended), gone))
            time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """Let the measuring process end in order, as by Ctrl-C."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGINT)

    def close(self) -> None:
        """End the process and remove what it wrote here."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        shutil.rmtree(self._home, ignore_errors=True)
        self._lock.close()

    def _batch(self, *, all_: bool) -> list[FilePart]:
        size, count = 0, 0
        while count < len(self._parts) and (all_ or size < ANSWER_BYTES):
            size += len(self._parts[count].content)
            count += 1
        batch, self._parts = self._parts[:count], self._parts[count:]
        return batch

    def _started(self) -> subprocess.Popen[bytes]:
        (self._home / EVENTS).write_bytes(b"")
        self._events = 0
        # What Ray sets for its own processes is none of the child's business; threads are set for each workload.
        environment = {
            name: value
            for name, value in child_environment().items()
            if not name.startswith("RAY_") and name != "OMP_NUM_THREADS"
        }
        command = [sys.executable, "-m", "llama_workbench.harness.fleet.node", str(self._home)]
        with (self._home / OUTPUT).open("ab") as output:
            return subprocess.Popen(
                tied(command), stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment, cwd=self._home
            )

    def _new_events(self) -> list[str]:
        with (self._home / EVENTS).open("rb") as file:
            file.seek(self._events)
            content = file.read()
        content = content[: content.rfind(b"\n") + 1]
        self._events += len(content)
        return content.decode().splitlines()

    def _why_gone(self) -> str:
        """Why the process has ended, with the last line that it wrote."""
        if self._child is None or (code := self._child.poll()) is None:
            return ""
        lines = (self._home / OUTPUT).read_text("utf-8", errors="replace").strip().splitlines()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"the measuring process ended ({how})" + (f": {lines[-1][:200]}" if lines and code else "")


def _remove_left_behind() -> None:
    """Remove the folders of workers that were killed: nobody holds them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{HOME_PREFIX}*"):
        if not os.access(folder, os.W_OK):
            continue
        lock = Lock()
        with suppress(Taken, OSError):
            lock.take(folder)
            shutil.rmtree(folder, ignore_errors=True)
            lock.close()
