"""Claim: one claim with all its evidence, and the command that measures it again.

The URL holds every choice (`?run=…&claim=…&part=…&row=…`).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pandas as pd
import streamlit as st

from llama_workbench.dashboard import state as parts
from llama_workbench.dashboard import words
from llama_workbench.dashboard.export.evidence import evidence as export
from llama_workbench.dashboard.flames import section as flame_parts
from llama_workbench.dashboard.sections import (
    breakdown as phase_parts,
)
from llama_workbench.dashboard.sections import (
    claim as claim_parts,
)
from llama_workbench.dashboard.sections import (
    exact_results as found_parts,
)
from llama_workbench.dashboard.sections import (
    gates as trace_parts,
)
from llama_workbench.dashboard.sections import (
    memory as memory_parts,
)
from llama_workbench.dashboard.sections import (
    rounds as round_parts,
)
from llama_workbench.dashboard.views import answers, data, values
from llama_workbench.dashboard.views import gates as checks
from llama_workbench.dashboard.views import scaling as crossovers
from llama_workbench.harness.report.text import duration_text


class Elsewhere(NamedTuple):
    """The page that shows where a reading comes from."""

    page: str
    label: str
    read: str  # what was read, as a sentence


# By kind of claim (`data.Claim.kind`). No string may stand alone here: Streamlit would show it.
ELSEWHERE = {
    "share": Elsewhere(
        "pages/breakdown.py",
        "Where time goes",
        "A share of the time was read: marked calls were timed phase by phase, beside unmarked ones.",
    ),
    "trend": Elsewhere(
        "pages/scaling.py",
        "Crossover",
        "A trend was read: the gain at each length was timed, and its rise from the shortest to the longest computed.",
    ),
    "inflation": Elsewhere(
        "pages/scaling.py",
        "Crossover",
        "It was read by how much a promise was too high: the promised gain over the gain that was timed.",
    ),
    "attribution": Elsewhere(
        "pages/attribution.py",
        "Attribution",
        "It was read what a speed-up is due to: every combination of the factors was timed in the same rounds.",
    ),
    "loading": Elsewhere(
        "pages/memory.py",
        "Memory",
        "It was read what loading the weights adds to the time to the first token, in percent of that time.",
    ),
    "memory": Elsewhere(
        "pages/memory.py", "Memory", "Memory was read: the bytes that a variant holds, counted tensor by tensor."
    ),
    "roofline": Elsewhere(
        "pages/breakdown.py",
        "Where time goes",
        "It was read what share of this machine's measured peak a call reaches.",
    ),
    "count": Elsewhere("", "", "The source was counted; nothing was timed."),
    "check": Elsewhere("", "", "It was tried whether something works, case by case; nothing was timed."),
    "none": Elsewhere("", "", "Nothing was read: nobody can measure this here."),
}


def main() -> None:
    opened = claim_parts.open_claims("Claim")
    if opened is None:
        return
    run = opened.run
    claim = choose_claim(run.claims)
    show_answer(run, claim)
    if claim.effects:
        claim_parts.show_forest(claim, run.floors, run.alpha)
        show_numbers(run, claim)
    show_reading(opened, claim)
    rows = to_look_inside(claim)
    if rows:
        show_inside(opened, claim, rows)
    show_how(run, claim)


# -- choosing ----------------------------------------------------------------------------------------------------


def choose_claim(claims: Sequence[data.Claim]) -> data.Claim:
    """The claim of `?claim=` (and `?part=`), else the first."""
    claim_parts.warn_of_unknown(claims)
    st.session_state["claim"] = claim_parts.wanted(claims) or 0

    def follow() -> None:
        claim_parts.follow(claims[st.session_state["claim"]])

    shown = claim_parts.names(claims)
    index = st.selectbox(
        "Claim",
        range(len(claims)),
        key="claim",
        format_func=lambda index: f"{shown[index]} · {words.look(claims[index].verdict).word.lower()}",
        on_change=follow,
    )
    return claims[index if index is not None else 0]


def to_look_inside(claim: data.Claim) -> list[data.Effect]:
    """What was timed or profiled on a workload and can be looked into; empty where nothing was."""
    if claim.kind == "trend":  # its one row spans several workloads, and each of them was timed
        workloads = claim.hypothesis.get("workloads")
        empty = data.Effect("", "", "", "cpu time", "", None, None, None, 0, None, "", ())
        variant, baseline = (values.text(claim.hypothesis.get(name)) for name in ("variant", "baseline"))
        return [
            replace(empty, workload=values.text(name), variant=variant, baseline=baseline)
            for name in (workloads if isinstance(workloads, list) else [])
        ]
    if claim.kind in {"attribution", "loading", "count", "check", "none"}:
        return []
    return [effect for effect in claim.effects if effect.workload]


def choose_row(run: data.Run, rows: Sequence[data.Effect]) -> data.Effect:
    """The row of `?row=` (from 1), else the first of which there is a profile, else the first."""
    if len(rows) == 1:
        return rows[0]
    profiled = {key for key, row in run.profiles.items() if row.get("path")}
    default = next((i for i, effect in enumerate(rows) if (effect.workload, effect.variant) in profiled), 0)
    wanted = st.query_params.get("row", "")
    st.session_state["row"] = int(wanted) - 1 if wanted.isdecimal() and 1 <= int(wanted) <= len(rows) else default

    def follow() -> None:
        st.query_params["row"] = str(st.session_state["row"] + 1)

    index = st.selectbox(
        "Look inside",
        range(len(rows)),
        key="row",
        format_func=lambda i: f"{rows[i].where}: {rows[i].sides}",
        on_change=follow,
    )
    return rows[index if index is not None else default]


# -- the answer ----------------------------------------------------------------------------------------------------


def show_answer(run: data.Run, claim: data.Claim) -> None:
    claim_parts.show_headline(claim)
    told = answers.answer(run, claim)
    with st.container(border=True, gap="xsmall"):
        st.markdown(f"{parts.verdict_word(claim.verdict)} {words.markdown(told.who)}")
        for question, said in (("By how much", told.how_much), ("How sure", told.how_sure), ("Why", told.why)):
            if said:
                st.markdown(f":gray[{question}:] {words.markdown(said)}")


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
    with st.expander("The same as a table"):
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


def show_reading(opened: parts.Opened, claim: data.Claim) -> None:
    """Of a claim that is not about two times: what was read, and which page shows it."""
    elsewhere = ELSEWHERE.get(claim.kind)
    if elsewhere is None:
        return
    st.header("What was read", anchor="read")
    st.markdown(words.markdown(elsewhere.read))
    found_parts.show(opened, claim)
    if elsewhere.page:
        query = {"run": opened.name} | place_elsewhere(opened.run, claim)
        st.page_link(
            elsewhere.page, label=elsewhere.label, icon=":material/arrow_forward:", query_params=query, help=""
        )


def place_elsewhere(run: data.Run, claim: data.Claim) -> dict[str, str]:
    """Which choices of the page that shows a reading lead to it, as far as they are known."""
    workload = next((effect.workload for effect in claim.effects if effect.workload), "")
    match claim.kind:
        case "trend" | "inflation":
            asked = claim.hypothesis
            workloads = asked.get("workloads")
            sides = values.text(asked.get("variant")), values.text(asked.get("baseline"))
            return crossovers.link_to(run, *sides, workloads if isinstance(workloads, list) else ())
        case "loading":
            shape = values.mapping(data.experiment(run, workload).get("workload"))
            return {"geometry": geometry} if (geometry := values.text(shape.get("geometry"))) else {}
        case _:
            return {"workload": workload} if workload else {}


# -- inside ----------------------------------------------------------------------------------------------------


def show_inside(opened: parts.Opened, claim: data.Claim, rows: Sequence[data.Effect]) -> None:
    run = opened.run
    st.header("Inside one comparison" if rows[0].baseline else "Inside one reading", anchor="inside")
    effect = choose_row(run, rows)
    sides = [side for side in dict.fromkeys([effect.baseline, effect.variant]) if side]
    if effect.baseline and effect.variant:
        st.subheader("Round by round", anchor="rounds")
        round_parts.show_of_claim(opened, claim, effect)
        st.page_link(
            "pages/compare.py",
            label="Compare the two on every workload",
            icon=":material/compare_arrows:",
            query_params={"run": opened.name, "baseline": effect.baseline, "variant": effect.variant},
            help="",
        )
        st.subheader("Operations of both sides", anchor="operations")
        trace_parts.show(run, effect.workload, effect.baseline, effect.variant)
    if sides:
        st.subheader("Where the time goes", anchor="time")
        phase_parts.show(opened, effect.workload, sides, values.text(claim.hypothesis.get("of")))
        flame_parts.show(run, opened.stamp, effect.workload, sides, effect.baseline)
        st.subheader("Memory", anchor="memory")
        memory_parts.show(run, effect.workload, sides, effect.baseline)


# -- how it was measured -------------------------------------------------------------------------------------------


def show_how(run: data.Run, claim: data.Claim) -> None:
    st.header("How it was measured", anchor="how")
    left, right = st.columns(2, gap="large")
    with left:
        st.caption("Measure this claim again")
        st.code(data.reproduce(run, claim), language="bash", wrap_lines=True)
        st.download_button(
            "This claim's evidence as one HTML file",
            data=lambda: export.evidence_html(run, claim),
            file_name=f"{export.file_name(claim)}.html",
            mime="text/html",
            icon=":material/download:",
            on_click="ignore",
        )
        command = run.manifest.get("command")
        if isinstance(command, list):
            st.caption("This run was made by")
            st.code(shlex.join(str(part) for part in command), language="bash", wrap_lines=True)
    with right:
        seconds = sum(effect.seconds or 0 for effect in claim.effects)
        facts = {
            "Said in": claim.source,
            "Decided by": claim.decided_by,
            "It assumes": "; ".join(claim.assumes),
            "Error rate": f"{words.percent(claim.alpha)} for each interval that has one",
            "Rounds": f"{sum(effect.rounds for effect in claim.effects)} over {len(claim.effects)} rows",
            "Time spent": duration_text(seconds) if seconds else "",
            "Noise": run.noise or "no controls in this run",
            "Seed": str(run.manifest.get("seed", "not recorded")),
        }
        st.table({name: words.markdown(value) for name, value in facts.items() if value}, border="horizontal")
    timed = [effect for effect in to_look_inside(claim) if effect.variant]
    if timed:
        st.caption("Checks before timing: a side counts only if its logits match the library's")
        st.dataframe(
            pd.DataFrame([checks.row(run, effect) for effect in timed]),
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
