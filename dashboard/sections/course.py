"""The course of runs over time, as ratios to the reference benchmark, which is never edited."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pandas as pd
import streamlit as st

from llama_workbench.harness.baselines.course import ChangePoint, change_points_of
from llama_workbench.harness.baselines.text import change_text
from llama_workbench.harness.report.standings import read_standings
from llama_workbench.harness.store.files import STANDINGS, RunError
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import Standings
from llama_workbench.variants import YARDSTICKS

from .. import state, words
from ..figures import history as figures
from ..views import entries, history
from ..views.entries import Entry, Stamp, stamp_of_standings, when
from ..views.workloads import shipped_named
from . import blocks

MOST_TOLD = 12
"""Lines of a list on this page."""


@st.cache_resource(max_entries=1024, show_spinner=False)
def standings(path: Path, stamp: Stamp, workload: str) -> Standings:
    """A run's ratios on one workload. Shared by all readers, so none may change them. Raises RunError."""
    return read_standings(RunFolder(path), [workload]).of(workload)


@st.cache_resource(max_entries=32, show_spinner="Reading the runs …")
def course(
    key: str, workload: str, _runs: Sequence[Entry], _stamps: Sequence[Stamp]
) -> tuple[list[history.Past], list[str], pd.DataFrame]:
    """The runs of a workload, oldest first; what cannot be read; all comparisons of consecutive runs, newest first.

    `key` identifies the runs with their stamps.
    """
    pasts, problems = [], []
    for entry, stamp in zip(_runs, _stamps, strict=True):
        try:
            pasts.append(history.Past(entry, standings(entry.summary.path, stamp, workload)))
        except RunError as error:
            problems.append(f"{entry.name}: {words.problem(error)}")
    changes = [
        {
            "started (UTC)": when(change.started),
            "run": change.after,
            "against": change.before,
            "variant": change.row.variant,
            "change of its time": change_text(change.row),
            "answer": change.row.verdict,
            "why": change.row.reason,
        }
        for change in reversed(history.changes(pasts, workload))
    ]
    return pasts, problems, pd.DataFrame(changes)


@st.cache_resource(max_entries=256, show_spinner="Looking for change points …")
def steps_of(key: str, workload: str, variant: str, _pasts: Sequence[history.Past]) -> list[ChangePoint]:
    """Where the variant changed for good. `key` identifies the runs, as in `course`."""
    return change_points_of([past.dated for past in _pasts], (workload, variant))


def show(listed: Sequence[Entry]) -> None:
    """A variant's time in each run, where it changed, and what became of a claim."""
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
    stamps = [stamp_of_standings(entry.summary.path) for entry in having]
    # One word for many stamps: Streamlit takes longer to look into those of two hundred runs than to draw a page.
    key = sha256(repr((having, stamps)).encode()).hexdigest()
    pasts, problems, changes = course(key, workload, having, stamps)
    variants = history.subjects(pasts, workload)
    blocks.notes("Left out", problems)
    show_slow(having, stamps)
    if not variants:
        st.text(f"No run has a finished round of {workload}. This command makes one:")
        blocks.command(f"pytest --benchmark --workloads {words.clip(workload, 80)}")
        return
    with right:
        variant = state.choose("Variant", variants, "variant")
    points, breaks = history.points(pasts, workload, variant)
    beyond = changes[changes["answer"].isin(["regression", "improvement"])] if len(changes) else changes
    changed = list(beyond[beyond["variant"] == variant]["run"]) if len(beyond) else []
    steps = steps_of(key, workload, variant, pasts)
    if points:
        behind = [step.first_run for step in steps]
        drawn = figures.timeline(points, breaks, changed, state.colours(), steps=behind)
        blocks.plot(drawn, figures.timeline_text(shown[workload], variant, points, breaks), "timeline")
        show_meaning(points)
    else:
        st.text(
            f"No run has a number for {variant} on {shown[workload]}: nothing was timed in the same rounds with it."
        )
    show_breaks(breaks, len(points))
    show_steps(steps)
    show_changes(changes, beyond)


def show_slow(runs: Sequence[Entry], stamps: Sequence[Stamp]) -> None:
    """Names the runs whose samples had to be read, and the command that makes that needless."""
    names = [{Path(path).name for path, _, _ in stamp} for stamp in stamps]
    if slow := [entry for entry, files in zip(runs, names, strict=True) if not (entry.url or STANDINGS in files)]:
        with st.expander(f"{len(slow)} of {len(runs)} runs are slow to read"):
            st.caption(
                f"They have no {STANDINGS}, which newer runs have, so the dashboard reads their samples once each time "
                "it starts. Judging a run again writes it:"
            )
            st.code("\n".join(shlex.join(["workbench", "judge", str(entry.summary.path)]) for entry in slow[:20]))


