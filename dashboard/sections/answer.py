"""The answer box, the same on every page: who was right, by how much, how sure that is, and why. And titles with their
verdict, on the page and in the browser's tab."""

from __future__ import annotations

import streamlit as st

from .. import words
from ..views import answers, data, outcomes
from . import blocks


def show(run: data.Run, claim: data.Claim, causes: str = "") -> None:
    """The box about a claim, or about two variants that a page compares. `causes`: what `why` says of it."""
    (_, who), *others = answers.answer(run, claim, causes).items()
    told = [f":gray[{question}:] {words.markdown(text)}" for question, text in others if text]
    with st.container(border=True, gap="xsmall", key="answer-box"):
        st.markdown(f"{blocks.verdict_word(outcomes.look_of(claim))} {words.markdown(who)}")
        half = (len(told) + 1) // 2
        left, right = st.columns(2, gap="medium")
        for column, lines in ((left, told[:half]), (right, told[half:])):
            with column:
                for line in lines:
                    st.markdown(line)


def title(look: words.Look, text: str) -> str:
    """A title with its verdict in front, in colour and with an icon, as Markdown."""
    return f":{look.colour}[:material/{look.icon}: {words.markdown(look.word)}:] {words.markdown(text)}"


def headline(run: data.Run) -> str:
    """The run's headline, with its answer in colour and with an icon, as Markdown."""
    told = outcomes.answer_of(run)
    line = next((line for line in told.lines if line.sentence == told.headline), None)
    if line is None:
        return words.markdown(told.headline)
    shown = outcomes.look(line.verdict)
    icon, word = f":{shown.colour}[:material/{shown.icon}:]", f":{shown.colour}[{words.markdown(line.word)}]"
    rest = line.sentence[len(f"{line.question} {line.word}") :]
    return f"{icon} {words.markdown(line.question)} {word}{words.markdown(rest)}"
