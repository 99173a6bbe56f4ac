"""Where two sides of a comparison spend their time, place by place: causes.json.

Both sides are called in turns in one process, under py-spy, and again in a few more processes that are begun anew. So
each place has a share of either side's time in every process, and what two places differ by has an interval over
processes (`stats.causes`). A sample counts for the innermost function that is neither of Python's own library nor
of torch or numpy: what these do is done for the line that calls them.
"""

from __future__ import annotations

import ast
import linecache
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ...machine.places import place
from ...measure import py_spy
from ...measure.groups import Group
from ...measure.measurement import Measurement
from ...measure.participants import ExperimentState, Progress
from ...measure.passes import PASS_SECONDS, measured_by
from ...measure.processes import WorkerFailed, WorkerProcess
from ...spec.comparison import Comparison
from ...store.folder import RunFolder
from ...store.passes import CAUSES, SIDES

PROCESSES, SECONDS, RATE_HZ = 10, 0.35, 1000
"""So many processes, each sampled for so long. Processes differ by more than the samples of one do: in the same time an
interval over ten of them is half as wide as one over five."""

LEAST_PROCESSES, MOST_PROCESSES = 5, 15
"""On a busy machine the profiler may miss a side in a process, which then says nothing: another one is begun, up to so
many in all. With fewer than the least nothing is said."""

LONG_CALL_SECONDS = 0.1
"""Longer calls are sampled for as long as LEAST_CALLS of them take, up to MOST_SECONDS."""
LEAST_CALLS, MOST_SECONDS = 6, 10.0

LEAST_SHARE = 0.0005
"""A line with less of a side's samples is not kept by itself."""

MOST_TEXT, MOST_LINES = 160, 200
"""Characters of a line of code; lines of a function."""

_DISPATCH = "torch/nn/modules/module.py"
"""Two frames at every call of a Module, which say nothing."""

_HARNESS = ("harness/", "<")
_NOT_OWN = ("stdlib/", "torch/", "site-packages/numpy/")
"""Whose time is that of the line that calls them, unless one of theirs is what is compared."""

_LIBRARIES = ("stdlib/", "torch/", "site-packages/")

_LOOP = ("stdlib/asyncio/", "stdlib/selectors.py")

WAITING, EVENT_LOOP = "waiting for what is awaited", "the event loop"
"""In place of a function, where an event loop has nothing to run, and where it runs itself."""

_FRAME = re.compile(r"(.*) \(([^()]*?)(?::(\d{1,9}))?\)")  # name, file, line
_SIDE = re.compile(r"^(baseline|variant)_turn \(")


def look_for_causes(
    measurement: Measurement,
    folder: RunFolder,
    progress: Progress,
    differing: Callable[[Comparison], tuple[float, float] | None],
    *,
    of_models: bool,
) -> None:
    """Sample both sides of each pair of functions that differ, `of_models` of models too. differing: the times of a
    call of baseline and variant, None where a pair does not differ. What a tool refuses is the entry's `reason`."""
    entries: list[dict[str, Any]] = []
    pairs = [each for each in _pairs(measurement, of_models) if differing(each[2]) is not None]
    if pairs and py_spy.installed() is not None:  # else each entry says so at once
        progress.phase("causes: where the difference is")
    for group, state, pair in pairs:
        begun = time.monotonic()
        entry: dict[str, Any] = {"workload": pair.workload, "variant": pair.variant, "baseline": pair.baseline}
        entry["call_ns"] = dict(zip(SIDES, differing(pair) or (), strict=True))

        def step(number: int, process_seconds: float, pair: Comparison = pair) -> None:
            left = PROCESSES * (len(pairs) - len(entries)) - number
            progress.step(
                f"causes {pair.workload}: {pair.variant}", 1 - left / PROCESSES / len(pairs), left * process_seconds
            )

        try:
            entry |= _sampled(measurement, group, state, pair, step)
        except WorkerFailed as failure:
            entry["reason"] = failure.reason
        entries.append(entry | {"seconds": time.monotonic() - begun})
        folder.write_json(CAUSES, entries)


def _pairs(measurement: Measurement, of_models: bool) -> list[tuple[Group, ExperimentState, Comparison]]:
    """Those that can be sampled, in their order."""
    commands = {name for name, source in measurement.setting.functions.items() if source.command}  # nobody sees inside
    by_pair: dict[Comparison, tuple[Group, ExperimentState, Comparison]] = {}
    for group, state in measured_by(measurement).values():
        if not group.divided and (of_models or state.experiment.workload.kind == "call"):
            if state.experiment.workload.statistic:  # samples say nothing of the slowest calls alone
                continue
            for pair in (target.comparison for target in state.remaining().targets):
                if pair.metric == "time" and not commands & pair.sides:
                    by_pair.setdefault(pair, (group, state, pair))
    return list(by_pair.values())


