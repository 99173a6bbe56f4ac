"""Scaling: how an effect changes with width, length and position, and where it crosses over."""

from __future__ import annotations

import streamlit as st

from .. import state, words
from ..figures import scaling as figures
from ..views import data, scaling
from . import blocks, named


def show(opened: state.Opened) -> None:
    """Every effect that was measured at several sizes, one at a time."""
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
    run = opened.run
    blocks.say(f"Asked: {series.asked}. {words.capital(series.sweep.describe())}.")
    if series.axis == "width":
        blocks.say("Models of different width may also differ in their number of layers.")
    named.show_cards(run, [series.variant, series.baseline], [one.workload for one in series.effects.values()])
    drawn = figures.ratios(series, run.floors, state.colours())
    blocks.plot(drawn, figures.ratios_text(series, run.floors), "ratios")
    blocks.caption(_ratio_caption(run, series))
    rows = [
        {
            series.axis: f"{size:,.0f}",
            "workload": effect.where,
            "speed-up [interval]": words.effect(effect),
            "settled": "yes" if series.settled(size) else "no",
            "rounds": effect.rounds,
            "verdict": effect.verdict.look.word,
        }
        for size, effect in series.effects.items()
    ]
    blocks.table(rows, "The points of the picture, one row for each size")


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
