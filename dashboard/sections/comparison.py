"""One comparison on one screen: who is faster, why, what to do, what a call costs, and in which lines."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from llama_workbench.harness.report.causes import changes
from llama_workbench.harness.report.code_lines import LINES
from llama_workbench.harness.report.comparison import Screen

from .. import state, words
from ..export.screen import code_html, costs_html, css_variables
from ..figures import breakdown as figures
from ..figures import rounds
from ..views import data, samples
from . import blocks


def screens_of(opened: state.Opened, claim: data.Claim) -> list[Screen]:
    """The screens of a comparison, or of a claim whose difference was looked into; none where files cannot be read, and
    the page says so."""
    asked = claim.claim, claim.part, not claim.is_comparison
    return blocks.computed("The comparison cannot be shown.", opened, samples.read_screens, *asked) or []


def show(screen: Screen, number: int = 0) -> DeltaGenerator:
    """The whole screen; gives its left column, which has room for more. `number`: of several on one page."""
    look = screen.way.look
    st.header(
        f":{look.colour}-badge[{look.word}] {words.markdown(screen.headline)}",
        anchor="answer" if not number else f"answer-{number}",
    )
    left, right = st.columns(2, gap="large")
    with left:
        for name, text in screen.told.items():
            st.markdown(f"**{name}:** {words.markdown(text)}")
        _html(costs_html(screen))
    with right:
        show_code(screen)
        show_causes(screen, number)
    show_spread(screen, number)
    return left


def _html(text: str) -> None:
    """HTML of ours, in the page's colours."""
    st.html(f'<div style="{css_variables(state.colours())}">{text}</div>')


def show_code(screen: Screen) -> None:
    """The lines of both sides that take time."""
    explained = screen.explained
    if explained is None or explained.division is None:
        return
    sides = {"baseline": screen.effect.baseline, "variant": screen.effect.variant}
    _html("".join(code_html(explained, side, name) for side, name in sides.items()))
    blocks.caption(LINES)


def show_causes(screen: Screen, number: int = 0) -> None:
    """The places that make up the difference."""
    if screen.explained is not None and (rows := changes(screen.explained)):
        st.subheader("Where the difference is", anchor=False)
        blocks.plot(
            figures.cause_bars(rows, screen.effect.variant, state.colours()),
            figures.cause_text(rows),
            f"causes {number}",
        )


def show_spread(screen: Screen, number: int = 0) -> None:
    """What differs from process to process, what the clock leaves open in one, and the interval."""
    if screen.spread is not None:
        with st.expander("How far apart single processes are"):
            drawn = rounds.lives(screen.spread, screen.effect, state.colours())
            blocks.plot(drawn, screen.between, f"lives {number}")
