"""What every page is made of: figures, tables, lists of notes, what to say where something is missing; and what figures
are drawn with: axes, shapes, notes, marks with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import sub
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from llama_workbench import variants
from llama_workbench.harness.report.ladder import LadderStep
from llama_workbench.harness.report.workload_names import distinct
from llama_workbench.harness.spec.comparison import AA, COPY, EnteredName
from llama_workbench.harness.store.files import RunError

from .. import state, words
from ..export.svg import Palette, forest_svg
from ..views import data, forest
from ..views.forest import FASTER, SLOWER, ratio_ticks

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
_COMMAND = component("command", Path(__file__).with_name("command.js"))


def name_tab(text: str) -> None:
    """What the browser's tab says; tabs are narrow, so what matters comes first."""
    st.set_page_config(page_title=f"{words.clip(text, 120)} · Llama workbench")


MOST_ROWS = 24
"""Of a table that is shown whole; a longer one scrolls by itself."""


def header(title: str, anchor: str, *, within: bool = False) -> None:
    """The heading of a part of the page, or `within` one; the page's contents then have a link to it."""
    (st.subheader if within else st.header)(title, anchor=anchor)
    state.add_heading(title, anchor)


def folded(label: str, name: str, show: Callable[[], None]) -> None:
    """A part of the page that is made once the reader opens it, which the URL keeps (`?NAME=open`). What is far below
    the answer waits there: the first figure of a page loads plotly, which takes longer than all else."""

    def follow() -> None:
        if st.session_state[name]:
            st.query_params[name] = "open"
        else:
            st.query_params.pop(name, None)

    with st.expander(label, name in st.query_params, key=name, on_change=follow) as part:
        if part.open:
            show()


def plot(figure: go.Figure, alt: str, key: str) -> None:
    """A figure, with its content in words for those who do not see it."""
    saved = {"format": "svg", "filename": key}
    config = {"modeBarButtons": [["toImage"]], "displaylogo": False, "scrollZoom": False, "toImageButtonOptions": saved}
    st.plotly_chart(figure, config=config, alt=alt, key=key)


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
        shown = {"svg": svg, "alt": alt, "name": key, "page": state.colours().page}
        _SVG(data=shown, key=key, height="content")


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
    """A command to copy. Streamlit's own block of code would fetch 1.6 MB to colour it."""
    _COMMAND(data={"command": text}, key=state.own_key("command"), height="content")


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


# -- what the figures are drawn with -----------------------------------------------------------------------------------
#
# Text that is ours lies on a fill that is ours, if only one that looks like the page: the server learns late that
# somebody's browser turned dark, and text must be readable until then. Strings from files go through `words.label`,
# since plotly reads HTML tags in every label.

SMALL = 12  # font size of labels inside a figure

Layout = dict[str, Any]
"""One part of a figure, as plotly takes it."""


class Part(dict[str, Any]):
    """An axis or a marker of a figure, as plotly takes it."""


Mark = tuple[float, float, float, float, str]
"""Place, value, low end and high end of a point, and its text on hover."""

ABOVE: Layout = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "font": {"size": SMALL}}
"""A legend above the plot."""


def axis(
    title: str = "",
    size: int = SMALL,
    *,
    standoff: int | None = None,
    ticks_at: Mapping[int, str] | Mapping[float, str] | None = None,
    **more: Any,
) -> Part:
    """An axis without zoom; its title is `standoff` pixels away. `ticks_at`: labels by place."""
    if ticks_at is not None:
        more |= {"tickvals": list(ticks_at), "ticktext": list(ticks_at.values())}
    if title:
        more["title"] = {"text": title, "font": {"size": size}, "standoff": standoff}
    return Part({"zeroline": False, "fixedrange": True, **more})


