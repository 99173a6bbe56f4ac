"""The course of runs over time, as ratios to the reference benchmark, which is never edited: a variant's in each run,
where runs cannot be compared, and what became of a claim."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import fmean

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from llama_workbench.harness.baselines.regressions import why_not
from llama_workbench.harness.machine.environment import comparable
from llama_workbench.harness.report.standings import read_standings
from llama_workbench.harness.report.workload_names import shipped_named
from llama_workbench.harness.stats.confidence import Interval
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import Key, Standings
from llama_workbench.variants import REFERENCE_BENCHMARKS

from .. import state, words
from ..export.svg import LIGHT, Palette
from ..views import entries
from ..views.entries import Entry, Stamp, when
from ..views.samples import ratios
from . import blocks
from .blocks import ABOVE, SMALL, Layout, axis, figure, line, log_span, mark, marks, note, ratio_axis, rule

MOST_TOLD = 12
"""Reasons for a break that are listed."""


@dataclass(frozen=True)
class Past:
    """One run of a history with its standings."""

    entry: Entry
    standings: Standings

    @property
    def code(self) -> str:
        """What runs of the same code share: its commit. Where that is unknown, or files differed from it, the name of
        the run, which nothing shares."""
        commit = self.standings.environment.get("commit") or {}
        return str(commit["id"])[:10] if commit.get("id") and commit.get("dirty") is False else self.entry.name


@dataclass(frozen=True)
class Point:
    """The relative time of a variant in one run, or the mean over consecutive runs of the same code.

    sound: they ended whole, no control fired, and the effect did not drift. against: the reference of the ratio. runs:
    their names.
    """

    name: str
    runs: tuple[str, ...]
    started: str
    interval: Interval
    against: str
    baseline: bool
    sound: bool


@dataclass(frozen=True)
class Break:
    """Why a point cannot be compared with the point before it: an index into the points, and the reasons in words."""

    index: int
    before: str
    after: str
    reasons: tuple[str, ...]


# -- the page ----------------------------------------------------------------------------------------------------------


def show(listed: Sequence[Entry]) -> None:
    """A variant's time in each run, and what became of a claim."""
    oldest_first = entries.without_copies([entry for entry in listed if not entry.is_fleet])[::-1]
    show_course(oldest_first)
    show_claim(oldest_first)


def show_course(runs: Sequence[Entry]) -> None:
    workloads = list(dict.fromkeys(name for entry in reversed(runs) for name in entry.summary.workloads))
    if not workloads:
        blocks.info("None of these runs timed anything.")
        return
    counts = Counter(name for entry in runs for name in entry.summary.workloads)
    shown = shipped_named(workloads)
    left, right = st.columns(2, gap="large")
    with left:
        workload = state.choose("Workload", shown, "workload", default=max(workloads, key=counts.__getitem__))
    having = [entry for entry in runs if workload in entry.summary.workloads]
    stamps = [entries.stamp_of_standings(entry.summary.path) for entry in having]
    # One word for many stamps: Streamlit takes longer to look into those of two hundred runs than to draw a page.
    key = sha256(repr((having, stamps)).encode()).hexdigest()
    pasts, problems = read_pasts(key, workload, having, stamps)
    variants = subjects(pasts, workload)
    blocks.notes("Left out", problems)
    if not variants:
        st.text(f"No run has a finished round of {workload}. This command makes one:")
        blocks.command(f"pytest --benchmark --workloads {words.clip(workload, 80)}")
        return
    with right:
        variant = state.choose("Variant", variants, "variant")
    points, breaks = points_of(pasts, workload, variant)
    if points:
        drawn = timeline(points, breaks, state.colours())
        blocks.plot(drawn, timeline_text(shown[workload], variant, points, breaks), "timeline")
        show_meaning(points)
    else:
        st.text(
            f"No run has a number for {variant} on {shown[workload]}: nothing was timed in the same rounds with it."
        )
    show_breaks(breaks)


@st.cache_resource(max_entries=1024, show_spinner=False)
def standings(path: Path, stamp: Stamp, workload: str) -> Standings:
    """A run's ratios on one workload. Shared by all readers, so none may change them. Raises RunError."""
    return read_standings(RunFolder(path), [workload]).of(workload)


@st.cache_resource(max_entries=32, show_spinner="Reading the runs …")
def read_pasts(
    key: str, workload: str, _runs: Sequence[Entry], _stamps: Sequence[Stamp]
) -> tuple[list[Past], list[str]]:
    """The runs of a workload, oldest first, and what cannot be read. `key` identifies the runs with their stamps."""
    pasts, problems = [], []
    for entry, stamp in zip(_runs, _stamps, strict=True):
        try:
            pasts.append(Past(entry, standings(entry.summary.path, stamp, workload)))
        except RunError as error:
            problems.append(f"{entry.name}: {words.problem(error)}")
    return pasts, problems


