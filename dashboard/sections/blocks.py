"""What every page is made of: figures, tables, lists of notes, and what to say where something is missing."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from llama_workbench.harness.report.ladder import LadderStep
from llama_workbench.harness.store.files import RunError

from .. import state, words
from ..export.svg import forest_svg
from ..views import data, forest
from ..views.workloads import card, differing, distinct

T = TypeVar("T")


def component(name: str, script: Path) -> Callable[..., Any]:
    """A part of the page that `script` draws, in a `<div class="NAME">`, with the style beside it if there is one."""
    style = script.with_suffix(".css")
    return st.components.v2.component(
        f"llama_workbench_{name}",
        html=f'<div class="{name}"></div>',
        css=style.read_text(encoding="utf-8") if style.is_file() else None,
        js=script.read_text(encoding="utf-8"),
    )


_SVG = component("svg", Path(__file__).with_name("svg.js"))


def name_tab(text: str) -> None:
    """What the browser's tab says; tabs are narrow, so what matters comes first."""
    st.set_page_config(page_title=f"{words.clip(text, 120)} · Llama workbench")


MOST_ROWS = 24
"""Of a table that is shown whole; a longer one scrolls by itself."""


def header(title: str, anchor: str, *, within: bool = False) -> None:
    """The heading of a part of the page, or `within` one; the page's contents then have a link to it."""
    (st.subheader if within else st.header)(title, anchor=anchor)
    state.add_heading(title, anchor)


def plot(figure: go.Figure, alt: str, key: str) -> None:
    """A figure, with its content in words for those who do not see it."""
    st.plotly_chart(figure, config={"displayModeBar": False, "scrollZoom": False}, alt=alt, key=key)


def forest_plot(
    claim: data.Claim,
    key: str,
    floors: Mapping[str, data.Floor] | None = None,
    *,
    front: str = "",
    heading: str = "against ",
) -> None:
    """Every effect of a claim with its interval; nothing is drawn without effects. `front`: before the picture in
    words; `heading`: before the name of each baseline."""
    if claim.effects:
        svg = forest_svg(claim, floors or {}, state.colours(), heading=heading)
        alt = front + forest.in_words(claim, floors or {})
        _SVG(data={"svg": svg, "alt": alt}, key=key, height="content")


def say(text: object) -> None:
    """Plain text in the size of the page."""
    st.markdown(words.markdown(text))


def answer(question: str, text: str) -> None:
    """A question, or the name of a fact, and what is said of it."""
    st.markdown(f":gray[{words.markdown(question)}{'' if question.endswith('?') else ':'}] {words.markdown(text)}")


def caption(text: object) -> None:
    """Plain text, small and quiet."""
    st.caption(words.markdown(text))


def table(
    rows: Any,
    alt: str,
    formats: Mapping[str, str] | None = None,
    *,
    columns: Mapping[str, Any] | None = None,
) -> None:
    """A table of `rows`, whatever pandas takes as one. `formats`: of numbers by column, in printf's way."""
    numbers = {name: st.column_config.NumberColumn(format=each) for name, each in (formats or {}).items()}
    content = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows)
    st.dataframe(
        content,
        hide_index=True,
        height="content" if len(content) <= MOST_ROWS else "auto",
        row_height=28,
        placeholder="–",
        column_config={**numbers, **(columns or {})},
        alt=alt,
    )


def link(page: str, label: str | None, icon: str, query: Mapping[str, str]) -> None:
    """A link to another page (its file in page_scripts) with choices made; without a label by the name of the page."""
    st.page_link(f"page_scripts/{page}.py", label=label, icon=f":material/{icon}:", query_params=dict(query), help="")


def segments(title: str, options: Sequence[str], **more: Any) -> str | None:
    """For `state.choose`: a choice of a few words, all of them in sight."""
    chosen: str | None = st.segmented_control(title, options, required=True, **more)
    return chosen


def info(text: str) -> None:
    """Why there is nothing to show."""
    st.info(words.markdown(text), icon=":material/info:")


def command(text: str) -> None:
    """A command to copy."""
    st.code(text, language="bash", wrap_lines=True)


def facts(rows: Mapping[str, str]) -> None:
    """Names with their values; nothing for those without."""
    st.table({name: words.markdown(value) for name, value in rows.items() if value}, border="horizontal")


def verdict_word(shown: words.Appearance) -> str:
    """Icon and word in the verdict's colour, as Markdown."""
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


def computed(what: str, opened: state.Opened, compute: Callable[..., T], *arguments: Hashable) -> T | None:
    """`state.computed`; None where a file cannot be read: the page then says `what` is not shown, and the fix."""
    try:
        return state.computed(opened, compute, *arguments)
    except RunError as error:
        st.warning(what, icon=":material/warning:")
        st.text(words.problem(error))
        return None


def missing(what: str, how: str) -> None:
    """Says that the run did not measure something, and the command of a run that does."""
    st.text(f"This run has no {what}. This command makes a run with them:")
    command(how)


# -- workloads and variants by words -----------------------------------------------------------------------------------


def choose_workload(
    run: data.Run,
    names: Sequence[str],
    title: str = "Workload",
    *,
    default: str | None = None,
) -> str:
    """The workload of `?workload=` among those that a page shows, each in words."""
    shown = distinct({name: run.named(name) for name in names})
    return state.choose(title, shown, "workload", default=default)


def show_cards(run: data.Run, variants: Sequence[str], names: Sequence[str]) -> None:
    """A button that says what these variants and workloads are: by mouse, keyboard and touch alike."""
    models = dict.fromkeys(name for name in variants if name)
    tasks = dict.fromkeys(name for name in names if name in run.names)
    if not models and not tasks:
        return
    with st.popover("What do these names mean?", icon=":material/help:", type="tertiary"):
        axes = differing(list(models))
        for name in models:
            shown, front = card(name, axes), "What differs: " if len(models) > 1 else "Built with "
            built, source = shown.axes and f"{front}{shown.axes}.", shown.source and f"Source: {shown.source}."
            st.markdown(f"**{words.markdown(name)}**")
            st.caption(words.markdown(" ".join(filter(None, (shown.told, built, source)))))
        for name in tasks:
            st.markdown(f"**{words.markdown(run.named(name))}** :gray[{words.markdown(f'workload {name}')}]")


def show_codes(steps: Sequence[LadderStep]) -> None:
    """A button that shows what to write for each of these steps."""
    with st.popover("What to write", icon=":material/code:", type="tertiary"):
        for change in (step.change for step in steps):
            st.markdown(f"**{words.markdown(words.capital(change.told))}**")
            if change.code:
                st.code(change.code, language="diff")
