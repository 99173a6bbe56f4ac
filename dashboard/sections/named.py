"""Workloads and variants by words: the choice of a workload, and the cards that say what a name is."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from llama_workbench.harness.report.ladder import LadderStep

from .. import state, words
from ..views import data, workloads
from ..views.variants import card, differing


def choose_workload(
    run: data.Run,
    names: Sequence[str],
    title: str = "Workload",
    *,
    default: str | None = None,
) -> str:
    """The workload of `?workload=` among those that a page shows, each in words."""
    shown = workloads.distinct({name: run.named(name) for name in names})
    return state.choose(title, shown, "workload", default=default, elsewhere=run.names)


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
            facts = workloads.facts(data.experiment(run, name).workload)
            st.caption(words.markdown(" ".join(facts)))


def show_codes(steps: Sequence[LadderStep]) -> None:
    """A button that shows what to write for each of these steps."""
    with st.popover("What to write", icon=":material/code:", type="tertiary"):
        for change in (step.change for step in steps):
            st.markdown(f"**{words.markdown(words.capital(change.told))}**")
            if change.code:
                st.code(change.code, language="diff")
