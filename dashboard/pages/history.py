"""History: runs and baselines over time, as ratios to the frozen yardstick.

It shows all runs, so that the URL holds no run: `?workload=…&variant=…&claim=…`.
"""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import state as parts
from llama_workbench.dashboard import words
from llama_workbench.dashboard.figures import history as timeline
from llama_workbench.dashboard.views import data
from llama_workbench.dashboard.views import history as histories
from llama_workbench.harness.report.compare import THRESHOLD_PERCENT, TOLERANCE_PERCENT, change_text
from llama_workbench.harness.report.standings import YARDSTICK, Standings, read_standings
from llama_workbench.harness.store.folder import STANDINGS, RunError, RunFolder


@st.cache_resource(max_entries=1024, show_spinner=False)
def standings(path: Path, stamp: data.Stamp, workload: str) -> Standings:
    """A run's ratios on one workload. Not copied for each reader: nobody changes them. Raises RunError."""
    return read_standings(RunFolder(path), [workload]).of(workload)


@st.cache_resource(max_entries=32, show_spinner="Reading the runs …")
def course(key: str, workload: str, _entries: Sequence[data.Entry], _stamps: Sequence[data.Stamp]) -> Course:
    """All runs that took on a workload. `key` stands for the entries with their stamps."""
    pasts, problems = [], []
    for entry, stamp in zip(_entries, _stamps, strict=True):
        try:
            pasts.append(histories.Past(entry, standings(entry.summary.path, stamp, workload)))
        except RunError as error:
            problems.append(f"{entry.name}: {error.path.name}: {error.problem}. {error.fix}")
    changes = pd.DataFrame(
        [
            {
                "started (UTC)": _when(change.started),
                "run": change.after,
                "against": change.before,
                "variant": change.row.variant,
                "change of its time": change_text(change.row),
                "answer": change.row.verdict,
                "why": change.row.reason,
            }
            for change in reversed(histories.changes(pasts, workload))
        ]
    )
    return Course(tuple(pasts), tuple(problems), changes)


@dataclass(frozen=True)
class Course:
    """A workload over the runs, oldest first. changes: every comparison of consecutive runs, newest first."""

    pasts: tuple[histories.Past, ...]
    problems: tuple[str, ...]
    changes: pd.DataFrame


def main() -> None:
    st.title("History", anchor=False)
    found = [entry for entry in parts.all_entries() if entry.summary.problem is None]
    if not found:
        parts.show_first_run(data.results_folder(sys.argv[1:]))
        return
    oldest_first = histories.without_copies(found)[::-1]
    show_course(oldest_first)
    show_claim(oldest_first)
    show_runs(found)


# -- one variant over the runs -----------------------------------------------------------------------------------------


def show_course(entries: Sequence[data.Entry]) -> None:
    workloads = list(dict.fromkeys(name for entry in reversed(entries) for name in entry.summary.workloads))
    if not workloads:
        st.info("None of these runs timed anything.", icon=":material/info:")
        return
    left, right = st.columns(2, gap="large")
    with left:
        runs = Counter(name for entry in entries for name in entry.summary.workloads)
        workload = parts.choose("Workload", workloads, "workload", default=max(workloads, key=runs.__getitem__))
    having = [entry for entry in entries if workload in entry.summary.workloads]
    stamps = [data.stamp_of_standings(entry.summary.path) for entry in having]
    found = course(parts.key_of((having, stamps)), workload, having, stamps)
    variants = histories.subjects(found.pasts, workload)
    parts.show_list("Left out", found.problems)
    show_slow(having, stamps)
    if not variants:
        st.text(f"No run has a finished round of {workload}. This command makes one:")
        st.code(f"pytest --benchmark --workloads {words.clip(workload, 80)}", language="bash", wrap_lines=True)
        return
    with right:
        variant = parts.choose("Variant", variants, "variant")
    points, breaks = histories.points(found.pasts, workload, variant)
    table = found.changes
    beyond = table[table["answer"].isin(["regression", "improvement"])] if len(table) else table
    mine = list(beyond[beyond["variant"] == variant]["run"]) if len(beyond) else []
    if points:
        st.plotly_chart(
            timeline.timeline(points, breaks, mine, parts.colours()),
            config=parts.PLOT,
            alt=timeline.timeline_text(workload, variant, points, breaks),
            key="timeline",
        )
        show_reading(points)
    else:
        st.text(f"No run has a number for {variant} on {workload}: nothing was timed in the same rounds with it.")
    show_breaks(breaks, len(points))
    show_changes(table, beyond)


def show_slow(entries: Sequence[data.Entry], stamps: Sequence[data.Stamp]) -> None:
    """Names the runs whose samples had to be read, and the command that spares it."""
    slow = [
        entry
        for entry, stamp in zip(entries, stamps, strict=True)
        if not any(Path(path).name == STANDINGS for path, _, _ in stamp)
    ]
    if slow:
        with st.expander(f"{len(slow)} of {len(entries)} runs are slow to read"):
            st.caption(
                f"They have no {STANDINGS}, which newer runs have, so that their samples are read once each time that "
                "the dashboard starts. Judging a run again writes it:"
            )
            st.code("\n".join(shlex.join(["workbench", "judge", str(entry.summary.path)]) for entry in slow[:20]))


