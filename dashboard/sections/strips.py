"""What the first page draws: cards with the headlines, a matrix of claims and workloads, and the teams. Places are
shares of an axis from 0 to 1, and text is text; `strips.js` draws it and knows no numbers.

All ratios lie on one logarithmic axis. A claim stands everywhere as its main part does: that of its headline, else the
first that was measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import streamlit as st

from llama_workbench.harness.report import outcome as outcomes
from llama_workbench.harness.report.answer import Line, Picked, decisions_of, picks_of
from llama_workbench.harness.report.ladder import LadderAdvice, cards_of
from llama_workbench.harness.report.workload_names import parts_of
from llama_workbench.harness.spec.words import SIDES, Word
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.passes import PHASES
from llama_workbench.harness.store.tables import no_rows
from llama_workbench.harness.store.verdict_schema import Effect

from .. import state, words
from ..views import data, forest
from ..views import outcomes as stands
from . import blocks
from . import claim as section

Json = dict[str, Any]

PAGE = "comparison"
"""Where the evidence of a claim is: a file in page_scripts, and the end of its URL."""

_STRIPS = blocks.component("strips", Path(__file__).with_name("strips.js"))

LONGEST = 160
NO_RULE = "Its document states no rule."
MANY = 8
"""Claims, from which on the list of all has a filter."""

MOST_COLUMNS = 7
WIDEST = (0.4, 4.0)
"""Ends of the axis: what lies beyond is drawn at the nearer one, so that small effects are seen beside large ones."""

CHANGE = "What should I change?"

Elsewhere = Mapping[str, str]
"""Claims that this run lacks, with the name of a run that has them."""


def look(shown: words.Appearance) -> Json:
    """Icon, word and colour of a verdict."""
    return {"icon": shown.icon, "colour": shown.colour, "word": words.clip(shown.word, LONGEST)}


# -- the headlines -----------------------------------------------------------------------------------------------------


def cards(run: data.Run, elsewhere: Elsewhere) -> list[Json]:
    """The headline questions with their answers, and what to change; nothing where nobody asked a question."""
    shown = cards_of(run.claims, run.dispute, run.manifest)
    answered = {line.verdict.claim for line in shown.answers}
    if not answered:
        return []
    made = [_card(run, line) for line in shown.answers]
    for question in run.dispute.question:
        if question.card and question.claim not in answered and question.claim in elsewhere:
            asked = words.clip(question.text.replace("{claimed}", "as fast as claimed"), LONGEST)
            made.append({"question": asked, **_there(question.claim, elsewhere)})
    if shown.change:
        made.append(_change(run, shown.change))
    elif shown.to_change and run.dispute.ladder:
        there = _there(run.dispute.ladder.claim, elsewhere)
        made.append({"question": CHANGE, "told": shown.to_change, **there})
    return made


def _card(run: data.Run, line: Line) -> Json:
    place = next(number for number, each in enumerate(run.claims) if each is line.verdict)
    claim = run.claims[place]
    who = words.listing([words.clip(name, 60) for name in claim.who]) if claim.who else "Claimed"
    stand = outcomes.outcome(claim)
    return {
        "short": words.clip(line.card, LONGEST),
        "question": words.clip(line.question, LONGEST),
        "look": look(stands.look_of_line(line)),
        "text": words.clip(line.found, 2 * LONGEST),
        "sentence": words.clip(line.sentence, 4 * LONGEST),
        "said": words.clip(f"{who}: {claim.claimed_here}. {words.capital(stand)}.", 2 * LONGEST),
        "beside": [words.clip(text, 2 * LONGEST) for text in line.beside],
        "index": place,
    }


def _change(run: data.Run, advice: LadderAdvice) -> Json:
    """A table of the steps to take."""
    one_layer = "In brackets: this model has one layer, and a whole model gains less"
    note = f". {one_layer}" if advice.all_of_it else ""
    caption = f"How many times as fast (~1: none proven), and how much more memory, in percent of the weights{note}."
    below = " ".join(filter(None, (caption, advice.not_to_take)))
    return {"question": CHANGE, "rows": advice.rows(), "told": below}


def _there(claim: str, elsewhere: Elsewhere) -> Json:
    """The run that has a claim which this one lacks; empty where none has it."""
    name = elsewhere.get(claim)
    return {"elsewhere": {"run": name, "claim": claim}, "name": name} if name else {}


# -- the matrix --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """The workloads that have a column, and the ends of the axis that all ratios share."""

    columns: tuple[str, ...]
    left: float
    right: float


def grid_of(run: data.Run) -> Grid:
    """Columns for the workloads on which most main claims were measured, in the order of the run."""
    main = main_claims(run)
    counts = Counter(
        name for claim in main for name in {effect.workload for effect in claim.effects if effect.workload}
    )
    often = {name for name, _ in counts.most_common(MOST_COLUMNS) if name}
    listed = dict.fromkeys(one.workload.name for one in run.manifest.experiments)
    columns = [name for name in [*listed, *counts] if name in often]
    ends = [
        end for claim in main if not claim.unit for each in claim.effects for end in (each.lower, each.upper) if end
    ]
    left, right = min([0.8, *ends]), max([1.25, *ends])
    return Grid(tuple(dict.fromkeys(columns)), max(left, WIDEST[0]), min(right, WIDEST[1]))


def matrix(run: data.Run, places: Sequence[int]) -> Json:
    """A row for each claim that has parts at these places. `main`: how many of them are the main ones."""
    grid = grid_of(run)
    groups = list(grouped(run, places).values())
    first = _first(run)
    ticks = forest.ratio_ticks(grid.left, grid.right)
    return {
        "columns": [parts_of(data.experiment(run, name).workload) for name in grid.columns],
        "ticks": [(_share(grid, value), text) for value, text in ticks.items()],
        "rows": [_row(run, grid, [run.claims[place] for place in group], group) for group in groups],
        "main": sum(run.claims[group[0]].claim in first for group in groups),
    }


def _row(run: data.Run, grid: Grid, parts: Sequence[data.Claim], places: Sequence[int]) -> Json:
    main = stands.main_part(run, parts)
    more = f"{len(parts)} parts" if len(parts) > 1 else ""
    return {
        "index": places[parts.index(main)],
        "indices": list(places),
        "look": look(stands.look_of(main)),
        "title": words.clip(main.with_threshold(main.title), LONGEST),
        "sentence": stands.sentence(main),
        "tally": " · ".join(filter(None, (outcomes.tally_text(outcomes.tally(main)), more))),
        **_numbers(grid, main),
        "parts": [_part(run, grid, part, place) for part, place in zip(parts, places, strict=True)],
    }


def _part(run: data.Run, grid: Grid, claim: data.Claim, place: int) -> Json:
    return {
        "index": place,
        "look": look(stands.look_of(claim)),
        "title": words.clip(claim.with_threshold(claim.part or "the whole claim"), LONGEST),
        "sentence": stands.sentence(claim),
        "tally": outcomes.tally_text(outcomes.tally(claim)),
        **_numbers(grid, claim),
        "cost": stands.cost(claim),
        "command": stands.reproduce(run, claim) if claim.verdict == "inconclusive" else "",
    }


def _numbers(grid: Grid, claim: data.Claim) -> Json:
    """The cells of a part, a column each and one for all other workloads, and its strip on the axis."""
    effects = claim.effects
    if claim.is_factorial:  # the two sides stand for the whole grid
        effects = tuple(effect for effect in effects if effect.factor in SIDES[:2])
    here = {name: [effect for effect in effects if effect.workload == name] for name in grid.columns}
    rest = [effect for effect in effects if effect.workload not in here]
    shown = replace(claim, effects=effects, region=None) if claim.is_factorial else claim
    return {
        "cells": [_cell(claim, some) for some in here.values()],
        "rest": [_cell(claim, [effect for effect in rest if effect.verdict == word]) for word in _words_of(rest)],
        "picture": _strip(grid, shown),
    }


def _words_of(effects: Iterable[Effect]) -> list[Word]:
    return list(dict.fromkeys(effect.verdict for effect in effects))


def _cell(claim: data.Claim, effects: Sequence[Effect]) -> Json | None:
    """A mark and the number, of several the span; None where nothing was asked. places: how many workloads they are
    on, in words; of a value without one the number."""
    if not effects:
        return None
    looks = [stands.look_of_row(claim, one.verdict) for one in effects]
    lines = (
        f"{effect.sides} on {effect.where}: {words.effect(effect)}, {look.word.lower()}"
        for effect, look in zip(effects, looks, strict=True)
    )
    shown = looks[0] if len(_words_of(effects)) == 1 else Word.DEPENDS.look
    text, places = _span(effects), len({effect.workload for effect in effects if effect.workload})
    return {
        "icon": shown.icon,
        "colour": shown.colour,
        "text": text,
        "places": f"{places} workload{'s' * (places != 1)}" if places else text,
        "count": len(effects),
        "told": words.clip("; ".join(lines), 12 * LONGEST),
        "workload": effects[0].workload,
    }


def _span(effects: Sequence[Effect]) -> str:
    """The least and the largest number, "7.40 to 20×"; a dash where there is none."""
    known = sorted(effect.value for effect in effects if effect.value is not None)
    ends = " to ".join(dict.fromkeys(map(_number, known[:1] + known[-1:])))
    unit = f" {words.clip(effects[0].unit, 12)}" if effects[0].unit else "×"
    return f"{ends}{unit}" if ends else "–"


def _number(value: float) -> str:
    digits = 3 if 0.9 < value < 1.1 else 2 if abs(value) < 10 else 0
    return f"{value:.{digits}f}"


def _strip(grid: Grid, claim: data.Claim) -> Json | None:
    """The intervals of a part on the axis, with the claimed range and the numbers beyond either end; None of what is no
    ratio, or was not measured."""
    if claim.unit or not any(effect.value for effect in claim.effects):
        return None
    known = [effect for effect in claim.effects if effect.value is not None]
    beyond = ([each for each in known if each.ratio < grid.left], [each for each in known if each.ratio > grid.right])
    region = forest.region(claim)
    low, high = region or (None, None)
    return {
        "same": _share(grid, 1.0),
        "claimed": [_share(grid, low or grid.left), _share(grid, high or grid.right)] if region else None,
        "rows": [_interval(grid, claim, effect) for effect in known],
        "beyond": [_span(some) if some else "" for some in beyond],
        "alt": words.clip(forest.in_words(claim, {}), 1000),
    }


def _interval(grid: Grid, claim: data.Claim, effect: Effect) -> Json:
    shown, side = stands.look_of_row(claim, effect.verdict), f"{effect.factor}, " if effect.factor else ""
    return {
        "at": _share(grid, effect.value or 1.0),
        "low": _share(grid, effect.lower or grid.left),
        "high": _share(grid, effect.upper or grid.right),
        "colour": shown.colour,
        "hollow": shown.symbol.endswith("open"),
        "told": words.clip(f"{side}{effect.where}: {words.effect(effect)}, {shown.word.lower()}", LONGEST),
    }


def _share(grid: Grid, value: float) -> float:
    """Where a ratio lies between the ends, from 0 to 1; what is outside is moved to the nearer end."""
    return round(forest.log_share(value, grid.left, grid.right), 5)


def grouped(run: data.Run, places: Sequence[int]) -> dict[str, list[int]]:
    """Of these places those of a claim's parts by its id, the main claims first, then what has a verdict, then the
    rest."""
    claims, groups = run.claims, _by_claim(run, places)
    first = _first(run)

    def importance(name: str) -> tuple[int, int]:
        kinds = {claims[place].verdict for place in groups[name]}
        if name in first:
            return 0, first.index(name)
        return (1 if kinds & {"supported", "refuted", "depends"} else 2 if kinds & {"inconclusive"} else 3), 0

    return {name: groups[name] for name in sorted(groups, key=importance)}


def _by_claim(run: data.Run, places: Iterable[int]) -> dict[str, list[int]]:
    """Of these places those of each claim's parts by its id."""
    groups: dict[str, list[int]] = {}
    for place in places:
        groups.setdefault(run.claims[place].claim, []).append(place)
    return groups


