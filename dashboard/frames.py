"""py-spy's folded stacks as a tree of frames: pure functions, no I/O.

A folded line is `outer;inner;innermost count`, a frame is `name (file:line)`, and the line is the one that was
being executed. Callers are merged over their lines, because the callee below says where they were; the innermost
frame is split by line, because a line such as `scores = q @ k.T` runs in a kernel that leaves no Python frame.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

DISPATCH = re.compile(r"(?:^|[.])(?:_wrapped_call_impl|_call_impl)$")
"""nn.Module's way from `module(x)` to `forward`: two frames at every level that say nothing."""

PRUNE_BELOW = 0.002
"""Share of all samples under which a box is not drawn (a pixel or two on a wide screen)."""

MOST_BOXES = 400
"""Beyond this plotly takes seconds to draw."""

_FRAME = re.compile(r"^(?P<name>.*?)(?: \((?P<file>[^()]*?)(?::(?P<line>\d+))?\))?$")


@dataclass(frozen=True)
class Frame:
    """One box: a function (or a line of one) at one place in the stack. `samples` counts what is below as well."""

    name: str
    file: str
    line: int | None
    samples: int
    children: tuple[Frame, ...] = ()

    @property
    def own(self) -> int:
        """Samples in which this frame was the innermost one, lines of its own included."""
        return self.samples - sum(child.samples for child in self.children if child.line is None)

    @property
    def depth(self) -> int:
        """Levels below this one."""
        return max((1 + child.depth for child in self.children), default=0)

    def walk(self, level: int = 0) -> Iterator[tuple[int, Frame]]:
        """This frame and all below it, outermost first, each with its level."""
        yield level, self
        for child in self.children:
            yield from child.walk(level + 1)


@dataclass
class _Node:
    samples: int = 0
    children: dict[tuple[str, str], _Node] = field(default_factory=dict)
    lines: Counter[int] = field(default_factory=Counter)


class StackError(ValueError):
    """The text is not folded stacks. The message names the line."""


def read_folded(text: str) -> Frame:
    """Folded stacks → the tree under a root named "all". Raises StackError on a line without a count."""
    root = _Node()
    for number, raw in enumerate(text.splitlines(), start=1):
        if not raw.strip():
            continue
        stack, _, count = raw.rpartition(" ")
        if not stack or not count.isdecimal():
            raise StackError(f'line {number} is not "frame;frame count"')
        _add(root, stack.split(";"), int(count))
    return _frozen("all", "", root)


def _add(root: _Node, stack: list[str], samples: int) -> None:
    root.samples += samples
    node, line = root, None
    for text in stack:
        found = _FRAME.match(text)
        name, file = (found["name"], found["file"] or "") if found else (text, "")
        if DISPATCH.search(name):
            continue
        line = int(found["line"]) if found and found["line"] else None
        node = node.children.setdefault((name, file), _Node())
        node.samples += samples
    if line is not None and node is not root:
        node.lines[line] += samples


def _frozen(name: str, file: str, node: _Node) -> Frame:
    children = [_frozen(*key, child) for key, child in node.children.items()]
    if len(node.lines) > 1:  # one line only: the box would repeat the one above it
        children += [Frame(name, file, line, samples) for line, samples in node.lines.items()]
    # By time, then by name, so that the same profile always draws the same picture.
    children.sort(key=lambda frame: (-frame.samples, frame.name, frame.line or 0))
    only = next(iter(node.lines)) if len(node.lines) == 1 and not node.children else None
    return Frame(name, f"{file}:{only}" if only is not None else file, None, node.samples, tuple(children))


def without_shell(root: Frame) -> tuple[Frame, list[str]]:
    """Drop the outer frames that hold nearly every sample and only lead to the next (the worker's own loop).

    Give it a pruned tree, or a stray sample keeps the whole shell. Returns the shortened tree and the names of what
    was dropped, outermost first.
    """
    dropped: list[str] = []
    top = root
    while len(top.children) == 1 and top.children[0].samples >= 0.99 * root.samples and top.children[0].children:
        top = top.children[0]
        dropped.append(top.name)
    if not dropped:
        return root, []
    # The innermost of them stays: it is the function that was measured, and names the picture.
    return replace(root, children=(top,)), dropped[:-1]


def prune(root: Frame, share: float = PRUNE_BELOW, most: int = MOST_BOXES) -> tuple[Frame, float]:
    """Leave out boxes with less than `share` of the root's samples; their time stays in the box above.

    Where more than `most` boxes would be left, the share is doubled until they are few enough. Returns the tree and
    the share that it took.
    """

    def kept(frame: Frame, least: float) -> Frame:
        children = tuple(kept(child, least) for child in frame.children if child.samples >= least)
        return replace(frame, children=children)

    while True:
        pruned = kept(root, share * root.samples)
        if share >= 1 or sum(1 for _ in pruned.walk()) <= most + 1:
            return pruned, share
        share *= 2


def by_own_time(root: Frame) -> list[tuple[str, str, int]]:
    """(name, file, own samples) of every function, the largest first: the picture as a list."""
    own: Counter[tuple[str, str]] = Counter()
    for _, frame in root.walk():
        if frame is not root and frame.line is None:
            own[frame.name, re.sub(r":\d+$", "", frame.file)] += frame.own
    ordered: Iterable[tuple[tuple[str, str], int]] = sorted(own.items(), key=lambda item: (-item[1], item[0]))
    return [(name, file, samples) for (name, file), samples in ordered if samples > 0]
