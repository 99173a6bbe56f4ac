"""Flame graphs as pictures: time by frame, outermost on top; one profile, the difference of two, or both sides of a
comparison on each other.

What the canvas (flames.js) draws: columns of numbers, one place for each box, callers before what they call; `payload`
packs them. All times and errors are computed here; the canvas adds none but the sum of what a search found.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_workbench.dashboard import words
from llama_workbench.dashboard.export.svg import DARK, LIGHT, STEPS, Palette
from llama_workbench.dashboard.views import data, samples
from llama_workbench.variants.phase_map import LIBRARY_FILE, OTHER, PHASES

from ...evidence.effect import ALPHA
from ...report.causes import Explanation
from ...report.phases import ATTENTION, NAMES, Lines, groups_of, lines_in_sources, phases_of_stack, stacks_of_calls
from ...stats.causes import PlaceDifference, Samples, divide
from ...store.files import RunError
from ...store.folder import RunFolder
from ...store.passes import PHASE_FACTS, SIDES, PhaseFacts, Profile, SampledLine
from ...store.verdict_schema import Effect
from .tree import (
    PRUNE_BELOW,
    Counts,
    ProfileTree,
    Scale,
    StackFrame,
    merge,
    profile_text,
    prune,
    read_folded,
    read_profile,
    time_ns,
    without_shell,
)

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
    shell: tuple[str, ...]  # outer frames that are not drawn
    legend: tuple[tuple[int, bool, str], ...]  # fill, whether striped, and what it means


@dataclass(frozen=True)
class _Box:
    level: int
    frame: StackFrame
    name: str
    place: str
    is_line: bool
    counts: Counts
    start: float  # of the full width
    width: float


def flamegraph(profile: ProfileTree, widest_ns: float | None = None) -> Picture:
    """One profile: box width is time, share of samples × median time of a call, coloured by whose code it is.

    `widest_ns` is the time that the full width stands for; give both sides of a comparison the same, and a
    millisecond is as wide on the left as on the right. Without a median time, widths are shares.
    Raises ValueError where there is no profile.
    """
    if profile.root is None or not profile.root.samples:
        raise ValueError("no profile to draw")
    scale = profile.scale or Scale(profile.root.samples, 1.0)
    shown, shell = without_shell(prune(profile.root))
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

    drawn = columns([_where(box) | numbers(box) for box in _boxes(shown, [scale], full_ns)]) | {
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
    return Picture(drawn, tuple(shell), legend)


def difference(before: ProfileTree, after: ProfileTree) -> Picture:
    """Two profiles laid over each other: width is the mean of both times, colour the time of `after` less `before`'s.

    Boxes whose interval has 0 in it are grey. Raises ValueError where a side has no time of a call.
    """
    scales, merged = scales_of(before, after), merge(before.root, after.root)
    shown, shell = without_shell(prune(merged, weight=lambda counts: time_ns(counts, scales)))
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
    drawn = columns([_where(box) | numbers(box) for box in _boxes(shown, scales, full_ns)]) | {
        "title": f"{second} less {first}",
        "sides": [first, second],
        "samples": [scale.samples for scale in scales],
        "totals": [scale.median_ns / 1e6 for scale in scales],
        "scale": f"full width = {words.milliseconds(full_ns)}, the mean of both sides",
        "alt": f"Differential flamegraph on {before.row.workload}: {first} {words.milliseconds(before.row.median_ns)}, "
        f"{second} {words.milliseconds(after.row.median_ns)} a call.",
    }
    return Picture(drawn, tuple(shell), difference_legend(second, "may be chance"))


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
        "page": palette.page,
    }


def _where(box: _Box) -> dict[str, Any]:
    return {"level": box.level, "x": box.start, "w": box.width, "name": box.name, "place": box.place}


def _boxes(root: StackFrame, scales: Sequence[Scale], full_ns: float) -> Iterator[_Box]:
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


def _place(frame: StackFrame) -> str:
    """The file, and the line where all that the frame does itself is one line."""
    only_line = frame.lines[0][0] if len(frame.lines) == 1 and not frame.children else None
    return frame.file if only_line is None else f"{frame.file}:{only_line}"


def flamegraph_text(profile: ProfileTree) -> str:
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


def kind(frame: StackFrame) -> str:
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


def scales_of(before: ProfileTree, after: ProfileTree) -> tuple[Scale, Scale]:
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


def colour_limit_ns(root: StackFrame, scales: Sequence[Scale]) -> float:
    """The difference of the strongest colour: the largest sure one of a leaf (callers hold sums); else 0."""
    frames = [frame for _, frame in root.walk()]
    leaves = [counts for frame in frames if len(frame.lines) > 1 for _, counts in frame.lines]
    leaves += [frame.counts for frame in frames if len(frame.lines) < 2 and not frame.children]
    changes = (delta(counts, scales) for counts in leaves)
    return max((abs(change.ns) for change in changes if change.sure), default=0.0)


# -- two profiles, with the times that the run measured in pairs, and by phase -----------------------------------------
#
# By phase: below each phase what it called, so that variants of different code lie on each other. A stack belongs to
# the phase of the innermost line that is known to have one; the frames above that line are dropped. Frames of variants
# count as the same where their functions have the same name.

Times = tuple[float, float | None]
"""Nanoseconds of a call, and the standard error."""


@dataclass(frozen=True)
class PairOfProfiles:
    """Both sides of a difference. paired: the change of the time in the run's rounds, None where it has none.

    unaligned: the sides whose code is in no known phase; both trees are then by function.
    """

    before: ProfileTree
    after: ProfileTree
    paired: Effect | None
    unaligned: tuple[str, ...]


PairedTimes = tuple[Effect, Times, Times]
"""The ratio that was measured, and the times of baseline and variant that fit it."""


def paired_times(run: data.Run, workload: str, baseline: str, variant: str) -> PairedTimes | None:
    """The ratio of two variants in the rounds that they shared, and the time of a call of each that fits it.

    The baseline's is the typical one. The variant's is that over the ratio, and has all the error of the ratio, so that
    the difference of both is the difference measured. None where they shared no rounds.
    """
    try:
        paired = samples.pair(run, workload, variant, baseline, "time", run.alpha)
    except (RunError, KeyError, ValueError):
        return None
    count, ratio = len(paired.ratios), paired.effect.value
    if count < 2 or not ratio or not paired.baseline_ns:
        return None
    ns = paired.baseline_ns / ratio
    error = float(np.std(np.log(paired.ratios), ddof=1)) / math.sqrt(count)
    return paired.effect, (paired.baseline_ns, None), (ns, ns * error)


def timed(profile: ProfileTree, times: Times) -> ProfileTree:
    """The same profile with another time of a call."""
    ns, error_ns = times
    return replace(profile, row=profile.row.model_copy(update={"median_ns": ns, "median_error_ns": error_ns}))


def read_pair(run: data.Run, workload: str, baseline: str, variant: str, times: PairedTimes | None) -> PairOfProfiles:
    """Both profiles, which must exist, with the times that were measured in pairs."""
    profiles = [read_profile(run, workload, side) for side in (baseline, variant)]
    before, after = (profile for profile in profiles if profile is not None)
    if times is not None:
        before, after = (timed(profile, each) for profile, each in zip((before, after), times[1:], strict=True))
    facts = data.read_or_none(RunFolder(run.path), PHASE_FACTS, [])
    texts = {side: profile_text(run, workload, side) for side in (baseline, variant)}
    stacks = {side: phase_stacks(text, phase_lines(facts, side, text)) for side, text in texts.items()}
    unaligned = tuple(side for side, found in stacks.items() if not found)
    if not unaligned:
        roots = phase_trees(*stacks.values())
        before, after = (replace(each, root=root) for each, root in zip((before, after), roots, strict=True))
    return PairOfProfiles(before, after, times and times[0], unaligned)


LEAST_KNOWN = 0.5
"""Share of the samples that must have a phase with a name."""

_OURS = re.compile(r"(.*) \((?:variants|added)/[^()]*\)")

Stacks = Sequence[tuple[frozenset[str], Sequence[str], int]]
"""The phases that a stack may belong to, the frames below, and its samples."""


def phase_stacks(folded: str, lines: Lines) -> Stacks:
    """The stacks of a profile's calls by phase; nothing where too few have one."""
    stacks = []
    for frames, count in stacks_of_calls(folded):
        phases, place = phases_of_stack(frames, lines)
        phases = phases - {OTHER} or phases  # a residual addition on a phase's line counts with it
        below = frames[place + 1 :] if place >= 0 else ()
        stacks.append((phases, [_OURS.sub(r"\1 (variants)", frame) for frame in below], count))
    total = sum(count for *_, count in stacks)
    named = sum(count for phases, _, count in stacks if phases != {OTHER})
    return stacks if total and named >= LEAST_KNOWN * total else ()