def ratio_axis(low: float, high: float, title: str, size: int = SMALL, **more: Any) -> Part:
    """A logarithmic axis of speed-ups between two ends, which says where faster is."""
    ends = [math.log10(low), math.log10(high)]
    title = "   ".join(filter(None, (SLOWER, title, FASTER)))
    return axis(title, size, type="log", range=ends, ticks_at=ratio_ticks(low, high), **more)


def log_span(logs: Sequence[float], air_share: float, least_air: float) -> tuple[float, float]:
    """Ends of an axis of ratios with these logarithms: air on both sides is a share of their span, or the least."""
    low, high = min(logs), max(logs)
    air = max(air_share * (high - low), least_air)
    return math.exp(low - air), math.exp(high + air)


def figure(data: Any, colours: Palette, *, height: float, margin: Sequence[float], **more: Any) -> go.Figure:
    """A figure with nothing to drag. `margin`: left, right, top, bottom in pixels.

    All at once: plotly checks every shape again with each one that is added, which took 0.3 s for eight rows.
    """
    layout = {"height": height, "margin": dict(zip("lrtb", margin, strict=True)), "dragmode": False}
    layout |= {"hovermode": "closest", "paper_bgcolor": colours.page, "plot_bgcolor": colours.page}
    axes = {name: _readable(more.pop(name), colours) for name in ("xaxis", "yaxis")}
    return go.Figure(data=data, layout={**layout, **axes, **more})


def _readable(shown: Layout, colours: Palette) -> Layout:
    """An axis with its texts in our ink: those of Streamlit's theme have a contrast of 3.7."""
    ink = {"color": colours.muted}
    title = {"title": {**shown["title"], "font": {**shown["title"]["font"], **ink}}} if "title" in shown else {}
    return {**shown, "tickfont": {**shown.get("tickfont", {}), **ink}, **title}


def marks(
    points: Iterable[Mark],
    *,
    colour: str,
    name: str,
    thickness: float = 2,
    cap: float = 6,
    **more: Any,
) -> go.Scatter:
    """Points with upright intervals; one trace is one legend entry."""
    places, values, lows, highs, hovers = zip(*points, strict=True)
    interval = {
        "type": "data",
        "symmetric": False,
        "array": list(map(sub, highs, values)),
        "arrayminus": list(map(sub, values, lows)),
        "color": colour,
        "thickness": thickness,
        "width": cap,
    }
    drawn = {"x": places, "y": values, "error_y": interval, "name": name, "hovertext": hovers, "hoverinfo": "text"}
    return go.Scatter(**{"mode": "markers", **drawn, **more})


def line(
    x: Any, y: Any, colour: str, width: float = 1, *, style: Mapping[str, str] | None = None, **more: Any
) -> go.Scatter:
    """A line without a text on hover. `style`: dashes and steps."""
    drawn = {"color": colour, "width": width, **(style or {})}
    return go.Scatter(x=x, y=y, mode="lines", line=drawn, hoverinfo="skip", **more)


def mark(symbol: str, colour: str, size: float = 8, line: float = 2) -> Part:
    """One kind of marker."""
    return Part({"symbol": symbol, "size": size, "color": colour, "line": {"width": line, "color": colour}})


def area(x0: float, x1: float, y0: float, y1: float, fill: str, edge: str = "", **more: Any) -> Layout:
    """A rectangle below the data, with a line around it where it has an `edge`."""
    line = {"width": 1, "color": edge} if edge else {"width": 0}
    ends = {"x0": x0, "x1": x1, "y0": y0, "y1": y1}
    return {"type": "rect", **ends, "fillcolor": fill, "line": line, "layer": "below", **more}


def rule(x0: float, x1: float, y0: float, y1: float, colour: str, dash: str = "solid", **more: Any) -> Layout:
    """A straight line below the data."""
    line = {"width": 1, "color": colour, "dash": dash}
    return {"type": "line", "x0": x0, "x1": x1, "y0": y0, "y1": y1, "line": line, "layer": "below", **more}


