"""The profile pass: each variant under py-spy, and its peak of memory under memray.

Neither feeds a verdict. The pass writes folded stacks with `profiles.json`, and `memory.json`, into the run folder.
Where a tool is refused, the reason is recorded and the run continues.
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
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from ..machine.lifeline import tied
from ..machine.places import place
from ..store.files import MEMORY, PROFILES
from ..store.folder import RunFolder
from .measurement import PASS_SECONDS, Measurement
from .participants import ExperimentState, Progress
from .processes import WorkerFailed, WorkerProcess

RATE_HZ = 250
"""py-spy at this rate costs 5-11 % (with native frames 1.5-2.5 times), and both sides of a comparison pay it."""

SECONDS = 1.5
NATIVE_LEAD_SECONDS = 6.0
"""py-spy stops the process for seconds to read torch's symbols, then makes up for the samples that it missed."""

ATTACH_SECONDS = 10.0


def run_passes(measurement: Measurement, folder: RunFolder, progress: Progress, *, native: bool = False) -> None:
    """Profile every variant that is left, on every workload, all at RATE_HZ.

    Left out are controls, and cells of the grid that no claim compares by name: each differs from others in one axis,
    which other pairs of variants show as well, and there are 16 of them.

    `native` profiles show the frames of kernels too, where py-spy can; else the entry's `native_reason` says why not.
    """
    given = (*measurement.setting.added.values(), *measurement.setting.functions.values())
    added = [source.file for source in given if source.file]
    profiles, memory = list[dict[str, Any]](), list[dict[str, Any]]()
    work = [
        (group, book, name)
        for group in measurement.processes.groups
        for book in group.books
        for name in book.remaining().variants
        if name in _compared(book) or name not in book.experiment.grid
    ]
    for index, (group, book, name) in enumerate(work):
        workload = book.experiment.workload.name
        left = (len(work) - index) * (SECONDS + 1.0 + (NATIVE_LEAD_SECONDS if native else 0.0))
        progress.step(f"profile {workload}: {name}", index / len(work), left)
        process = measurement.gates.standing(group)
        path = folder.path / "profiles" / _file_name(workload) / f"{_file_name(name)}.folded"
        entry = _py_spy(process, book, name, path, added, native=native)
        if entry["path"] is not None:
            entry["path"] = str(path.relative_to(folder.path))
        subject = {"workload": workload, "variant": name}
        profiles.append(subject | entry)
        try:
            sizes = measurement.gates.standing(group).ask("memory", PASS_SECONDS, **subject) | {"reason": None}
        except WorkerFailed as failure:
            sizes = dict.fromkeys(("peak_transient_bytes", "parameter_bytes", "cache_bytes"))
            sizes["reason"] = failure.reason
        memory.append(subject | sizes)
        folder.write_json(PROFILES, profiles)
        folder.write_json(MEMORY, memory)


def _compared(book: ExperimentState) -> set[str]:
    """The variants of an experiment that a claim compares by name."""
    return {name for target in book.experiment.targets for name in target.comparison.sides}


def _py_spy(
    process: WorkerProcess,
    book: ExperimentState,
    variant: str,
    path: Path,
    added: Sequence[Path] = (),
    *,
    native: bool = False,
) -> dict[str, Any]:
    """Attach for as long as the variant is called in a loop; an entry of profiles.json."""
    empty = dict.fromkeys(("path", "native_reason", "median_ns", "median_error_ns", "reason"))
    entry: dict[str, Any] = {"rate_hz": RATE_HZ, "samples": 0, "native": False, "calls": 0, **empty}
    tool = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if tool is None:
        return entry | {"reason": "py-spy is not installed: pip install py-spy"}
    workload = book.experiment.workload.name
    try:
        lead = NATIVE_LEAD_SECONDS if native else 0.0
        timing = {"lead_seconds": lead, "seconds": SECONDS}
        go = process.ask_in_two("loop", PASS_SECONDS, workload=workload, variant=variant, **timing)
        with tempfile.TemporaryDirectory() as folder:
            raw = Path(folder) / "stacks.folded"
            refusal = ""  # of the first try
            # --nonblocking needs no ptrace stop; py-spy walks no native stack without one.
            for extra in (["--native"], [], ["--nonblocking"]) if native else ([], ["--nonblocking"]):
                recorder, answer = _attach(tool, process.pid, raw, extra)
                refusal = refusal or answer
                if recorder is not None:
                    entry["native"] = "--native" in extra
                    break
            if native and not entry["native"]:
                entry["native_reason"] = f"py-spy --native cannot attach: {refusal}"
            try:
                entry |= go()
                if recorder is None:
                    return entry | {"reason": f"py-spy cannot attach: {refusal}"}
                recorder.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    recorder.communicate(timeout=PASS_SECONDS)
            finally:
                if recorder is not None and recorder.poll() is None:
                    recorder.kill()
                    recorder.communicate()
            text = raw.read_text(encoding="utf-8", errors="replace") if raw.is_file() else ""
    except WorkerFailed as failure:
        return entry | {"reason": failure.reason}
    stacks, samples = _in_loop(text, added)
    if not samples:
        return entry | {"reason": "py-spy recorded no sample in the loop"}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(stacks, encoding="utf-8")
    return entry | {"path": str(path), "samples": samples}


def _attach(tool: str, pid: int, raw: Path, extra: list[str]) -> tuple[subprocess.Popen[bytes] | None, str]:
    """py-spy, once it samples; or None and its output."""
    # It says that it samples only after its first look at the process, so the loop does not start too early.
    command = [tool, "record", "--pid", str(pid), "--rate", str(RATE_HZ), "--format", "raw", "--output", str(raw)]
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


def _file_name(name: str) -> str:
    """A name as a file's name: nothing that leaves the folder."""
    return re.sub(r"[^A-Za-z0-9._@+-]", "_", name).lstrip(".") or "_"
