"""Sampled profiles as pictures: time by frame, outermost on top; one profile, or the difference of two.

What the canvas (flame.js) draws: columns of numbers, one place for each box, callers before what they call; `payload`
packs them. All times and errors are computed here; the canvas adds none but the sum of what a search found.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from llama_workbench.harness.evidence.effect import ALPHA
from llama_workbench.harness.profilers.py_spy import Profile as ProfileRow

from .. import words
from ..figures.colours import DARK, LIGHT, STEPS, Palette
from ..views.data import Profile
from .tree import Counts, Frame, Scale, merge, prune, time_ns, uncollected, without_shell

KINDS = {"variant": "the variant's own code", "torch": "torch", "library": "other libraries", "other": "the rest"}

REACH = NormalDist().inv_cdf(1 - ALPHA / 2)
"""Standard errors from a value to the end of its interval: what is drawn and told holds with 99 %, as everywhere."""

_UNCOLOURED = -1
_NEUTRAL = len(KINDS) + STEPS
"""Place of a difference that may be chance among the fills, which are those of KINDS and then Palette.difference."""


@dataclass(frozen=True)
class Picture:
    """One flamegraph as the canvas takes it, and what is said beside it."""

    drawn: dict[str, Any]
    least_share: float  # of a box that is drawn
    shell: tuple[str, ...]  # outer frames that are not drawn
    legend: tuple[tuple[int, bool, str], ...]  # fill, whether striped, and what it means


@dataclass(frozen=True)
class _Box:
    level: int
    frame: Frame
    name: str
    place: str
    is_line: bool
    counts: Counts
    start: float  # of the full width
    width: float


@uncollected()
def flamegraph(profile: Profile, widest_ns: float | None = None) -> Picture:
    """One profile: box width is time, share of samples × median time of a call, coloured by whose code it is.

    `widest_ns` is the time that the full width stands for; give both sides of a comparison the same, and a
    millisecond is as wide on the left as on the right. Without a median time, widths are shares.
    Raises ValueError where there is no profile.
    """
    if profile.root is None or not profile.root.samples:
        raise ValueError("no profile to draw")
    scale = profile.scale or Scale(profile.root.samples, 1.0)
    pruned, least_share = prune(profile.root)
    shown, shell = without_shell(pruned)
    full_ns = max(scale.median_ns, widest_ns or 0.0)

    def numbers(box: _Box) -> dict[str, float]:
        [count] = box.counts
        own = count if box.is_line else box.frame.own[0]
        return {
            "fill": list(KINDS).index(kind(box.frame)),
            "share": count / scale.samples,
            "own": own / scale.samples,
            "time": scale.time_ns(count) / 1e6,
            "error": REACH * scale.error_ns(count) / 1e6,
        }

    drawn = _columns(_boxes(shown, [scale], full_ns), numbers) | {
        "title": profile.row.variant,
        "reach": REACH,
        "sides": [profile.row.variant],
        "samples": [scale.samples],
        "totals": [scale.median_ns / 1e6 if profile.scale else None],
        "scale": f"full width = {words.milliseconds(full_ns)} a call" if profile.scale else "full width = all samples",
        "alt": flamegraph_text(profile),
    }
    kinds = {kind(frame) for level, frame in shown.walk() if level}
    legend = tuple((index, False, text) for index, (name, text) in enumerate(KINDS.items()) if name in kinds)
    return Picture(drawn, least_share, tuple(shell), legend)


@uncollected()
def difference(before: Profile, after: Profile, merged: Frame | None = None) -> Picture:
    """Two profiles laid over each other: width is the mean of both times, colour the time of `after` less `before`'s.

    `merged`: `tree.merge` of their trees, where that is known. Boxes whose interval has 0 in it are grey. Raises
    ValueError where `reason_against` has one.
    """
    scales = scales_of(before, after)
    merged = merged or merge(before.root, after.root)
    pruned, least_share = prune(merged, weight=lambda counts: time_ns(counts, scales))
    shown, shell = without_shell(pruned)
    full_ns = time_ns(shown.counts, scales)
    limit_ns = colour_limit_ns(shown, scales)

    def numbers(box: _Box) -> dict[str, float]:
        change = delta(box.counts, scales)
        return {
            "fill": shade(change.ns if change.sure else 0.0, limit_ns),
            "only": -1 if change.only is None else change.only,
            "sure": int(change.sure),
            "delta": change.ns / 1e6,
            "deltaError": REACH * change.error_ns / 1e6,
            "time": scales[0].time_ns(box.counts[0]) / 1e6,
            "error": REACH * scales[0].error_ns(box.counts[0]) / 1e6,
            "time2": scales[1].time_ns(box.counts[1]) / 1e6,
            "error2": REACH * scales[1].error_ns(box.counts[1]) / 1e6,
        }

    first, second = before.row.variant, after.row.variant
    drawn = _columns(_boxes(shown, scales, full_ns), numbers) | {
        "title": f"{second} less {first}",
        "sides": [first, second],
        "samples": [scale.samples for scale in scales],
        "totals": [scale.median_ns / 1e6 for scale in scales],
        "scale": f"full width = {words.milliseconds(full_ns)}, the mean of both sides",
        "alt": difference_text(before, after, merged),
    }
    return Picture(drawn, least_share, tuple(shell), difference_legend(second, "may be chance"))


def shade(change_ns: float, limit_ns: float) -> int:
    """The place of a difference among the fills, the strongest at `limit_ns`; 0 where it is not proven."""
    strength = min(1.0, abs(change_ns) / limit_ns) if limit_ns else 1.0
    step = max(1, round(STEPS * strength)) * (1 if change_ns > 0 else -1)
    return _NEUTRAL + step * bool(change_ns)


def difference_legend(variant: str, grey: str) -> tuple[tuple[int, bool, str], ...]:
    """What the colours of a difference mean."""
    return (
        (_NEUTRAL + STEPS, False, f"+ more time in {variant}"),
        (_NEUTRAL - STEPS, False, f"− less time in {variant}"),
        (_NEUTRAL, False, f"≈ {grey}"),
        (_NEUTRAL, True, "striped: only on one side"),
    )


def _columns(boxes: Iterable[_Box], numbers: Callable[[_Box], dict[str, float]]) -> dict[str, Any]:
    """The boxes as columns: where they lie, and their `numbers`."""
    return columns(
        [
            {"level": box.level, "x": box.start, "w": box.width, "name": box.name, "place": box.place, **numbers(box)}
            for box in boxes
        ]
    )


def columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows as columns. A name or a place is its index in a list of texts."""
    texts: dict[str, dict[str, int]] = {"name": {}, "place": {}}
    for row in rows:
        row |= {key: known.setdefault(row[key], len(known)) for key, known in texts.items()}
    rows[0]["fill"] = _UNCOLOURED
    by_name = {name: [row[name] for row in rows] for name in rows[0]}
    return {"names": list(texts["name"]), "places": list(texts["place"]), "columns": list(by_name), **by_name}