def _sampled(
    measurement: Measurement,
    group: Group,
    state: ExperimentState,
    pair: Comparison,
    step: Callable[[int, float], None],
) -> dict[str, Any]:
    tool = py_spy.installed()
    if tool is None:
        return {"reason": py_spy.NOT_INSTALLED}
    if gone := [side for side in pair.sides if side not in state.remaining().entered()]:
        return {"reason": f"{gone[0]} is not measured on this workload"}
    if any(state.learnt.get(side, {}).get("is_apart") for side in pair.sides):
        return {"reason": "only a part of each call is timed, and samples are of whole calls"}
    sources = (*measurement.setting.added.values(), *measurement.setting.functions.values())
    reader = _Reader([source.file for source in sources if source.file])
    seconds = SECONDS
    call_seconds = sum(state.call_ns[side] for side in pair.sides) / 1e9
    is_short = call_seconds <= LONG_CALL_SECONDS
    if not is_short:
        seconds = min(LEAST_CALLS * call_seconds, MOST_SECONDS)
    processes = measurement.processes
    processes.end(group)
    group.used = dict.fromkeys((pair.workload, side) for side in pair.sides)
    unseen = ""
    for _ in range(MOST_PROCESSES):
        number = len(reader.processes)
        step(number, seconds + 0.7)
        current = processes.next_process(group)
        processes.take_in(group, state, (pair.baseline, pair.variant))
        if number + 1 < PROCESSES:
            processes.begin_ahead(group)
        unseen = reader.take(_stacks(tool, current.worker, pair, seconds)) or unseen
        if len(reader.processes) == PROCESSES:
            break
    runs = _line_runs(current.worker, pair) if is_short and state.experiment.workload.kind == "call" else {}
    processes.end(group)
    return reader.entry(runs) if len(reader.processes) >= LEAST_PROCESSES else {"reason": unseen}


LineRuns = Mapping[str, Mapping[tuple[str, int], int]]
"""Side → a file and a number of a line → how often that ran in one call."""


def _line_runs(process: WorkerProcess, pair: Comparison) -> LineRuns:
    """Counted in one call of each side, after all that is sampled; nothing where that fails."""
    what = {"workload": pair.workload, "baseline": pair.baseline, "variant": pair.variant}
    try:
        counted = process.ask("line_runs", PASS_SECONDS, **what)
    except WorkerFailed:
        return {}
    return {side: {(file, line): count for file, line, count in runs} for side, runs in counted.items()}


def _stacks(tool: str, process: WorkerProcess, pair: Comparison, seconds: float) -> str:
    """Folded stacks of one process. Raises WorkerFailed."""
    what = {"workload": pair.workload, "baseline": pair.baseline, "variant": pair.variant, "seconds": seconds}
    go = process.ask_in_two("alternate", PASS_SECONDS, **what)
    _, stacks, refusal = py_spy.sampled(tool, process.pid, go, RATE_HZ)
    if refusal:
        raise WorkerFailed(refusal)
    return stacks


Frame = tuple[str, int]
"""A file as profiles name it, and a line."""

Stack = tuple[str, tuple[Frame, ...], tuple[Frame, ...]]
"""A side, its frames, outermost first, to the innermost that is not of a library, and those below it. Without a line,
in place of a file, what an event loop does."""


