"""Verdicts: the claims of a run, and of the chosen one what was claimed, what was measured and what follows."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from llama_workbench.dashboard import words
from llama_workbench.dashboard.sections import blocks
from llama_workbench.dashboard.sections import claim as section
from llama_workbench.dashboard.views import answers, data

MANY = 8  # claims, from which on the list has a filter and scrolls by itself
OPEN = ("inconclusive", "not evidence", "not measurable here")


def main() -> None:
    opened = section.open_claims("Verdicts")
    if opened is None:
        return
    run = opened.run
    section.warn_of_unknown(run.claims)
    left, right = st.columns([4, 7], gap="large")
    with left:
        decided_first = sorted(run.claims, key=lambda claim: claim.verdict in OPEN)
        shown = filtered(decided_first) if len(run.claims) > MANY else list(run.claims)
        if not shown:
            st.text("No claim of this run is like that.")
            return
        claim = choose_claim(shown, len(run.claims))
    with right:
        section.show_headline(claim)
        section.show_verdict(claim)
        blocks.link("claim", "Evidence", "gavel", section.link(opened.name, claim))
        if claim.effects:
            section.show_forest(claim, run.floors)


def filtered(claims: Sequence[data.Claim]) -> list[data.Claim]:
    """The claims that have one of the verdicts of `?verdict=` and all words of `?search=`."""
    search = st.query_params.get("search", "")
    st.session_state["search"] = search
    st.text_input(
        "Search",
        key="search",
        type="search",
        placeholder="claim, team, variant or workload",
        on_change=_keep,
        args=("search",),
        label_visibility="collapsed",
    )
    counts = count(claims)
    st.session_state["verdict"] = [kind for kind in counts if kind in st.query_params.get_all("verdict")]
    chosen = st.pills(
        "Verdict",
        list(counts),
        key="verdict",
        selection_mode="multi",
        format_func=lambda kind: f":material/{words.look(kind).icon}: {_counted(kind, counts[kind])}",
        on_change=_keep,
        args=("verdict",),
        label_visibility="collapsed",
        wrap=True,
    )
    wanted = search.lower().split()
    return [
        claim
        for claim in claims
        if (not chosen or claim.verdict in chosen) and all(word in _searched(claim) for word in wanted)
    ]


def _keep(name: str) -> None:
    """Write what a filter was set to into the URL; nothing chosen is nothing there."""
    if chosen := st.session_state[name]:
        st.query_params[name] = chosen
    else:
        st.query_params.pop(name, None)


def _counted(verdict: str, number: int) -> str:
    """ "3 supported", as Markdown."""
    return f"{number} {words.markdown(words.look(verdict).word.lower())}"


def _searched(claim: data.Claim) -> str:
    """What the search looks through, in lower case."""
    names = [name for effect in claim.effects for name in (effect.workload, effect.variant, effect.baseline)]
    said = [claim.id, claim.part, claim.title, claim.statement, *claim.who, claim.source, claim.claimed]
    return " ".join([*said, *dict.fromkeys(names)]).lower()


def choose_claim(claims: Sequence[data.Claim], of: int) -> data.Claim:
    """The claim of `?claim=` (and `?part=`) where the filter lets it through, else the first."""
    names = [
        f"{blocks.verdict_word(claim.verdict)} {words.markdown(name)}"
        for claim, name in zip(claims, section.names(claims), strict=True)
    ]
    title = f"{len(claims)} of {of} claims" if len(claims) < of else f"{of} claims"
    if of <= MANY:
        counts = count(claims).items()
        title = "Claims: " + " · ".join(f":{words.look(kind).colour}[{_counted(kind, n)}]" for kind, n in counts)
    with st.container(height=640 if len(claims) > MANY else "content", border=False):
        more = {"captions": list(map(claim_caption, claims)), "width": "stretch"}
        return section.choose(claims, st.radio, title, format_func=names.__getitem__, **more)


def count(claims: Sequence[data.Claim]) -> dict[str, int]:
    """How many there are of each verdict, in the fixed order of `words.LOOKS`."""
    verdicts = [claim.verdict for claim in claims]
    return {kind: verdicts.count(kind) for kind in [*words.LOOKS, *dict.fromkeys(verdicts)] if kind in verdicts}


def claim_caption(claim: data.Claim) -> str:
    """Under a claim in the list: who claimed what, and what was measured."""
    who = ", ".join(claim.who)
    said = words.clip(f"{who} claimed {claim.claimed}" if who and claim.claimed else who, 100)
    return words.markdown(" · ".join(part for part in (said, answers.measured(claim)) if part))


main()
