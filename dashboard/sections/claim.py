"""What the pages about claims share: which claim the URL means, its headline, its forest plot, links to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from llama_workbench.harness.report.causes import changes
from llama_workbench.harness.report.comparison import Screen
from llama_workbench.harness.report.machines import machine_count, spread_text
from llama_workbench.harness.spec.words import SIDES
from llama_workbench.harness.store.files import MACHINES
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.verdict_schema import Effect, OverMachines, Pooled

from .. import state, words
from ..export import evidence
from ..export.evidence import causes_html, costs_html, css_variables, diff_html
from ..views import data, outcomes, samples
from . import blocks, head

PLACES = ("claim", "part", "row")
"""What the URL says of a claim; another one has other ones."""


def open_claims(title: str) -> state.Opened | None:
    """The run that the URL names, if it has claims; None where there is nothing to show, and the page says why."""
    opened = head.open_run(title, over_machines=True)
    if opened is not None and not opened.run.claims:
        blocks.info("This run was made without claims, so there is no verdict.")
        return None
    return opened


def wanted(run: data.Run, claims: Sequence[data.Claim]) -> int | None:
    """Which of these claims `?claim=` and `?part=` mean, without that part its main one; None where there is none."""
    name, part = st.query_params.get("claim"), st.query_params.get("part", "")
    parts = [claim for claim in claims if claim.claim == name]
    if not parts:
        return None
    shown = next((claim for claim in parts if claim.part == part), outcomes.main_part(run, parts))
    return next(place for place, claim in enumerate(claims) if claim is shown)


def warn_of_unknown(claims: Sequence[data.Claim]) -> None:
    """Says so where the URL names a claim, or a part of one, that the run does not have."""
    name, part = st.query_params.get("claim"), st.query_params.get("part", "")
    parts = [claim.part for claim in claims if claim.claim == name]
    if name is not None and not parts:
        blocks.warn(
            f"This run has no claim {name}. It has: {words.some(list(dict.fromkeys(c.claim for c in claims)))}."
        )
    elif part and part not in parts:
        there = f"It has: {words.some(parts)}." if any(parts) else "It has no parts."
        blocks.warn(f"The claim {name} has no part {part}. {there}")


def choose(opened: state.Opened) -> data.Claim:
    """The claim of the URL, else the headline's, of a run that has claims."""
    run, claims = opened.run, opened.run.claims
    asked = wanted(run, claims)
    warn_of_unknown(claims)
    looks = [outcomes.look_of(each).word.lower() for each in claims]
    titles = [f"{name} · {look}" for name, look in zip(names(claims), looks, strict=True)]
    st.session_state["claim"] = outcomes.main_claim(run, claims) if asked is None else asked

    def changed() -> None:
        follow(claims[st.session_state["claim"]])

    return claims[
        st.selectbox("Claim", range(len(claims)), key="claim", on_change=changed, format_func=titles.__getitem__)
    ]


def to_look_inside(run: data.Run, claim: data.Claim) -> list[Effect]:
    """What was timed or profiled on a workload and can be looked into; empty where nothing was."""
    inside = claim.metric.inside if claim.metric else "effects"
    if inside == "workloads":  # its one row spans several workloads, and each of them was timed
        asked = claim.hypothesis
        names: dict[str, Any] = {"variant": asked.variant, "baseline": ", ".join(asked.baseline), "metric": "cpu time"}
        return [data.unasked(workload=name, named=run.named(name), **names) for name in asked.workloads]
    if inside == "nothing" or run.manifest.machines:
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
    with_profile = [number for number, effect in numbered.items() if (effect.workload, effect.variant) in profiled]
    here = [number for number, effect in numbered.items() if effect.workload == wanted]
    default = next(iter([*here, *with_profile]), None)
    chosen = state.choose(
        "Look inside", labels, "row", default=default, also=lambda number: {"workload": numbered[number].workload}
    )
    return numbered[chosen]


