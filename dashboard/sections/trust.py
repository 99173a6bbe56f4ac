"""How far the numbers of one run can be trusted: its A/A checks, its noise, its gates, and its machine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st
from scipy import stats

from llama_workbench.harness.evidence.effect import half_width
from llama_workbench.harness.report.outcome import trust_of
from llama_workbench.harness.slices import faces
from llama_workbench.harness.spec.table import Table
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.stats.confidence import Interval
from llama_workbench.harness.stats.samples import Clock, call_times_ns
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import Control
from llama_workbench.variants import REFERENCE_BENCHMARKS

from .. import state, words
from ..export.svg import LIGHT, Palette
from ..views import data
from . import blocks
from .blocks import ABOVE, SMALL, Layout, axis, figure, line

CONTROLS_COMMAND = "pytest --benchmark"
MOST_NAMED = 4

FACTS = {
    "cpu_model": "CPU",
    "cores": "cores",
    "cgroup_quota_cores": "cores allowed",
    "governor": "CPU governor",
    "threads": "threads",
    "load_average": "load average before",
    "torch": "torch",
    "malloc": "malloc settings",
    "transparent_huge_pages": "huge pages",
    "memory_bytes": "memory",
    "kernel": "kernel",
    "libc": "C library",
    "python": "Python",
    "commit": "commit",
}


def show(opened: state.Opened) -> None:
    """All of it, the answer first."""
    run = opened.run
    measured = state.computed(opened, read_noise)
    if measured.problem:
        blocks.warn(f"Left out: {measured.problem}")
    trust = trust_of(run.noise)
    st.header(trust.word, anchor="answer")
    blocks.say(" ".join(filter(None, (f"{trust.finding}." if trust.finding else "", trust.means))))
    show_controls(run)
    show_drift(run, measured)
    show_gates(run)
    blocks.notes("Excluded from this run", run.left_out)
    blocks.header("Environment", anchor="environment")
    facts = {title: words.one_line(run.environment.get(key)) for key, title in FACTS.items()}
    facts["torch"] = facts["torch"] or "not installed"
    if isinstance(memory := run.environment.get("memory_bytes"), int | float):
        facts["memory"] = words.size(memory)
    blocks.facts({title: fact or "cannot be read here" for title, fact in facts.items()})
    with st.expander("All that was recorded"):
        st.json(dict(run.environment), expanded=1)
    for section in faces("section"):
        if section.PAGE == "trust":
            section.show()


# -- identical code against itself -------------------------------------------------------------------------------------

KINDS = {"aa": "entered twice", "copy": "identical copy"}


def show_controls(run: data.Run) -> None:
    if not run.noise.controls:
        blocks.missing("A/A checks (identical code timed against itself)", CONTROLS_COMMAND)
        return
    if seen := could_see(run.claims):
        blocks.answer("How small a difference could be seen?", seen)
    unbounded = list(dict.fromkeys(each.workload for each in run.noise.controls if math.isinf(smallest(each))))
    named = words.markdown(words.some([run.named(name) for name in unbounded], "; "))
    not_drawn = f" Not drawn, because of too few rounds: {named}." if unbounded else ""
    blocks.header("Identical code against itself", anchor="controls")
    blocks.forest_plot(controls_as_claim(run), "controls", heading="")
    st.caption(
        "A row has the baseline entered twice, or an identical copy of another variant, timed in the same rounds as "
        "all else. An interval without 1 in it means that the check failed: it reports a difference between identical "
        "code. Half its width is the smallest difference that anybody could have seen there in as many rounds. With "
        f"{words.percent(1 - run.alpha)} confidence all of them hold at once.{not_drawn}"
    )


def smallest(control: Control) -> float:
    """The smallest difference that it could have shown, as a part of 1: half the width of its interval."""
    return math.expm1((control.high - control.low) / 2)


def note_on(control: Control) -> str:
    """What it could have shown."""
    least = half_width(smallest(control)).replace("±", "")
    return f"{control.variant}: a difference of {least} could have been seen"


def controls_as_claim(run: data.Run) -> data.Claim:
    """The bounded controls of a run as the rows of a forest plot, under a heading for each kind: what fired first, then
    the least certain."""
    listed = sorted(run.noise.controls, key=lambda control: (not control.fired, -smallest(control)))
    rows = tuple(
        data.unasked(
            control.interval,
            workload=control.workload,
            baseline=KINDS.get(control.kind, control.kind),
            named=run.named(control.workload),
            verdict=Word.FIRED if control.fired else Word.PASSED,
            notes=(note_on(control),),
        )
        for control in listed
        if math.isfinite(smallest(control))
    )
    return data.figure("A/A checks", run.alpha, rows, claimed="no difference")


def could_see(claims: Iterable[data.Claim]) -> str:
    """How small a difference the comparisons of these claims could see, of each by its narrowest interval; nothing
    without an interval."""
    widths: dict[tuple[str, ...], float] = {}
    for effect in (effect for claim in claims for effect in claim.effects if not effect.unit):
        if effect.lower and effect.upper:
            key = effect.workload, effect.variant, effect.baseline, effect.metric
            width = math.expm1(math.log(effect.upper / effect.lower) / 2)
            widths[key] = min(width, widths.get(key, math.inf))
    if not widths:
        return ""
    known = [*widths.values()]
    widest = f"within {half_width(max(known))}. Where an interval cannot tell, the verdict is inconclusive."
    if len(known) == 1:
        return f"The comparison is known {widest}"
    return f"Half of {len(known)} comparisons are known within {half_width(float(np.median(known)))}, all {widest}"


# -- the same code over the run ----------------------------------------------------------------------------------------

LEVEL = 0.99
"""Confidence of the interval of a median."""

MOST_POINTS = 3000
BIN, MOST_BINS = 10, 100  # rounds in a point of the line, at least; points


@dataclass(frozen=True)
class Noise:
    """Aggregates of a run's samples.

    rounds: a row for each variant in each round: `workload`, `variant`, `seconds` (timed before it in this run), and
    `ns` (median of a call).
    """

    rounds: pd.DataFrame
    samples: int
    problem: str


_NO_ROUNDS = pd.DataFrame(columns=["workload", "variant", "process", "round", "seconds", "ns"])


def read_noise(run: data.Run) -> Noise:
    """Aggregate the samples of a run; without any where they cannot be read, and `problem` says why."""
    clocks = {one.workload.name: one.clock.default or "cpu" for one in run.manifest.experiments}
    try:
        return aggregate(RunFolder(run.path).read_samples(), clocks)
    except RunError as error:
        return Noise(_NO_ROUNDS, 0, words.problem(error))


def aggregate(table: Table, clocks: Mapping[str, str]) -> Noise:
    """The same from a table of samples, columns as those of samples.parquet, in their order; a call by the
    clock of its workload. Different lengths of one round are taken together."""
    if not len(table):
        return Noise(_NO_ROUNDS, 0, "")
    workloads, ns = table.names("workload"), np.full(len(table), np.nan)
    for clock in get_args(Clock):
        here = workloads.are(*(name for name in workloads.values if clocks.get(name, "cpu") == clock))
        ns[here] = call_times_ns(table.take(here), clock=clock)
    timed = table.frame().assign(ns=ns, seconds=table["wall_ns"].cumsum() / 1e9)
    grouped = timed.groupby(["workload", "variant", "process", "round"], observed=True, sort=False)
    rounds = grouped.agg(seconds=("seconds", "first"), ns=("ns", "median"))
    return Noise(rounds[rounds["ns"] > 0].reset_index(), len(table), "")


def median_ns(noise: Noise, workload: str, variant: str) -> Interval | None:
    """Median over rounds of a call's time, with the exact interval by order statistics; None where not measured."""
    rows = noise.rounds
    times_ns = rows.loc[(rows["workload"] == workload) & (rows["variant"] == variant), "ns"].to_numpy(np.float64)
    if not len(times_ns):
        return None
    median = float(np.median(times_ns))
    ends = stats.quantile_test(times_ns, q=median, p=0.5).confidence_interval(LEVEL)
    low, high = float(ends.low), float(ends.high)
    return Interval(
        median, low if math.isfinite(low) else 0.0, high if math.isfinite(high) else math.inf, len(times_ns)
    )


