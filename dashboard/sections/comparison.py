"""One comparison on one screen: who is faster, what to do, what a call costs, why, and in which lines."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from llama_workbench.harness.report.causes import changes
from llama_workbench.harness.report.comparison import Screen

from .. import state, words
from ..export.screen import costs_html, css_variables, diff_html
from ..figures import breakdown as figures
from ..views import data, samples
from . import blocks


def screens_of(opened: state.Opened, claim: data.Claim) -> list[Screen]:
    """The screens of a comparison or a claim, one for each effect on a time; none where files cannot be read, and the
    page says so."""
    asked = claim.claim, claim.part
    return blocks.computed("The processes cannot be shown.", opened, samples.read_screens, *asked) or []


def show(screen: Screen, number: int = 0) -> DeltaGenerator:
    """The whole screen; gives its left column, which has room for more. `number`: of several on one page."""
    look = screen.way.look
    st.header(
        f":{look.colour}-badge[{look.word}] {words.markdown(screen.headline)}",
        anchor="answer" if not number else f"answer-{number}",
    )
    left, right = st.columns(2, gap="large")
    with left:
        show_advice(screen)
    with right:
        show_costs(screen)
    show_why(screen, number)
    return left


def show_advice(screen: Screen, *, decided: bool = False, there: bool = False) -> None:
    """What to do, apart from each other whether there is a difference and whether it matters, and that the answers are
    right. `decided`: whether what was asked needs no more of this comparison. `there`: whether it is one of several."""
    first = {} if decided and not screen.is_known else {"What to do there" if there else "What to do": screen.advice}
    judged = {"Significant": screen.significance, "Relevant": screen.relevance, "Correct": screen.same}
    _tell(first | judged)
    with st.expander("How sure, and how it ran"):
        sentences = screen.told | {"How sure": screen.certainty}
        _tell({name: sentences.get(name, "") for name in ("How sure", "As it ran", "What is measured")})
        blocks.say(screen.between)


def _tell(sentences: Mapping[str, str]) -> None:
    for name, text in sentences.items():
        if text:
            st.markdown(f"**{name}:** {words.markdown(text)}")


def show_costs(screen: Screen) -> None:
    """What a call costs on both sides."""
    _html(costs_html(screen))


def show_why(screen: Screen, number: int = 0, *, with_costs: bool = False) -> None:
    """The places that make up the difference, and beside them the code of both sides; nothing where nobody looked.
    `with_costs`: below them what a call costs."""
    explained = screen.explained
    left, right = st.columns([2, 3], gap="large")
    if explained is not None:
        with left:
            blocks.header("Why", anchor=f"why-{number}" if number else "why", within=True)
            blocks.say(screen.why)
            if rows := changes(explained):
                drawn = figures.cause_bars(rows, screen.effect.variant, state.colours())
                blocks.plot(drawn, figures.cause_text(rows), f"causes {number}")
        with right:
            _html(diff_html(explained))
    if with_costs:
        with left:
            show_costs(screen)


def _html(text: str) -> None:
    """HTML of ours, in the page's colours."""
    if text:
        st.html(f'<div style="{css_variables(state.colours())}">{text}</div>')
