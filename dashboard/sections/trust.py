"""How far the numbers of one run can be trusted: its A/A checks, its noise, its gates, and its machine."""

from __future__ import annotations

import math
import re

import pandas as pd
import streamlit as st

from llama_workbench.harness.report.outcome import trust_of
from llama_workbench.harness.slices import faces
from llama_workbench.harness.store.verdict_schema import Effect

from .. import state, words
from ..figures import rounds as figures
from ..views import data, gates, noise
from . import blocks

CONTROLS_COMMAND = "pytest --benchmark"
MOST_NAMED = 4
NUMBER = re.compile(r"\d[\d.,]*( (?:ms|s|min|h)\b)?")

FACTS = {
    "cpu_model": "CPU",
    "cores": "cores",
    "cgroup_quota_cores": "cores allowed",
    "governor": "CPU governor",
    "threads": "threads",
    "load_average": "load average before",
    "torch": "torch",
    "malloc": "malloc settings",
    "transparent_huge_pages": "huge pages",
    "memory_bytes": "memory",
    "kernel": "kernel",
    "libc": "C library",
    "python": "Python",
    "commit": "commit",
}


def show(opened: state.Opened) -> None:
    """All of it, the answer first."""
    run = opened.run
    measured = state.computed(opened, noise.read)
    if measured.problem:
        blocks.warn(f"Left out: {measured.problem}")
    trust = trust_of(run.noise)
    st.header(trust.word, anchor="answer")
    blocks.say(" ".join(filter(None, (f"{trust.finding}." if trust.finding else "", trust.means))))
    show_controls(run)
    show_drift(run, measured)
    show_gates(run)
    blocks.notes("Excluded from this run", run.left_out)
    show_warnings(run)
    blocks.header("Environment", anchor="environment")
    facts = {title: words.one_line(run.environment.get(key)) for key, title in FACTS.items()}
    facts["torch"] = facts["torch"] or "not installed"
    if isinstance(memory := run.environment.get("memory_bytes"), int | float):
        facts["memory"] = words.size(memory)
    blocks.facts({title: fact or "cannot be read here" for title, fact in facts.items()})
    with st.expander("All that was recorded"):
        st.json(dict(run.environment), expanded=1)
    for section in faces("section"):
        if section.PAGE == "trust":
            section.show()


def show_controls(run: data.Run) -> None:
    rows = noise.controls(run)
    if not rows:
        blocks.missing("controls (identical code timed against itself)", CONTROLS_COMMAND)
        return
    if seen := noise.could_see(run.claims):
        blocks.answer("How small a difference could be seen?", seen)
    unbounded = list(dict.fromkeys(control.workload for control in rows if math.isinf(noise.smallest(control))))
    named = words.markdown(words.some([run.named(name) for name in unbounded], "; "))
    not_drawn = f"Not drawn, because of too few rounds: {named}." if unbounded else ""
    blocks.header("Identical code against itself", anchor="controls")
    blocks.forest_plot(noise.as_claim(run), "controls", heading="")
    st.caption(
        "A row has the baseline entered twice, or an identical copy of another variant, timed in the same rounds as "
        "all else. An interval without 1 in it means that the control fired: it reports a difference between identical "
        "code. Half its width is the smallest difference that anybody could have seen there in as many rounds. With "
        f"{words.percent(1 - run.alpha)} confidence all of them hold at once. {noise.checks_saw(rows)} {not_drawn}"
    )


def show_drift(run: data.Run, measured: noise.Noise) -> None:
    """Every round of the baseline or the yardstick."""
    blocks.header("Noise over the run", anchor="noise")
    baselines = {experiment.workload.name: experiment.baseline or "" for experiment in run.manifest.experiments}
    frame = noise.drift(measured, baselines)
    frame = frame.assign(workload=frame["workload"].map(run.named))
    if frame.empty:
        blocks.missing("timed rounds", CONTROLS_COMMAND)
        return
    text = figures.drift_text(frame)
    whose = "the baseline"
    if not run.is_of_functions:
        whose = "the baseline or the reference benchmark (code that is never edited), whichever was in more rounds"
    blocks.plot(figures.drift(frame, state.colours()), text, "drift")
    blocks.caption(
        f"{text} A point is one round: the median time of a call of {whose}, over its own median. A step means that "
        "the machine changed its speed, a cloud of high points that a neighbour was busy. Both sides of a comparison "
        f"share a round, so most of it cancels. All in all there are {measured.samples:,} samples."
    )


def show_gates(run: data.Run) -> None:
    blocks.header("Do both give the same answers?" if run.is_of_functions else "Are the logits right?", anchor="gates")
    worst = gates.worst(run)
    if worst.empty:
        blocks.missing("gates", CONTROLS_COMMAND)
        return
    failed = list(worst["variant"][worst["passed"] < worst["of"]])
    text = f"{len(worst) - len(failed)} of {len(worst)} variants passed on every workload they ran"
    text += f"; failed: {words.listing(failed[:MOST_NAMED])}" if failed else ""
    name, where, used = worst.iloc[0][["variant", "on", "of tolerance"]]
    if pd.notna(used):
        text += f". The largest error used {used:.2g} % of its tolerance ({name} on {run.named(where)})"
    blocks.say(f"{text}.")
    columns = ["variant", "passed", "of", "cases"]
    if not run.is_of_functions:
        columns += ["worst error", "tolerance", "of tolerance", "on"]
        worst["on"] = [run.named(name) if name else name for name in worst["on"]]
    formats = {"worst error": "%.2e", "tolerance": "%.1e", "of tolerance": "%.3g %%"}
    blocks.table(worst[columns], f"How each variant passed. {text}", formats)
    if not run.is_of_functions:
        st.caption(
            "Logits are a model's scores for the next token. The table has the largest difference of a variant's "
            "logits (of a part of a model: of its output) from the reference's. A variant that fails is not timed."
        )


def show_warnings(run: data.Run) -> None:
    blocks.header("Notes on the effects", anchor="notes")
    groups: dict[str, list[tuple[str, Effect]]] = {}  # by the note without its numbers
    for claim in run.claims:
        for effect in claim.effects:
            for note in effect.said:
                groups.setdefault(NUMBER.sub("…", note), []).append((note, effect))
    if not groups:
        st.text("No effect of this run has a note: nothing voided or widened anything.")
        return
    rows = []
    for group in sorted(groups.values(), key=len, reverse=True):
        where = list(dict.fromkeys(effect.where for _, effect in group))
        verdicts = dict.fromkeys(effect.verdict.look.word.lower() for _, effect in group)
        rows.append(
            {
                "effects": len(group),
                "note, as on the first": group[0][0],
                "their verdicts": ", ".join(verdicts),
                "where": words.some(where, most=MOST_NAMED),
            }
        )
    blocks.table(rows, "Notes on effects, those of one kind together")
    st.caption("The judge's notes; those that differ only in their numbers count as one.")
