"""The state of a page: what was read, kept until a file changes, and the reader's choices, kept in the URL.

The URL holds every choice (`?run=…&claim=…`), so that a link leads to the same picture: each run of the script first
sets the widgets from the URL, and a widget that changes writes itself there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import streamlit as st

from llama_workbench.cache import CacheError, cache_directory
from llama_workbench.harness.remote.place import PlaceError
from llama_workbench.harness.remote.transfer import fetch

from . import words
from .figures import colours as palettes
from .views import data, entries, remote

T = TypeVar("T")

PROFILE_COMMAND = "pytest --benchmark --profile"

REMEMBERED = "chosen run"  # the menu of pages drops the URL's choices; the run is the one that all pages share


@dataclass(frozen=True)
class Opened:
    """The run that the page shows. `name` is its name in links, `stamp` the key of everything cached about it."""

    name: str
    run: data.Run
    stamp: entries.Stamp


@st.cache_resource(max_entries=4, show_spinner="Reading the list of runs …")
def _run_list(results: Path | str) -> entries.RunList | remote.RemoteList:
    if isinstance(results, str):
        return remote.RemoteList(results)
    try:
        kept = cache_directory() / "runs.json"
    except CacheError:
        kept = None
    listed = entries.RunList(results, kept)
    listed.entries()
    return listed


def all_entries(most: int = remote.SHOWN) -> Sequence[entries.Entry]:
    """Every folder that might be a run, newest first. The list itself sees what changes.

    most: of the runs at a URL only so many. Where these cannot be listed the page says so, and ends.
    """
    listed = _run_list(results())
    if isinstance(listed, entries.RunList):
        return listed.entries()
    try:
        return listed.entries(most)
    except PlaceError as error:
        st.error("The runs cannot be listed.", icon=":material/error:")
        st.text(str(error))
        st.stop()


def remote_list() -> remote.RemoteList | None:
    """The list of the runs at a URL; None where they lie on this machine."""
    listed = _run_list(results())
    return listed if isinstance(listed, remote.RemoteList) else None


def results() -> Path | str:
    """The folder or the URL where the runs lie."""
    return entries.results_folder(sys.argv[1:])


def folder_of(entry: entries.Entry) -> Path:
    """The folder of a run on this machine, fetched where it lies at a URL. Raises RunError."""
    return _fetched(entry.url, entry.digest) if entry.url else entry.summary.path


@st.cache_resource(max_entries=256, ttl=60, show_spinner="Fetching the run …")
def _fetched(url: str, digest: str) -> Path:
    return fetch(url).path


@st.cache_resource(max_entries=32, show_spinner="Reading the run …")
def read_run(path: Path, stamp: entries.Stamp) -> data.Run:
    """One run. Raises RunError."""
    return data.read_run(path)


# Not cache_data: a copy of a profile's tree or of 20,000 boxes would take long.
@st.cache_resource(
    max_entries=128,
    show_spinner="Reading the run …",
    hash_funcs={Opened: lambda opened: opened.stamp, FunctionType: lambda one: (one.__module__, one.__qualname__)},
)
def computed(opened: Opened, compute: Callable[..., T], *arguments: Hashable, _given: tuple[Any, ...] = ()) -> T:
    """`compute(run, *_given, *arguments)`, once for each state of the run's files. Nobody may change what it returns.

    `_given`: what was computed of the same files before; Streamlit leaves a name with such a beginning out of the key.
    """
    return compute(opened.run, *_given, *arguments)


def choose(
    title: str,
    options: Mapping[str, str] | Sequence[str],
    key: str,
    *,
    default: str | None = None,
    widget: Callable[..., str | None] = st.selectbox,
) -> str:
    """A widget whose choice is `?key=` in the URL. `options`: from what the URL holds to what the reader sees.

    Says so where the URL asks for something else, and takes the default (the first). ValueError without options.
    """
    shown = dict(options) if isinstance(options, Mapping) else dict(zip(options, options, strict=True))
    if not shown:
        raise ValueError(f"nothing to choose from for {title!r}")
    first = default if default in shown else next(iter(shown))
    wanted = st.query_params.get(key, first)
    if wanted not in shown:
        st.warning(f"{title} {words.markdown(wanted)} is not in this run.", icon=":material/warning:")
        wanted = first
    st.session_state[key] = wanted

    def follow() -> None:
        st.query_params[key] = st.session_state[key]

    name = widget(title, list(shown), key=key, format_func=lambda name: shown.get(name, name), on_change=follow)
    return name if name in shown else first


def colours() -> palettes.Palette:
    """The colours of the appearance that the reader has chosen."""
    return palettes.palette(st.context.theme.type)
