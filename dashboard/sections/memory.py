"""Memory: time against memory, and what caching policies hold on to."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from llama_workbench.harness.store.files import RunError

from .. import state, words
from ..figures import memory as figures
from ..views import data, memory, outcomes, samples
from . import blocks, named, sides


def read_tradeoff(run: data.Run, workload: str, field: str) -> tuple[list[memory.Spot], dict[str, str], str]:
    """Spots, who is missing, and the problem with the samples if there is one."""
    try:
        return *memory.tradeoff(run, samples.read_evidence(run), workload, field), ""
    except RunError as error:
        return *memory.tradeoff(run, None, workload, field), error.brief


def is_part(run: data.Run, workload: str) -> bool:
    """True where a part of a layer is called alone."""
    return data.experiment(run, workload).workload.kind == "component"


def show(opened: state.Opened) -> None:
    """Of functions the bars of both sides; of models time against memory, and what caching policies hold."""
    if opened.run.is_of_functions:
        show_functions(opened)
        return
    policies = blocks.computed("The sweeps cannot be shown.", opened, memory.read_policies) or []
    profiled = [workload for workload, _ in opened.run.memory]
    workloads = list(dict.fromkeys([*profiled, *(one.row.workload for one in policies)]))
    workloads.sort(key=lambda name: is_part(opened.run, name))  # what a whole model needs comes first
    workload = named.choose_workload(opened.run, workloads) if workloads else ""
    blocks.header("Time against memory", anchor="tradeoff")
    if workload in profiled:
        show_tradeoff(opened, workload)
    else:
        blocks.missing("memory of single calls here", outcomes.with_profile(opened.run, workload))
    blocks.header("What caching policies hold", anchor="policies")
    if here := [one for one in policies if one.row.workload == workload]:
        show_policies(here)
    else:
        blocks.missing("sweep over the number of lengths here", opened.run.dispute.command("memory_sweep"))


def show_functions(opened: state.Opened) -> None:
    """What a call of each function takes on one input."""
    run = opened.run
    if not run.memory:
        blocks.missing("memory measurements", outcomes.with_profile(run, ""))
        return
    workload = named.choose_workload(run, list(dict.fromkeys(workload for workload, _ in run.memory)))
    names = [name for where, name in run.memory if where == workload]
    sides.show_memory(run, workload, names, data.experiment(run, workload).baseline or names[0])


def show_tradeoff(opened: state.Opened, workload: str) -> None:
    amounts = {field.removesuffix("_bytes"): title for field, title in memory.COUNTED.items()}
    field = state.choose("Memory counted", amounts, "amount") + "_bytes"
    title = memory.COUNTED[field]
    spots, missing, problem = state.computed(opened, read_tradeoff, workload, field)
    if problem:
        blocks.warn(f"Only judged effects are shown: {problem}")
    if spots:
        baseline = data.experiment(opened.run, workload).baseline or ""
        drawn = figures.tradeoff(spots, title, baseline, state.colours())
        named.show_cards(opened.run, [spot.variant for spot in spots], [workload])
        blocks.plot(drawn, figures.tradeoff_text(spots, title, baseline), "tradeoff")
        st.caption(
            "Up and to the left is better. On the front: no other variant is faster without needing more memory. "
            "Beaten: another one is better, and their intervals do not touch. Not settled: the order may be the other "
            "way round. Each dot has its number in the table. Kept is what a variant holds after a call beside the "
            "weights that it was given: caches, and copies of weights that it made. A cache that the call itself makes "
            "is also in its peak. Amounts within 1 % of each other count as the same."
        )
        rows = [_spot_row(number, spot) for number, spot in enumerate(spots, 1)]
        blocks.table(rows, "Variants by speed-up, with memory and rank")
    by_reason: dict[str, list[str]] = {}
    for name, reason in missing.items():
        by_reason.setdefault(reason, []).append(name)
    blocks.notes("Not placed", [f"{reason}: {', '.join(names)}" for reason, names in by_reason.items()])


def _spot_row(number: int, spot: memory.Spot) -> dict[str, object]:
    timing, is_baseline = spot.timing, spot.timing.variant == spot.timing.baseline
    return {
        "no.": number,
        "variant": spot.variant,
        "speed-up [interval]": "1× (baseline)" if is_baseline else words.effect(timing),
        "confidence": "–" if is_baseline else words.percent(1 - spot.alpha),
        "rounds": "–" if is_baseline else str(timing.rounds),
        "memory": words.size(spot.amount),
        "rank": spot.rank,
        "note": "; ".join(timing.said),
    }


def show_policies(here: Sequence[memory.Policy]) -> None:
    kind = state.choose("Held", memory.HELD, "held")
    shown = [one for one in here if any(kind in step.measured for step in one.steps)]
    if shown:
        blocks.plot(figures.policies(shown, kind, state.colours()), _policy_sentence(shown, kind), "policies")
        longest = max(one.longest for one in shown)
        st.caption(
            f"After serving 1, 2, 4, … prompts of different length, evenly spread up to {longest:,} tokens. "
            "Dots are the live tensors of the running model; lines are the memory to expect by the policy alone. Where "
            "dots lie on their line, the policy explains every byte. Counted once, exactly: no interval."
        )
    if rows := [_policy_row(one) for one in here if one.steps]:
        st.caption("After the most lengths: measured, and computed from the policy")
        blocks.table(rows, "Bytes held by each variant after the most lengths")
    blocks.notes("Not swept to the end", [f"{one.row.variant}: {one.row.reason}" for one in here if one.row.reason])


def _policy_sentence(shown: Sequence[memory.Policy], kind: str) -> str:
    parts = []
    for policy in shown:
        steps = [step for step in policy.steps if kind in step.measured]
        first, last = steps[0].measured[kind], steps[-1].measured[kind]
        grown = f", {last / first:.3g} times what one length needs" if first > 0 else ""
        parts.append(
            f"{policy.row.variant} {words.size(last)} "
            f"({memory.percent_of(last, policy.row.weights_bytes)} of the weights{grown})"
        )
    return f"{memory.HELD[kind]} after {max(policy.steps[-1].lengths for policy in shown)} lengths: {'; '.join(parts)}."


def _policy_row(policy: memory.Policy) -> dict[str, object]:
    last = policy.steps[-1]

    def cell(kind: str) -> str:
        measured, computed = last.measured.get(kind), last.computed.get(kind)
        if measured is None or computed is None:
            return words.size(measured)
        return words.size(measured) + (" = computed" if computed == measured else f", computed {words.size(computed)}")

    total = memory.percent_of(last.measured.get("caches"), policy.row.weights_bytes)
    return {
        "variant": policy.row.variant,
        "lengths": last.lengths,
        "masks": cell("mask"),
        "keys and values": cell("kv"),
        "RoPE tables": cell("rope"),
        "together, of the weights": total,
        "weights": words.size(policy.row.weights_bytes),
    }