def note(x: float, y: float, text: str, colours: Palette, *, quiet: bool = False) -> Layout:
    """Text at the height `y` of the y axis, at the left edge of the plot (`x` is 0) or the right one (1)."""
    return {
        "x": x,
        "xref": "paper",
        "y": y,
        "text": text,
        "showarrow": False,
        "xanchor": "right" if x else "left",
        "yanchor": "middle",
        "borderpad": 0,
        "bgcolor": colours.page,
        "font": {"size": SMALL, "color": colours.muted if quiet else colours.text},
    }


def bar_rows(
    rows: Sequence[tuple[str, str]],
    bars: Sequence[go.Bar],
    colours: Palette,
    *,
    title: str = "",
    ends: tuple[float, float] | None = None,
    ticks_at: Mapping[float, str] | None = None,
    row_px: int,
    bar_px: int,
    foot_px: int,
    right_px: int,
    quiet: bool = True,
    **more: Any,
) -> go.Figure:
    """Rows of bars from left to right: above each its name at the left edge and its value at the right one, `quiet` or
    not. `bars`: all but their place, each over all rows. title, ends, ticks_at: of the axis. The y axis counts pixels.
    """
    height = row_px * len(rows)
    middles = [height - row_px * place - bar_px / 2 - 26 for place in range(len(rows))]
    notes = []
    for y, (name, value) in zip(middles, rows, strict=True):
        above = y + bar_px / 2 + 11
        notes += [note(0, above, name, colours), note(1, above, value, colours, quiet=quiet)]
    return figure(
        [bar.update(y=middles, orientation="h", width=bar_px, hoverinfo="text") for bar in bars],
        colours,
        height=height + foot_px,
        margin=(5, right_px, 2, foot_px - 2),
        annotations=notes,
        xaxis=axis(title, standoff=4, range=ends, ticks_at=ticks_at, gridcolor=colours.rule),
        yaxis={"range": [0, height], "visible": False, "fixedrange": True},
        **{"showlegend": False, **more},
    )


# -- what a variant is -------------------------------------------------------------------------------------------

COPIES = {
    AA: "The same once more: an A/A check. It shows by how much identical code seems to differ.",
    COPY: "A copy of its source, imported under another name: an A/A check.",
}
"""What the controls of a variant are."""

AXES = {
    "layout": "files",
    "granularity": "calls",
    "cache": "cache",
    "mask": "mask",
    "mask_application": "mask is",
    "kv": "keys and values",
    "rope": "RoPE",
    "boundary": "tensors",
    "norm": "norm",
    "softmax": "softmax",
    "attention": "attention",
}


@dataclass(frozen=True)
class Card:
    """What a reader is told of a name. `axes`: how it is built, by axis; empty where the axes do not apply."""

    name: str
    told: str
    axes: str = ""
    source: str = ""


def differing(names: Sequence[str]) -> Collection[str]:
    """The axes on which these variants differ, of those that have axes; all of them where that are fewer than two."""
    known = [variants.get(name).factors for name in names if name in variants.names()]
    known = [factors for factors in known if factors]
    return [axis for axis in AXES if len(known) < 2 or len({factors.get(axis) for factors in known}) > 1]


def card(name: str, shown: Collection[str] = tuple(AXES)) -> Card:
    """The card of a variant or function by its name, whether or not this version knows it. `shown`: which axes."""
    entered = EnteredName(name)
    original, copy = entered.original, entered.control
    known = variants.get(original) if original in variants.names() else None
    if known is None:
        return Card(name, COPIES.get(copy, "Named on the command line of the run; not part of the workbench."))
    levels = {axis: level.replace("_", " ") for axis, level in known.factors.items() if axis in shown}
    axes = ", ".join(f"{AXES.get(axis, axis)}: {level}" for axis, level in levels.items())
    description = f"{known.description[:1].upper()}{known.description[1:]}."
    return Card(name, f"{description} {COPIES[copy]}" if copy in COPIES else description, axes, known.source)
