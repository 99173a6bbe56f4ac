"""Verdicts: the claims of a run, and of the chosen one what was claimed, what was measured and what follows.

The evidence is the Claim page's. The URL holds every choice (`?run=…&claim=…&part=…&verdict=…&search=…`).
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from llama_workbench.dashboard import state as parts
from llama_workbench.dashboard import words
from llama_workbench.dashboard.sections import claim as claim_parts
from llama_workbench.dashboard.views import data

MANY = 8  # claims, from which on the list has a filter and scrolls by itself
LIST_PX = 640
OPEN = ("inconclusive", "not evidence", "not measurable here")


def main() -> None:
    opened = claim_parts.open_claims("Verdicts")
    if opened is None:
        return
    run = opened.run
    claim_parts.warn_of_unknown(run.claims)
    left, right = st.columns([4, 7], gap="large")
    with left:
        found = filtered(settled_first(run.claims)) if len(run.claims) > MANY else list(run.claims)
        if not found:
            st.text("No claim of this run is like that.")
            return
        claim = choose_claim(found, len(run.claims))
    with right:
        claim_parts.show_headline(claim)
        claim_parts.show_verdict(claim)
        st.page_link(
            "pages/claim.py",
            label="Evidence",
            icon=":material/gavel:",
            query_params=claim_parts.link(opened.name, claim),
            help="",
        )
        if claim.effects:
            claim_parts.show_forest(claim, run.floors, run.alpha)


def settled_first(claims: Sequence[data.Claim]) -> list[data.Claim]:
    """Claims that came to an answer, then the others, each in the order of the run."""
    return sorted(claims, key=lambda claim: claim.verdict in OPEN)


def filtered(claims: Sequence[data.Claim]) -> list[data.Claim]:
    """The claims that have one of the verdicts of `?verdict=` and all words of `?search=`."""
    search = st.query_params.get("search", "")
    st.session_state["search"] = search

    def follow_search() -> None:
        _keep("search", [text] if (text := st.session_state["search"].strip()) else [])

    st.text_input(
        "Search",
        key="search",
        type="search",
        placeholder="claim, team, variant or workload",
        on_change=follow_search,
        label_visibility="collapsed",
    )
    found = [claim.verdict for claim in claims]
    kinds = sorted(set(found), key=[*words.LOOKS, *found].index)
    st.session_state["verdict"] = [kind for kind in kinds if kind in st.query_params.get_all("verdict")]

    def follow_verdict() -> None:
        _keep("verdict", st.session_state["verdict"])

    chosen = st.pills(
        "Verdict",
        kinds,
        key="verdict",
        selection_mode="multi",
        format_func=lambda kind: (
            f":material/{words.look(kind).icon}: {found.count(kind)} {words.markdown(words.look(kind).word.lower())}"
        ),
        on_change=follow_verdict,
        label_visibility="collapsed",
        wrap=True,
    )
    wanted = search.lower().split()
    return [
        claim
        for claim in claims
        if (not chosen or claim.verdict in chosen) and all(word in _searched(claim) for word in wanted)
    ]


def _keep(name: str, chosen: Sequence[str]) -> None:
    """Write a filter into the URL; nothing chosen is nothing there."""
    if chosen:
        st.query_params[name] = list(chosen)
    else:
        st.query_params.pop(name, None)


def _searched(claim: data.Claim) -> str:
    """What the search box looks through, in lower case."""
    names = [name for effect in claim.effects for name in (effect.workload, effect.variant, effect.baseline)]
    said = [claim.id, claim.part, claim.title, claim.statement, *claim.who, claim.source, claim.claimed]
    return " ".join([*said, *dict.fromkeys(names)]).lower()


def choose_claim(claims: Sequence[data.Claim], of: int) -> data.Claim:
    """The claim of `?claim=` (and `?part=`) where the filter lets it through, else the first."""
    st.session_state["claim"] = claim_parts.wanted(claims) or 0

    def follow() -> None:
        claim_parts.follow(claims[st.session_state["claim"]])

    shown = [words.markdown(name) for name in claim_parts.names(claims)]
    title = counts(claims) if of <= MANY else f"{len(claims)} of {of} claims" if len(claims) < of else f"{of} claims"
    with st.container(height=LIST_PX if len(claims) > MANY else "content", border=False):
        index = st.radio(
            title,
            range(len(claims)),
            key="claim",
            format_func=lambda index: f"{parts.verdict_word(claims[index].verdict)} {shown[index]}",
            captions=[claim_caption(claim) for claim in claims],
            on_change=follow,
            width="stretch",
        )
    return claims[index if index is not None else 0]


def counts(claims: Sequence[data.Claim]) -> str:
    """How many of each verdict, as Markdown, in the fixed order of `words.LOOKS`."""
    found = [claim.verdict for claim in claims]
    order = [*words.LOOKS, *found]
    kinds = sorted(set(found), key=order.index)
    return "Claims: " + " · ".join(
        f":{words.look(kind).colour}[{found.count(kind)} {words.markdown(words.look(kind).word.lower())}]"
        for kind in kinds
    )


def claim_caption(claim: data.Claim) -> str:
    """Under a claim in the list: who claimed what, and what was measured."""
    who = ", ".join(claim.who)
    said = words.clip(f"{who} claimed {claim.claimed}" if who and claim.claimed else who, 100)
    return words.markdown(" · ".join(part for part in (said, data.measured(claim)) if part))


main()