def show_meaning(points: Sequence[history.Point]) -> None:
    against = points[-1].against
    what = (
        "the reference benchmark, code that is never edited"
        if against in YARDSTICKS
        else f"{words.markdown(against)}, its own baseline, for this workload has no reference benchmark"
    )
    last = words.markdown(figures.text(points[-1]))
    st.caption(
        f"Each point is a run, or the mean of runs of one commit: the time of {what}, over the variant's time in the "
        "same rounds. Higher is faster; times of different days are never put against each other. Newest: "
        f"{last}. Bars are each point's own interval."
    )


def show_breaks(breaks: Sequence[history.Break], count: int) -> None:
    if not breaks:
        if count > 1:
            st.caption("The line is whole: every run may be compared with the one before it.")
        return
    lines = [f"{n}: {each.before} → {each.after}: {'; '.join(each.reasons)}" for n, each in enumerate(breaks, 1)]
    blocks.notes(
        "The line breaks where two runs must not be compared (dotted, with its number): what differs shifts the ratio "
        f"itself, so a step there says nothing about the code. {_newest(len(breaks), 'Why')}",
        lines[: -MOST_TOLD - 1 : -1],
    )


def _newest(count: int, question: str) -> str:
    return f"{question}, newest first:" if count <= MOST_TOLD else f"{question}, the newest {MOST_TOLD} of {count}:"


def show_steps(steps: Sequence[ChangePoint]) -> None:
    blocks.header("Change points", anchor="change-points")
    st.caption(
        "Where all runs together say that the variant changed for good (a red line in the picture): runs of one commit "
        "are put together, and a change lies between two commits. A history without a change shows one "
        "with at most 1 % probability. A step is found once three runs follow it."
    )
    if not steps:
        st.text("No change point.")
        return
    rows = [
        {
            "from": step.before,
            "to": step.after,
            "change of its time": step.change_text(),
            "runs before": step.runs_before,
            "runs after": step.runs_after,
            "first run": step.first_run,
        }
        for step in reversed(steps)
    ]
    blocks.table(rows, "Change points of the variant, newest first, with the commits beside each and its size")


def show_changes(table: pd.DataFrame, beyond: pd.DataFrame) -> None:
    blocks.header("Changes between comparable runs", anchor="changes")
    if table.empty:
        st.text("No two runs of this workload share a machine configuration, so there is no change to show yet.")
        return
    answers = " · ".join(f"{count} {words.markdown(word)}" for word, count in table["answer"].value_counts().items())
    st.caption(
        f"Every variant of this workload, each run against the latest run before it on the same machine configuration: "
        f"{answers}. A change counts by the rule of `workbench compare`. It is a screen: confirm with both versions in "
        "one run."
    )
    if beyond.empty:
        st.text("No change lies beyond the noise.")
    else:
        alt = "Changes of a variant's time between consecutive comparable runs that lie beyond the noise"
        blocks.table(beyond, alt)
    with st.expander(f"All comparisons: {len(table)}"):
        blocks.table(table, "All comparisons of consecutive comparable runs")


def show_claim(runs: Sequence[Entry]) -> None:
    claims = {claim for entry in runs for claim, _, _ in entry.summary.claims if claim}
    blocks.header("Verdicts of a claim", anchor="claim")
    if not claims:
        st.text("None of these runs judged a claim. This command makes one that does:")
        st.code("pytest --benchmark", language="bash")
        return
    claim = state.choose("Claim", history.titles(claims), "claim", also=lambda _: {"part": ""})
    judged, turns = history.verdicts_over_time(runs, claim)
    columns = list(dict.fromkeys(part for _, by_part in judged for part in by_part))
    rows = [
        {
            "started (UTC)": when(entry.summary.started),
            "run": entry.name,
            **{part or "verdict": by_part[part].look.word if part in by_part else "–" for part in columns},
        }
        for entry, by_part in reversed(judged)
    ]
    alt = f"Verdicts of the claim {words.clip(claim, 80)} in each run, newest first"
    blocks.table(rows, alt)
    if not turns:
        st.caption("Only one run judged it." if len(judged) == 1 else "Its verdict was the same in all of them.")
        return
    blocks.notes(
        f"Its verdict changed {len(turns)} time{'s' * (len(turns) > 1)} (machines may differ). "
        f"{_newest(len(turns), 'When')}",
        [
            f"{when(turn.after.summary.started)} {turn.after.name}: "
            f"{turn.part + ': ' if turn.part else ''}{turn.was} → {turn.became}"
            for turn in turns[: -MOST_TOLD - 1 : -1]
        ],
    )