def main_claims(run: data.Run) -> list[data.Claim]:
    """The parts that the dispute's short table has; where the run has none of them, its first ones."""
    known = {(each.claim, each.part): each for each in run.claims}
    alone = {each.claim: each for each in run.claims if not each.part}
    parts = [known.get((name, part or "")) or alone.get(name) for name, part in run.dispute.headlines()]
    return [each for each in parts if each is not None] or list(run.claims[:MANY])


def _first(run: data.Run) -> list[str]:
    """The claims of the dispute's short table, where the run has none the first ones, in their order."""
    there = {claim.claim for claim in run.claims}
    asked = [name for name, _ in run.dispute.headlines() if name in there]
    return list(dict.fromkeys(asked or (claim.claim for claim in main_claims(run))))


# -- the teams ---------------------------------------------------------------------------------------------------------


def teams(run: data.Run) -> list[Json]:
    """For each team what it said, how that stands, and what its own rules pick."""
    picks = _picks(run)
    main = main_claims(run)
    names = list(dict.fromkeys([*(name for claim in main for name in claim.who), *(pick.rule.team for pick in picks)]))
    return [
        {
            "name": words.clip(name, 60),
            "all": _tally_of(run, name),
            "without": NO_RULE if picks else "",
            "said": _said(run, name, main),
            "picks": [
                {
                    "rule": words.clip(pick.rule.says, 200),
                    "picked": words.capital(pick.done),
                    "by": pick.rule.name,
                    "says": ", ".join(filter(None, (pick.where, pick.rule.document, pick.rule.section))),
                }
                for pick in picks
                if pick.rule.team == name
            ],
        }
        for name in names
    ]


