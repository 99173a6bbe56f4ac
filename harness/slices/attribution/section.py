"""A part of the page Explore: what a speed-up is due to: layout, cache ownership, masks or operations."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.sections import blocks
from llama_workbench.dashboard.sections import claim as section
from llama_workbench.dashboard.views import data, outcomes

from . import cells
from .metric import DUMMY, MARGIN_PERCENT

PAGE, KEY, TITLE = "explore", "attribution", "Attribution"


def asked_for(run: data.Run) -> list[data.Claim]:
    """The claims of a run that ask what a speed-up is due to, judged or refused."""
    return [claim for claim in run.claims if claim.is_factorial or claim.claim in run.dispute.measured_by.get(KEY, ())]


def is_there(run: data.Run) -> bool:
    """Whether a claim of the run asks for it."""
    return bool(asked_for(run))


def show(opened: state.Opened) -> None:
    """What the grids of the run say."""
    claims = [claim for claim in opened.run.claims if claim.is_factorial]
    if not claims:
        reasons = [claim.reason for claim in asked_for(opened.run) if claim.reason]
        blocks.notes("Why there is nothing to show", reasons)
        command = opened.run.dispute.command(KEY)
        blocks.missing("factorial (every combination of old and new, timed in the same rounds)", command)
        return
    show_answer(opened, claims)
    workloads = list(dict.fromkeys(effect.workload for claim in claims for effect in claim.effects))
    workload = blocks.choose_workload(opened.run, workloads)
    asked = [claim for claim in claims if any(effect.workload == workload for effect in claim.effects)]
    lost = "The cells cannot be shown; what was judged is below."
    measured = blocks.computed(lost, opened, cells.read_grid, workload, asked[0].alpha)
    blocks.show_cards(opened.run, [], [workload])
    if measured is not None:
        st.text(f"On {opened.run.named(workload)}: {cells.share_sentence(measured)}")
    show_effects(opened.run, asked[0], workload, measured)
    if measured is not None:
        show_cells(measured, opened.run.named(workload))


def show_answer(opened: state.Opened, claims: Sequence[data.Claim]) -> None:
    """The answer of the URL's claim if it is one of these, else of the headline's, else of the first."""
    known = opened.run.claims
    first = claims[outcomes.main_claim(opened.run, claims)]
    wanted = section.wanted(known)
    claim = known[wanted] if wanted is not None and known[wanted] in claims else first
    look = outcomes.look_of(claim)
    st.header(section.titled(look, section.full_title(claim)), anchor="answer")
    blocks.name_tab(f"{look.word}: {section.full_title(claim)}")
    state.add_heading("Answer", "answer")
    blocks.say(" ".join((f"Claimed: {claim.claimed}.", *cells.headline(claim))))
    blocks.caption(f"{cells.MEANING} {outcomes.certainty(opened.run, claim)}")
    for other in claims:
        if other is not claim:
            where = words.listing(list(dict.fromkeys(effect.where for effect in other.effects)))
            claimed = f"{other.claimed}, on {where}" if where else other.claimed
            st.markdown(f"{blocks.verdict_word(outcomes.look_of(other))}: {words.markdown(claimed)}")


def show_effects(run: data.Run, claim: data.Claim, workload: str, measured: cells.MeasuredGrid | None) -> None:
    blocks.header("Effects", anchor="effects")
    shown = cells.rows(claim, workload)
    blocks.forest_plot(shown, "forest", front=f"Factorial on {run.named(workload)}. ", heading="")
    factors = measured.grid.factors if measured else ()
    steps = "; ".join(f"{factor.name}: {factor.change()}" for factor in factors)
    means = f" ({words.markdown(steps)})" if steps else ""
    control = ""
    if verdicts := [effect.verdict for effect in shown.effects if effect.workload == DUMMY]:
        answer = "no difference, as expected" if verdicts[0] == "passed" else "it fired, so trust none of this"
        control = f" The dummy is a factor without any meaning, drawn anew for every round: {answer}."
    st.caption(
        f"Speed-up of new over old, on the mean over the settings of the other factors{means}. "
        f"Blue is the margin of ±{claim.margin or MARGIN_PERCENT:g} % within which an effect counts as none. An "
        f"interaction above 1: both together gain more than each alone predicts.{control}"
    )
    if shown.notes:
        with st.expander("Notes on effects that are open"):
            blocks.notes("What is open, and how long it would take", shown.notes)


def show_cells(measured: cells.MeasuredGrid, workload: str) -> None:
    blocks.header("Every combination", anchor="cells")
    if not measured.rounds:
        st.text("No round has all cells.")
        return
    rows = [
        {
            **dict(zip((factor.name for factor in measured.grid.factors), cell.levels, strict=True)),
            "ms a call": cell.call_ns / 1e6,
            "speed-up": cell.ratio,
            "low": cell.low,
            "high": cell.high,
            "variant": cell.variant,
        }
        for cell in measured.cells
    ]
    formats = {"ms a call": "%.3f"} | dict.fromkeys(("speed-up", "low", "high"), "%.3f×")
    blocks.table(rows, f"Time and speed-up of each cell on {workload}", formats)
    st.caption(
        f"How many times as fast as the all-old cell (the first), with its interval, over {measured.rounds} rounds "
        f"with all {len(measured.cells)} cells. Cells are shown, not judged: the effects above use all of them at "
        "once, and their intervals are narrower."
    )