def show_meaning(points: Sequence[Point]) -> None:
    against = points[-1].against
    what = (
        "the reference benchmark, code that is never edited"
        if against in REFERENCE_BENCHMARKS
        else f"{words.markdown(against)}, its own baseline, for this workload has no reference benchmark"
    )
    last = words.markdown(text(points[-1]))
    st.caption(
        f"Each point is a run, or the mean of runs of one commit: the time of {what}, over the variant's time in the "
        f"same rounds. Higher is faster; times of different days are never put against each other. Newest: {last}. "
        "Bars are each point's own interval."
    )


def show_breaks(breaks: Sequence[Break]) -> None:
    if not breaks:
        return
    lines = [f"{n}: {each.before} → {each.after}: {'; '.join(each.reasons)}" for n, each in enumerate(breaks, 1)]
    newest = f", the newest {MOST_TOLD} of {len(lines)}" if len(lines) > MOST_TOLD else ", newest first"
    blocks.notes(
        "The line breaks where two runs must not be compared (dotted, with its number): what differs shifts the ratio "
        f"itself, so a step there says nothing about the code. Why{newest}:",
        lines[: -MOST_TOLD - 1 : -1],
    )


def show_claim(runs: Sequence[Entry]) -> None:
    """A row for each run that judged the chosen claim, newest first, a column for each of its parts."""
    judged = Counter(
        claim for entry in reversed(runs) for claim in dict.fromkeys(name for name, *_ in entry.summary.claims)
    )
    claims = [claim for claim, _ in judged.most_common() if claim]
    blocks.header("Verdicts of a claim", anchor="claim")
    if not claims:
        st.text("None of these runs judged a claim. This command makes one that does:")
        blocks.command("pytest --benchmark")
        return
    chosen = state.choose("Claim", claims, "claim", also=lambda _: {"part": ""})
    verdicts = [
        (entry, {part or "verdict": word.look.word for claim, part, word in entry.summary.claims if claim == chosen})
        for entry in reversed(runs)
    ]
    columns = dict.fromkeys(part for _, by_part in verdicts for part in by_part)
    rows = [
        {
            "started (UTC)": when(entry.summary.started),
            "run": entry.name,
            **{part: by_part.get(part, "–") for part in columns},
        }
        for entry, by_part in verdicts
        if by_part
    ]
    blocks.table(rows, f"Verdicts of the claim {words.clip(chosen, 80)} in each run, newest first")


# -- runs in order -----------------------------------------------------------------------------------------------------


def subjects(pasts: Sequence[Past], workload: str) -> list[str]:
    """Variants that have a number on a workload in any of the runs, those of the newest run first."""
    subjects = (subject for past in reversed(pasts) for subject in past.standings.subjects)
    return list(dict.fromkeys(variant for name, variant in subjects if name == workload))


def points_of(pasts: Sequence[Past], workload: str, variant: str) -> tuple[list[Point], list[Break]]:
    """One variant on one workload over the runs, oldest first, and where its line must not be drawn through: by the
    rules of `workbench compare`."""
    key = (workload, variant)
    groups: list[list[Past]] = []
    breaks = []
    for past in (past for past in pasts if key in past.standings.times):
        before = groups[-1][-1] if groups else None
        reasons: list[str] = []
        if before is not None:
            reasons = [*comparable(before.standings.environment, past.standings.environment)]
            reasons += filter(None, [why_not(key, before.standings, past.standings)])
        if before is not None and reasons:
            breaks.append(Break(len(groups), before.entry.name, past.entry.name, tuple(reasons)))
        if before is not None and not reasons and before.code == past.code:
            groups[-1].append(past)
        else:
            groups.append([past])
    return [_point(group, key) for group in groups], breaks


def _point(group: Sequence[Past], key: Key) -> Point:
    first, times = group[0], [past.standings.times[key] for past in group]
    sound = all(
        past.entry.summary.status == "complete" and not past.standings.workloads[key[0]].bias and not time.unstable
        for past, time in zip(group, times, strict=True)
    )
    return Point(
        name=first.entry.name if len(group) == 1 else f"{first.code} ({len(group)} runs)",
        runs=tuple(past.entry.name for past in group),
        started=first.entry.summary.started,
        interval=_mean([time.interval for time in times]),
        against=first.standings.workloads[key[0]].reference or "",
        baseline=any(past.entry.is_baseline for past in group),
        sound=sound,
    )


def _mean(intervals: Sequence[Interval]) -> Interval:
    """Of the mean of independent runs: half widths add as errors do."""
    count, centre = len(intervals), fmean(each.centre for each in intervals)
    below = math.hypot(*(each.centre - each.low for each in intervals)) / count
    above = math.hypot(*(each.high - each.centre for each in intervals)) / count
    return Interval(centre, centre - below, centre + above, sum(each.n for each in intervals))


