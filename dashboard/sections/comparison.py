"""One comparison on one screen: who is faster, what to do, what a call costs, why, and in which lines; and a claim by
machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from llama_workbench.harness.report.causes import CauseRow, changes
from llama_workbench.harness.report.comparison import Screen
from llama_workbench.harness.report.machines import general_text, machine_count, spread_text
from llama_workbench.harness.store.files import MACHINES
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.verdict_schema import OverMachines, Pooled

from .. import state, words
from ..export.evidence import costs_html, css_variables, diff_html
from ..figures.colours import Palette
from ..figures.drawing import Layout, axis, bar_rows, rule
from ..views import data, samples
from . import blocks


def screens_of(opened: state.Opened, claim: data.Claim) -> list[Screen]:
    """The screens of a comparison or a claim, one for each effect on a time; none where files cannot be read, and the
    page says so."""
    asked = claim.claim, claim.part
    return blocks.computed("The processes cannot be shown.", opened, samples.read_screens, *asked) or []


def show(screen: Screen, number: int = 0) -> DeltaGenerator:
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
        blocks.say(screen.between)


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
            if rows := changes(explained):
                drawn = cause_bars(rows, screen.effect.variant, state.colours())
                blocks.plot(drawn, cause_text(rows), f"causes {number}")
        with right:
            _html(diff_html(explained))
    if with_costs:
        with left:
            show_costs(screen)


def _html(text: str) -> None:
    """HTML of ours, in the page's colours."""
    if text:
        st.html(f'<div style="{css_variables(state.colours())}">{text}</div>')


def cause_bars(rows: Sequence[CauseRow], variant: str, colours: Palette) -> go.Figure:
    """To the left what the variant saves, to the right what it costs; above each bar its place and its change."""
    saved, costs = colours.difference[0], colours.difference[-1]
    ends = {
        "type": "data", "symmetric": False, "color": colours.text, "thickness": 1, "width": 4,
        "array": [row.high - row.value for row in rows],
        "arrayminus": [row.value - row.low for row in rows],
    }  # fmt: skip
    bar: Layout = {
        "x": [row.value for row in rows],
        "marker": {"color": [(saved if row.value < 0 else costs) if row.is_told else colours.rule for row in rows]},
        "error_x": ends,
        "hovertext": [f"{words.label(row.name)}<br>{words.label(row)}" for row in rows],
    }
    return bar_rows(
        [(words.label(row.name, 52), words.label(row)) for row in rows],
        [bar],
        colours,
        row_px=42,
        bar_px=12,
        foot_px=42,
        right_px=10,
        shapes=[rule(0, 0, 0, 1, colours.muted, yref="paper")],
        xaxis=axis(
            f"← less time in {words.label(variant, 20)}   [{rows[0].unit} a call]   more →",
            standoff=4,
            gridcolor=colours.rule,
        ),
    )


def cause_text(rows: Sequence[CauseRow]) -> str:
    """The bars in words."""
    return f"Where the difference is. {'; '.join(f'{row.name}: {row}' for row in rows)}."


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
        blocks.caption("; ".join(filter(None, (f"{place}: {spread_text(row)}", general_text(row)))))
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
