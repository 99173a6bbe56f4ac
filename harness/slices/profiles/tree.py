"""py-spy's folded stacks as a tree of frames, of one profile or of several laid over each other.

A folded line is `outer;inner;innermost count`, a frame is `name (file:line)`, and the line is the one that was
being executed. Callers are merged over their lines, because the callee below says where they were; samples without a
callee are kept by line, because a line such as `scores = q @ k.T` runs in a kernel that leaves no Python frame.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from llama_workbench.dashboard.views import data

from ...report.phases import calls_alone
from ...store.files import RunError
from ...store.folder import RunFolder
from ...store.passes import Profile

DISPATCH = frozenset({"_wrapped_call_impl", "_call_impl"})
"""nn.Module's way from `module(x)` to `forward`: two frames at every level that say nothing."""

PRUNE_BELOW = 0.002
"""Share of all time under which a box is not drawn (a pixel or two on a wide screen)."""

MOST_LEVELS = 80
"""Time of deeper frames stays in the box of this level: deeper ones are not read, and a file may hold any number."""

_FRAME = re.compile(r"(.*) \(([^()]*?)(?::(\d{1,9}))?\)")  # name, file, line
_MOST_DIGITS = 15  # of a count

Counts = tuple[int, ...]
"""Samples, one number for each profile that is laid over the others."""


@dataclass(frozen=True)
class StackFrame:
    """One function at one place in the stack. `counts` include what is below.

    `lines` are the lines of its own that were being executed, with their samples; they add up to `own`.
    """

    name: str
    file: str
    counts: Counts
    children: tuple[StackFrame, ...] = ()
    lines: tuple[tuple[int, Counts], ...] = ()

    @property
    def samples(self) -> int:
        """Samples of all profiles together."""
        return sum(self.counts)

    @property
    def own(self) -> Counts:
        """Samples in which this frame was the innermost one."""
        if not self.children:
            return self.counts
        below = map(sum, zip(*[child.counts for child in self.children], strict=True))
        return tuple(map(operator.sub, self.counts, below))

    @functools.cached_property
    def by_own_time(self) -> list[tuple[str, str, Counts]]:
        """(name, file, own samples) of every function below with any, the most first: the picture as a list."""
        own: dict[tuple[str, str], Counts] = {}
        for level, frame in self.walk():
            if level:
                have = own.get((frame.name, frame.file), (0,) * len(self.counts))
                own[frame.name, frame.file] = tuple(map(operator.add, have, frame.own))
        functions = [(name, file, counts) for (name, file), counts in own.items() if any(counts)]
        return sorted(functions, key=lambda item: (-sum(item[2]), item[:2]))

    def walk(self) -> Iterator[tuple[int, StackFrame]]:
        """This frame and all below it, outermost first, each with its level."""
        waiting = [(0, self)]  # nested generators would pass every frame through all levels above it
        while waiting:
            level, frame = waiting.pop()
            yield level, frame
            waiting += [(level + 1, child) for child in reversed(frame.children)]


@dataclass(frozen=True)
class Scale:
    """What turns samples of one profile into time: how many there are, and the median time of a call.

    `median_error_ns` is the median's standard error, None where the run did not record it: it is then neglected.
    """

    samples: int
    median_ns: float
    median_error_ns: float | None = None

    def time_ns(self, count: int) -> float:
        """Time of `count` samples within a call: their share × the median."""
        return self.median_ns * count / self.samples

    def error_ns(self, count: int) -> float:
        """Standard error of `time_ns`: sqrt(p (1 - p) / n) × median, and the share of the median's own error."""
        share = count / self.samples
        sampling = math.sqrt(share * (1 - share) / self.samples) * self.median_ns
        return math.hypot(sampling, share * (self.median_error_ns or 0.0))


def time_ns(counts: Counts, scales: Sequence[Scale]) -> float:
    """Mean over the profiles of a frame's time: a box's width, so that what only one of them has stays visible."""
    return sum(scale.time_ns(count) for count, scale in zip(counts, scales, strict=True)) / len(scales)


@dataclass(slots=True)
class _Node:
    """A frame while the stacks are read: its own samples, of all and by line, and what it called."""

    own: int = 0
    lines: Counter[int] = field(default_factory=Counter)
    children: defaultdict[tuple[str, str], _Node] = field(default_factory=lambda: defaultdict(_Node))


class StackError(ValueError):
    """The text is not folded stacks. The message names the line."""


def read_folded(text: str) -> StackFrame:
    """Folded stacks → the tree under a root named "all". Raises StackError on a line without a count."""
    root = _Node()
    parsed = functools.cache(_parsed)  # a function is in many stacks
    for number, raw in enumerate(text.splitlines(), start=1):
        if not raw.strip():
            continue
        stack, _, count = raw.rpartition(" ")
        if not stack or not count.isdecimal() or len(count) > _MOST_DIGITS:
            raise StackError(f'line {number} is not "frame;frame count"')
        frames = [frame for text in stack.split(";") if (frame := parsed(text))]
        node = root
        for function, _ in frames[:MOST_LEVELS]:
            node = node.children[function]
        node.own += int(count)
        if 0 < len(frames) <= MOST_LEVELS and (line := frames[-1][1]) is not None:
            node.lines[line] += int(count)
    return _frozen("all", "", root)


