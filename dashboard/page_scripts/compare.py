"""Compare: any two variants that a run timed in the same rounds, whether or not anybody claimed anything about them."""

from __future__ import annotations

import shlex

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.flames import section as flames
from llama_workbench.dashboard.sections import blocks, claim, head, named, sides
from llama_workbench.dashboard.views import breakdown, data, gates, outcomes, samples, why
from llama_workbench.harness.spec.entered import EnteredName
from llama_workbench.harness.stats.samples import tokens_per_second


def main() -> None:
    opened = head.open_run("Compare")
    if opened is None:
        return
    timed = blocks.computed(sides.UNREADABLE, opened, samples.timed_together)
    if timed is None:
        return
    baselines = {experiment.baseline for experiment in opened.run.manifest.experiments}
    names = sorted(  # the baselines of its workloads first, controls last
        {name for groups in timed.values() for group in groups for name in group},
        key=lambda name: (EnteredName(name).is_control, name not in baselines, name),
    )
    if len(names) < 2:
        blocks.info("This run timed no two variants, so there is nothing to compare.")
        return
    left, right = st.columns(2, gap="large")
    with left:
        asked = (
            opened.run.claims[outcomes.main_claim(opened.run, opened.run.claims)].effects if opened.run.claims else ()
        )
        usual = next((one for one in asked if one.baseline in names and one.variant in names), None)
        baseline = state.choose("Baseline", names, "baseline", default=usual.baseline if usual else None)
    together = {name for groups in timed.values() for group in groups if baseline in group for name in group}
    others = sorted((name for name in names if name != baseline), key=lambda name: name not in together)
    with right:
        if st.query_params.get("variant") == baseline:  # the other side was set to what this one was
            st.query_params.pop("variant")
        variant = state.choose(
            "Variant", others, "variant", default=usual.variant if usual and usual.baseline == baseline else None
        )
    if variant not in together:
        blocks.info(
            f"{variant} and {baseline} were never timed in the same rounds of this run, so there is no sound ratio "
            "between them. This command makes a run that times them together:"
        )
        blocks.command(shlex.join(["pytest", "--benchmark", "--compare", baseline, variant]))
        return
    versus = blocks.computed(sides.UNREADABLE, opened, samples.versus, baseline, variant)
    if versus is not None:
        show_comparison(opened, versus, baseline, variant)


def show_comparison(opened: state.Opened, versus: samples.Versus, baseline: str, variant: str) -> None:
    run, compared = opened.run, versus.claim
    look = outcomes.look_of(compared)
    st.header(claim.titled(look, f"{variant} against {baseline}"), anchor="answer")
    blocks.name_tab(f"{look.word}: {variant} against {baseline}")
    state.add_heading("Answer", "answer")
    claim.show_answer(opened, compared, why.explain(run, compared, state.computed(opened, breakdown.read)))
    named.show_cards(run, [baseline, variant], [effect.workload for effect in compared.effects])
    show_worth(compared)
    claim.show_forest(compared, run.floors)
    show_table(run, versus)
    blocks.header("Inside one workload", anchor="inside")
    workload = named.choose_workload(run, [effect.workload for effect in compared.effects])
    [effect] = [effect for effect in compared.effects if effect.workload == workload]
    blocks.header("Process by process", anchor="rounds", within=True)
    sides.show_rounds(versus.rounds[workload], compared, effect)
    sides.show_same(run, workload, baseline, variant)
    if not run.is_of_functions:
        checked = gates.row(run, effect)
        blocks.caption(
            f"Logits against the library's: {baseline} {checked['its logits']}, {variant} {checked['logits']}"
        )
    blocks.header("Where the time goes", anchor="time", within=True)
    flames.show(opened, workload, [baseline, variant], baseline)
    blocks.header("Memory", anchor="memory", within=True)
    sides.show_memory(run, workload, [baseline, variant], baseline)
    blocks.header("Measure these two again", anchor="again")
    blocks.command(outcomes.reproduce(run, compared))


def show_worth(compared: data.Claim) -> None:
    """What such a ratio is worth: its confidence, and that it belongs to no claim."""
    count = len(compared.effects)
    intervals = (
        f"Each of the {count} intervals, one for each workload that timed both," if count > 1 else "The interval"
    )
    st.caption(
        f"No claim says anything of this pair. {intervals} has {words.percent(1 - compared.alpha)} confidence, and "
        "the answer is wrong with at most 1 % probability. But whoever looks at many pairs and picks the most striking "
        "one finds something by chance. To settle it, make a claim of it and measure again."
    )


def throughput(run: data.Run, workload: str, call_ns: float | None) -> float | None:
    """Tokens generated per second by a call of that time; None for a workload that generates none."""
    shape = data.experiment(run, workload).workload
    if not (call_ns and shape.new_tokens and shape.batch):
        return None
    return tokens_per_second(call_ns, new_tokens=shape.new_tokens, batch=shape.batch)


def show_table(run: data.Run, versus: samples.Versus) -> None:
    """One row a workload: ratio, interval, floor, gates, traces, and absolute times of this machine."""
    rows = [
        {
            "workload": effect.where,
            "speed-up": effect.value,
            "low": effect.lower,
            "high": effect.upper,
            "verdict": effect.verdict.look.word,
            "rounds": effect.rounds,
            "identical code": floor.text if (floor := run.floors.get(effect.workload)) else "–",
            "op traces": gates.traces(run, effect.workload, effect.baseline, effect.variant).state,
            "baseline, here": (paired.baseline_ns or 0) / 1e6 or None,
            "variant, here": (paired.variant_ns or 0) / 1e6 or None,
            "baseline, tokens/s": throughput(run, effect.workload, paired.baseline_ns),
            "variant, tokens/s": throughput(run, effect.workload, paired.variant_ns),
            "clock": paired.clock,
        }
        for effect, paired in ((effect, versus.rounds[effect.workload]) for effect in versus.claim.effects)
    ]
    table = pd.DataFrame(rows)
    differing = list(table["workload"][table["op traces"] == "differ"])
    if table["baseline, tokens/s"].isna().all():  # no generation among them
        table = table.drop(columns=["baseline, tokens/s", "variant, tokens/s"])
    if run.is_of_functions:
        table = table.drop(columns=["op traces"])
    formats = dict.fromkeys(("speed-up", "low", "high"), "%.4f×")
    formats |= dict.fromkeys(("baseline, here", "variant, here"), "%.4g ms")
    formats |= dict.fromkeys(("baseline, tokens/s", "variant, tokens/s"), "%.4g")
    blocks.table(table, "The comparison, one row for each workload", formats)
    st.caption(
        "“Here” is the median time of a call in the same rounds. It holds for this machine in this state only: compare "
        "ratios, never milliseconds of two runs."
    )
    blocks.notes(
        "Notes", [f"{effect.where}: {'; '.join(effect.said)}" for effect in versus.claim.effects if effect.said]
    )
    if run.is_of_functions:
        return
    if differing:
        st.markdown(
            f"The op traces differ on {words.markdown(words.listing(differing))}: there the ratio is no evidence on "
            "architecture, since the two sides do different work."
        )


main()