def phase_trees(*sides: Stacks) -> list[StackFrame]:
    """A tree for each side, its phases outermost: those that one of the sides cannot tell apart are one box."""
    groups = groups_of(phases for side in sides for phases, *_ in side)
    return [read_folded("".join(_phase_line(*stack, groups) for stack in side)) for side in sides]


def _phase_line(phases: frozenset[str], below: Sequence[str], count: int, groups: dict[str, frozenset[str]]) -> str:
    group = groups[min(phases)]
    own = [] if phases == group else [_phases_named(phases)]
    return f"{';'.join([_phases_named(group), *own, *below])} {count}\n"


def _phases_named(phases: frozenset[str]) -> str:
    """The phases in words, in the order of a forward."""
    if phases == ATTENTION:
        return "attention from mask to output"
    return " + ".join(NAMES.get(phase, phase) for phase in PHASES if phase in phases)


def phase_lines(facts: Sequence[PhaseFacts], variant: str, stacks: str) -> Lines:
    """File → line → phases, for the files of a variant's profile: as a run recorded it, else as the source here says.

    A run records it for the variants that a claim about shares names.
    """
    recorded: dict[str, Mapping[str, Sequence[Sequence[str]]]] = {}
    for fact in facts:
        for file, lines in fact.lines.items():
            if fact.variant == variant or file != LIBRARY_FILE:  # the kind of attention decides what its lines are
                recorded.setdefault(file, lines)
    attention = "eager" if "eager_attention_forward (" in stacks else "sdpa"
    return {**recorded, **lines_in_sources({*re.split(r"[;\n]", stacks)}, attention, recorded)}


