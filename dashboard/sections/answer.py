"""The answer box, the same on every page: who was right, by how much, how sure that is, and why. And titles with their
verdict, on the page and in the browser's tab."""

from __future__ import annotations

from .. import words
from ..views import answers, data, outcomes
from . import blocks


def show(run: data.Run, claim: data.Claim, causes: str = "") -> None:
    """The box about a claim, or about two variants that a page compares. `causes`: what `why` says of it."""
    texts = answers.answer(run, claim, causes)
    who = words.markdown(texts.pop("Who was right"))
    blocks.answers(texts, f"{blocks.verdict_word(outcomes.look_of(claim))} {who}", key="answer-box")


def title(look: words.Appearance, text: str) -> str:
    """A title with its verdict in front, in colour and with an icon, as Markdown."""
    return f":{look.colour}[:material/{look.icon}: {words.markdown(look.word)}:] {words.markdown(text)}"


def headline(run: data.Run) -> str:
    """The run's headline, with its answer in colour and with an icon, as Markdown."""
    answer = outcomes.answer_of(run)
    line = next((line for line in answer.lines if line.sentence == answer.headline), None)
    if line is None:
        return words.markdown(answer.headline)
    shown = outcomes.look_of(line.verdict)
    icon, word = f":{shown.colour}[:material/{shown.icon}:]", f":{shown.colour}[{words.markdown(line.word)}]"
    return f"{icon} {words.markdown(line.question)} {word}{words.markdown(line.rest)}"