def show_drift(run: data.Run, measured: Noise) -> None:
    """Every round of the baseline or the reference benchmark."""
    blocks.header("Noise over the run", anchor="noise")
    baselines = {experiment.workload.name: experiment.baseline or "" for experiment in run.manifest.experiments}
    frame = drift(measured, baselines)
    frame = frame.assign(workload=frame["workload"].map(run.named))
    if frame.empty:
        blocks.missing("timed rounds", CONTROLS_COMMAND)
        return
    text = drift_text(frame)
    whose = "the baseline"
    if not run.is_of_functions:
        whose = "the baseline or the reference benchmark (code that is never edited), whichever was in more rounds"
    blocks.caption(
        f"{text} A point is one round: the median time of a call of {whose}, over its own median. A step means that "
        "the machine changed its speed, a cloud of high points that a neighbour was busy. Both sides of a comparison "
        f"share a round, so most of it cancels. All in all there are {measured.samples:,} samples."
    )
    blocks.folded(
        "Every round as a picture",
        "show_noise",
        lambda: blocks.plot(drift_figure(frame, state.colours()), text, "drift"),
    )


def drift(noise: Noise, baselines: Mapping[str, str]) -> pd.DataFrame:
    """Median of each round (columns workload, variant, seconds, relative) over its own median, of the reference
    benchmark or the baseline, whichever took part in more rounds."""
    rows = noise.rounds
    if rows.empty:
        return pd.DataFrame(columns=["workload", "variant", "seconds", "relative"])
    counts = Counter(zip(rows["workload"].astype(str), rows["variant"].astype(str), strict=True))
    wanted = {
        name: max((*REFERENCE_BENCHMARKS, baselines.get(name, "")), key=lambda variant: counts[name, variant])
        for name in rows["workload"].astype(str).unique()
    }
    kept = rows[rows["variant"].astype(str) == rows["workload"].astype(str).map(wanted)].copy()
    kept["relative"] = kept["ns"] / kept.groupby(["workload", "variant"], observed=True)["ns"].transform("median")
    return kept.sort_values("seconds")[["workload", "variant", "seconds", "relative"]].reset_index(drop=True)


