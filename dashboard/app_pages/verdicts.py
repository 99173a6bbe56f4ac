"""Verdicts: choose a run and a claim; see what was claimed, what was measured, and the evidence.

The URL holds every choice (`?run=…&claim=…&part=…&row=…`), so that a link leads to the same picture: each run of the
script first sets the widgets from the URL, and a widget that changes writes itself there.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import data, flame_parts, memory_parts, parts, words
from llama_workbench.dashboard.figures import forest, forest_rows
from llama_workbench.harness.report import duration_text


def main() -> None:
    opened = parts.open_run("Verdicts")
    if opened is None:
        return
    run = opened.run
    if not run.claims:
        st.info("This run was made without claims, so there is no verdict.", icon=":material/info:")
        return
    left, right = st.columns([4, 7], gap="large")
    with left:
        claim = choose_claim(run.claims)
    with right:
        show_claim(run, claim)
    if claim.effects:
        show_evidence(run, claim, opened.stamp)
    show_how(run, claim)


# -- choosing ----------------------------------------------------------------------------------------------------


def choose_claim(claims: Sequence[data.Claim]) -> data.Claim:
    """The claim of `?claim=` (and `?part=`), else the first."""
    wanted, part = st.query_params.get("claim"), st.query_params.get("part", "")
    same_id = [index for index, claim in enumerate(claims) if claim.id == wanted]
    if wanted is not None and not same_id:
        st.warning(f"This run has no claim {words.markdown(wanted)}.", icon=":material/warning:")
    st.session_state["claim"] = next(
        (index for index in same_id if claims[index].part == part), same_id[0] if same_id else 0
    )

    def follow() -> None:
        claim = claims[st.session_state["claim"]]
        st.query_params["claim"] = claim.id
        for name in ("part", "row"):
            st.query_params.pop(name, None)
        if claim.part:
            st.query_params["part"] = claim.part

    names = claim_names(claims)
    index = st.radio(
        counts(claims),
        range(len(claims)),
        key="claim",
        format_func=lambda index: f"{parts.verdict_word(claims[index].verdict)} {names[index]}",
        captions=[claim_caption(claim) for claim in claims],
        on_change=follow,
        width="stretch",
    )
    return claims[index if index is not None else 0]


def counts(claims: Sequence[data.Claim]) -> str:
    """How many of each verdict, as Markdown, in the fixed order of `words.LOOKS`."""
    found = [claim.verdict for claim in claims]
    order = [*words.LOOKS, *found]
    kinds = sorted(set(found), key=order.index)
    return "Claims: " + " · ".join(
        f":{words.look(kind).colour}[{found.count(kind)} {words.markdown(words.look(kind).word.lower())}]"
        for kind in kinds
    )


def claim_names(claims: Sequence[data.Claim]) -> list[str]:
    """A different name for each claim: Streamlit tells options apart by what they show."""
    names: list[str] = []
    for claim in claims:
        name = words.markdown(words.clip(f"{claim.title} ({claim.part})" if claim.part else claim.title, 140))
        names.append(name if name not in names else f"{name} {words.markdown(f'[{claim.id} {len(names) + 1}]')}")
    return names


def claim_caption(claim: data.Claim) -> str:
    """Under a claim in the list: who claimed what, and what was measured."""
    who = ", ".join(claim.who)
    said = words.clip(f"{who} claimed {claim.claimed}" if who and claim.claimed else who, 100)
    return words.markdown(" · ".join(part for part in (said, data.measured(claim)) if part))


# -- the first screen ----------------------------------------------------------------------------------------------


def show_claim(run: data.Run, claim: data.Claim) -> None:
    st.header(words.markdown(claim.title), anchor=False)
    if claim.statement and claim.statement != claim.title:
        st.text(claim.statement)
    said = [f"Said by {', '.join(claim.who)}" if claim.who else "", claim.source, claim.part and f"part: {claim.part}"]
    if any(said):
        st.caption(words.markdown(" · ".join(part for part in said if part)))
    with st.container(border=True, gap="xsmall"):
        meaning = data.sentence(claim)
        st.markdown(f"{parts.verdict_word(claim.verdict)}{': ' if meaning else ''}{words.markdown(meaning)}.")
        if claim.reason:
            st.caption(words.markdown(claim.reason))
    if not claim.effects:
        return
    sides = {(effect.variant, effect.baseline) for effect in claim.effects}
    if len(sides) == 1:
        st.caption(words.markdown(claim.effects[0].sides))
    st.plotly_chart(
        forest.forest(claim, run.floors, parts.colours()),
        config=parts.PLOT,
        alt=forest_rows.in_words(claim, run.floors),
        key="forest",
    )
    if claim.unit:
        st.caption("Blue is the claimed range. What was counted or tried is exact and has no interval.")
        return
    region = "the margin within which two variants count as the same" if claim.is_comparison else "the claimed range"
    floor = (
        "Grey is the A/A floor: what this machine made of identical code on that workload."
        if any(effect.workload in run.floors for effect in claim.effects)
        else "This run has no A/A control on these workloads, so no floor is drawn."
    )
    together = f" With {words.percent(1 - run.alpha)} confidence all of this run hold at once." if run.alpha else ""
    st.caption(f"Blue is {region}. {floor} Intervals keep their confidence however often one looks at them.{together}")


# -- evidence ----------------------------------------------------------------------------------------------------


def show_evidence(run: data.Run, claim: data.Claim, stamp: data.Stamp) -> None:
    st.header("Evidence", anchor="evidence")
    show_numbers(run, claim)
    if not any(effect.workload for effect in claim.effects):
        return  # what was counted or tried has no time and no memory
    effect = choose_effect(run, claim)
    sides = [side for side in dict.fromkeys([effect.baseline, effect.variant]) if side]
    st.subheader("Where the time goes", anchor="time")
    flame_parts.show(run, stamp, effect.workload, sides, effect.baseline)
    st.subheader("Memory", anchor="memory")
    memory_parts.show(run, effect.workload, sides, effect.baseline)


def show_numbers(run: data.Run, claim: data.Claim) -> None:
    table = pd.DataFrame(
        [
            {
                "workload": effect.workload,
                "variant": effect.variant,
                "baseline": effect.baseline,
                "verdict": words.look(effect.verdict).word,
                "clock": effect.metric,
                claim.unit or "speed-up": effect.value,
                "low": effect.low,
                "high": effect.high,
                "A/A floor": f"{floor.low:.4f} – {floor.high:.4f}"
                if (floor := run.floors.get(effect.workload))
                else "–",
                "rounds": effect.rounds,
                "seconds": effect.seconds,
            }
            for effect in claim.effects
        ]
    )
    number = st.column_config.NumberColumn(format="%.4g" if claim.unit else "%.4f×")
    st.dataframe(
        table,
        hide_index=True,
        row_height=30,
        column_config={
            claim.unit or "speed-up": number,
            "low": number,
            "high": number,
            "seconds": st.column_config.NumberColumn(format="%.1f s"),
        },
        alt="Effects of the claim, one row for each workload and baseline",
    )
    notes: dict[str, list[str]] = {}
    for effect in claim.effects:
        for note in effect.warnings:
            notes.setdefault(note, []).append(effect.where)
    parts.show_list("Notes", [f"{words.listing(list(dict.fromkeys(where)))}: {note}" for note, where in notes.items()])


def choose_effect(run: data.Run, claim: data.Claim) -> data.Effect:
    """The row of `?row=` (from 1), else the first of which there is a profile, else the first."""
    effects = claim.effects
    if len(effects) == 1:
        return effects[0]
    profiled = {key for key, row in run.profiles.items() if row.get("path")}
    default = next((i for i, effect in enumerate(effects) if (effect.workload, effect.variant) in profiled), 0)
    wanted = st.query_params.get("row", "")
    chosen = int(wanted) - 1 if wanted.isdecimal() and 1 <= int(wanted) <= len(effects) else default
    st.session_state["row"] = chosen

    def follow() -> None:
        st.query_params["row"] = str(st.session_state["row"] + 1)

    index = st.selectbox(
        "Look inside",
        range(len(effects)),
        key="row",
        format_func=lambda i: f"{effects[i].where}: {effects[i].sides}",
        on_change=follow,
    )
    return effects[index if index is not None else default]


# -- how it was measured -------------------------------------------------------------------------------------------


def show_how(run: data.Run, claim: data.Claim) -> None:
    st.header("How it was measured", anchor="how")
    left, right = st.columns(2, gap="large")
    with left:
        st.caption("Measure this claim again")
        st.code(data.reproduce(run, claim), language="bash", wrap_lines=True)
        command = run.manifest.get("command")
        if isinstance(command, list):
            st.caption("This run was made by")
            st.code(shlex.join(str(part) for part in command), language="bash", wrap_lines=True)
    with right:
        seconds = sum(effect.seconds or 0 for effect in claim.effects)
        facts = {
            "Decided by": claim.decided_by,
            "Error rate": f"{words.percent(claim.alpha)} for each comparison, over all rounds and all looks at them",
            "Rounds": f"{sum(effect.rounds for effect in claim.effects)} over {len(claim.effects)} comparisons",
            "Time spent": duration_text(seconds),
            "Noise": run.noise or "no controls in this run",
            "Seed": str(run.manifest.get("seed", "not recorded")),
        }
        st.table({name: words.markdown(value) for name, value in facts.items() if value}, border="horizontal")
    if any(effect.workload for effect in claim.effects):
        st.caption("Checks before timing")
        st.dataframe(
            pd.DataFrame([data.checks(run, effect) for effect in claim.effects]),
            hide_index=True,
            row_height=30,
            alt="Logits gates and operation traces of both sides, one row for each comparison",
        )
    parts.show_list("Left out of this run", run.left_out)
    environment = run.manifest.get("environment")
    if isinstance(environment, dict):
        with st.expander("Environment"):
            st.json(environment, expanded=1)


main()
