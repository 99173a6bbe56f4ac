"""The canvas that draws flamegraphs: up to 20,000 boxes, by mouse, finger and keyboard. `flame.js` is all of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

_HERE = Path(__file__).parent

_MOUNT = st.components.v2.component(
    "llama_workbench_flames",
    html='<div class="flames"></div>',
    css=(_HERE / "flame.css").read_text(encoding="utf-8"),
    js=(_HERE / "flame.js").read_text(encoding="utf-8"),
)


def draw(data: dict[str, Any], key: str, on_find: Callable[[str], None]) -> None:
    """Draw what `figures.flamegraphs.payload` gives; `on_find` hears what was searched for, once it was entered."""

    def follow() -> None:
        on_find(str(st.session_state[key].find or ""))

    _MOUNT(data=data, key=key, on_find_change=follow, height="content")
