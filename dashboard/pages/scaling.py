"""Crossover: how an effect changes with width, length and position."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import state as parts
from llama_workbench.dashboard import words
from llama_workbench.dashboard.figures import scaling as figures
from llama_workbench.dashboard.views import data, timings
from llama_workbench.dashboard.views import scaling as crossovers
from llama_workbench.harness.metrics.trends import Slope
from llama_workbench.harness.store.folder import RunError


@st.cache_data(max_entries=32, show_spinner="Reading the samples …")
def from_samples(
    path: Path, stamp: data.Stamp, sides: crossovers.Sides, place: int
) -> tuple[list[crossovers.Cost], list[Slope], str]:
    """Costs and slopes of one series, and why there are none."""
    run = parts.read_run(path, stamp)
    series = crossovers.all_series(run)[sides][place]
    alpha = run.alpha or 0.01
    try:
        evidence = timings.read_evidence(run)
    except (RunError, ValueError) as error:
        return [], [], timings.problem_of(error)
    return crossovers.costs(series, evidence, alpha), crossovers.slopes(series, evidence, alpha), ""


def main() -> None:
    opened = parts.open_run("Crossover")
    if opened is None:
        return
    found = crossovers.all_series(opened.run)
    if not found:
        parts.show_missing(
            "effect at several widths, lengths or positions",
            "pytest --benchmark --claims call-overhead-negligible,refactor-2x-3x",
        )
        return
    left, right = st.columns(2, gap="large")
    with left:
        names = {crossovers.sides_key(sides): _sides_label(sides) for sides in found}
        chosen = parts.choose("Effect", names, "effect", default=_most_points(found))
        sides = next(sides for sides in found if crossovers.sides_key(sides) == chosen)
    with right:
        series = found[sides]
        labels = {one.key: _series_label(one) for one in series}
        axis = parts.choose("Against", labels, "axis")
        place = next(index for index, one in enumerate(series) if one.key == axis)
    _show(opened, series[place], sides, place)


def _sides_label(sides: crossovers.Sides) -> str:
    variant, baseline, metric = sides
    return f"{variant} against {baseline}" + ("" if metric.endswith(" time") else f" ({metric})")


def _series_label(series: crossovers.Series) -> str:
    ends = f"{series.points[0].size:,.0f} to {series.points[-1].size:,.0f}"
    return f"{series.axis} {ends}: {series.name}"


def _most_points(found: dict[crossovers.Sides, list[crossovers.Series]]) -> str:
    """The effect with the longest series over the width, else the longest of all."""

    def worth(sides: crossovers.Sides) -> tuple[int, int]:
        widths = [len(one.points) for one in found[sides] if one.axis == "width"]
        return max(widths, default=0), max(len(one.points) for one in found[sides])

    best: crossovers.Sides = max(list(found), key=worth)
    return crossovers.sides_key(best)


def _show(opened: parts.Opened, series: crossovers.Series, sides: crossovers.Sides, place: int) -> None:
    run = opened.run
    st.markdown(words.markdown(crossovers.sentence(series)))
    st.markdown(words.markdown(crossovers.crossing_sentence(series)))
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("As a ratio", anchor="ratio")
        st.plotly_chart(
            figures.ratios(series, run.floors, parts.colours()),
            config=parts.PLOT,
            alt=figures.ratios_text(series, run.floors),
            key="ratios",
        )
        st.caption(words.markdown(_ratio_caption(run, series)))
    with right:
        costs, slopes, problem = from_samples(run.path, opened.stamp, sides, place)
        st.subheader("In microseconds a call", anchor="microseconds")
        if problem or not any(cost.us is not None for cost in costs):
            st.text(f"No microseconds: {problem or 'the run has no samples of these sides'}.")
        else:
            st.plotly_chart(
                figures.microseconds(series, costs, parts.colours()),
                config=parts.PLOT,
                alt=figures.microseconds_text(series, costs),
                key="microseconds",
            )
            st.caption(
                words.markdown(
                    f"Above 0: {series.baseline} takes so much longer. The axis is linear near 0 and logarithmic "
                    "further out. Overhead stays about level here while its share above melts away; a cost that grows "
                    "with the work climbs. Hollow: the interval holds 0. With "
                    f"{words.percent(1 - (run.alpha or 0.01))} confidence all intervals of this picture hold at once."
                )
            )
    _table(series, costs)
    if slopes:
        _slopes(slopes)


def _ratio_caption(run: data.Run, series: crossovers.Series) -> str:
    region = (
        f"Blue: what {series.claim.title!r} claims ({series.asked})"
        if series.claim
        else f"Blue: {series.asked}, for no claim covers these points"
    )
    floors = [point for point in series.points if point.effect.workload in run.floors]
    grey = "Grey boxes: the A/A floor of each workload" if floors else "No A/A control ran on these workloads"
    layers = " Models of different width may also differ in their number of layers." if series.axis == "width" else ""
    return (
        f"{region}. {grey}. Line: as fast as each other. Filled: the whole interval lies inside the claimed range or "
        f"outside; hollow: not settled. Dashed uprights: between them the effect crosses the range's edge.{layers}"
    )


def _table(series: crossovers.Series, costs: list[crossovers.Cost]) -> None:
    st.dataframe(
        pd.DataFrame(
            [
                {
                    series.axis: f"{point.size:,.0f}",
                    "workload": point.effect.workload,
                    "speed-up [interval]": point.effect.text,
                    "settled": "yes" if point.settled else "no",
                    "longer with the baseline": figures.cost_text(costs[index]) if costs else "not measured",
                    "rounds": point.effect.rounds,
                    "verdict": words.look(point.effect.verdict).word,
                }
                for index, point in enumerate(series.points)
            ]
        ),
        hide_index=True,
        row_height=30,
        alt="The points of the pictures, one row for each size",
    )


def _slopes(slopes: list[Slope]) -> None:
    st.subheader("What each further position costs", anchor="slope")
    names = [slope.variant if slope.baseline is None else f"{slope.variant} less {slope.baseline}" for slope in slopes]
    st.dataframe(
        pd.DataFrame(
            [
                {"": name, "ns a position": _slope_text(slope), "rounds": slope.rounds}
                for name, slope in zip(names, slopes, strict=True)
            ]
        ),
        hide_index=True,
        row_height=30,
        alt="Nanoseconds that a decode call takes longer for each token before it",
    )
    difference = slopes[-1]
    if difference.low > 0 or difference.high < 0:
        more, less = difference.variant, difference.baseline or ""
        if difference.high < 0:
            more, less = less, more
        says = f"Each further position costs {more} more than {less}."
    else:
        says = "The data cannot tell whether a further position costs either side more."
    st.caption(
        words.markdown(f"{says} Fitted by a straight line in each round; the intervals of these three hold at once.")
    )


def _slope_text(slope: Slope) -> str:
    ends = (slope.low, slope.ns_per_position, slope.high)
    if slope.unstable:
        return "unstable: it moved while it was measured"
    if abs(slope.low) == float("inf") or abs(slope.high) == float("inf"):
        return "too few rounds for an interval"
    low, middle, high = (f"{end:,.0f}" if abs(end) >= 100 else f"{end:.3g}" for end in ends)
    return f"{middle} [{low}, {high}]"


main()
