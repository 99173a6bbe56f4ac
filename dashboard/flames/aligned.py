"""Both sides of a comparison on each other, out of the samples of their ten processes (causes.json).

Functions are one box where they have one name, and so are the two that are compared; below them are lines, one box
where they have one text. Of models the outermost boxes are phases. A box is coloured where its difference is proven, by
the same interval over processes as the list of causes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_workbench.harness.evidence.effect import ALPHA
from llama_workbench.harness.profilers.causes import SIDES, SampledLine
from llama_workbench.harness.profilers.py_spy import Profile as ProfileRow
from llama_workbench.harness.report.causes import Explanation
from llama_workbench.harness.stats.causes import PlaceDifference, Samples, divide

from .. import words
from ..views.data import Profile
from .picture import Picture, columns, difference_legend, flamegraph, shade
from .tree import PRUNE_BELOW, read_folded

_FRAME = re.compile(r"(.*) \(([^()]*):\d+\)")

Path = tuple[str, ...]


@dataclass
class _Box:
    """samples: [side, process]. places: the files, or the lines, that it stands for."""

    samples: NDArray[np.int64]
    places: dict[str, None] = field(default_factory=dict)


def aligned(explained: Explanation) -> Picture | None:
    """Width is the mean time of both sides, colour the time of the variant less the baseline's. None where nothing was
    sampled."""
    sampled = explained.sampled
    if explained.division is None:
        return None
    totals = np.array([sampled.samples[side] for side in SIDES])
    boxes = _boxes(explained, totals)
    calls_ns = np.array(explained.call_ns)
    times = {path: (box.samples / totals).mean(axis=1) * calls_ns for path, box in boxes.items()}
    counts = {"\0".join(path): _counts(box.samples) for path, box in boxes.items() if path}
    rows = divide(counts, _counts(totals), explained.call_ns, alpha=ALPHA).rows
    proven = {tuple(row.key.split("\0")): row for row in rows}
    leaves = [path for path in proven if not any(other[:-1] == path for other in proven)]
    limit_ns = max((abs(proven[path].ns) for path in leaves), default=0.0)
    drawn = [
        {
            "level": len(path),
            "x": start,
            "w": width,
            "name": path[-1] if path else "",
            "place": " / ".join(boxes[path].places),
            **_numbers(times[path], proven.get(path), limit_ns),
        }
        for path, start, width in _laid_out(boxes, times)
    ]
    baseline, variant = sampled.baseline, sampled.variant
    largest = [f"{path[-1]} {-row.ns / 1e6:+.3g} ms" for path, row in proven.items() if path in leaves][:5]
    places = ", ".join(largest) or "no place is proven to differ"
    picture: dict[str, Any] = columns(drawn) | {
        "title": f"{variant} less {baseline}",
        "sides": [baseline, variant],
        "samples": [int(each.sum()) for each in totals],
        "totals": [ns / 1e6 for ns in explained.call_ns],
        "scale": f"full width = {words.milliseconds(float(calls_ns.mean()))}, the mean of both sides",
        "alt": f"Differential flamegraph of {variant} and {baseline}: {places}.",
    }
    return Picture(picture, PRUNE_BELOW, (), difference_legend(variant, "not proven to differ"))


def alone(explained: Explanation) -> list[Picture]:
    """Each side for itself, to one scale."""
    sampled, pictures = explained.sampled, []
    for side, ns in zip(SIDES, explained.call_ns, strict=True):
        here = [line for line in sampled.lines if line.side == side and line.line]
        stacks = ((*line.way, f"{line.function} ({line.file}:{line.line})", *line.below) for line in here)
        root = read_folded(
            "".join(f"{';'.join(way)} {sum(at.samples)}\n" for way, at in zip(stacks, here, strict=True))
        )
        name = sampled.baseline if side == SIDES[0] else sampled.variant
        seen_ns = ns * root.samples / sum(sampled.samples[side])  # samples without a line are a part of the call too
        profile = Profile(ProfileRow(workload=sampled.workload, variant=name, median_ns=seen_ns), root, "")
        pictures += [flamegraph(profile, max(explained.call_ns))] if root.samples else []
    return pictures


def _counts(samples: NDArray[np.int64]) -> Samples:
    before, after = samples.tolist()
    return before, after


def _boxes(explained: Explanation, totals: NDArray[np.int64]) -> dict[Path, _Box]:
    boxes: dict[Path, _Box] = {(): _Box(totals)}
    for line in sorted(explained.sampled.lines, key=lambda line: SIDES.index(line.side)):
        path: Path = ()
        for name, place in _frames(explained, line):
            path += (name,)
            box = boxes.setdefault(path, _Box(np.zeros_like(totals)))
            box.samples[SIDES.index(line.side)] += line.samples
            box.places[place] = None
    return boxes


def _frames(explained: Explanation, line: SampledLine) -> Iterator[tuple[str, str]]:
    """What a line is below, outermost first, and the line: names, and where each stands."""
    sampled, here = explained.sampled, f"{line.function} ({line.file}:{line.line})"
    way = [here] if explained.phases else [*line.way, here]
    if explained.phases:
        yield explained.phases[";".join((*line.way, here, *line.below))], ""
    for number, (frame, before) in enumerate(zip(way, ["", *way], strict=False)):
        function, file = _named(frame)
        if before and (function, file) == _named(before):  # a generator of its own, or recursion
            continue
        if number == 0 and function == sampled.roots.get(line.side) and not explained.phases:
            function = " and ".join(dict.fromkeys((sampled.baseline, sampled.variant)))
        yield function, file
    yield line.text or f"line {line.line}", f"{line.file}:{line.line}" if line.line else line.file
    yield from map(_named, line.below)


def _named(frame: str) -> tuple[str, str]:
    parts = _FRAME.fullmatch(frame)
    return (parts[1], parts[2]) if parts else (frame, "")


def _laid_out(boxes: dict[Path, _Box], times: dict[Path, NDArray[np.float64]]) -> Iterator[tuple[Path, float, float]]:
    """The boxes that are drawn, callers first, the widest first: where each begins and how wide it is."""
    whole = float(times[()].mean())
    below: dict[Path, list[Path]] = {}
    for path in boxes:
        if path:
            below.setdefault(path[:-1], []).append(path)
    waiting: list[tuple[Path, float]] = [((), 0.0)]
    while waiting:
        path, start = waiting.pop()
        yield path, start, float(times[path].mean()) / whole
        inside = []
        for child in sorted(below.get(path, ()), key=lambda each: -float(times[each].mean())):
            width = float(times[child].mean()) / whole
            if width >= PRUNE_BELOW:
                inside.append((child, start))
            start += width
        waiting += reversed(inside)


def _numbers(times: NDArray[np.float64], row: PlaceDifference | None, limit_ns: float) -> dict[str, float]:
    """In milliseconds. The difference has an interval only where it is proven."""
    before, after = map(float, times)
    change_ns = -row.ns if row else after - before
    return {
        "fill": shade(change_ns if row else 0.0, limit_ns),
        "only": -1 if before and after else 0 if before else 1,
        "sure": int(row is not None),
        "delta": change_ns / 1e6,
        "deltaError": (row.high - row.low) / 2e6 if row else 0.0,
        "time": before / 1e6,
        "time2": after / 1e6,
    }
