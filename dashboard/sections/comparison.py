"""One comparison on one screen: who is faster, what a call costs, where the difference is and what to do."""

from __future__ import annotations

import streamlit as st

from llama_workbench.harness.report.causes import changes
from llama_workbench.harness.report.comparison import Screen, code_text, code_title, measure_rows

from .. import state, words
from ..figures import breakdown as figures
from ..figures import rounds
from ..views import data, samples
from . import blocks

CODE_LETTERS = 70  # in half of a page


def screens_of(opened: state.Opened, claim: data.Claim) -> list[Screen]:
    """The screens of a comparison, or of a claim whose difference was looked into; none where files cannot be read, and
    the page says so."""
    asked = claim.claim, claim.part, not claim.is_comparison
    return blocks.computed("The comparison cannot be shown.", opened, samples.read_screens, *asked) or []


def show(screen: Screen, number: int = 0) -> None:
    """The whole screen. `number`: of several on one page."""
    look = screen.way.look
    st.header(
        f":{look.colour}[:material/{look.icon}:] {words.markdown(screen.headline)}",
        anchor="answer" if not number else f"answer-{number}",
    )
    effect = screen.effect
    st.markdown(f"**{words.markdown(screen.advice)}** {words.markdown(screen.price)}")
    blocks.say(screen.certainty)
    if screen.where:
        blocks.say(f"Where: {screen.where}.")
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("What a call costs", anchor=False)
        names = ("", effect.baseline, effect.variant, "change")
        rows = [dict(zip(names, row, strict=True)) for row in measure_rows(screen.measures)]
        blocks.table(rows, "What a call costs on both sides")
        show_spread(screen, number)
    with right:
        show_causes(screen, number)
    show_code(screen)


def show_spread(screen: Screen, number: int = 0) -> None:
    """What differs from process to process, what the clock leaves open in one, and the interval."""
    if screen.spread is None:
        return
    drawn = rounds.lives(screen.spread, screen.effect, state.colours())
    blocks.plot(drawn, screen.between, f"lives {number}")


def show_causes(screen: Screen, number: int = 0) -> None:
    """The places that make up the difference."""
    explained = screen.explained
    if explained is None:
        return
    st.subheader("Where the difference is", anchor=False)
    rows = changes(explained)
    if not rows or not explained.causes:
        blocks.say(words.capital(explained.sentence))
        return
    blocks.plot(figures.cause_bars(rows, state.colours()), figures.cause_text(rows), f"causes {number}")


def show_code(screen: Screen) -> None:
    """The lines of both sides that take time."""
    explained = screen.explained
    if explained is None or explained.division is None:
        return
    for column, side in zip(st.columns(2, gap="large"), ("baseline", "variant"), strict=True):
        with column:
            blocks.caption(code_title(getattr(screen.effect, side)))
            st.code(code_text(explained, side, CODE_LETTERS), language=None)