def follow(claim: data.Claim | None) -> None:
    """Make this the URL's claim, or none. All at once: each change of the URL is a step of the browser's way back."""
    kept = {name: st.query_params.get_all(name) for name in st.query_params if name not in PLACES}
    st.query_params.from_dict({**kept, **(_place(claim) if claim else {})})


def link(run_name: str, claim: data.Claim) -> dict[str, str]:
    """The query of a link to this claim."""
    return {"run": run_name} | _place(claim)


def _place(claim: data.Claim) -> dict[str, str]:
    return {"claim": claim.claim} | ({"part": claim.part} if claim.part else {})


def names(claims: Sequence[data.Claim]) -> list[str]:
    """A different plain name for each claim: Streamlit tells options apart by what they show."""
    names: list[str] = []
    for claim in claims:
        name = words.clip(full_title(claim), 140)
        names.append(name if name not in names else f"{name} [{claim.claim} {len(names) + 1}]")
    return names


def full_title(claim: data.Claim) -> str:
    """Its title, with its part where it has several, and its threshold."""
    return claim.with_threshold(f"{claim.title} ({claim.part})" if claim.part else claim.title)


def titled(look: words.Appearance, text: str) -> str:
    """A title with its verdict in front, in colour and with an icon, as Markdown."""
    return f":{look.colour}[:material/{look.icon}: {words.markdown(look.word)}:] {words.markdown(text)}"


def headline(run: data.Run) -> str:
    """The run's headline, with an icon in the colour of its answer, as Markdown."""
    answer = outcomes.answer_of(run)
    line = next((line for line in answer.lines if line.sentence == answer.headline), None)
    if line is None:
        return words.markdown(answer.headline)
    shown = outcomes.look_of_line(line)
    icon, effect = f":{shown.colour}[:material/{shown.icon}:]", words.markdown(line.effect)
    word = f":{shown.colour}[{words.markdown(line.said)}]"
    return f"{icon} {words.markdown(line.question)} {effect}{': ' if effect else ''}{word}."


def download(run: data.Run, claim: data.Claim) -> None:
    """A button that gives the claim's evidence as one file."""
    st.download_button(
        "This claim's evidence as one HTML file" if claim.who else "This as one HTML file",
        data=lambda: evidence.evidence_html(run, claim),
        file_name=f"{evidence.file_name(claim)}.html",
        mime="text/html",
        icon=":material/download:",
        on_click="ignore",
    )


def show_forest(claim: data.Claim, floors: Mapping[str, data.Floor]) -> None:
    """Every effect of the claim with its interval, of an attribution both sides and their sum."""
    if claim.is_factorial:
        sums = tuple(effect for effect in claim.effects if effect.factor in SIDES)
        claim = replace(claim, effects=sums, region=None)
    if len({effect.sides for effect in claim.effects}) == 1:
        blocks.caption(claim.effects[0].sides)
    blocks.forest_plot(claim, "forest", floors)


# -- one comparison on one screen -------------------------------------------------------------------------------------


def screens_of(opened: state.Opened, claim: data.Claim) -> list[Screen]:
    """The screens of a comparison or a claim, one for each effect on a time; none where files cannot be read, and the
    page says so."""
    asked = claim.claim, claim.part
    return blocks.computed("The processes cannot be shown.", opened, samples.read_screens, *asked) or []


def show_screen(screen: Screen, number: int = 0) -> DeltaGenerator:
    """The whole screen; gives its left column, which has room for more. `number`: of several on one page."""
    look = screen.way.look
    st.header(
        f":{look.colour}-badge[{look.word}] {words.markdown(screen.headline)}",
        anchor="answer" if not number else f"answer-{number}",
    )
    left, right = st.columns(2, gap="large")
    with left:
        show_advice(screen)
    with right:
        show_costs(screen)
    show_why(screen, number)
    return left


