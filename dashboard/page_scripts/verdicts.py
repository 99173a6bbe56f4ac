"""Verdicts: the answer of a run at first sight, and below it every claim with its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import streamlit as st

from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.sections import blocks, comparison, named
from llama_workbench.dashboard.sections import claim as section
from llama_workbench.dashboard.strips import picture
from llama_workbench.dashboard.strips import section as strips
from llama_workbench.dashboard.views import again, answers, data, outcomes, why
from llama_workbench.harness.report.ladder import ladder_advice, ladder_of
from llama_workbench.harness.spec.words import Word

MOST_COMPARED = 3
"""Comparisons that are each shown whole; of more there is a list."""

BY = "by "  # what a search for the claims of a team begins with


def main() -> None:
    opened = section.open_claims("Verdicts")
    if opened is None:
        return
    run = opened.run
    section.warn_of_unknown(run.claims)
    compared = all(claim.is_comparison or claim.is_condition for claim in run.claims)
    if compared and len(run.claims) <= MOST_COMPARED and show_comparisons(opened):
        return
    st.header(section.headline(run), anchor="answer")
    blocks.name_tab(outcomes.answer_of(run).headline)
    main = run.claims[outcomes.main_claim(run, run.claims)]
    later = show_box(opened, main)
    strips.show_answer(opened)
    for question, text in later.items():
        blocks.answer(question, text)
    show_claim(opened)
    blocks.header("All comparisons" if compared else "All claims", anchor="claims")
    shown = filtered(run.claims) if len(run.claims) > picture.MANY else list(run.claims)
    if not shown:
        st.text("No claim of this run is like that.")
        return
    count = len({claim.claim for claim in shown})
    if count < len(shown):
        blocks.caption(
            f"{count} claims with {len(shown)} verdicts: some have parts, and each part has a verdict of its own."
        )
    strips.show_claims(opened, shown, refuted_first=st.query_params.get("search", "").startswith(BY))


def show_box(opened: state.Opened, main: data.Claim) -> dict[str, str]:
    """What is asked next: how sure the answer is, and what to change or what would change it. Given back is what there
    is no room for above the other answers."""
    run = opened.run
    told_again = again.of_run(run.claims, section.sessions(opened))
    sure = {"How sure is that?": " ".join(filter(None, (answers.how_sure(run), told_again)))}
    more = answers.what_would_change(run, main) if outcomes.is_about_one(run) else ""
    other = {"What would change that?": more} if more else {}
    ladder = ladder_of(run.claims, run.dispute, run.manifest)
    advice = ladder_advice(ladder) if ladder else None
    if ladder is None or advice is None:
        blocks.answers(other | sure)
        return {}
    with st.container(border=True, gap="xsmall", key="box"):
        left, right = st.columns([2, 3], gap="small")
        with left:
            for question, text in ({"What should I change?": answers.to_change(advice, main)} | sure).items():
                blocks.answer(question, text)
            with st.container(horizontal=True, vertical_alignment="center"):
                blocks.link("explore", "All steps", "arrow_forward", {"run": opened.name, "show": "attribution"})
                named.show_codes(advice.take)
                named.show_cards(run, ladder.names, [*ladder.whole.effects])
        with right:
            rows = [{name: words.markdown(text) for name, text in row.items()} for row in advice.rows()]
            st.table(rows, border="horizontal", hide_index=True, alt="What to change, what it gains and what it costs")
    return other


def show_comparisons(opened: state.Opened) -> bool:
    """Each comparison of a run that makes no claims, on a screen of its own; False where there is none."""
    shown = 0
    for claim in opened.run.claims:
        screens = comparison.screens_of(opened, claim) if claim.is_comparison else []
        columns = [comparison.show(screen, number) for number, screen in enumerate(screens, shown)]
        shown += len(columns)
        if columns:
            with columns[-1]:
                blocks.command(outcomes.reproduce(opened.run, claim))
                with st.container(horizontal=True):
                    blocks.link("comparison", "All its evidence", "arrow_forward", section.link(opened.name, claim))
                    section.download(opened.run, claim)
    if shown:
        blocks.caption(answers.self_check(opened.run.noise))
    return bool(shown)


def show_claim(opened: state.Opened) -> None:
    """The answer box of the URL's claim, else of the headline's."""
    claims = opened.run.claims
    wanted = section.wanted(claims)
    claim = claims[outcomes.main_claim(opened.run, claims) if wanted is None else wanted]
    st.subheader(words.markdown(section.full_title(claim)), anchor="who")
    causes = state.computed(opened, why.explain_part, claim.claim, claim.part)
    section.show_answer(opened, claim, causes)
    blocks.link("comparison", "All its evidence", "arrow_forward", section.link(opened.name, claim))


def filtered(claims: Sequence[data.Claim]) -> list[data.Claim]:
    """The claims that have one of the verdicts of `?verdict=` and all words of `?search=`."""
    search = st.query_params.get("search", "")
    st.session_state["search"] = search
    team = next((name for claim in claims for name in claim.who), "TEAM")
    st.text_input(
        "Search",
        key="search",
        type="search",
        placeholder=f"claim, team, variant or workload; or: {BY}{team}",
        on_change=_keep,
        args=("search",),
        label_visibility="collapsed",
    )
    counts = dict.fromkeys(count(claims), 0) | count([claim for claim in claims if _matches(claim, search.lower())])
    asked = st.query_params.get_all("verdict")
    for kind in asked:
        if kind not in counts:
            state.unknown("Verdict", kind, list(counts), "all" if {*asked}.isdisjoint(counts) else "")
    st.session_state["verdict"] = [kind for kind in counts if kind in asked]
    chosen = st.pills(
        "Verdict",
        list(counts),
        key="verdict",
        selection_mode="multi",
        format_func=lambda kind: f":material/{kind.look.icon}: {counts[kind]} {words.markdown(kind.look.word.lower())}",
        on_change=_keep,
        args=("verdict",),
        label_visibility="collapsed",
        wrap=True,
    )
    return [claim for claim in claims if (not chosen or claim.verdict in chosen) and _matches(claim, search.lower())]


def _matches(claim: data.Claim, search: str) -> bool:
    """Whether a claim is that team's ("by team-006"), or has all words."""
    if search.startswith(BY):
        return search.removeprefix(BY).strip() in map(str.lower, claim.who)
    names = [name for effect in claim.effects for name in (effect.workload, effect.variant, effect.baseline)]
    said = [claim.claim, claim.part, claim.title, claim.statement, *claim.who, claim.source, claim.claimed]
    searched = " ".join([*said, *dict.fromkeys(names)]).lower()
    return all(word in searched for word in search.split())


def _keep(name: str) -> None:
    """Write what a filter was set to into the URL; nothing chosen is nothing there."""
    state.mark_changed(name)
    if chosen := st.session_state[name]:
        st.query_params[name] = chosen
    else:
        st.query_params.pop(name, None)


def count(claims: Sequence[data.Claim]) -> dict[Word, int]:
    """How many there are of each verdict, in the order of the words."""
    counts = Counter(claim.verdict for claim in claims)
    return {kind: counts[kind] for kind in words.LOOKS if counts[kind]}


main()
