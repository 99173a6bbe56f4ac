"""Runs that are started from a page, where the dashboard was started with `--allow-measuring`: one at a time, each by
the command that stands above its button."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import streamlit as st

from llama_workbench.harness.store.folder import RunFolder

from .. import state, words
from ..views import entries
from . import blocks

ALLOWED = "--allow-measuring"

MOST_LINES, MOST_BYTES = 12, 8192
"""Of what a run printed that ended without success."""

BUSY = "A run is being measured. Two at a time would disturb each other."


@dataclass
class Measuring:
    """What this server measures. One for all its readers: a machine measures one thing at a time."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    command: str = ""
    process: subprocess.Popen[bytes] | None = None
    log: IO[bytes] | None = None
    stopped: bool = False

    def start(self, text: str, folder: Path) -> None:
        """Start the command; nothing happens while another one goes on. folder: where a new run is written."""
        with self.lock:
            if not self.goes_on():
                self.command, self.stopped = text, False
                self.log = tempfile.TemporaryFile()  # noqa: SIM115 (until the next one)
                self.process = subprocess.Popen(
                    started(text, folder), stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT
                )

    def goes_on(self) -> bool:
        """Whether the command that was started last has not ended."""
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """End it as Ctrl-C does: what was measured is kept."""
        if self.process is not None and self.goes_on():
            self.stopped = True
            self.process.send_signal(signal.SIGTERM)  # a shell lets its background jobs ignore SIGINT

    def printed(self) -> list[str]:
        """The last lines that it printed."""
        if self.log is None:
            return []
        size = os.fstat(self.log.fileno()).st_size
        end = os.pread(self.log.fileno(), MOST_BYTES, max(size - MOST_BYTES, 0))  # a read would move where it writes
        return end.decode(errors="replace").rstrip().splitlines()[-MOST_LINES:]


@st.cache_resource
def this_server() -> Measuring:
    """What it measures."""
    return Measuring()


def command(text: str, label: str = "Start") -> None:
    """A command to copy, with a button that starts it, where that is allowed and the command is whole."""
    blocks.command(text)
    home = state.results()
    if not is_allowed() or not is_whole(text) or isinstance(home, str) or RunFolder(home).looks_like_a_run():
        return
    busy = this_server().goes_on() or bool(entries.going_on(state.all_entries()))
    st.button(
        label,
        key=f"start {text}",
        icon=":material/play_arrow:",
        disabled=busy,
        help=BUSY if busy else "It starts on the machine of this dashboard, and runs the code that it names.",
        on_click=this_server().start,
        args=(text, home),
    )


def is_allowed() -> bool:
    """Whether the dashboard was started so that its pages may start runs."""
    return ALLOWED in sys.argv


def is_whole(text: str) -> bool:
    """Whether it is a session of pytest in which nothing is left to be put in, as a comment would say."""
    return text.startswith("pytest --benchmark") and shlex.split(text) == shlex.split(text, comments=True)


def started(text: str, home: Path) -> Sequence[str]:
    """The words that are run: by this Python; a new run is written beside the others of the folder `home`."""
    first, *given = shlex.split(text)
    if "--continue" not in given and "--run-dir" not in given:
        runs = home / "runs" if (home / "runs").is_dir() or not list(home.glob("*/run.json")) else home
        given += ["--run-dir", str(runs / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"))]
    return [sys.executable, "-m", first, *given]


def show() -> None:
    """What this server measures, with a button that stops it; where it failed, what it printed last."""
    now = this_server()
    if now.process is None:
        return
    lines = now.printed()
    if now.goes_on():
        last = f": {words.markdown(words.clip(lines[-1], 140))}" if lines else ""
        st.info(f"Started here: `{now.command.replace('`', '')}`{last}", icon=":material/hourglass_top:")
        st.button("Stop, and keep what was measured", icon=":material/stop:", on_click=now.stop)
    elif now.process.returncode not in (0, 1) and not now.stopped:
        blocks.warn(f"It ended with exit code {now.process.returncode}. What it printed last:")
        blocks.command("\n".join([now.command, *lines]))