def show_reading(points: Sequence[histories.Point]) -> None:
    against = points[-1].against
    what = (
        "the frozen yardstick, code that is never edited"
        if against == YARDSTICK
        else f"{words.markdown(against)}, its own baseline, for this workload has no yardstick"
    )
    last = words.markdown(timeline.text(points[-1]))
    st.caption(
        f"Each point is a run: the time of {what}, over the variant's time in the same rounds. Higher is faster; times "
        f"of different days are never put against each other. Newest: {last}. Bars are each run's own interval."
    )


def show_breaks(breaks: Sequence[histories.Break], count: int) -> None:
    if not breaks:
        if count > 1:
            st.caption("The line is whole: every run may be compared with the one before it.")
        return
    st.caption(
        "The line breaks where two runs must not be compared (dotted, with its number): what differs shifts the ratio "
        "itself, so a step there says nothing about the code."
    )
    st.dataframe(
        pd.DataFrame(
            [
                {"break": number, "from": each.before, "to": each.after, "why": "; ".join(each.reasons)}
                for number, each in enumerate(breaks, 1)
            ]
        ),
        hide_index=True,
        height="content" if len(breaks) <= 8 else 280,
        row_height=30,
        alt="Breaks in the line: between which runs, and why",
    )


def show_changes(table: pd.DataFrame, beyond: pd.DataFrame) -> None:
    st.header("Changes between comparable runs", anchor="changes")
    if table.empty:
        st.text("No two runs with this workload are of one machine configuration, so no change can be told yet.")
        return
    counts = table["answer"].value_counts()
    told = " · ".join(f"{count} {words.markdown(word)}" for word, count in counts.items())
    st.caption(
        f"Every variant of this workload, each run against the latest run before it on the same machine configuration: "
        f"{told}. A change counts where it lies beyond {THRESHOLD_PERCENT:g} %, both intervals and a tolerance of "
        f"{TOLERANCE_PERCENT:g} % (the rule of `workbench compare`). It is a screen: confirm with both versions in one "
        "run."
    )
    if beyond.empty:
        st.text("No change lies beyond the noise.")
    else:
        st.dataframe(
            beyond,
            hide_index=True,
            row_height=30,
            height="content" if len(beyond) <= 8 else 280,
            alt="Changes of a variant's time between consecutive comparable runs that lie beyond the noise",
        )
    with st.expander(f"All {len(table)} comparisons"):
        st.dataframe(table, hide_index=True, row_height=30, alt="All comparisons of consecutive comparable runs")


# -- one claim over the runs -------------------------------------------------------------------------------------------


def show_claim(entries: Sequence[data.Entry]) -> None:
    named = {claim for entry in entries for claim, _, _ in entry.summary.claims if claim}
    claims = sorted(named, key=lambda claim: (claim == "ad-hoc", claim))
    st.header("Verdicts of a claim", anchor="claim")
    if not claims:
        st.text("None of these runs judged a claim. This command makes one that does:")
        st.code("pytest --benchmark", language="bash")
        return
    claim = parts.choose("Claim", claims, "claim")
    judged, turns = histories.verdicts_over_time(entries, claim)
    columns = list(dict.fromkeys(part for _, by_part in judged for part in by_part))
    st.dataframe(
        pd.DataFrame(
            [
                {
                    "started (UTC)": _when(entry.summary.started),
                    "run": entry.name,
                    **{
                        part or "verdict": words.look(by_part[part]).word if part in by_part else "–"
                        for part in columns
                    },
                }
                for entry, by_part in reversed(judged)
            ]
        ),
        hide_index=True,
        row_height=30,
        height="content" if len(judged) <= 8 else 280,
        alt=f"Verdicts of the claim {words.clip(claim, 80)} in each run, newest first",
    )
    if not turns:
        once = "Only one run judged it." if len(judged) == 1 else "Its verdict was the same in all of them."
        st.caption(once)
        return
    parts.show_list(
        f"Its verdict changed {len(turns)} time{'s' * (len(turns) > 1)}, newest first (machines may differ)",
        [
            f"{_when(turn.started)} {turn.after}: {turn.part + ': ' if turn.part else ''}{turn.was} → {turn.became}"
            for turn in turns[:-13:-1]
        ],
    )


# -- the runs ----------------------------------------------------------------------------------------------------------


def show_runs(entries: Sequence[data.Entry]) -> None:
    st.header("Runs", anchor="runs")
    kinds = list(dict.fromkeys(word for entry in entries for word in entry.summary.verdicts))
    kinds.sort(key=[*words.LOOKS, *kinds].index)
    st.dataframe(
        pd.DataFrame(
            [
                {
                    "verdicts": f"./?run={quote(entry.name, safe='')}",
                    "started (UTC)": _when(entry.summary.started),
                    "run": entry.name,
                    "status": entry.summary.status,
                    **{words.look(word).word: entry.summary.verdicts.get(word, 0) for word in kinds},
                    "noise": entry.summary.noise.removeprefix("A/A noise: ") or "no controls",
                    "machine": entry.summary.machine or "not recorded",
                    "commit": entry.summary.commit or "not recorded",
                }
                for entry in entries
            ]
        ),
        hide_index=True,
        row_height=30,
        height="content" if len(entries) <= 10 else 380,
        column_config={
            "verdicts": st.column_config.LinkColumn("open", display_text="Verdicts"),
            "noise": st.column_config.TextColumn("A/A noise"),
        },
        alt="All runs, newest first: date, status, verdicts, noise, machine and commit",
    )
    st.caption("Keep a run to compare with: `workbench baseline save RUN NAME`.")


def _when(started: str) -> str:
    return started[:16].replace("T", " ") or "no date"


main()