def _said(run: data.Run, name: str, main: Sequence[data.Claim]) -> list[Json]:
    """A team's main claims and those that are refuted, the refuted ones first, each as its row has it."""
    index = {id(each): number for number, each in enumerate(run.claims)}
    first = {claim.claim for claim in main if name in claim.who}
    theirs = [each for each in _claims_of(run, name) if each.claim in first or each.verdict == Word.REFUTED]
    return [
        {
            "look": look(stands.look_of(claim)),
            "text": words.clip(claim.with_threshold(claim.title), LONGEST),
            "index": index[id(claim)],
        }
        for claim in sorted(theirs, key=_rank)
    ]


def _claims_of(run: data.Run, name: str) -> list[data.Claim]:
    """What a team said, each claim by its main part; by its own where others said that one."""
    claims = []
    for group in _by_claim(run, range(len(run.claims))).values():
        parts = [run.claims[place] for place in group]
        own = [part for part in parts if name in part.who]
        if own:
            main = stands.main_part(run, parts)
            claims.append(main if name in main.who else stands.main_part(run, own))
    return claims


def _tally_of(run: data.Run, name: str) -> str:
    """How all of a team's claims stand, on one line: "18 claims: 5 refuted, 3 supported, 10 inconclusive"."""
    theirs = sorted(_claims_of(run, name), key=_rank)
    counts = Counter(claim.word for claim in theirs)
    tally = ", ".join(f"{count} {stands.look_of_word(word).row or word}" for word, count in counts.items())
    return f"{len(theirs)} claim{'s' * (len(theirs) != 1)}: {tally}"


