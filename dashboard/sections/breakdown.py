"""Where time goes: shares of a forward by phase and length, beside the dispute's own, and the machine's roof."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from llama_workbench.harness.metrics.roofline.metric import ROOFLINE, Reached, all_reached
from llama_workbench.harness.report.markdown import COLUMNS, roofline_rows
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.variants.phase_map import DENOMINATORS, MEANING

from .. import state, words
from ..views import breakdown, data
from . import blocks, named, published
from .sides import show_phase_bars

SHARED = {  # what the bars are shares of, by the key of DENOMINATORS
    "forward": "the whole forward",
    "layer": "the decoder layers, without embedding, final norm and LM head",
    "attention": "the attention block, with its output projection and cache",
    "attention-subset": "the five lines of the dispute's table, without output projection, cache, MLP, norms and "
    "LM head",
}


def show(opened: state.Opened) -> None:
    """Time by phase, what the machine could do, and the times that the dispute published."""
    phases = state.computed(opened, breakdown.read)
    for problem in phases.problems:
        blocks.warn(f"Left out: {problem}")
    if phases.measured:
        show_phases(opened, phases)
    else:
        blocks.missing("shares of the time by phase", opened.run.dispute.command("phases"))
    blocks.header("What the machine could do", anchor="roof")
    show_roofline(opened)
    published.show_times(opened)


def show_phases(opened: state.Opened, phases: breakdown.Phases) -> None:
    run = opened.run
    variant, geometry, of = choose(run, phases)
    workloads = [workload for workload, name in phases.measured if name == variant]
    rows: list[breakdown.Breakdown] = []
    for workload in sorted(workloads, key=lambda name: breakdown.order(run, name)):
        if breakdown.geometry(run, workload) == geometry:
            try:
                asked = workload, variant, of
                rows.append(state.computed(opened, breakdown.breakdown_of, *asked, _given=(phases,)))
            except ValueError as error:
                st.text(str(error))
    if not rows:
        others = words.listing(list(dict.fromkeys(f"{name} on {work}" for work, name in phases.measured)))
        blocks.info(f"{variant} has no phases of geometry {geometry} in this run; others have: {others}")
        return
    blocks.header("Time by phase", anchor="phases")
    show_phase_bars([(run.named(row.workload), row.shares) for row in rows])
    blocks.caption(
        f"Shares of {SHARED[of]}. Each bar is one call and sums to 100 %. Above it stands "
        f"the time of a call. The model has the shape {geometry}."
    )
    named.show_cards(run, [variant], [row.workload for row in rows])
    show_workload(opened, phases, rows)


def choose(run: data.Run, phases: breakdown.Phases) -> tuple[str, str, str]:
    """Variant, geometry and denominator of the URL; where it has none of these, those that have its workload."""
    geometries = [(name, breakdown.geometry(run, workload)) for workload, name in phases.measured]
    wanted = st.query_params.get("workload")
    having = [name for workload, name in phases.measured if workload == wanted]
    asked = run.dispute.numbers.shares_of
    usual = asked if asked in having else having[0] if having else breakdown.usual_variant(run, phases)
    left, middle, right = st.columns(3)
    with left:
        variants = list(dict.fromkeys(name for name, _ in geometries))
        variant = state.choose("Variant", variants, "variant", default=usual, also=_other)
    with middle:
        first = next((geometry for name, geometry in geometries if name == variant), None)
        first = breakdown.geometry(run, wanted) if wanted and variant in having else first
        names = list(dict.fromkeys(geometry for _, geometry in geometries))
        geometry = state.choose("Geometry", names, "geometry", default=first, also=_other)
    with right:
        of = state.choose("Share of", {name: breakdown.WHOLES[name] for name in DENOMINATORS}, "of")
    return variant, geometry, of


def _other(_: str) -> dict[str, str]:
    """Another variant or geometry has other workloads."""
    return {"workload": ""}


def show_workload(opened: state.Opened, phases: breakdown.Phases, rows: Sequence[breakdown.Breakdown]) -> None:
    """One length in numbers, against another variant, and beside the dispute's table and rules."""
    run = opened.run
    names = [row.workload for row in rows]
    profiled = next((name for name in names if (name, rows[0].variant) in run.profiles), None)
    theirs = next((name for name in names if data.experiment(run, name).workload.tokens == 128), None)  # in their table
    workload = named.choose_workload(run, names, "Look inside", default=profiled or theirs)
    chosen = next(row for row in rows if row.workload == workload)
    show_table(chosen, run)
    show_difference(opened, phases, chosen)
    published.show_shares(opened, phases, chosen)
    published.show_decisions(opened, phases, workload)