def drift_figure(frame: pd.DataFrame, colours: Palette = LIGHT) -> go.Figure:
    """Rounds over the time of the run (columns as `drift` gives them), with the middle as a line."""
    frame = frame.assign(order=range(1, len(frame) + 1), percent=100 * (frame["relative"] - 1))
    shown = frame if len(frame) <= MOST_POINTS else frame.iloc[:: math.ceil(len(frame) / MOST_POINTS)]
    bins = np.arange(len(frame)) // max(BIN, math.ceil(len(frame) / MOST_BINS))
    middle = frame.groupby(bins)[["order", "percent"]].median()
    columns = zip(shown["workload"], shown["variant"], shown["seconds"], shown["percent"], strict=True)
    dots = go.Scatter(
        name="a round",
        x=shown["order"],
        y=shown["percent"],
        mode="markers",
        marker={"size": 4, "color": colours.sides[0], "opacity": 0.55},
        hovertext=[
            f"<b>{words.label(workload)}</b><br>{words.label(variant)}"
            f"<br>{value:+.1f} %, after {second:.0f} s of samples"
            for workload, variant, second, value in columns
        ],
        hoverinfo="text",
    )
    median = line(middle["order"], middle["percent"], colours.sides[1], 2, name="median of neighbouring rounds")
    grid: Layout = {"gridcolor": colours.rule}
    zero: Layout = {"zeroline": True, "zerolinecolor": colours.muted, "range": _seen(frame["percent"])}
    top: Layout = {"yref": "container", "yanchor": "top", "font": {"size": SMALL, "color": colours.text}}
    return figure(
        [dots, median],
        colours,
        height=320,
        margin=(5, 12, 30, 46),
        xaxis=axis("rounds, in the order they were taken", rangemode="tozero", **grid),
        yaxis=axis("← faster   time of a call over its median [%]   slower →", tickformat="+.0f", **zero, **grid),
        legend={**ABOVE, **top, "itemclick": False, "itemdoubleclick": False},
    )


