"""Parts of pages: what draws with Streamlit, and is used by one page or several."""
