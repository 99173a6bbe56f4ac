"""The first page's pictures in Streamlit: one component, mounted for the cards and for the matrix of claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from .. import state, words
from ..sections import blocks
from ..sections import claim as section
from ..views import data
from . import picture

PAGE = "comparison"
"""Where the evidence of a claim is: a file in page_scripts, and the end of its URL."""

_STRIPS = blocks.component("strips", Path(__file__).with_name("strips.js"))


def show_cards(opened: state.Opened, cards: Sequence[picture.Json]) -> None:
    """The headlines, and what to change."""
    _mount(opened, "answer", {"cards": list(cards)})


def show_claims(opened: state.Opened, shown: Sequence[data.Claim], *, refuted_first: bool = False) -> None:
    """A row for each claim with those of its parts that are shown, and the teams; the URL's claim is unfolded."""
    kept = {id(claim) for claim in shown}
    places = tuple(place for place, claim in enumerate(opened.run.claims) if id(claim) in kept)
    kinds = {claim.range_word for claim in shown}
    content = {
        **state.computed(opened, picture.matrix, places, refuted_first),
        "teams": state.computed(opened, picture.teams),
        "whole": len(places) < len(opened.run.claims),  # what was looked for is not folded
        "claimed": {"margin": "counts as the same", "asked": "asked"}.get("".join(kinds), "claimed"),
        "sure": words.percent(1 - opened.run.alpha),
        "open": section.wanted(opened.run.claims),
        "scroll": not state.was_brought("claim"),  # who comes back from another page sees the answer first
    }

    def follow() -> None:
        section.follow(_claim(opened, st.session_state["claims"].open))

    def search() -> None:
        st.query_params["search"] = st.session_state["claims"].search
        st.query_params.pop("verdict", None)

    _mount(opened, "claims", content, follow, search)


def _nothing() -> None:
    """What happens on events that a picture does not have."""


def _mount(
    opened: state.Opened,
    key: str,
    content: dict[str, Any],
    on_open: Callable[[], None] = _nothing,
    on_search: Callable[[], None] = _nothing,
) -> None:
    """The component with `content`, and links that lead to the evidence within the app."""
    queries = [section.link(opened.name, claim) for claim in opened.run.claims]
    shown = _STRIPS(
        data={"kind": key, "run": opened.name, "queries": queries, "page": PAGE, **content},
        key=key,
        height="content",
        on_go_change=_nothing,
        on_search_change=on_search,
        on_open_change=on_open,
    )
    place = getattr(shown, "go", None)
    if isinstance(place, Mapping) and (claim := _claim(opened, place.get("index"))) is not None:
        workload = place.get("workload")
        here = {"workload": workload} if workload and workload in opened.run.names else {}
        st.switch_page(f"page_scripts/{PAGE}.py", query_params=section.link(opened.name, claim) | here)


def _claim(opened: state.Opened, index: object) -> data.Claim | None:
    """The claim at that place; None for anything that is no place."""
    claims = opened.run.claims
    return claims[index] if isinstance(index, int) and 0 <= index < len(claims) else None
