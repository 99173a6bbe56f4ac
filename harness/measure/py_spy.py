"""py-spy, which samples the stacks of a measuring process from outside."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..machine import extras
from ..machine.lifeline import tied
from .passes import PASS_SECONDS

ATTACH_SECONDS = 10.0

NOT_INSTALLED = f"py-spy is not installed: {extras.install('profile')}"


def installed() -> str | None:
    """Where py-spy is; None where it is not installed."""
    return shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")


def sampled(tool: str, pid: int, go: Callable[[], Any], rate_hz: int) -> tuple[Any, str, str]:
    """What `go` answers, the folded stacks of the process meanwhile, and why there are none. Raises what `go` does."""
    with tempfile.TemporaryDirectory() as folder:
        raw, refusal = Path(folder) / "stacks.folded", ""  # of the first try
        for extra in ((), ("--nonblocking",)):  # which needs no ptrace stop
            recorder, answer = attach(tool, pid, raw, extra, rate_hz)
            refusal = refusal or answer
            if recorder is not None:
                break
        else:
            return go(), "", f"py-spy cannot attach: {refusal}"
        try:
            answered = go()
            recorder.send_signal(signal.SIGINT)  # which ends the recording
            with suppress(subprocess.TimeoutExpired):
                recorder.communicate(timeout=PASS_SECONDS)
            return answered, raw.read_text(encoding="utf-8", errors="replace") if raw.is_file() else "", ""
        finally:
            if recorder.poll() is None:
                recorder.kill()
                recorder.communicate()


def attach(
    tool: str, pid: int, raw: Path, extra: Sequence[str], rate_hz: int
) -> tuple[subprocess.Popen[bytes] | None, str]:
    """py-spy, once it samples; or None and its output."""
    # It says that it samples only after its first look at the process, so the loop does not start too early.
    command = [tool, "record", "--pid", str(pid), "--rate", str(rate_hz), "--format", "raw", "--output", str(raw)]
    process = subprocess.Popen(
        tied([*command, "--full-filenames", *extra]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    output = b""
    end = time.monotonic() + ATTACH_SECONDS
    while (left := end - time.monotonic()) > 0 and select.select([process.stdout], [], [], left)[0]:
        if not (chunk := os.read(process.stdout.fileno(), 4096)):
            break
        output += chunk
        if b"Sampling process" in output:
            return process, ""
    process.kill()
    process.wait()
    process.stdout.close()
    return None, " ".join(re.sub(r"\x1b\[[0-9;]*m", "", output.decode(errors="replace")).split())[:300] or "no answer"
