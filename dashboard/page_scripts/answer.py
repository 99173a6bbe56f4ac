"""Answer: what came out of a run at first sight, and below it every claim with its parts."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.sections import blocks, measuring, strips
from llama_workbench.dashboard.sections import claim as section
from llama_workbench.dashboard.views import data, outcomes
from llama_workbench.harness.report.comparison import Screen
from llama_workbench.harness.report.ladder import ladder_advice, ladder_of
from llama_workbench.harness.report.text import call_times, verdict_counts

MOST_COMPARED = 3
"""Comparisons that are each shown whole; of more there is a list."""


def main() -> None:
    opened = section.open_claims("Answer")
    if opened is None:
        return
    run = opened.run
    section.warn_of_unknown(run.claims)
    compared = all(claim.is_comparison or claim.is_condition for claim in run.claims)
    if compared and len(run.claims) <= MOST_COMPARED and show_comparisons(opened):
        return
    blocks.name_tab(outcomes.answer_of(run).headline)
    if cards := strips.cards(run, elsewhere(opened)):
        strips.show_cards(opened, cards)
        show_change(opened)
        show_questions(run)
    else:
        st.header(section.headline(run), anchor="answer")
    blocks.header("All comparisons" if compared else "All claims", anchor="claims", within=True)
    shown = filtered(run.claims) if len(run.claims) > strips.MANY else list(run.claims)
    if not shown:
        st.text("No claim of this run is like that.")
        return
    strips.show_claims(opened, shown)


def elsewhere(opened: state.Opened) -> dict[str, str]:
    """Claims that other runs have, with the name of one; saved runs before others."""
    here = {claim.claim for claim in opened.run.claims}
    listed = sorted(state.all_entries(), key=lambda entry: entry.is_baseline)
    return {name: entry.name for entry in listed for name, _, _ in entry.summary.claims if name not in here}


def show_questions(run: data.Run) -> None:
    """Every question that the run answers, with what stands beside its answer, as in the terminal."""
    lines = outcomes.answer_of(run).lines
    with st.expander(f"All {len(lines)} answers"):
        half = (len(lines) + 1) // 2
        for column, shown in zip(st.columns(2, gap="large"), (lines[:half], lines[half:]), strict=True):
            for line in shown:
                look = blocks.verdict_word(outcomes.look_of_line(line))
                numbers = f": {words.markdown(line.found)}" if line.found else ""
                beside = f"  \n:small[:gray[{words.markdown(' '.join(line.beside))}]]" if line.beside else ""
                column.markdown(f"**{words.markdown(line.question)}**  \n{look}{numbers}{beside}")


def show_change(opened: state.Opened) -> None:
    """What to write for the changes that are told to make, and what their names mean."""
    run = opened.run
    ladder = ladder_of(run.claims, run.dispute, run.manifest)
    advice = ladder_advice(ladder) if ladder else None
    if ladder is not None and advice is not None:
        with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
            blocks.link("explore", "All steps", "arrow_forward", {"run": opened.name, "show": "steps"})
            blocks.show_codes(advice.take)
            blocks.show_cards(run, ladder.names, [*ladder.whole.effects])


def show_comparisons(opened: state.Opened) -> bool:
    """Each comparison of a run that makes no claims, on a screen of its own; False where there is none. Of several the
    numbers stand together before."""
    compared = [(claim, section.screens_of(opened, claim)) for claim in opened.run.claims if claim.is_comparison]
    shown = [screen for _, screens in compared for screen in screens]
    if len(shown) > 1:
        blocks.table([summary(screen) for screen in shown], "All comparisons of this run, a row an input")
    columns = {id(screen): section.show_screen(screen, number) for number, screen in enumerate(shown)}
    for claim, screens in compared:
        if screens:
            with columns[id(screens[-1])]:
                measuring.command(outcomes.reproduce(opened.run, claim))
                with st.container(horizontal=True):
                    blocks.link(strips.PAGE, "All its evidence", "arrow_forward", section.link(opened.name, claim))
                    section.download(opened.run, claim)
    return bool(shown)


def summary(screen: Screen) -> dict[str, str]:
    """One comparison in a row."""
    before, after = call_times(screen.call_ns)
    return {
        "compared": screen.effect.sides,
        "on": screen.place,
        "verdict": screen.way.look.word,
        "speed-up": words.effect(screen.effect),
        "time of a call": f"{before} → {after}",
    }


def filtered(claims: Sequence[data.Claim]) -> list[data.Claim]:
    """The claims that have one of the verdicts of `?verdict=` and all words of `?search=`."""
    search = st.query_params.get("search", "")
    st.session_state["search"] = search
    left, right = st.columns([2, 5])
    left.text_input(
        "Search",
        key="search",
        type="search",
        placeholder="claim, team, variant or workload",
        on_change=_keep,
        args=("search",),
        label_visibility="collapsed",
    )
    found = [claim for claim in claims if _matches(claim, search.lower())]
    counts = dict.fromkeys(verdict_counts(claims), 0) | verdict_counts(found)

    def pill(word: str) -> str:
        look = outcomes.look_of_word(word)
        return f":material/{look.icon}: {counts[word]} {words.markdown(look.word.lower())}"

    asked = st.query_params.get_all("verdict")
    for kind in asked:
        if kind not in counts:
            state.unknown("Verdict", kind, list(counts), "all" if {*asked}.isdisjoint(counts) else "")
    st.session_state["verdict"] = [kind for kind in counts if kind in asked]
    chosen = right.pills(
        "Verdict",
        list(counts),
        key="verdict",
        selection_mode="multi",
        format_func=pill,
        on_change=_keep,
        args=("verdict",),
        label_visibility="collapsed",
        wrap=True,
    )
    return [claim for claim in found if not chosen or claim.word in chosen]


def _matches(claim: data.Claim, search: str) -> bool:
    """Whether a claim has all words."""
    names = [name for effect in claim.effects for name in (effect.workload, effect.variant, effect.baseline)]
    said = [claim.claim, claim.part, claim.title, claim.statement, *claim.who, claim.source, claim.claimed]
    searched = " ".join([*said, *dict.fromkeys(names)]).lower()
    return all(word in searched for word in search.split())


def _keep(name: str) -> None:
    """Write what a filter was set to into the URL; nothing chosen is nothing there."""
    if chosen := st.session_state[name]:
        st.query_params[name] = chosen
    else:
        st.query_params.pop(name, None)


main()
