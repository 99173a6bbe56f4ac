"""The state of a page: what was read, kept until a file changes, and the reader's choices, kept in the URL.

The URL holds every choice (`?run=…&claim=…`), so that a link leads to the same picture: each run of the script first
sets the widgets from the URL, and a widget that changes writes itself there. Streamlit drops the URL's choices on the
way to another page; `keep_thread` brings those back that all pages share.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import streamlit as st

from llama_workbench.harness.store.remote import RemoteError, get

from . import words
from .export import svg as palettes
from .views import data, entries

T = TypeVar("T")

TALK = "talk"
"""In the URL: the page is shown to a room."""

THREAD = ("run", "claim", "part", "workload", TALK)
"""The choices that all pages share."""


@dataclass(frozen=True)
class Opened:
    """The run that the page shows. `name` is its name in links, `stamp` the key of everything cached about it."""

    name: str
    run: data.Run
    stamp: entries.Stamp


LOOK_SECONDS = 60
"""A store is asked for news no more often."""


@st.cache_resource(max_entries=4, show_spinner="Reading the list of runs …")
def _run_list(results: Path | str) -> entries.RunList:
    return entries.RunList(results)


@st.cache_resource(max_entries=4, ttl=LOOK_SECONDS, show_spinner="Reading the list of runs …")
def _entries_at(url: str) -> list[entries.Entry]:
    return _run_list(url).entries()


def all_entries() -> Sequence[entries.Entry]:
    """Every folder that might be a run, newest first. The list itself sees what changes.

    Where the runs at a URL cannot be listed the page says so, and ends.
    """
    where = results()
    try:
        return _entries_at(where) if isinstance(where, str) else _run_list(where).entries()
    except RemoteError as error:
        st.error("The runs cannot be listed.", icon=":material/error:")
        st.text(str(error))
        st.stop()


def results() -> Path | str:
    """The folder or the URL where the runs lie."""
    return entries.results_folder(sys.argv[1:])


def folder_of(entry: entries.Entry) -> Path:
    """The folder of a run on this machine, fetched where it lies at a URL. Raises RunError."""
    return _fetched(entry.url, entry.summary.path) if entry.url else entry.summary.path


@st.cache_resource(max_entries=256, ttl=60, show_spinner="Fetching the run …")
def _fetched(url: str, light: Path) -> Path:
    return get(url).path


@st.cache_resource(max_entries=32, show_spinner="Reading the run …")
def read_run(path: Path, stamp: entries.Stamp) -> data.Run:
    """One run. Raises RunError."""
    return data.read_run(path)


# Not cache_data: a copy of a profile's tree or of 20,000 boxes would take long.
@st.cache_resource(
    max_entries=128,
    show_spinner="Reading the run …",
    hash_funcs={
        Opened: lambda opened: opened.stamp,
        FunctionType: lambda function: (function.__module__, function.__qualname__),
    },
)
def computed(opened: Opened, compute: Callable[..., T], *arguments: Hashable, _given: tuple[Any, ...] = ()) -> T:
    """`compute(run, *_given, *arguments)`, once for each state of the run's files. Nobody may change what it returns.

    `_given`: what was computed of the same files before; Streamlit leaves a name with such a beginning out of the key.
    """
    return compute(opened.run, *_given, *arguments)


_KEPT, _PAGE, _BROUGHT, _HEADINGS = "kept choices", "page shown", "choices brought along", "headings"  # in the session
_KEYS = "number of keys"


def keep_thread(page: str) -> None:
    """Before a page is drawn: bring the choices of THREAD along that the URL of another page held.

    What the URL says itself counts. Of another run nothing comes along; of another claim no part.
    """
    here = {name: st.query_params[name] for name in THREAD if name in st.query_params}
    kept: dict[str, str] = st.session_state.get(_KEPT, {})
    brought: dict[str, str] = {}
    if st.session_state.get(_PAGE, page) != page and here.get("run", kept.get("run")) == kept.get("run"):
        own = {*here, "part"} if "claim" in here else {*here}
        brought = {name: value for name, value in kept.items() if name not in own}
        st.query_params.update(brought)
    st.session_state.update({_KEPT: here | brought, _PAGE: page, _BROUGHT: tuple(brought), _HEADINGS: {}, _KEYS: 0})


def add_heading(title: str, anchor: str) -> None:
    """Remember a heading of the page that is drawn."""
    st.session_state.setdefault(_HEADINGS, {})[anchor] = title


def own_key(kind: str) -> str:
    """A key for one more part of this kind: two that say the same need one each."""
    st.session_state[_KEYS] = number = st.session_state.get(_KEYS, 0) + 1
    return f"{kind} {number}"


def headings() -> Mapping[str, str]:
    """The headings of the page so far, by anchor."""
    return dict(st.session_state.get(_HEADINGS, {}))


def was_brought(key: str) -> bool:
    """Whether this choice was made on another page, not on this one and not by its link."""
    return key in st.session_state.get(_BROUGHT, ())


def unknown(title: str, wanted: str, known: Sequence[str], shown: str = "") -> None:
    """Warn that the URL names something that is not there: its name, what there is, and what is `shown` instead."""
    there = f" There is: {words.some(known)}." if known else ""
    instead = f" Shown instead: {words.clip(shown, 140)}." if shown else ""
    text = f"{title} {words.clip(wanted, 80)} is not here.{there}{instead}"
    st.warning(words.markdown(text), icon=":material/warning:")


def choose(
    title: str,
    options: Mapping[str, str] | Sequence[str],
    key: str,
    *,
    default: str | None = None,
    widget: Callable[..., str | None] = st.selectbox,
    also: Callable[[str], Mapping[str, str]] = lambda chosen: {},
    **more: Any,
) -> str:
    """A widget whose choice is `?key=` in the URL. `options`: from what the URL holds to what the reader sees.

    Says so where the URL asks for something else, and takes the default (the first). `also`: what else a new choice
    sets in the URL, "" for what it takes out. `more`: the widget's. ValueError without options.
    """
    shown = dict(options) if isinstance(options, Mapping) else dict(zip(options, options, strict=True))
    if not shown:
        raise ValueError(f"nothing to choose from for {title!r}")
    first = default if default in shown else next(iter(shown))
    wanted = st.query_params.get(key, first)
    if wanted not in shown:
        if not was_brought(key):  # what was chosen on another page may be missing on this one
            unknown(title, wanted, list(shown), shown[first])
        wanted = first
    st.session_state[key] = wanted

    def follow() -> None:
        chosen = st.session_state[key]
        kept = {name: st.query_params.get_all(name) for name in st.query_params}
        new = {**kept, key: chosen, **also(chosen)}
        st.query_params.from_dict({name: value for name, value in new.items() if value})  # one step of the way back

    name = widget(title, list(shown), key=key, format_func=lambda name: shown.get(name, name), on_change=follow, **more)
    return name if name in shown else first


def colours() -> palettes.Palette:
    """The colours of the appearance that the reader has chosen."""
    return palettes.DARK if st.context.theme.type == "dark" else palettes.LIGHT
