"""A part of the page Explore: what a speed-up is due to: layout, cache ownership, masks or operations."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.sections import blocks
from llama_workbench.dashboard.sections import claim as section
from llama_workbench.dashboard.views import data, outcomes

from . import effects
from .metric import DUMMY, MARGIN_PERCENT

PAGE, KEY, TITLE, PLACE = "explore", "attribution", "Attribution", 3


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
    blocks.show_cards(opened.run, [], [workload])
    show_effects(opened.run, asked[0], workload)


def show_answer(opened: state.Opened, claims: Sequence[data.Claim]) -> None:
    """The answer of the URL's claim if it is one of these, else of the headline's, else of the first."""
    known = opened.run.claims
    first = claims[outcomes.main_claim(opened.run, claims)]
    wanted = section.wanted(opened.run, known)
    claim = known[wanted] if wanted is not None and known[wanted] in claims else first
    look = outcomes.look_of(claim)
    st.header(section.titled(look, section.full_title(claim)), anchor="answer")
    blocks.name_tab(f"{look.word}: {section.full_title(claim)}")
    state.add_heading("Answer", "answer")
    blocks.say(" ".join((f"Claimed: {claim.claimed}.", *effects.headline(claim))))
    blocks.caption(f"{effects.MEANING} {outcomes.certainty(opened.run, claim)}")
    st.text(claim.reason)
    for other in claims:
        if other is not claim:
            where = words.listing(list(dict.fromkeys(effect.where for effect in other.effects)))
            claimed = f"{other.claimed}, on {where}" if where else other.claimed
            st.markdown(f"{blocks.verdict_word(outcomes.look_of(other))}: {words.markdown(claimed)}")


def show_effects(run: data.Run, claim: data.Claim, workload: str) -> None:
    blocks.header("Effects", anchor="effects")
    shown = effects.rows(claim, workload)
    blocks.forest_plot(shown, "forest", front=f"Factorial on {run.named(workload)}. ", heading="")
    control = ""
    if verdicts := [effect.verdict for effect in shown.effects if effect.workload == DUMMY]:
        answer = "no difference, as expected" if verdicts[0] == "passed" else "it fired, so trust none of this"
        control = f" The dummy is a factor without any meaning, drawn anew for every round: {answer}."
    st.caption(
        "Speed-up of new over old, on the mean over the settings of the other factors. "
        f"Blue is the margin of ±{claim.margin or MARGIN_PERCENT:g} % within which an effect counts as none. An "
        f"interaction above 1: both together gain more than each alone predicts.{control}"
    )
    if shown.notes:
        with st.expander("Notes on effects that are open"):
            blocks.notes("What is open, and how long it would take", shown.notes)
