"""Each variant under py-spy: folded stacks, and profiles.json.

Where the tool is refused, the reason is recorded and the run continues.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from ...machine.places import place
from ...measure.passes import PASS_SECONDS
from ...measure.profiling import ProfiledVariant, Profiler
from ...measure.py_spy import NOT_INSTALLED, installed, sampled
from ...store.passes import PROFILES

RATE_HZ = 250
"""py-spy at this rate costs 5-11 %, and both sides of a comparison pay it."""

SECONDS = 1.5


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