def payload(pictures: Sequence[Picture], find: str = "") -> dict[str, Any]:
    """All that the canvas is given: the pictures next to each other, colours of both appearances, what to search."""
    return {
        "pictures": [
            picture.drawn | {column: _packed(picture.drawn[column]) for column in picture.drawn["columns"]}
            for picture in pictures
        ],
        "legend": list(dict.fromkeys(entry for picture in pictures for entry in picture.legend)),
        "colours": {"light": _inks(LIGHT), "dark": _inks(DARK)},
        "find": find,
    }


def _packed(numbers: Sequence[float]) -> str:
    """Float32 in base64: on the way to the browser 20,000 boxes as digits would take longer than being drawn."""
    return base64.b64encode(np.asarray(numbers, "<f4").tobytes()).decode("ascii")


def _inks(palette: Palette) -> dict[str, Any]:
    return {
        "fills": [*(palette.frames[name] for name in KINDS), *palette.difference],
        "text": palette.frame_text,
        "muted": palette.muted,
        "edge": palette.page,
        "page": palette.page,
    }


def _boxes(root: Frame, scales: Sequence[Scale], full_ns: float) -> Iterator[_Box]:
    """Every frame, and below those that ran several lines of their own those lines: callers first, most time first."""

    def width(counts: Counts) -> float:
        return time_ns(counts, scales) / full_ns

    waiting = [_Box(0, root, "", _place(root), False, root.counts, 0.0, width(root.counts))]
    while waiting:
        box = waiting.pop()
        yield box
        if box.is_line:
            continue
        frame, start = box.frame, box.start
        parts = [(child, child.name, _place(child), False, child.counts) for child in frame.children]
        if len(frame.lines) > 1:
            parts += [(frame, f"line {line}", f"{frame.file}:{line}", True, counts) for line, counts in frame.lines]
        below = []
        for part in sorted(parts, key=lambda part: -width(part[-1])):
            below.append(_Box(box.level + 1, *part, start, width(part[-1])))
            start += below[-1].width
        waiting += reversed(below)