def show_advice(screen: Screen, *, decided: bool = False, there: bool = False) -> None:
    """What to do, apart from each other whether there is a difference and whether it matters, and that the answers are
    right. `decided`: whether what was asked needs no more of this comparison. `there`: whether it is one of several."""
    first = {} if decided and not screen.is_known else {"What to do there" if there else "What to do": screen.advice}
    judged = {"Significant": screen.significance, "Relevant": screen.relevance, "Correct": screen.same}
    _tell(first | judged)
    with st.expander("How sure, and how it ran"):
        sentences = screen.told | {"How sure": screen.certainty}
        _tell({name: sentences.get(name, "") for name in ("How sure", "As it ran", "What is measured")})


def _tell(sentences: Mapping[str, str]) -> None:
    for name, text in sentences.items():
        if text:
            st.markdown(f"**{name}:** {words.markdown(text)}")


def show_costs(screen: Screen) -> None:
    """What a call costs on both sides."""
    _html(costs_html(screen))


def show_why(screen: Screen, number: int = 0, *, with_costs: bool = False) -> None:
    """The places that make up the difference, and beside them the code of both sides; nothing where nobody looked.
    `with_costs`: below them what a call costs."""
    explained = screen.explained
    left, right = st.columns([2, 3], gap="large")
    if explained is not None:
        with left:
            blocks.header("Why", anchor=f"why-{number}" if number else "why", within=True)
            blocks.say(screen.why)
            _html(causes_html(changes(explained, screen.effect), screen.effect.variant))
        with right:
            _html(diff_html(explained))
    if with_costs:
        with left:
            show_costs(screen)


def _html(text: str) -> None:
    """HTML of ours, in the page's colours."""
    if text:
        st.html(f'<div style="{css_variables(state.colours())}">{text}</div>')


# -- several machines --------------------------------------------------------------------------------------------------


def show_machines(opened: state.Opened, claim: data.Claim) -> bool:
    """The claim by kind of machine, and the mean over them; False, and nothing shown, where no two machines measured
    it."""
    over = blocks.computed("What holds over the machines cannot be read.", opened, read_over) or []
    name = claim.claim, claim.part or claim.title * claim.is_comparison
    asked = [row for row in over if (row.claim, row.part) == name]
    if not (rows := [line for row in asked if row.mean is not None for line in machine_rows(row, row.mean)]):
        return False
    blocks.table(rows, f"{claim.title}: a row a kind of machine, and one for their mean")
    blocks.caption(
        "Several machines of one kind are averaged. The mean is over what is true on each of these machines, and says "
        f"nothing about others. Each interval holds with {words.percent(1 - asked[0].alpha)} confidence."
    )
    for row in asked:
        place = row.workload or row.metric
        blocks.caption(f"{place}: {spread_text(row)}")
    return True


def read_over(run: data.Run) -> list[OverMachines]:
    """machines.json; nothing where the run is of one machine. Raises RunError."""
    folder = RunFolder(run.path)
    if not run.manifest.machines or not folder.has(MACHINES):
        return []
    over: list[OverMachines] = folder.read(MACHINES)
    return over


def machine_rows(row: OverMachines, mean: Pooled) -> list[dict[str, object]]:
    """One effect, by kind of machine and as their mean."""
    sides = {"on": row.workload or row.metric, "against": row.baseline}
    pooled: list[tuple[str, Pooled, int, str]]
    pooled = [(kind.kind, kind, kind.rounds, kind.verdict.look.word) for kind in row.kinds]
    pooled.append((f"mean of these {machine_count(row)} machines", mean, sum(kind.rounds for kind in row.kinds), ""))
    rows: list[dict[str, object]] = []
    for name, over, rounds, word in pooled:
        value = replace(data.unasked(unit=row.unit), ratio=over.ratio, low=over.low, high=over.high)
        numbers = {"value [interval]": words.effect(value), "rounds": rounds, "verdict": word}
        rows.append({**sides, "machine": name, **numbers})
    return rows
