"""What every page is made of: figures, tables, lists of notes, and what to say where something is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from llama_workbench.harness.store.errors import RunError

from .. import words

ROW_PX, LOW_ROW_PX = 30, 28


def plot(figure: go.Figure, alt: str, key: str) -> None:
    """A figure, with its content in words for those who do not see it."""
    st.plotly_chart(figure, config={"displayModeBar": False, "scrollZoom": False}, alt=alt, key=key)


def table(
    rows: Any,
    alt: str,
    formats: Mapping[str, str] | None = None,
    *,
    row_px: int = ROW_PX,
    height: Literal["content", "auto"] | int = "auto",
    columns: Mapping[str, Any] | None = None,
) -> None:
    """A table of `rows`, whatever pandas takes as one. `formats`: of numbers by column, in printf's way."""
    numbers = {name: st.column_config.NumberColumn(format=each) for name, each in (formats or {}).items()}
    st.dataframe(
        rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows),
        hide_index=True,
        row_height=row_px,
        height=height,
        column_config={**numbers, **(columns or {})},
        alt=alt,
    )


def command(text: str) -> None:
    """A command to copy."""
    st.code(text, language="bash", wrap_lines=True)


def facts(rows: Mapping[str, str]) -> None:
    """Names with their values; nothing for those without."""
    st.table({name: words.markdown(value) for name, value in rows.items() if value}, border="horizontal")


def verdict_word(verdict: str) -> str:
    """Icon and word in the verdict's colour, as Markdown."""
    shown = words.look(verdict)
    return f":{shown.colour}[:material/{shown.icon}: **{words.markdown(shown.word)}**]"


def notes(title: str, lines: Sequence[str]) -> None:
    """Each different line once, as plain text."""
    if lines:
        with st.container(gap="xsmall"):
            st.caption(title)
            for line in dict.fromkeys(lines):
                st.text(line)


def warn(line: str) -> None:
    """Something that the reader must know."""
    st.warning(words.markdown(line), icon=":material/warning:")


def unreadable(what: str, error: RunError) -> None:
    """A file that cannot be read: what is not shown for it, and what to do."""
    st.warning(what, icon=":material/warning:")
    st.text(words.problem(error))


def missing(what: str, how: str) -> None:
    """Says that the run did not measure something, and the command of a run that does."""
    st.text(f"This run has no {what}. This command makes a run with them:")
    command(how)


def environment(recorded: Mapping[str, Any], title: str) -> None:
    """All that a run recorded about its machine."""
    with st.expander(title):
        st.json(dict(recorded), expanded=1)