def _seen(percent: pd.Series) -> tuple[float, float]:
    """Ends of the axis: all but the 1 % that lie furthest out, which would squash the others."""
    low, high = percent.quantile([0.005, 0.995])
    air = 0.25 * max(high - low, 1.0)
    return low - air, high + air


def drift_text(frame: pd.DataFrame) -> str:
    """The rounds in words."""
    percent = 100 * (frame["relative"] - 1)
    low, high = percent.quantile([0.05, 0.95])
    worst = frame["workload"].iloc[int(percent.argmax())]
    outside = int((~percent.between(*_seen(percent))).sum())
    beyond = f" {outside} lie outside of the picture." if outside else ""
    return (
        f"{len(frame)} rounds of the same code: nine in ten lie between {low:+.1f} % and {high:+.1f} % of their "
        f"workload's median; the slowest is {percent.max():+.0f} % on {worst}.{beyond}"
    )


# -- gates -------------------------------------------------------------------------------------------------------------


def show_gates(run: data.Run) -> None:
    blocks.header("Do both give the same answers?" if run.is_of_functions else "Are the logits right?", anchor="gates")
    worst = worst_gates(run)
    if worst.empty:
        blocks.missing("gates", CONTROLS_COMMAND)
        return
    failed = list(worst["variant"][worst["passed"] < worst["of"]])
    text = f"{len(worst) - len(failed)} of {len(worst)} variants passed on every workload they ran"
    text += f"; failed: {words.listing(failed[:MOST_NAMED])}" if failed else ""
    name, where, used = worst.iloc[0][["variant", "on", "of tolerance"]]
    if pd.notna(used):
        text += f". The largest error used {used:.2g} % of its tolerance ({name} on {run.named(where)})"
    blocks.say(f"{text}.")
    columns = ["variant", "passed", "of", "cases"]
    if not run.is_of_functions:
        columns += ["worst error", "tolerance", "of tolerance", "on"]
        worst["on"] = [run.named(name) if name else name for name in worst["on"]]
    formats = {"worst error": "%.2e", "tolerance": "%.1e", "of tolerance": "%.3g %%"}
    blocks.table(worst[columns], f"How each variant passed. {text}", formats)
    if not run.is_of_functions:
        st.caption(
            "Logits are a model's scores for the next token. The table has the largest difference of a variant's "
            "logits (of a part of a model: of its output) from the reference's. A variant that fails is not timed."
        )


def worst_gates(run: data.Run) -> pd.DataFrame:
    """The gates of a run, a row a variant, that with the largest error first.

    passed, of: workloads. The error is that which used most of its tolerance, empty where none was recorded.
    """
    gates = [(entry.workload.name, *gate) for entry in run.manifest.experiments for gate in entry.gates.items()]
    frame = pd.DataFrame(
        [(name, gate.passed, gate.cases or 0, gate.max_error, gate.tolerance, where) for where, name, gate in gates],
        columns=["variant", "passed", "cases", "worst error", "tolerance", "on"],
    )
    error, tolerance = (pd.to_numeric(frame[column]) for column in ("worst error", "tolerance"))
    frame["of tolerance"] = 100 * error / tolerance.where(tolerance != 0)
    frame.loc[frame["of tolerance"].isna(), ["worst error", "tolerance", "on"]] = None
    counts = frame.groupby("variant", sort=False).agg(
        passed=("passed", "sum"), of=("passed", "size"), cases=("cases", "sum")
    )
    largest = frame.sort_values("of tolerance", ascending=False, kind="stable").drop_duplicates("variant")
    return largest[["variant", "worst error", "tolerance", "of tolerance", "on"]].join(counts, on="variant")
