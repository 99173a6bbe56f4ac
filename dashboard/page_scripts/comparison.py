"""Comparison: a claim: the number, why it is so, in which lines, and all that it rests on."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.sections import blocks, head, measuring, sides
from llama_workbench.dashboard.sections import claim as section
from llama_workbench.dashboard.views import data, forest, outcomes, samples
from llama_workbench.harness.metrics.base import FINDINGS
from llama_workbench.harness.report.comparison import Screen
from llama_workbench.harness.report.outcome import found_text, standing
from llama_workbench.harness.slices import page_parts
from llama_workbench.harness.stats.samples import tokens_per_second
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.forms import ExactResult
from llama_workbench.harness.store.verdict_schema import Effect


def main() -> None:
    opened = section.open_claims("Comparison")
    if opened is None:
        return
    with st.container():
        left, right = st.columns([3, 2], gap="large")
    with left:
        claim = section.choose(opened)
    screens = [] if opened.run.manifest.machines else section.screens_of(opened, claim)
    show(opened, claim, screens, right)


def show(opened: state.Opened, claim: data.Claim, screens: Sequence[Screen], beside_choice: Any) -> None:
    """Number, picture and what to do; why, in which code; all inputs; and below what it rests on."""
    run = opened.run
    rows = section.to_look_inside(run, claim)
    with beside_choice:
        effect = section.choose_row(run, rows) if rows else None
    place = effect and (effect.workload, effect.variant, effect.baseline)
    screen = next(
        (each for each in screens if (each.effect.workload, each.effect.variant, each.effect.baseline) == place), None
    )
    show_title(claim, screen if len(claim.effects) == 1 else None)
    left, right = st.columns([2, 3], gap="large")
    with left:
        show_said(opened, claim, screen)
    with right:
        if claim.effects and not section.show_machines(opened, claim):
            section.show_forest(claim, run.floors)
    if screen is not None:
        section.show_why(screen, with_costs=True)
        for part in page_parts("show_aligned") if is_seen(screen) else ():
            blocks.header("Both sides on each other", anchor="flames", within=True)
            part.show_aligned(screen.explained)
    names = [name for row in claim.effects if not row.factor for name in (row.variant, row.baseline)]
    blocks.show_cards(run, names, [row.workload for row in claim.effects])
    if claim.effects:
        show_inputs(run, claim, screens)
    show_elsewhere(opened, claim)
    show_others(opened, claim)
    if run.manifest.machines:
        st.header("Machine by machine", anchor="machines")
        head.show_machines(opened, "comparison", section.link(opened.name, claim))
    if effect is not None:
        show_inside(opened, claim, effect, screen)
    show_how(opened, claim)


def show_title(claim: data.Claim, screen: Screen | None) -> None:
    """The answer in the largest letters: of one comparison who is faster and by how much, of a claim whether it is so,
    and what was found."""
    look, shown = outcomes.look_of(claim), section.full_title(claim)
    title = f"{look.word}: {shown}"
    if claim.is_comparison and screen is not None:
        look, shown = screen.way.look, screen.headline
        title = f"{look.word}: {shown}"
    elif (measured := found_text(claim)) and measured != standing(claim).bound:  # which the word of an open claim has
        shown = f"{shown}: {measured}"
    st.header(section.titled(look, shown), anchor="answer")
    blocks.name_tab(title)
    state.add_heading("Answer", "answer")


def show_said(opened: state.Opened, claim: data.Claim, screen: Screen | None) -> None:
    """Who claimed what and what was found, with what a fair reader needs beside that; then what to do, of the input
    that is looked into."""
    if not claim.is_comparison:
        blocks.say(" ".join((outcomes.sentence(claim), *outcomes.beside(opened.run, claim))))
    if screen is not None:
        if len(claim.effects) > 1:
            blocks.caption(f"On {opened.run.named(screen.effect.workload)}: {screen.headline}")
        decided = not claim.is_comparison and not claim.is_open
        section.show_advice(screen, decided=decided, there=len(claim.effects) > 1)


def show_inputs(run: data.Run, claim: data.Claim, screens: Sequence[Screen]) -> None:
    """Inputs x metrics: a row a workload and pair of sides."""
    value = claim.unit or "speed-up"
    by_place = {(each.effect.workload, each.effect.variant, each.effect.baseline): each for each in screens}
    rows = []
    for effect in claim.effects:
        screen = by_place.get((effect.workload, effect.variant, effect.baseline))
        before, after = (ns / 1e6 for ns in screen.call_ns) if screen else (math.nan, math.nan)
        floor = run.floors.get(effect.workload)
        traced = not run.is_of_functions and effect.baseline and effect.workload
        rows.append(
            {
                "workload": effect.named or effect.workload or effect.metric,
                "machine": effect.machine,
                "variant": effect.variant,
                "baseline": effect.baseline,
                "verdict": outcomes.look_of_row(claim, effect.verdict).word,
                value: effect.value,
                "low": effect.lower,
                "high": effect.upper,
                "baseline, here": before,
                "variant, here": after,
                **{each.what: each.change for each in (screen.measures[1:] if screen else ())},
                "relevant": screen.relevant[0] if screen else "",
                "baseline, tokens/s": throughput(run, effect.workload, before * 1e6),
                "variant, tokens/s": throughput(run, effect.workload, after * 1e6),
                "rounds": effect.rounds,
                "identical code": floor.text if floor else "",
                "op traces": outcomes.traces(run, *_sides(effect)).state if traced else "",
                "clock": effect.clock,
                "seconds": effect.seconds,
            }
        )
    table = pd.DataFrame(rows).replace("", None).dropna(axis="columns", how="all")
    formats = dict.fromkeys((value, "low", "high"), "%.4g" if claim.unit else "%.4f×") | {"seconds": "%.1f s"}
    formats |= dict.fromkeys(("baseline, here", "variant, here"), "%.4g ms")
    formats |= dict.fromkeys(("baseline, tokens/s", "variant, tokens/s"), "%.4g")
    blocks.header("Every input, every metric", anchor="inputs", within=True)
    blocks.table(
        table, "Effects, one row for each workload and baseline", {k: v for k, v in formats.items() if k in table}
    )
    if "baseline, here" in table:
        st.caption("“Here” is the time of a call on this machine. It holds for this machine in this state only.")
    blocks.caption(forest.caption(claim, run.floors))
    blocks.notes("Notes", claim.notes)
    differing = [str(row["workload"]) for row in rows if row["op traces"] == "differ"]
    if differing:
        st.markdown(
            f"The op traces differ on {words.markdown(words.listing(differing))}: there the ratio is no evidence on "
            "architecture, since the two sides do different work."
        )


def _sides(effect: Effect) -> tuple[str, str, str]:
    return effect.workload, effect.baseline, effect.variant


def throughput(run: data.Run, workload: str, call_ns: float) -> float | None:
    """Tokens generated per second by a call of that time; None for a workload that generates none."""
    shape = data.experiment(run, workload).workload
    if not (call_ns > 0 and shape.new_tokens and shape.batch):
        return None
    return tokens_per_second(call_ns, new_tokens=shape.new_tokens, batch=shape.batch)


def show_elsewhere(opened: state.Opened, claim: data.Claim) -> None:
    """Of a claim that is not about two times: what was measured, and where it is explored."""
    if claim.metric is None or not claim.metric.about:
        return
    blocks.header("What was measured", anchor="read")
    blocks.say(claim.metric.about)
    show_exact_results(opened, claim)
    if page := claim.metric.page:
        place = next(({"workload": effect.workload} for effect in claim.effects if effect.workload), {})
        blocks.link("explore", None, "arrow_forward", {"run": opened.name, "show": page} | place)


def show_others(opened: state.Opened, claim: data.Claim) -> None:
    """The claims on the same two sides, each with its verdict."""
    pairs = dict.fromkeys((effect.baseline, effect.variant) for effect in claim.effects if effect.baseline)
    if len(pairs) != 1 or claim.is_condition:
        return
    [pair] = pairs
    others = [each for each in samples.claims_of(opened.run, *pair) if each is not claim and not each.is_comparison]
    others = [each for each in others if (each.claim, each.part) != (claim.claim, claim.part)]
    if others:
        blocks.header("Claims on these two", anchor="claims", within=True)
        for other in others:
            look = outcomes.look_of(other)
            label = f"{look.word}: {section.full_title(other)}"
            blocks.link("comparison", words.markdown(label), look.icon, section.link(opened.name, other))


def show_inside(opened: state.Opened, claim: data.Claim, effect: Effect, screen: Screen | None) -> None:
    """Of one input: the times of all processes, whether both sides do the same, phases, flamegraphs and memory."""
    run = opened.run
    variants = [side for side in dict.fromkeys([effect.baseline, effect.variant]) if side]
    if effect.baseline and effect.variant:
        blocks.header("Times of both sides", anchor="times", within=True)
        blocks.folded("A dot a process", "show_times", partial(sides.show_times, opened, effect))
        blocks.header("Process by process", anchor="rounds", within=True)
        show_rounds = partial(sides.show_rounds_of_claim, opened, claim, effect)
        blocks.folded("The speed-up in each process, and the interval so far", "show_rounds", show_rounds)
        sides.show_same(run, effect.workload, effect.baseline, effect.variant)
    if not variants:
        return
    headed = None
    for part in page_parts("show_sides"):
        if (heading := part.heading(run, is_seen=is_seen(screen))) is None:
            continue
        if heading != headed:
            title, anchor = headed = heading
            blocks.header(title, anchor=anchor, within=True)
        part.show_sides(opened, effect, variants, claim.hypothesis.of)


def is_seen(screen: Screen | None) -> bool:
    """Whether the samples of both sides are shown on each other."""
    return screen is not None and screen.explained is not None and screen.explained.division is not None


def show_how(opened: state.Opened, claim: data.Claim) -> None:
    """How it was measured, how to measure it again, and what was checked before."""
    run = opened.run
    blocks.header("How it was measured", anchor="how")
    left, right = st.columns(2, gap="large")
    with left:
        st.caption("Measure this again")
        measuring.command(outcomes.reproduce(run, claim))
        if cost := outcomes.cost(claim):
            blocks.caption(f"To settle it: {cost}.")
        if command := outcomes.go_on(run, claim):
            st.caption("Go on with this run, on its machine, until the claim is settled")
            measuring.command(command, "Go on")
        section.download(run, claim)
        if run.manifest.command:
            st.caption("This run was made by")
            blocks.command(shlex.join(run.manifest.command))
    with right:
        facts = {"Said in": claim.source, "It assumes": "; ".join(claim.assumes), "Statement": claim.statement}
        blocks.facts(facts | outcomes.how(run, claim))
    timed = [effect for effect in section.to_look_inside(run, claim) if effect.variant]
    if timed and not run.is_of_functions:
        st.caption("Checks before timing. A side counts only if its logits match those of the library's model.")
        blocks.table(
            [outcomes.gates_row(run, effect) for effect in timed],
            "Logits gates and operation traces of both sides, one row for each comparison",
        )
    blocks.notes("Excluded from this run", run.left_out)


def read_exact_results(run: data.Run) -> list[ExactResult]:
    """The records of findings.json. Raises RunError."""
    results: list[ExactResult] = RunFolder(run.path).read(FINDINGS)
    return results


def show_exact_results(opened: state.Opened, claim: data.Claim) -> None:
    """Each result of a claim that is counted or tried, with its detail."""
    if claim.metric is None or not claim.metric.is_exact:
        return
    results = blocks.computed("The exact results cannot be read.", opened, read_exact_results)
    if results is None:
        return
    asked = {
        (claim.kind, claim.hypothesis.quantity, effect.workload, effect.variant, effect.baseline)
        for effect in claim.effects
    }
    rows = [row for row in results if row.subject in asked]
    if not rows:
        st.text("Not checked in this run. This command checks it:")
        blocks.command(outcomes.reproduce(opened.run, claim))
    for row in rows:
        value = "no value" if math.isnan(row.value) else f"{row.value:.4g} {claim.unit}".rstrip()
        where = words.markdown(opened.run.named(row.workload) or row.quantity)
        st.markdown(f"**{where}** {words.markdown(value)} :gray[from {row.count} looked at]")
        st.text(row.detail or row.reason or "no detail was kept")


main()
