"""Scaling: how an effect changes with width, length and position, and where it crosses over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.figures import scaling as figures
from llama_workbench.dashboard.sections import blocks, head, named
from llama_workbench.dashboard.views import data, samples, scaling
from llama_workbench.harness.stats.confidence import Interval
from llama_workbench.harness.store.errors import RunError
from llama_workbench.harness.store.verdict_schema import Effect


def from_samples(run: data.Run, sides: scaling.Sides, axis: str) -> tuple[dict[float, Effect], list[Interval], str]:
    """Costs and slopes of the series over an axis, and why there are none."""
    [series] = [one for one in scaling.all_series(run)[sides] if one.key == axis]
    try:
        evidence = samples.read_evidence(run)
    except RunError as error:
        return {}, [], error.brief
    return samples.costs(series, evidence, run.alpha), samples.slopes(series, evidence, run.alpha), ""


def main() -> None:
    opened = head.open_models(
        "Scaling", "models: how an effect changes with their width and with the length of the text"
    )
    if opened is None:
        return
    by_sides = scaling.all_series(opened.run)
    if not by_sides:
        blocks.missing(
            "effect at several widths, lengths or positions",
            opened.run.dispute.command("lengths"),
        )
        return
    left, right = st.columns(2, gap="large")
    with left:
        by_key = {scaling.sides_key(sides): sides for sides in by_sides}
        names = {
            key: f"{variant} against {baseline}" + ("" if metric.endswith(" time") else f" ({metric})")
            for key, (variant, baseline, metric) in by_key.items()
        }
        sides = by_key[state.choose("Effect", names, "effect", default=_most_points(by_sides))]
    with right:
        by_axis = {one.key: one for one in by_sides[sides]}
        labels = {
            key: f"{one.axis} {min(one.effects):,.0f} to {max(one.effects):,.0f}: {one.name}"
            for key, one in by_axis.items()
        }
        axis = state.choose("Against", labels, "axis")
    _show(opened, by_axis[axis])


def _most_points(by_sides: dict[scaling.Sides, list[scaling.Series]]) -> str:
    """The effect with the longest series over the width, else the longest of all."""

    def worth(sides: scaling.Sides) -> tuple[int, int]:
        widths = [len(one.effects) for one in by_sides[sides] if one.axis == "width"]
        return max(widths, default=0), max(len(one.effects) for one in by_sides[sides])

    return scaling.sides_key(max(by_sides, key=worth))


def _show(opened: state.Opened, series: scaling.Series) -> None:
    run, sides = opened.run, (series.variant, series.baseline, series.metric)
    blocks.say(scaling.sentence(series))
    blocks.say(scaling.crossing_sentence(series))
    if series.axis == "width":
        blocks.say("Models of different width may also differ in their number of layers.")
    named.show_cards(run, [series.variant, series.baseline], [one.workload for one in series.effects.values()])
    left, right = st.columns(2, gap="large")
    with left:
        blocks.header("As a ratio", anchor="ratio", within=True)
        drawn = figures.ratios(series, run.floors, state.colours())
        blocks.plot(drawn, figures.ratios_text(series, run.floors), "ratios")
        blocks.caption(_ratio_caption(run, series))
    with right:
        costs, slopes, problem = state.computed(opened, from_samples, sides, series.key)
        blocks.header("In microseconds a call", anchor="microseconds", within=True)
        if problem or all(cost.value is None for cost in costs.values()):
            st.text(f"No microseconds: {problem or 'the run has no samples of these sides'}.")
        else:
            drawn = figures.microseconds(series, costs, state.colours())
            blocks.plot(drawn, figures.microseconds_text(series, costs), "microseconds")
            blocks.caption(
                f"Above 0: {series.baseline} takes so much longer. The axis is linear near 0 and logarithmic "
                "further out. A fixed overhead would stay level here while its share on the left melts away; a cost "
                "that grows with the work climbs. Hollow: the interval holds 0, or there are too few rounds for one. "
                f"Each interval holds with {words.percent(1 - run.alpha)} confidence."
            )
    _table(series, costs)
    if slopes:
        _slopes(series, slopes)


def _ratio_caption(run: data.Run, series: scaling.Series) -> str:
    region = (
        f"Blue: what {series.claim.title!r} claims ({series.asked})"
        if series.claim
        else f"Blue: {series.asked}, for no claim covers these points"
    )
    floors = [run.floors[one.workload] for one in series.effects.values() if one.workload in run.floors]
    same = data.identical_code(floors)
    grey = f"Thin grey lines, left of a point: {same}" if same else "No identical code was timed on these workloads"
    crosses = " Dashed uprights: between them the effect crosses the range's edge." if series.sweep.crossings else ""
    return (
        f"{region}. {grey}. Line: equally fast. Filled: the whole interval lies inside the claimed range or "
        f"outside; hollow: not settled. A dot alone has too few rounds for an interval.{crosses}"
    )


def _table(series: scaling.Series, costs: Mapping[float, Effect]) -> None:
    rows = [
        {
            series.axis: f"{size:,.0f}",
            "workload": effect.where,
            "speed-up [interval]": words.effect(effect),
            "settled": "yes" if series.settled(size) else "no",
            "longer with the baseline": words.told(costs[size]) if size in costs else "not measured",
            "rounds": effect.rounds,
            "verdict": effect.verdict.look.word,
        }
        for size, effect in series.effects.items()
    ]
    blocks.table(rows, "The points of the pictures, one row for each size")


def _slopes(series: scaling.Series, slopes: Sequence[Interval]) -> None:
    blocks.header("What each further position costs", anchor="slope", within=True)
    names = (series.baseline, series.variant, f"{series.variant} less {series.baseline}")
    drifted = "unstable: the effect drifted while it was measured"
    texts = [drifted if slope.unstable else words.told(data.unasked(slope, unit="ns")) for slope in slopes]
    rows = [
        {"": name, "a position": text, "rounds": slope.n}
        for name, text, slope in zip(names, texts, slopes, strict=True)
    ]
    blocks.table(rows, "Nanoseconds that a decode call takes longer for each token before it")
    difference, sides = slopes[-1], (series.variant, series.baseline)
    answer = "The data cannot tell whether a further position costs either side more."
    if difference.low > 0 or difference.high < 0:
        more, less = sides if difference.low > 0 else sides[::-1]
        answer = f"Each further position costs {more} more than {less}."
    blocks.caption(f"{answer} Fitted by a straight line in each round; the intervals of these three hold at once.")


main()
