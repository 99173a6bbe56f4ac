"""What the pages about claims share: which claim the URL means, its headline, its answer box (who was right, by how
much, how sure that is, and why), its forest plot, links to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from .. import state, words
from ..export import evidence
from ..views import again, answers, data, forest, outcomes
from ..views.attribution import SIDES
from . import blocks, head

PLACES = ("claim", "part", "row")
"""What the URL says of a claim; another run has other ones."""


def open_claims(title: str) -> state.Opened | None:
    """The run that the URL names, if it has claims; None where there is nothing to show, and the page says why."""
    opened = head.open_run(title, over_machines=True)
    if opened is not None and not opened.run.claims:
        blocks.info("This run was made without claims, so there is no verdict.")
        return None
    return opened


def wanted(claims: Sequence[data.Claim]) -> int | None:
    """The claim of `?claim=` and `?part=` (without that part, its first); None where the URL names none of these."""
    name, part = st.query_params.get("claim"), st.query_params.get("part", "")
    same = [index for index, claim in enumerate(claims) if claim.claim == name]
    return next((index for index in same if claims[index].part == part), same[0] if same else None)


def warn_of_unknown(claims: Sequence[data.Claim]) -> None:
    """Says so where the URL names a claim, or a part of one, that the run does not have."""
    name, part = st.query_params.get("claim"), st.query_params.get("part", "")
    parts = [claim.part for claim in claims if claim.claim == name]
    if name is not None and not parts:
        blocks.warn(
            f"This run has no claim {name}. It has: {words.some(list(dict.fromkeys(c.claim for c in claims)))}."
        )
    elif part and part not in parts:
        there = f"It has: {words.some(parts)}." if any(parts) else "It has no parts."
        blocks.warn(f"The claim {name} has no part {part}. {there}")


def choose(run: data.Run, widget: Callable[..., int | None], title: str, **more: Any) -> data.Claim:
    """A select box or radio buttons whose choice is the URL's claim, else the headline's. `more` is Streamlit's."""
    claims = run.claims
    asked = wanted(claims)
    shown = outcomes.main_claim(run, claims) if asked is None else asked
    st.session_state["claim"] = shown

    def changed() -> None:
        follow(claims[st.session_state["claim"]])
        state.mark_changed("claim")

    chosen = widget(title, range(len(claims)), key="claim", on_change=changed, **more)
    return claims[shown if chosen is None else chosen]


def follow(claim: data.Claim | None) -> None:
    """Make this the URL's claim, or none. All at once: each change of the URL is a step of the browser's way back."""
    kept = {name: st.query_params.get_all(name) for name in st.query_params if name not in PLACES}
    st.query_params.from_dict({**kept, **(_place(claim) if claim else {})})


def link(run_name: str, claim: data.Claim) -> dict[str, str]:
    """The query of a link to this claim."""
    return {"run": run_name} | _place(claim)


def _place(claim: data.Claim) -> dict[str, str]:
    return {"claim": claim.claim} | ({"part": claim.part} if claim.part else {})


def names(claims: Sequence[data.Claim]) -> list[str]:
    """A different plain name for each claim: Streamlit tells options apart by what they show."""
    names: list[str] = []
    for claim in claims:
        name = words.clip(full_title(claim), 140)
        names.append(name if name not in names else f"{name} [{claim.claim} {len(names) + 1}]")
    return names


def full_title(claim: data.Claim) -> str:
    """Its title, with its part where it has several."""
    return f"{claim.title} ({claim.part})" if claim.part else claim.title


def show_answer(opened: state.Opened, claim: data.Claim, causes: str = "") -> None:
    """The box about a claim, or about two variants that a page compares. `causes`: what `why` says of it."""
    texts = answers.answer(opened.run, claim, causes)
    told_again = again.of_claim(claim, sessions(opened))
    texts["How sure"] = " ".join(filter(None, (texts["How sure"], told_again)))
    who = words.markdown(texts.pop("Who was right"))
    blocks.answers(texts, f"{blocks.verdict_word(outcomes.look_of(claim))} {who}", key="answer-box")


def sessions(opened: state.Opened) -> Mapping[str, again.Answers]:
    """What other sessions of the run say, by their names."""
    return again.sessions_of(opened.name, state.all_entries())


def titled(look: words.Appearance, text: str) -> str:
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


def show_headline(claim: data.Claim) -> None:
    """What is claimed, by whom and where, and the verdict."""
    look = outcomes.look_of(claim)
    st.header(titled(look, claim.title), anchor="answer")
    blocks.name_tab(f"{look.word}: {full_title(claim)}")
    state.add_heading("Answer", "answer")
    if claim.statement and claim.statement != claim.title:
        st.text(claim.statement)
    said = (f"Said by {', '.join(claim.who)}" if claim.who else "", claim.source, claim.part and f"part: {claim.part}")
    if origin := " · ".join(filter(None, said)):
        blocks.caption(origin)


def download(run: data.Run, claim: data.Claim) -> None:
    """A button that gives the claim's evidence as one file."""
    st.download_button(
        "This claim's evidence as one HTML file" if claim.who else "This as one HTML file",
        data=lambda: evidence.evidence_html(run, claim),
        file_name=f"{evidence.file_name(claim)}.html",
        mime="text/html",
        icon=":material/download:",
        on_click="ignore",
    )


def show_forest(claim: data.Claim, floors: Mapping[str, data.Floor]) -> None:
    """Every effect of the claim with its interval, of an attribution both sides and their sum."""
    if claim.is_factorial:
        sums = tuple(effect for effect in claim.effects if effect.factor in SIDES)
        claim = replace(claim, effects=sums, region=None)
    if len({effect.sides for effect in claim.effects}) == 1:
        blocks.caption(claim.effects[0].sides)
    blocks.forest_plot(claim, "forest", floors)
    st.caption(forest.caption(claim, floors))