class _Reader:
    """Adds up samples by stack, process after process. `added`: files that the run was given."""

    def __init__(self, added: Sequence[Path]) -> None:
        self.named = cache(lambda path: place(path, added))
        self.processes: list[Counter[Stack]] = []
        self.roots: dict[str, str] = {}
        # A side, and a file as profiles name it → where it lies: both may have one of that name.
        self.paths: dict[tuple[str, str], str] = {}

    def take(self, stacks: str) -> str:
        """Read one process; why it says nothing, else empty."""
        counts: Counter[Stack] = Counter()
        for line in stacks.splitlines():
            stack, _, count = line.rpartition(" ")
            if count.isdecimal() and (key := self._key(stack.split(";"))):
                counts[key] += int(count)
        if empty := [side for side in SIDES if not any(side == of for of, *_ in counts)]:
            return f"py-spy saw no call of the {empty[0]}"
        self.processes.append(counts)
        return ""

    def _key(self, frames: Sequence[str]) -> Stack | None:
        """The side and the frames that a stack counts for; None of one that is outside of a turn."""
        begin = next((index for index, frame in enumerate(frames) if _SIDE.match(frame)), None)
        if begin is None:
            return None
        side = frames[begin].partition("_turn")[0]
        parts = filter(None, map(_FRAME.fullmatch, frames[begin + 1 :]))
        below = [(self._file(side, match[2]), int(match[3] or 0)) for match in parts]
        below = [frame for frame in below if not frame[0].startswith(_HARNESS) and frame[0] != _DISPATCH]
        if below and below[0][0].startswith(_LOOP):  # what runs a coroutine function
            waits = below[-1][0].startswith(_LOOP[1])
            below = [frame for frame in below if not frame[0].startswith((*_LOOP, "stdlib/contextvars"))]
            if not below:
                return side, ((WAITING if waits else EVENT_LOOP, 0),), ()
        if not below:  # the loop around the calls, and what has no source
            return side, (), ()
        self.roots.setdefault(side, self._function(side, below[0]))
        others = tuple(prefix for prefix in _NOT_OWN if not below[0][0].startswith(prefix))
        own = [place for place, frame in enumerate(below) if not place or not frame[0].startswith(others)]
        way, rest = tuple(below[: own[-1] + 1]), tuple(below[own[-1] + 1 :])
        if rest and rest[0][0].startswith(_LOOP[0]) and rest[-1][0].startswith(_LOOP[1]):
            return side, ((WAITING, 0),), ()  # in a loop of its own, as asyncio.run begins one
        return side, way, rest

    def _file(self, side: str, path: str) -> str:
        name = self.named(path)
        self.paths.setdefault((side, name), path)
        return name

    def _function(self, side: str, frame: Frame) -> str:
        file, line = frame
        return function_at(self.paths[side, file], line) if line else file

    def entry(self, runs: LineRuns) -> dict[str, Any]:
        """The rest of an entry of causes.json."""
        totals = {
            side: [sum(n for key, n in process.items() if key[0] == side) for process in self.processes]
            for side in SIDES
        }
        whole = sum(self.processes, Counter[Stack]())
        kept = [stack for stack, n in whole.most_common() if stack[1] and n >= LEAST_SHARE * sum(totals[stack[0]])]
        lines = [
            {
                "side": side,
                "function": self._function(side, way[-1]),
                "file": way[-1][0] if way[-1][1] else "",
                "line": way[-1][1],
                "text": self._text(side, way[-1]),
                "way": [self._shown(side, frame) for frame in way[:-1]],
                "below": [self._shown(side, frame) for frame in below],
                "samples": [process[side, way, below] for process in self.processes],
                "runs": runs.get(side, {}).get((self.paths.get((side, way[-1][0]), ""), way[-1][1])),
            }
            for side, way, below in kept
        ]
        reached = dict.fromkeys((side, frame) for side, way, _ in kept for frame in way if frame[1])
        code: list[dict[str, Any]] = []
        for at in reached:
            if (function := self._code(*at)) is not None and function not in code:
                code.append(function)
        return {"roots": self.roots, "samples": totals, "lines": lines, "code": code}

    def _code(self, side: str, frame: Frame) -> dict[str, Any] | None:
        """The function of a frame as causes.json has it; None of a library's, and outside of any."""
        file, line = frame
        path, function = self.paths[side, file], self._function(side, frame)
        spans = [(begin, end) for begin, end, name in _functions(path) if name == function and begin <= line <= end]
        if file.startswith(_LIBRARIES) or not spans:
            return None
        begin, end = spans[0]
        lines = linecache.getlines(path)[begin - 1 : min(end, begin + MOST_LINES - 1)]
        code = [text.rstrip()[:MOST_TEXT] for text in lines]
        return {"side": side, "function": function, "file": file, "line": begin, "code": code}

    def _shown(self, side: str, frame: Frame) -> str:
        return f"{self._function(side, frame)} ({frame[0]}:{frame[1]})"

    def _text(self, side: str, frame: Frame) -> str:
        file, line = frame
        return linecache.getline(self.paths[side, file], line).strip()[:MOST_TEXT] if line else file


def function_at(path: str, line: int) -> str:
    """The function that a line of a file belongs to, with its class; of a comprehension or lambda that around it."""
    inner = [(end - begin, name) for begin, end, name in _functions(path) if begin <= line <= end]
    return min(inner)[1] if inner else "<module>"


@cache
def _functions(path: str) -> tuple[tuple[int, int, str], ...]:
    """First line, last line and name of each function of a file; none where it cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return ()
    functions: list[tuple[int, int, str]] = []

    def look(node: ast.AST, outer: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = outer
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{outer}.{child.name}" if outer else child.name
                if not isinstance(child, ast.ClassDef):
                    functions.append((child.lineno, child.end_lineno or child.lineno, name))
            look(child, name)

    look(tree, "")
    return tuple(functions)
