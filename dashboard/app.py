"""The dashboard: `streamlit run dashboard/app.py [-- --results PATH]` (default: $WORKBENCH_RESULTS, else ./results)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import streamlit as st
from streamlit.navigation.page import StreamlitPage

# Streamlit puts this file's folder on sys.path. In a checkout that nobody installed, `llama_workbench` is one level
# up; in a wheel this file is inside it and there is nothing to do.
_CHECKOUT = Path(__file__).resolve().parent.parent
if (_CHECKOUT / "llama_workbench" / "__init__.py").is_file() and str(_CHECKOUT) not in sys.path:
    sys.path.insert(0, str(_CHECKOUT))

from llama_workbench.dashboard import state  # noqa: E402, the path is set first
from llama_workbench.dashboard.sections import head  # noqa: E402
from llama_workbench.harness.slices import faces  # noqa: E402

st.set_page_config(page_title="Llama workbench", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")

PAGES = (  # file, path in the URL, title, icon, help
    ("answer", "", "Answer", "balance", "What came out: the answer of one run, and how every claim stands."),
    ("comparison", "comparison", "Comparison", "compare_arrows", "A claim: how much, why, where."),
    ("explore", "explore", "Explore", "local_fire_department", "Phases, flamegraphs, memory, attribution."),
    ("runs", "runs", "Runs", "history", "All runs, what changed between two, and whether one can be trusted."),
)


def page(file: str, path: str, title: str, icon: str, text: str) -> StreamlitPage:
    """The page whose URL ends in `path`; the first is the one that the address alone leads to.

    The folder is not called `pages`: Streamlit would take its files for the pages until this script has run once, and
    say "Page not found" to the first visitor of one whose path is not its file's name.
    """
    return st.Page(
        f"page_scripts/{file}.py",
        title=title,
        icon=f":material/{icon}:",
        url_path=path or None,
        default=not path,
        help=text,
    )


def page_of_slice(face: ModuleType) -> StreamlitPage:
    """The page that a slice has (see `harness.slices`)."""
    path, title, icon, text = face.PAGE
    return st.Page(face.show, title=title, icon=f":material/{icon}:", url_path=path, help=text)


shown = st.navigation([*(page(*each) for each in PAGES), *map(page_of_slice, faces("page"))], position="top")
state.keep_thread(shown.url_path)
contents = head.begin()
shown.run()
head.show_skipped()
head.show_contents(contents)
