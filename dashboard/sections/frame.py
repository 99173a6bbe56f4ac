"""What is around every page: the width of its lines, its contents, and on a small screen the way to what a tap
changed."""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from .. import state, words
from ..export.screen import STYLE
from . import blocks

FEWEST = 4  # headings, from which on a page has contents

_HERE = Path(__file__).parent
_SCROLL = blocks.component("scroll", _HERE / "scroll.js")


def begin() -> DeltaGenerator:
    """The page's style, and the place of its contents."""
    st.html(_HERE / "page.css")
    st.html(STYLE)
    return st.container(key="contents")


def end(contents: DeltaGenerator) -> None:
    """Fill the contents in, with a link to each heading, and go to what was changed."""
    headings = state.headings()
    if len(headings) >= FEWEST:
        links = " · ".join(f"[{words.markdown(title)}](#{anchor})" for anchor, title in headings.items())
        contents.markdown(f"On this page: {links}")
    key, count = state.changed()
    if count:
        _SCROLL(data={"key": key, "count": count}, key="scroll")
