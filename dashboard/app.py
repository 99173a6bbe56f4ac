"""The dashboard: `streamlit run dashboard/app.py [-- --results PATH]` (default: $WORKBENCH_RESULTS, else ./results)."""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit as st

# Streamlit puts this file's folder on sys.path. In a checkout that nobody installed, `llama_workbench` lies one level
# up; in a wheel this file lies inside it and there is nothing to do.
_CHECKOUT = Path(__file__).resolve().parent.parent
if (_CHECKOUT / "llama_workbench" / "__init__.py").is_file() and str(_CHECKOUT) not in sys.path:
    sys.path.insert(0, str(_CHECKOUT))

from llama_workbench.dashboard.sections import head  # noqa: E402, the path is set first

st.set_page_config(page_title="Llama workbench", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")

st.navigation(
    [
        st.Page(
            "pages/verdicts.py",
            title="Verdicts",
            icon=":material/balance:",
            default=True,
            help="Claims of one run: what was said, what was measured, and the evidence behind each verdict.",
        ),
        st.Page(
            "pages/claim.py",
            title="Claim",
            icon=":material/gavel:",
            help="One claim with all its evidence, and the command that measures it again.",
        ),
        st.Page(
            "pages/compare.py",
            title="Compare",
            icon=":material/compare_arrows:",
            help="Any two variants that were timed in the same rounds.",
        ),
        st.Page(
            "pages/attribution.py",
            title="Attribution",
            icon=":material/account_tree:",
            help="What a speed-up is due to: layout, cache ownership, masks or operations.",
        ),
        st.Page(
            "pages/breakdown.py",
            url_path="where_time_goes",
            title="Where time goes",
            icon=":material/local_fire_department:",
            help="Shares of a forward by phase and length, and the flamegraph.",
        ),
        st.Page(
            "pages/memory.py",
            title="Memory",
            icon=":material/memory:",
            help="Time against memory, and what caching policies hold on to.",
        ),
        st.Page(
            "pages/scaling.py",
            url_path="crossover",
            title="Scaling",
            icon=":material/trending_up:",
            help="How an effect changes with width, length and position.",
        ),
        st.Page(
            "pages/history.py",
            title="History",
            icon=":material/history:",
            help="Runs and baselines over time, as ratios to the frozen yardstick.",
        ),
        st.Page(
            "pages/trust.py",
            title="Trust",
            icon=":material/verified:",
            help="How far this machine's numbers can be trusted: controls, noise, gates, environment.",
        ),
    ],
    position="top",
).run()
head.show_skipped()
