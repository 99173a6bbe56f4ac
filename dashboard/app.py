"""The dashboard: `streamlit run dashboard/app.py [-- --results PATH]` (default: $WORKBENCH_RESULTS, else ./results)."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

import streamlit as st
from streamlit.navigation.page import StreamlitPage

# Streamlit puts this file's folder on sys.path. In a checkout that nobody installed, `llama_workbench` is one level
# up; in a wheel this file is inside it and there is nothing to do.
_CHECKOUT = Path(__file__).resolve().parent.parent
if (_CHECKOUT / "llama_workbench" / "__init__.py").is_file() and str(_CHECKOUT) not in sys.path:
    sys.path.insert(0, str(_CHECKOUT))

from llama_workbench.dashboard import state  # noqa: E402, the path is set first
from llama_workbench.dashboard.sections import frame, head  # noqa: E402

st.set_page_config(page_title="Llama workbench", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")

PAGES = (  # file, path in the URL, title, icon, help
    ("verdicts", "", "Verdicts", "balance", "Claims of one run: what was said, what was measured, and each verdict."),
    ("claim", "claim", "Claim", "gavel", "One claim with all its evidence, and the command that measures it again."),
    ("compare", "compare", "Compare", "compare_arrows", "Any two variants that were timed in the same rounds."),
    ("attribution", "attribution", "Attribution", "account_tree", "What a speed-up is due to."),
    ("breakdown", "where_time_goes", "Where time goes", "local_fire_department", "Time by phase, and flamegraphs."),
    ("memory", "memory", "Memory", "memory", "Time against memory, and what caching policies hold on to."),
    ("scaling", "crossover", "Scaling", "trending_up", "How an effect changes with width, length and position."),
    ("two_runs", "two_runs", "Two runs", "difference", "What changed from one run to another: time, work and memory."),
    ("history", "history", "History", "history", "Runs and baselines over time, as ratios to the frozen yardstick."),
    ("trust", "trust", "Trust", "verified", "How far this machine's numbers can be trusted."),
)


def page(file: str, path: str, title: str, icon: str, text: str, hidden: Collection[str] = ()) -> StreamlitPage:
    """The page whose URL ends in `path`; the first is the one that the address alone leads to. `hidden`: files of pages
    that a link still leads to, and the menu does not.

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
        visibility="hidden" if file in hidden else "visible",
    )


empty = head.pages_to_hide()
shown = st.navigation([page(*each, hidden=empty) for each in PAGES], position="top")
state.keep_thread(shown.url_path)
contents = frame.begin()
shown.run()
head.show_skipped()
frame.end(contents)