def show_difference(opened: state.Opened, phases: breakdown.Phases, chosen: breakdown.Breakdown) -> None:
    """Phase by phase, what another variant takes more or less; nothing where no other was timed by phase here."""
    others = [name for workload, name in phases.measured if workload == chosen.workload and name != chosen.variant]
    if not others:
        return
    other = state.choose("Against", others, "against")
    asked = chosen.workload, other, chosen.of
    try:
        beside = state.computed(opened, breakdown.breakdown_of, *asked, _given=(phases,))
    except ValueError as error:
        st.text(str(error))
        return
    rows = [
        {"phase": name, other: before, chosen.variant: after, "difference": value, "low": low, "high": high}
        for name, before, after, value, low, high in breakdown.differences(beside, chosen)
    ]
    formats = dict.fromkeys((other, chosen.variant), "%.4g ms") | dict.fromkeys(
        ("difference", "low", "high"), "%+.3g ms"
    )
    blocks.table(rows, f"Time by phase of {chosen.variant} less that of {other}, the largest difference first", formats)
    sure = words.percent(1 - opened.run.alpha)
    blocks.caption(f"An end holds wherever both shares' {sure} intervals do.")


def show_table(chosen: breakdown.Breakdown, run: data.Run) -> None:
    rows = [
        {
            "phase": share.name,
            "share": share.percent,
            "low": share.low,
            "high": share.high,
            "a call": share.ms,
            "level": share.grade,
            "what it holds": MEANING[share.phase],
        }
        for share in chosen.shares
    ]
    blocks.table(
        rows,
        f"Shares of {breakdown.WHOLES[chosen.of]} by phase for {chosen.variant} on {chosen.workload}",
        dict.fromkeys(("share", "low", "high"), "%.2f %%") | {"a call": "%.4g ms"},
    )
    overhead, theirs, sure = chosen.overhead, run.dispute.form.levels_of, words.percent(1 - run.alpha)
    levels = f"those of {theirs}: " if theirs else ""
    cost = f"{overhead.value:.3f}× [{overhead.low:.3f}, {overhead.high:.3f}]"
    blocks.caption(
        f"{chosen.rounds} rounds. Each interval is a t interval over them and holds with {sure} "
        f"confidence for itself. Levels are {levels}critical above 10 %, moderate from 5 to "
        "10 %, minor below 5 %. Where an interval lies on both sides, both are named. Clock: "
        f"{chosen.clock or 'not recorded'}. Milliseconds are parts of a call in the rounds; with timestamps between "
        f"the phases a call took {cost} of that."
    )


def read_roofline(run: data.Run, alpha: float) -> tuple[list[Reached], list[str]]:
    """The roofline fraction of every variant, and a line with the reason for each that has none. Raises RunError."""
    return all_reached(RunFolder(run.path).read(ROOFLINE), alpha=alpha)


def show_roofline(opened: state.Opened) -> None:
    """A table, a row for each workload and variant, and what it means."""
    run = opened.run
    reached = blocks.computed("The roofline cannot be read.", opened, read_roofline, run.alpha)
    if reached is None:
        return
    rows, missing = reached
    if not rows and not missing:
        blocks.missing("roofline fractions", run.dispute.command("roofline"))
        return
    if rows:
        in_words = [
            dict(zip(COLUMNS, (run.named(place), *cells), strict=True)) for place, *cells in roofline_rows(rows)
        ]
        weights = ({None: "not known", True: "yes", False: "no"}[row.in_cache] for row in rows)
        blocks.table(
            [row | {"weights in the cache": fits} for row, fits in zip(in_words, weights, strict=True)],
            "Roofline fraction of each variant: how much of this machine's peak it reaches on each workload",
        )
        st.caption(
            "The roofline is the least time that a call's operations and bytes can take at the rates of two peak "
            "kernels, a matrix product and a read of memory, timed in the same rounds as the variants. At 100 % "
            "nothing is left to gain; above, a call is faster than the kernel that stands for the peak. Each interval "
            f"holds with {words.percent(1 - run.alpha)} confidence. Times are this machine's alone."
        )
    blocks.notes(
        "More than the roofline",
        [f"{one.variant} on {run.named(one.workload)}: {one.above}" for one in rows if one.above],
    )
    blocks.notes("Not measured", missing)
