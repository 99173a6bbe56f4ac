"""Each variant under py-spy: folded stacks, and profiles.json.

Where the tool is refused, the reason is recorded and the run continues.
"""

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
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from ..machine import extras
from ..machine.lifeline import tied
from ..machine.places import place
from ..measure.passes import PASS_SECONDS
from ..store.forms import Amount, Count, JsonFile, Nanoseconds, OfVariant, Text, says
from .base import ProfiledVariant, Profiler

RATE_HZ = 250
"""py-spy at this rate costs 5-11 %, and both sides of a comparison pay it."""

SECONDS = 1.5
ATTACH_SECONDS = 10.0

NOT_INSTALLED = f"py-spy is not installed: {extras.install('profile')}"


class Profile(OfVariant):
    """A sampling profile of a variant."""

    path: Annotated[Text | None, says("its stacks, a file in the run folder")] = None
    rate_hz: Annotated[Amount | None, says("samples a second")] = None
    samples: Annotated[Count, says("number of samples")] = 0
    median_ns: Annotated[Nanoseconds | None, says("time of a call meanwhile, nanoseconds")] = None
    median_error_ns: Annotated[Amount | None, says("standard error of that, nanoseconds")] = None
    reason: Annotated[Text | None, says("why there is no profile")] = None


PROFILES = JsonFile("profiles.json", list[Profile])


class PySpy(Profiler):
    """Sampled stacks, all at RATE_HZ."""

    file = PROFILES
    seconds = SECONDS

    def look(self, at: ProfiledVariant) -> Mapping[str, Any]:
        """Sample for as long as the variant is called in a loop."""
        empty = dict.fromkeys(("path", "median_ns", "median_error_ns", "reason"))
        entry: dict[str, Any] = {"rate_hz": RATE_HZ, "samples": 0, "calls": 0, **empty}
        tool = installed()
        if tool is None:
            return entry | {"reason": NOT_INSTALLED}
        go = at.process.ask_in_two("loop", PASS_SECONDS, workload=at.workload, variant=at.variant, seconds=SECONDS)
        called, text, refusal = sampled(tool, at.process.pid, go, RATE_HZ)
        entry |= called
        if refusal:
            return entry | {"reason": refusal}
        stacks, samples = _in_loop(text, at.added)
        if not samples:
            return entry | {"reason": "py-spy recorded no sample in the loop"}
        stacks_path = at.stacks()
        stacks_path.parent.mkdir(parents=True, exist_ok=True)
        stacks_path.write_text(stacks, encoding="utf-8")
        return entry | {"path": stacks_path.relative_to(at.folder).as_posix(), "samples": samples}


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


def _in_loop(text: str, added: Sequence[Path]) -> tuple[str, int]:
    """Stacks below the profiled call, in folded form, and the number of their samples.

    Frames above the call are the worker's own. Those below have their files named as `places` does.
    """
    counts: Counter[str] = Counter()
    named = cache(partial(_named, added=added))
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        start = next((i for i, frame in enumerate(frames) if frame.startswith("_profiled_call ")), None)
        if start is not None and count.isdigit():
            counts[";".join(map(named, frames[start + 1 :] or frames[start:]))] += int(count)
    return "".join(f"{stack} {count}\n" for stack, count in counts.items()), counts.total()


def _named(frame: str, added: Sequence[Path]) -> str:
    """`forward (/a/b/variants/fast.py:12)` → `forward (variants/fast.py:12)`."""
    name, _, where = frame.rpartition(" (")
    parts = re.fullmatch(r"(.*?)(:\d+)?", where.removesuffix(")"))
    if not name or not parts:
        return frame
    return f"{name} ({place(parts[1], added)}{parts[2] or ''})"


PROFILER = PySpy()
