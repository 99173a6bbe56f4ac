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

st.set_page_config(page_title="Llama workbench", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")

st.navigation(
    [
        st.Page(
            "app_pages/verdicts.py",
            title="Verdicts",
            icon=":material/balance:",
            default=True,
            help="Claims of one run: what was said, what was measured, and the evidence behind each verdict.",
        ),
    ],
    position="top",
).run()