def _place(frame: Frame) -> str:
    """The file, and the line where all that the frame does itself is one line."""
    only_line = frame.lines[0][0] if len(frame.lines) == 1 and not frame.children else None
    return frame.file if only_line is None else f"{frame.file}:{only_line}"


def flamegraph_text(profile: Profile) -> str:
    """The flamegraph in a sentence: the time of a call and the functions with the most time of their own."""
    assert profile.root is not None
    total = profile.root.samples
    largest = [
        f"{name} {words.milliseconds(profile.scale.time_ns(own)) if profile.scale else words.percent(own / total)}"
        for name, _, (own,) in profile.root.by_own_time[:3]
    ]
    time = f", {words.milliseconds(profile.row.median_ns)} a call" if profile.row.median_ns else ""
    return (
        f"Flamegraph of {profile.row.variant} on {profile.row.workload}{time}, "
        f"{total} samples. Most time of their own: {', '.join(largest)}."
    )


def difference_text(before: Profile, after: Profile, merged: Frame) -> str:
    """The difference in a sentence: both times, and the functions whose own time differs most, beyond chance."""
    scales = scales_of(before, after)
    changes = [(name, delta(own, scales)) for name, _, own in merged.by_own_time]
    sure = sorted((item for item in changes if item[1].sure), key=lambda item: -abs(item[1].ns))[:3]
    changed = ", ".join(f"{name} {signed(change.ns)}" for name, change in sure) or "none that is proven"
    return (
        f"Differential flamegraph on {before.row.workload}: {before.row.variant} "
        f"{words.milliseconds(before.row.median_ns)} a call, {after.row.variant} "
        f"{words.milliseconds(after.row.median_ns)}. Largest differences of own time: {changed}."
    )


def signed(value_ns: float) -> str:
    """A difference of times with its sign."""
    return f"{'+' if value_ns >= 0 else '−'}{words.milliseconds(abs(value_ns))}"


def kind(frame: Frame) -> str:
    """Whose code a frame is, by the name that the run gave its file (harness/machine/places.py): a key of KINDS."""
    owners = {"variants": "variant", "added": "variant", "torch": "torch", "site-packages": "library"}
    return owners.get(frame.file.partition("/")[0], "other")


@dataclass(frozen=True)
class Delta:
    """Time of the second side less that of the first, of one frame, with its standard error."""

    ns: float
    error_ns: float
    only: int | None  # the side that alone has the frame

    @property
    def sure(self) -> bool:
        """Whether the interval leaves out 0; of identical code it does in one box of a hundred."""
        return self.ns != 0 and abs(self.ns) >= REACH * self.error_ns


def scales_of(before: Profile, after: Profile) -> tuple[Scale, Scale]:
    """What turns the samples of each side into time. Raises ValueError where one has no time of a call."""
    if before.scale is None or after.scale is None:
        raise ValueError("two profiles with the time of a call are needed")
    return before.scale, after.scale


def delta(counts: Counts, scales: Sequence[Scale]) -> Delta:
    """Second side less first: the difference of share × median; both sides' errors are independent of each other."""
    before, after = counts
    first, second = scales
    error_ns = math.hypot(first.error_ns(before), second.error_ns(after))
    only = None if before and after else 0 if before else 1
    return Delta(second.time_ns(after) - first.time_ns(before), error_ns, only)


def colour_limit_ns(root: Frame, scales: Sequence[Scale]) -> float:
    """The difference of the strongest colour: the largest sure one of a leaf (callers hold sums); else 0."""
    frames = [frame for _, frame in root.walk()]
    leaves = [counts for frame in frames if len(frame.lines) > 1 for _, counts in frame.lines]
    leaves += [frame.counts for frame in frames if len(frame.lines) < 2 and not frame.children]
    changes = (delta(counts, scales) for counts in leaves)
    return max((abs(change.ns) for change in changes if change.sure), default=0.0)


def reason_against(sides: Sequence[ProfileRow], *, has_times: bool = False) -> str:
    """Why two profiles may not be subtracted, in words; empty where they may. `has_times`: of calls, from elsewhere."""
    rates = [side.rate_hz for side in sides]
    if not all(rates):
        return "the run does not say at which rate a side was sampled"
    if len(set(rates)) > 1:
        return f"the sides were sampled at {' and '.join(f'{rate:g} Hz' for rate in rates)}"
    if len({side.native for side in sides}) > 1:
        return "one side has the frames of native code and the other does not"
    return "" if has_times or all(side.median_ns for side in sides) else "the run has no time of a call for a side"
