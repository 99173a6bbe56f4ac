"""The verb `line_runs`: how often each line of both sides of a comparison runs in one call.

A profile says where the time goes; this says whether a line takes it because it runs often or takes long each time.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from .alternating import built_sides
from .rounds import RoundShape
from .state import Worker

MOST_EVENTS = 3_000_000
"""Lines that are watched in a call, some seconds: where there are more, none are told."""

OURS = str(Path(__file__).resolve().parents[1])

Line = tuple[str, int]
"""A file, and a number of a line."""


def line_runs(worker: Worker, workload: str, baseline: str, variant: str) -> dict[str, list[tuple[str, int, int]]]:
    """By side: (file, line, how often it ran in one call). Both get the same input; none of a side whose call has more
    than MOST_EVENTS."""
    roles = {baseline: "baseline", variant: "variant"}
    counts: dict[str, list[tuple[str, int, int]]] = {}
    shape = RoundShape(1, dict.fromkeys(roles, 1), prime=False)
    with built_sides(worker, workload, shape) as (this, length, built):
        prompts = this.prompts(shape.most_calls)
        for _, name, runner in built.turns():
            runner.prepare(length, prompts[name], 1)
            runs = counted(partial(runner.many, 1))
            counts[roles[name]] = [(file, line, count) for (file, line), count in runs.items()]
    return counts


def counted(call: Callable[[], Any]) -> dict[Line, int]:
    """How often each line ran, in the thread that calls; empty where there were too many."""
    runs: Counter[Line] = Counter()
    events = 0

    def on_line(frame: Any, event: str, argument: Any) -> Any:
        nonlocal events
        if event == "line":
            runs[frame.f_code.co_filename, frame.f_lineno] += 1
            events += 1
            if events > MOST_EVENTS:
                sys.settrace(None)
        return on_line

    def on_call(frame: Any, event: str, argument: Any) -> Any:
        return on_line if is_watched(frame.f_code.co_filename) else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        call()
    finally:
        sys.settrace(before)
    return {} if events > MOST_EVENTS else dict(runs)


@cache
def is_watched(file: str) -> bool:
    """Whether a file is neither Python's own nor ours, and a package only where it is not torch's or numpy's."""
    library, packages = _folders()
    if file.startswith(packages):  # which may lie within the library
        return not any(file.startswith((f"{folder}/torch/", f"{folder}/numpy/")) for folder in packages)
    return not file.startswith((*library, OURS, "<"))


@cache
def _folders() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where Python's library lies, and where packages do."""
    import sysconfig  # here, for every process of a run imports this module, and few count lines

    paths = sysconfig.get_paths()
    return (paths["stdlib"], paths["platstdlib"]), (paths["purelib"], paths["platlib"])