# -- both sides of a comparison on each other, out of the samples of their ten processes (causes.json) -----------------
#
# Functions are one box where they have one name, and so are the two that are compared; below them are lines, one box
# where they have one text. Of models the outermost boxes are phases. A box is coloured where its difference is proven,
# by the same interval over processes as the list of causes.

_PLACED = re.compile(r"(.*) \(([^()]*):\d+\)")

Way = tuple[str, ...]


@dataclass
class _Aligned:
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
    boxes = _aligned_boxes(explained, totals)
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
    return Picture(picture, (), difference_legend(variant, "not proven to differ"))


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
        profile = ProfileTree(Profile(workload=sampled.workload, variant=name, median_ns=seen_ns), root, "")
        pictures += [flamegraph(profile, max(explained.call_ns))] if root.samples else []
    return pictures


def _counts(samples: NDArray[np.int64]) -> Samples:
    before, after = samples.tolist()
    return before, after


def _aligned_boxes(explained: Explanation, totals: NDArray[np.int64]) -> dict[Way, _Aligned]:
    boxes: dict[Way, _Aligned] = {(): _Aligned(totals)}
    for line in sorted(explained.sampled.lines, key=lambda line: SIDES.index(line.side)):
        path: Way = ()
        for name, place in _frames(explained, line):
            path += (name,)
            box = boxes.setdefault(path, _Aligned(np.zeros_like(totals)))
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
    parts = _PLACED.fullmatch(frame)
    return (parts[1], parts[2]) if parts else (frame, "")


def _laid_out(boxes: dict[Way, _Aligned], times: dict[Way, NDArray[np.float64]]) -> Iterator[tuple[Way, float, float]]:
    """The boxes that are drawn, callers first, the widest first: where each begins and how wide it is."""
    whole = float(times[()].mean())
    below: dict[Way, list[Way]] = {}
    for path in boxes:
        if path:
            below.setdefault(path[:-1], []).append(path)
    waiting: list[tuple[Way, float]] = [((), 0.0)]
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
