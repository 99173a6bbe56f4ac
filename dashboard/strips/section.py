"""The first page's pictures in Streamlit: one component, mounted for the answer and for the list of claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from .. import state
from ..sections import blocks
from ..sections import claim as section
from ..views import data
from . import picture

_STRIPS = blocks.component("strips", Path(__file__).with_name("strips.js"))


def show_answer(opened: state.Opened) -> None:
    """A strip for each main claim and a column for each team."""

    def search() -> None:
        st.query_params["search"] = st.session_state["answer"].search
        st.query_params.pop("verdict", None)

    _mount(opened, "answer", state.computed(opened, picture.first_screen), on_search=search)


def show_claims(opened: state.Opened, shown: Sequence[data.Claim], *, refuted_first: bool = False) -> None:
    """A row for each claim with those of its parts that are shown; the URL's claim is unfolded."""
    kept = {id(claim) for claim in shown}
    places = tuple(place for place, claim in enumerate(opened.run.claims) if id(claim) in kept)
    rows = state.computed(opened, picture.rows, places, refuted_first)
    content = {
        "rows": rows,
        "open": section.wanted(opened.run.claims),
        "scroll": not state.was_brought("claim"),  # who comes back from another page sees the answer first
    }

    def follow() -> None:
        section.follow(_claim(opened, st.session_state["claims"].open))

    _mount(opened, "claims", content, follow)


def _nothing() -> None:
    """What happens on events that a picture does not have."""


def _mount(
    opened: state.Opened,
    key: str,
    content: dict[str, Any],
    on_open: Callable[[], None] = _nothing,
    on_search: Callable[[], None] = _nothing,
) -> None:
    """The component with `content`, and links that lead to a claim's page within the app."""
    queries = [section.link(opened.name, claim) for claim in opened.run.claims]
    shown = _STRIPS(
        data={"kind": key, "run": opened.name, "queries": queries, **content},
        key=key,
        height="content",
        on_go_change=_nothing,
        on_search_change=on_search,
        on_open_change=on_open,
    )
    if (claim := _claim(opened, getattr(shown, "go", None))) is not None:
        st.switch_page("page_scripts/comparison.py", query_params=section.link(opened.name, claim))


def _claim(opened: state.Opened, index: object) -> data.Claim | None:
    """The claim at that place; None for anything that is no place."""
    claims = opened.run.claims
    return claims[index] if isinstance(index, int) and 0 <= index < len(claims) else None