ORDER = (Word.REFUTED, Word.DEPENDS, Word.SUPPORTED, Word.INCONCLUSIVE)
"""In which a team's claims are told; others follow."""


def _rank(claim: data.Claim) -> int:
    return ORDER.index(claim.verdict) if claim.verdict in ORDER else len(ORDER)


def _picks(run: data.Run) -> list[Picked]:
    """What the teams' own rules pick from this run's numbers; nothing where it has none for them."""
    try:
        table = RunFolder(run.path).read_table(PHASES)
    except RunError:
        table = no_rows(PHASES.columns)
    try:
        return picks_of(decisions_of(run.dispute, table, run.claims, run.alpha))
    except ValueError:
        return []


# -- in Streamlit ------------------------------------------------------------------------------------------------------


def show_cards(opened: state.Opened, cards: Sequence[Json]) -> None:
    """The headlines, and what to change."""
    _mount(opened, "answer", {"cards": list(cards)})


def show_claims(opened: state.Opened, shown: Sequence[data.Claim]) -> None:
    """A row for each claim with those of its parts that are shown, and the teams; the URL's claim is unfolded."""
    kept = {id(claim) for claim in shown}
    places = tuple(place for place, claim in enumerate(opened.run.claims) if id(claim) in kept)
    kinds = {claim.range_word for claim in shown}
    content = {
        **state.computed(opened, matrix, places),
        "teams": state.computed(opened, teams),
        "whole": len(places) < len(opened.run.claims),  # what was looked for is not folded
        "claimed": {"margin": "counts as the same", "asked": "asked"}.get("".join(kinds), "claimed"),
        "sure": words.percent(1 - opened.run.alpha),
        "open": section.wanted(opened.run, opened.run.claims),
        "scroll": not state.was_brought("claim"),  # who comes back from another page sees the answer first
    }

    def follow() -> None:
        section.follow(_claim(opened, st.session_state["claims"].open))

    _mount(opened, "claims", content, follow)


def _nothing() -> None:
    """What happens on events that a picture does not have."""


def _mount(
    opened: state.Opened,
    key: str,
    content: dict[str, Any],
    on_open: Callable[[], None] = _nothing,
) -> None:
    """The component with `content`, and links that lead to the evidence within the app."""
    queries = [section.link(opened.name, claim) for claim in opened.run.claims]
    shown = _STRIPS(
        data={"kind": key, "run": opened.name, "queries": queries, "page": PAGE, **content},
        key=key,
        height="content",
        on_go_change=_nothing,
        on_open_change=on_open,
    )
    place = getattr(shown, "go", None)
    if isinstance(place, Mapping) and (claim := _claim(opened, place.get("index"))) is not None:
        workload = place.get("workload")
        here = {"workload": workload} if workload and workload in opened.run.names else {}
        st.switch_page(f"page_scripts/{PAGE}.py", query_params=section.link(opened.name, claim) | here)


def _claim(opened: state.Opened, index: object) -> data.Claim | None:
    """The claim at that place; None for anything that is no place."""
    claims = opened.run.claims
    return claims[index] if isinstance(index, int) and 0 <= index < len(claims) else None