# -- the picture -------------------------------------------------------------------------------------------------------

MOST_TICKS = 4
MOST_NUMBERED = 20  # more numbers would hide the points; the list below has them

KINDS = {
    "run": ("circle", "a run"),
    "baseline": ("diamond", "a baseline"),
    "doubtful": ("square-open", "stopped early, an A/A check failed, or it drifted"),
}
"""Marker and legend of each kind of point."""


def timeline(points: Sequence[Point], breaks: Sequence[Break], colours: Palette = LIGHT) -> go.Figure:
    """One point a run, oldest left, evenly spaced; log y axis, up is faster. Raises ValueError without points.

    The line stops at a break, a numbered dotted upright. An open interval has no bar.
    """
    if not points:
        raise ValueError("no runs to draw")
    broken = {each.index for each in breaks}
    places = [place for index in range(len(points)) for place in ((None, index) if index in broken else (index,))]
    heights = [None if index is None else _ratio(points[index]) for index in places]
    traces = [line(places, heights, colours.muted, showlegend=False, connectgaps=False)]
    kinds = ["doubtful" if not point.sound else "baseline" if point.baseline else "run" for point in points]
    for name in KINDS:
        if chosen := [(index, point) for index, point in enumerate(points) if kinds[index] == name]:
            traces.append(_marks(chosen, name, colours))
    orange = colours.verdict["orange"]
    in_break: Layout = {"xref": "x", "xanchor": "center", "yref": "paper", "font": {"size": SMALL, "color": orange}}
    numbers = [note(each.index - 0.5, 0.98, str(number), colours) | in_break for number, each in enumerate(breaks, 1)]
    uprights = [(each.index - 0.5, orange, "dot") for each in breaks]
    ticks = sorted({round(place) for place in np.linspace(0, len(points) - 1, min(MOST_TICKS, len(points)))})
    labels = {place: words.label(when(points[place].started), 20) for place in ticks}
    against = points[-1].against
    of_reference = not against or against in REFERENCE_BENCHMARKS
    against = "the reference" if of_reference else words.label(against, 16)  # the axis is short
    known = [point.interval for point in points if point.interval.n]
    logs = [end for each in known for end in (each.centre, each.low, each.high) if math.isfinite(end)]
    span = log_span(logs or [0.0], 0.08, 0.01)
    return figure(
        traces,
        colours,
        height=340,
        margin=(62, 36, 46, 52),
        shapes=[rule(x, x, 0, 1, colour, dash, yref="paper") for x, colour, dash in uprights],
        annotations=numbers if len(numbers) <= MOST_NUMBERED else [],
        xaxis=axis(
            "runs, oldest left (start, UTC)",
            SMALL + 1,
            ticks_at=labels,
            range=[-0.6, max(len(points) - 0.4, 0.6)],
            showgrid=False,
            standoff=8,
        ),
        yaxis=ratio_axis(*span, f"speed (log), against {against}", SMALL + 1, gridcolor=colours.rule),
        legend={**ABOVE, "y": 1.02},
    )


def timeline_text(workload: str, variant: str, points: Sequence[Point], breaks: Sequence[Break]) -> str:
    """The picture in words: first and last run with their intervals, and the breaks."""
    first, last = points[0], points[-1]
    count = sum(len(point.runs) for point in points)
    oldest = f", {text(first)} in the oldest ({first.name})" if len(points) > 1 else ""
    broken = f"{len(breaks)} break{'s' * (len(breaks) != 1)} where runs cannot be compared" if breaks else "no break"
    runs = f"{count} run{'s' * (count > 1)}"
    return f"{variant} on {workload} over {runs}: {text(last)} in the newest ({last.name}){oldest}; {broken}."


def text(point: Point) -> str:
    """A ratio with interval and rounds."""
    if not point.interval.n:
        return "not measured"
    return f"{words.ratio(*ratios(point.interval))}, {point.interval.n} rounds"


def _marks(chosen: Sequence[tuple[int, Point]], name: str, colours: Palette) -> go.Scatter:
    colour, (symbol, legend) = colours.sides[1], KINDS[name]
    rows = []
    for index, point in chosen:
        value, (_, low, high) = _ratio(point) or 1.0, ratios(point.interval)
        hover = f"<b>{words.label(point.name, 60)}</b><br>{words.label(when(point.started), 30)}<br>"
        rows.append((index, value, low or value, high or value, hover + words.label(text(point))))
    return marks(rows, colour=colour, name=legend, thickness=1.5, cap=3, marker=mark(symbol, colour, 8, 1.5))


def _ratio(point: Point) -> float | None:
    return math.exp(point.interval.centre) if point.interval.n else None