def _parsed(text: str) -> tuple[tuple[str, str], int | None] | None:
    """The function (name, file) and line of one frame of a folded line; None of one that is left out."""
    parts = _FRAME.fullmatch(text)
    name, file, line = parts.groups() if parts else (text, "", None)
    if name.rpartition(".")[2] in DISPATCH:
        return None
    return (name, file), int(line) if line else None


def _frozen(name: str, file: str, node: _Node) -> StackFrame:
    children = [_frozen(*key, child) for key, child in node.children.items()]
    samples = node.own + sum([child.counts[0] for child in children])
    return _sorted(name, file, (samples,), children, [(line, (own,)) for line, own in node.lines.items()])


def _sorted(
    name: str, file: str, counts: Counts, children: list[StackFrame], lines: list[tuple[int, Counts]]
) -> StackFrame:
    """By samples, then by name, so that the same profile always draws the same picture."""
    children.sort(key=lambda child: (-sum(child.counts), child.name, child.file))
    lines.sort(key=lambda item: (-sum(item[1]), item[0]))
    return StackFrame(name, file, counts, tuple(children), tuple(lines))


def merge(*sides: StackFrame | None) -> StackFrame:
    """Trees of one profile each, laid over each other by frame and line; None and 0 where one lacks it.

    A function that no side has twice at a place is one box in whichever file it stands: two versions of one function
    lie in two files, "a.py / b.py". Their lines stay apart.
    """
    there = [side for side in sides if side]
    below: dict[tuple[str, str], list[StackFrame | None]] = {}
    numbers: dict[tuple[str, int], list[int]] = {}
    counted = [Counter([child.name for child in side.children]) for side in there]
    for place, side in enumerate(sides):
        for child in side.children if side else ():
            file = child.file if any(count[child.name] > 1 for count in counted) else ""
            below.setdefault((child.name, file), [None] * len(sides))[place] = child
        for line, own in side.lines if side else ():
            numbers.setdefault((side.file if side else "", line), [0] * len(sides))[place] = sum(own)
    file = " / ".join(dict.fromkeys(side.file for side in there))
    counts = tuple([side.samples if side else 0 for side in sides])
    lines = [(line, tuple(each)) for (_, line), each in numbers.items()]
    return _sorted(there[0].name, file, counts, [merge(*same) for same in below.values()], lines)


def without_shell(root: StackFrame) -> tuple[StackFrame, list[str]]:
    """Drop the outer frames that hold nearly every sample and only lead to the next (the worker's own loop).

    Give it a pruned tree, or a stray sample keeps the whole shell. Returns the shortened tree and the names of what
    was dropped, outermost first.
    """
    shell: list[StackFrame] = []
    top = root
    while len(top.children) == 1 and top.children[0].children:
        [top] = top.children
        if any(count < 0.99 * whole for count, whole in zip(top.counts, root.counts, strict=True)):
            break
        shell.append(top)
    if not shell:
        return root, []
    # The innermost of them stays: it is the function that was measured, and names the picture.
    return replace(root, children=(shell[-1],), lines=()), [frame.name for frame in shell[:-1]]


def prune(root: StackFrame, weight: Callable[[Counts], float] = sum) -> StackFrame:
    """Leave out frames and lines with less than PRUNE_BELOW of the root's `weight`: their time is in the box above."""
    least = PRUNE_BELOW * weight(root.counts)

    def kept(frame: StackFrame) -> StackFrame:
        children = tuple([kept(child) for child in frame.children if weight(child.counts) >= least])
        lines = tuple([item for item in frame.lines if weight(item[1]) >= least])
        return replace(frame, children=children, lines=lines)

    return kept(root)


# -- the profiles of a run ---------------------------------------------------------------------------------------------

LARGEST_PROFILE_BYTES = 64 << 20


@dataclass(frozen=True)
class ProfileTree:
    """One sampled profile. `root` is None where there is none, and `reason` says why."""

    row: Profile
    root: StackFrame | None
    reason: str

    @property
    def scale(self) -> Scale | None:
        """What turns samples into time; None where samples or the time of a call are missing."""
        if self.root is None or self.row.median_ns is None:
            return None
        return Scale(self.root.samples, self.row.median_ns, self.row.median_error_ns or None)


def read_profile(run: data.Run, workload: str, variant: str) -> ProfileTree | None:
    """The profile of one variant on one workload; None where the run made none."""
    if (row := run.profiles.get((workload, variant))) is None:
        return None
    if row.path is None:
        return ProfileTree(row, None, row.reason or "the run gives no reason")
    try:
        root = read_folded(calls_alone(profile_text(run, workload, variant)))
    except StackError as error:
        return ProfileTree(row, None, f"{row.path}: {error}")
    return ProfileTree(row, root, "") if root.samples else ProfileTree(row, None, "the profiler took no sample")


def profile_text(run: data.Run, workload: str, variant: str) -> str:
    """The folded stacks of a profile as the run keeps them. Raises StackError where they cannot be read."""
    row = run.profiles.get((workload, variant))
    if row is None or row.path is None:
        raise StackError("the run has no such profile")
    try:
        return RunFolder(run.path).sums.read_text(row.path, LARGEST_PROFILE_BYTES)
    except RunError as error:
        raise StackError(f"{error.problem}. {error.fix}") from error
    except OSError as error:
        raise StackError(f"the profile's file cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise StackError(str(error)) from error
