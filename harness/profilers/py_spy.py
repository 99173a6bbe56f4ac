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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import StrictBool

from ..machine import extras
from ..machine.lifeline import tied
from ..machine.places import place
from ..measure.passes import PASS_SECONDS
from ..measure.processes import WorkerFailed
from ..store.forms import Amount, Count, JsonFile, Nanoseconds, OfVariant, Text, says
from .base import ProfiledVariant, Profiler

RATE_HZ = 250
"""py-spy at this rate costs 5-11 % (with native frames 1.5-2.5 times), and both sides of a comparison pay it."""

SECONDS = 1.5
NATIVE_LEAD_SECONDS = 6.0
"""py-spy stops the process for seconds to read torch's symbols, then makes up for the samples that it missed."""

ATTACH_SECONDS = 10.0

NOT_INSTALLED = f"py-spy is not installed: {extras.install('profile')}"


class Profile(OfVariant):
    """A sampling profile of a variant."""

    path: Annotated[Text | None, says("its stacks, a file in the run folder")] = None
    rate_hz: Annotated[Amount | None, says("samples a second")] = None
    samples: Annotated[Count, says("number of samples")] = 0
    native: Annotated[StrictBool, says("whether it has frames of native code")] = False
    native_reason: Annotated[Text | None, says("why it has none")] = None
    median_ns: Annotated[Nanoseconds | None, says("time of a call meanwhile, nanoseconds")] = None
    median_error_ns: Annotated[Amount | None, says("standard error of that, nanoseconds")] = None
    reason: Annotated[Text | None, says("why there is no profile")] = None


PROFILES = JsonFile("profiles.json", list[Profile])


class PySpy(Profiler):
    """Sampled stacks, all at RATE_HZ.

    Native profiles show the frames of kernels too, where py-spy can; else the entry's `native_reason` says why not.
    """

    file = PROFILES

    def look(self, at: ProfiledVariant) -> Mapping[str, Any]:
        return _py_spy(at)

    def seconds(self, *, native: bool) -> float:
        return SECONDS + (NATIVE_LEAD_SECONDS if native else 0.0)


def _py_spy(at: ProfiledVariant) -> dict[str, Any]:
    """Attach for as long as the variant is called in a loop; an entry of profiles.json."""
    empty = dict.fromkeys(("path", "native_reason", "median_ns", "median_error_ns", "reason"))
    entry: dict[str, Any] = {"rate_hz": RATE_HZ, "samples": 0, "native": False, "calls": 0, **empty}
    tool = installed()
    if tool is None:
        return entry | {"reason": NOT_INSTALLED}
    try:
        lead = NATIVE_LEAD_SECONDS if at.native else 0.0
        timing = {"lead_seconds": lead, "seconds": SECONDS}
        go = at.process.ask_in_two("loop", PASS_SECONDS, workload=at.workload, variant=at.variant, **timing)
        with tempfile.TemporaryDirectory() as folder:
            raw = Path(folder) / "stacks.folded"
            refusal = ""  # of the first try
            # --nonblocking needs no ptrace stop; py-spy walks no native stack without one.
            for extra in (["--native"], [], ["--nonblocking"]) if at.native else ([], ["--nonblocking"]):
                recorder, answer = attach(tool, at.process.pid, raw, extra)
                refusal = refusal or answer
                if recorder is not None:
                    entry["native"] = "--native" in extra
                    break
            if at.native and not entry["native"]:
                entry["native_reason"] = f"py-spy --native cannot attach: {refusal}"
            try:
                entry |= go()
                if recorder is None:
                    return entry | {"reason": f"py-spy cannot attach: {refusal}"}
                text = recorded(recorder, raw)
            finally:
                if recorder is not None and recorder.poll() is None:
                    recorder.kill()
                    recorder.communicate()
    except WorkerFailed as failure:
        return entry | {"reason": failure.reason}
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


def recorded(recorder: subprocess.Popen[bytes], raw: Path) -> str:
    """End the recording: its folded stacks."""
    recorder.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        recorder.communicate(timeout=PASS_SECONDS)
    return raw.read_text(encoding="utf-8", errors="replace") if raw.is_file() else ""


def attach(
    tool: str, pid: int, raw: Path, extra: Sequence[str] = (), rate_hz: int = RATE_HZ
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


def _in_loop(text: str, added: Sequence[Path] = ()) -> tuple[str, int]:
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
