"""Claim: one claim with all its evidence, and the command that measures it again."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.flames import section as flames
from llama_workbench.dashboard.sections import blocks, comparison, machines, named, sides
from llama_workbench.dashboard.sections import claim as section
from llama_workbench.dashboard.views import answers, beside, data, gates, outcomes, scaling, why
from llama_workbench.harness.metrics.base import FINDINGS, Metric
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.pass_schema import ExactResult
from llama_workbench.harness.store.verdict_schema import Effect


def main() -> None:
    opened = section.open_claims("Claim")
    if opened is None:
        return
    run = opened.run
    section.warn_of_unknown(run.claims)
    names = [
        f"{name} · {outcomes.look_of(each).word.lower()}"
        for name, each in zip(section.names(run.claims), run.claims, strict=True)
    ]
    claim = section.choose(run, st.selectbox, "Claim", format_func=names.__getitem__)
    screens = comparison.screens_of(opened, claim)
    if not claim.is_comparison:
        show_answer(opened, claim)
    for number, screen in enumerate(screens):
        comparison.show(screen, number)
    if screens:
        blocks.caption(answers.self_check(run.noise))
    if claim.effects:
        if not machines.show(opened, claim):
            section.show_forest(claim, run.floors)
        show_numbers(run, claim)
    show_time_and_work(opened, claim)
    show_elsewhere(opened, claim)
    if run.manifest.machines:
        st.header("Machine by machine", anchor="machines")
        machines.show_links(opened, "claim", section.link(opened.name, claim))
    if not run.manifest.machines and (rows := to_look_inside(run, claim)):
        show_inside(opened, claim, rows)
    show_how(run, claim)
    show_checks(run, claim)


def to_look_inside(run: data.Run, claim: data.Claim) -> list[Effect]:
    """What was timed or profiled on a workload and can be looked into; empty where nothing was."""
    inside = claim.metric.inside if claim.metric else "effects"
    if inside == "workloads":  # its one row spans several workloads, and each of them was timed
        asked = claim.hypothesis
        sides: dict[str, Any] = {"variant": asked.variant, "baseline": ", ".join(asked.baseline), "metric": "cpu time"}
        return [data.unasked(workload=name, named=run.named(name), **sides) for name in asked.workloads]
    if inside == "nothing":
        return []
    return [effect for effect in claim.effects if effect.workload]


def choose_row(run: data.Run, rows: Sequence[Effect]) -> Effect:
    """The row of `?row=` (from 1), else the first on `?workload=`, else the first with a profile, else the first."""
    if len(rows) == 1:
        return rows[0]
    numbered = {str(number): effect for number, effect in enumerate(rows, 1)}
    labels = {number: f"{effect.where}: {effect.sides}" for number, effect in numbered.items()}
    profiled = {key for key, row in run.profiles.items() if row.path}
    wanted = st.query_params.get("workload")
    known = [number for number, effect in numbered.items() if (effect.workload, effect.variant) in profiled]
    here = [number for number, effect in numbered.items() if effect.workload == wanted]
    default = next(iter([*here, *known]), None)
    chosen = state.choose(
        "Look inside", labels, "row", default=default, also=lambda number: {"workload": numbered[number].workload}
    )
    return numbered[chosen]


def show_answer(opened: state.Opened, claim: data.Claim) -> None:
    section.show_headline(claim)
    section.show_answer(opened, claim, state.computed(opened, why.explain_part, claim.claim, claim.part))
    asked = [name for effect in claim.effects if not effect.factor for name in (effect.variant, effect.baseline)]
    named.show_cards(opened.run, asked, [effect.workload for effect in claim.effects])


def show_numbers(run: data.Run, claim: data.Claim) -> None:
    value = claim.unit or "speed-up"
    rows = [
        {
            "workload": effect.named or effect.workload or effect.metric,
            **({"machine": effect.machine} if effect.machine else {}),
            "variant": effect.variant,
            "baseline": effect.baseline,
            "verdict": effect.verdict.look.word,
            "clock": effect.metric,
            value: effect.value,
            "low": effect.lower,
            "high": effect.upper,
            "identical code": floor.text if (floor := run.floors.get(effect.workload)) else "–",
            "rounds": effect.rounds,
            "seconds": effect.seconds,
        }
        for effect in claim.effects
    ]
    formats = dict.fromkeys((value, "low", "high"), "%.4g" if claim.unit else "%.4f×") | {"seconds": "%.1f s"}
    with st.expander("The same as a table"):
        blocks.table(rows, "Effects of the claim, one row for each workload and baseline", formats)
    blocks.notes("Notes", claim.notes)


def show_time_and_work(opened: state.Opened, claim: data.Claim) -> None:
    """Of a claim with both: what the clocks say and what the count says, one line for each part."""
    parts = beside.parts(opened.run.claims, claim)
    if not parts:
        return
    blocks.header("Time and work", anchor="work")
    st.markdown(f"**{words.markdown(beside.sentence(parts))}**")
    st.caption("Work is how many instructions a call executes. Other programs cannot change it, but it is not time.")
    rows = [
        {
            "part": part.claim.part or part.kind,
            "verdict": outcomes.look_of(part.claim).word,
            "workload": effect.where,
            "value": words.effect(effect),
            "claimed": part.claim.claimed_here,
        }
        for part in parts
        for effect in part.claim.effects
    ]
    blocks.table(rows, "Time and work of this claim, one row for each part and workload", {})


def show_elsewhere(opened: state.Opened, claim: data.Claim) -> None:
    """Of a claim that is not about two times: what was measured, and which page shows it."""
    if claim.metric is None or not claim.metric.about:
        return
    blocks.header("What was measured", anchor="read")
    blocks.say(claim.metric.about)
    show_exact_results(opened, claim)
    if page := claim.metric.page:
        query = {"run": opened.name} | place_elsewhere(opened.run, claim, claim.metric)
        blocks.link(page, None, "arrow_forward", query)


def place_elsewhere(run: data.Run, claim: data.Claim, metric: Metric) -> dict[str, str]:
    """Which choices of that page lead to the value, as far as they are known."""
    if metric.page == "scaling":
        asked = claim.hypothesis
        return scaling.link_to(run, asked.variant, ", ".join(asked.baseline), asked.workloads)
    query = {"workload": next((effect.workload for effect in claim.effects if effect.workload), "")}
    if metric.looks_once and metric.page == "memory":  # by checkpoint
        query = {"geometry": data.experiment(run, query["workload"]).workload.geometry or ""}
    return {name: value for name, value in query.items() if value}


def show_inside(opened: state.Opened, claim: data.Claim, rows: Sequence[Effect]) -> None:
    run = opened.run
    blocks.header("Inside one comparison" if rows[0].baseline else "Inside one value", anchor="inside")
    effect = choose_row(run, rows)
    variants = [side for side in dict.fromkeys([effect.baseline, effect.variant]) if side]
    if effect.baseline and effect.variant:
        blocks.header("Process by process", anchor="rounds", within=True)
        sides.show_rounds_of_claim(opened, claim, effect)
        query = {"baseline": effect.baseline, "variant": effect.variant, "workload": effect.workload}
        blocks.link("compare", "Compare the two on every workload", "compare_arrows", {"run": opened.name} | query)
        sides.show_same(run, effect.workload, effect.baseline, effect.variant)
    if variants:
        blocks.header("Where the time goes", anchor="time", within=True)
        if not run.is_of_functions:
            sides.show_phases(opened, effect.workload, variants, claim.hypothesis.of)
        flames.show(opened, effect.workload, variants, effect.baseline)
        blocks.header("Memory", anchor="memory", within=True)
        sides.show_memory(run, effect.workload, variants, effect.baseline)


def show_how(run: data.Run, claim: data.Claim) -> None:
    blocks.header("How it was measured", anchor="how")
    left, right = st.columns(2, gap="large")
    with left:
        st.caption("Measure this claim again")
        blocks.command(outcomes.reproduce(run, claim))
        if cost := outcomes.cost(claim):
            blocks.caption(f"To settle it: {cost}.")
        if command := outcomes.go_on(run, claim):
            st.caption("Go on with this run, on its machine, until the claim is settled")
            blocks.command(command)
        section.download(run, claim)
        if run.manifest.command:
            st.caption("This run was made by")
            blocks.command(shlex.join(run.manifest.command))
    with right:
        assumed = {"Said in": claim.source, "It assumes": "; ".join(claim.assumes)}
        blocks.facts(assumed | answers.how(run, claim))


def show_checks(run: data.Run, claim: data.Claim) -> None:
    timed = [effect for effect in to_look_inside(run, claim) if effect.variant]
    if timed and not run.is_of_functions:
        st.caption(
            "Checks before timing. Logits are a model's scores for the next token. A side counts only if its logits "
            "match those of the library's model."
        )
        blocks.table(
            [gates.row(run, effect) for effect in timed],
            "Logits gates and operation traces of both sides, one row for each comparison",
        )
    blocks.notes("Excluded from this run", run.left_out)
    if run.environment:
        blocks.environment(run.environment, "Environment")


def read_exact_results(run: data.Run) -> list[ExactResult]:
    """The records of findings.json. Raises RunError."""
    results: list[ExactResult] = RunFolder(run.path).read(FINDINGS)
    return results


def show_exact_results(opened: state.Opened, claim: data.Claim) -> None:
    """What was asked, from the claim's own definition, and each result with its detail."""
    asked = claim.hypothesis
    blocks.facts(
        {
            "measured": asked.quantity or claim.kind,
            "of": asked.of,
            "phases": ", ".join(asked.phases),
            "variant": asked.variant,
            "against": ", ".join(asked.baseline),
            "workloads": "; ".join(map(opened.run.named, asked.workloads)),
            "claimed": claim.claimed_here,
        }
    )
    if claim.metric is None or not claim.metric.is_exact:
        return
    results = blocks.computed("The exact results cannot be read.", opened, read_exact_results)
    if results is None:
        return
    names = [(effect.workload, effect.variant, effect.baseline) for effect in claim.effects]
    rows = [row for row in results if row.subject in {(claim.kind, asked.quantity, *each) for each in names}]
    if not rows:
        st.text("Not checked in this run. This command checks it:")
        blocks.command(outcomes.reproduce(opened.run, claim))
    for row in rows:
        value = "no value" if math.isnan(row.value) else f"{row.value:.4g} {claim.unit}".rstrip()
        where = words.markdown(opened.run.named(row.workload) or row.quantity)
        st.markdown(f"**{where}** {words.markdown(value)} :gray[from {row.count} looked at]")
        st.text(row.detail or row.reason or "no detail was kept")
    if len(rows) > 1:
        with st.expander("The same as a table"):
            columns = ["workload", "variant", "value", "count", "seconds"]
            blocks.table(pd.DataFrame(map(vars, rows))[columns], "Exact results behind this claim")


main()
