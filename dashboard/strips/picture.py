"""What the first page draws, as data: places are shares of an axis from 0 to 1, and text is text.

A strip is one part of a claim: the claimed range, the interval of each of its rows, and where no difference is, on one
axis. `strips.js` draws it and knows no numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from llama_workbench.harness.report import outcome as outcomes
from llama_workbench.harness.report.answer import found_words, told_apart
from llama_workbench.harness.report.decision import Picked, decisions_of, picks_of
from llama_workbench.harness.spec.words import SETTLED, Word
from llama_workbench.harness.store.verdict_schema import Effect

from .. import words
from ..views import breakdown, data, forest
from ..views import outcomes as stands
from ..views.attribution import SIDES

Json = dict[str, Any]

LABEL_SHARE = 0.11  # of the axis, that a label takes
LONGEST = 160
NO_RULE = "Its document states no rule."
MANY = 8
"""Claims, from which on the list of all has a filter."""


def look(shown: words.Appearance) -> Json:
    """Icon, word and colour of a verdict."""
    return {"icon": shown.icon, "colour": shown.colour, "word": words.clip(shown.word, LONGEST)}


def strip(claim: data.Claim, *, named: bool = False) -> Json | None:
    """The picture of one part; None where nothing was measured. named: with the workload beside each interval that
    settles something; of an open one it is told where the mouse is."""
    if claim.is_factorial:  # the two sides stand for the whole grid
        sides = tuple(effect for effect in claim.effects if effect.factor in SIDES[:2])
        claim = replace(claim, effects=sides, region=None)
    if not claim.effects:
        return None
    plan = forest.forest(claim, {})
    exact = all(effect.lower == effect.upper for effect in claim.effects)
    nothing = 1.0 if plan.is_ratio else 0.0 if claim.unit.startswith("%") and not exact else None
    edges = [edge for edge in plan.region or () if edge is not None]
    marked = ([] if nothing is None else [nothing]) + (edges or list(plan.ticks))
    labels = _placed((_share(plan, value), _label(value, claim.unit)) for value in marked)
    if len(labels) < 2:  # one place says nothing of the scale
        labels = _placed([*labels, *((_share(plan, tick), _label(tick, claim.unit)) for tick in plan.ticks)])
    ends = plan.ends(*plan.region) if plan.region else None
    effects = [row.effect for row in plan.rows]
    places = told_apart([effect.workload for effect in effects])
    return {
        "same": None if nothing is None else _share(plan, nothing),
        "claimed": [_share(plan, end) for end in ends] if ends else None,
        "edges": [_share(plan, edge) for edge in edges],
        "labels": labels,
        "rows": [_row(plan, effect, place, named) for effect, place in zip(effects, places, strict=True)],
        "alt": words.clip(forest.in_words(claim, {}), 1000),
    }


def _row(plan: forest.Forest, effect: Effect, place: str, named: bool) -> Json:
    shown = effect.verdict.look
    ends = plan.ends(effect.lower, effect.upper)
    side = f"{effect.factor}, " if effect.factor else ""
    beside = f"{effect.factor} on {place}" if effect.factor else place * (named and effect.verdict in SETTLED)
    return {
        "at": None if effect.value is None else _share(plan, effect.value),
        "low": _share(plan, ends[0]),
        "high": _share(plan, ends[1]),
        "colour": shown.colour,
        "hollow": shown.symbol.endswith("open"),
        "name": words.clip(beside, 40),
        "told": words.clip(f"{side}{effect.where}: {words.effect(effect)}, {shown.word.lower()}", LONGEST),
    }


def _share(plan: forest.Forest, value: float) -> float:
    return round(plan.share(value), 5)


def _placed(labels: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
    """Labels that have room, the first ones first."""
    kept: list[tuple[float, str]] = []
    for share, text in labels:
        if all(abs(share - other) >= LABEL_SHARE for other, _ in kept):
            kept.append((share, text))
    return kept


def _label(value: float, unit: str) -> str:
    if not unit:
        return f"{value:.4g}×"
    return f"{value:.4g} {words.clip(unit, 12)}" if unit.startswith("%") else f"{value:.4g}"


# -- the first screen --------------------------------------------------------------------------------------------------


def first_screen(run: data.Run) -> Json:
    """A strip for each line of the answer, and a column for each team."""
    index = {id(each): number for number, each in enumerate(run.claims)}
    strips, kinds = [], set()
    for line in stands.answer_of(run).lines:
        place = index[id(line.verdict)]
        claim = run.claims[place]
        word = words.clip(line.word, LONGEST)
        strips.append(
            {
                "question": words.clip(line.question, LONGEST),
                "who": words.clip(", ".join(claim.who), LONGEST),
                "look": {**look(stands.look_of(claim)), "word": words.capital(word)},
                "text": words.clip(line.text, 2 * LONGEST),
                "index": place,
                # where workloads disagree, which is which
                "picture": strip(claim, named=len({effect.verdict for effect in claim.effects}) > 1),
            }
        )
        kinds.add(claim.range_word)
    kind = kinds.pop() if len(kinds) == 1 else ""
    claimed = {"margin": "counts as the same", "asked": "asked"}.get(kind, "claimed")
    sure = words.percent(1 - run.alpha)
    return {"strips": strips, "teams": teams(run), "claimed": claimed, "sure": sure}


def main_claims(run: data.Run) -> list[data.Claim]:
    """The parts that the dispute's short table has; where the run has none of them, its first ones."""
    known = {(each.claim, each.part): each for each in run.claims}
    alone = {each.claim: each for each in run.claims if not each.part}
    parts = [known.get((name, part or "")) or alone.get(name) for name, part in run.dispute.headlines()]
    return [each for each in parts if each is not None] or list(run.claims[:8])


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
            "search": f"by {name}" if len(run.claims) > MANY and any(name in claim.who for claim in run.claims) else "",
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
    """A team's main claims, and those others whose every part is refuted, the refuted ones first. Each is told as a
    whole, as the list below does."""
    index = {id(each): number for number, each in enumerate(run.claims)}
    theirs = _of_team(run, name)
    refuted = [key for key, parts in theirs.items() if {part.verdict for part in parts} == {Word.REFUTED}]
    keys = dict.fromkeys([*(claim.claim for claim in main if name in claim.who), *refuted])
    lines = []
    for key in sorted(keys, key=lambda key: _rank(_standing(run, theirs[key]))):
        claim = _main_of(run, theirs[key])
        shown = stands.look_of_all(stands.apart(theirs[key], claim))
        title = words.clip(claim.title, LONGEST)
        lines.append({"look": look(shown), "text": title, "index": index[id(claim)]})
    return lines


def _by_claim(run: data.Run, places: Iterable[int]) -> dict[str, list[int]]:
    """Of these places those of each claim's parts by its id."""
    groups: dict[str, list[int]] = {}
    for place in places:
        groups.setdefault(run.claims[place].claim, []).append(place)
    return groups


def _of_team(run: data.Run, name: str) -> dict[str, list[data.Claim]]:
    """The parts that a team said of each of its claims, by its id."""
    theirs = (place for place, claim in enumerate(run.claims) if name in claim.who)
    return {key: [run.claims[place] for place in group] for key, group in _by_claim(run, theirs).items()}


STANDINGS = (
    "refuted", "mostly refuted", "refuted so far", "depends", "mostly supported", "supported so far", "supported",
)  # fmt: skip
"""How a claim can stand, in the order in which they are told; others follow. So far: a part of it is open."""


KINDS = ("refuted", "refuted in part", "supported", "other")
"""How a claim is counted; in part: some of its rows are."""


def _tally_of(run: data.Run, name: str) -> str:
    """How all of a team's claims stand, on one line: "18 claims: 5 refuted, 8 refuted in part, 5 other"."""
    counts = Counter(_kind(run, parts) for parts in _of_team(run, name).values())
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])
    return f"{counts.total()} claim{'s' * (counts.total() != 1)}: {kinds}"


def _kind(run: data.Run, parts: Sequence[data.Claim]) -> str:
    """How a claim is counted: one of KINDS."""
    standing = _standing(run, parts)
    if standing in (Word.REFUTED, Word.SUPPORTED):
        return standing
    counts = stands.rows_of(stands.apart(parts, _main_of(run, parts)))
    return "refuted in part" if counts.get(Word.REFUTED) else "other"


def _standing(run: data.Run, parts: Sequence[data.Claim]) -> str:
    """How the parts of a claim stand together, by their rows: one of STANDINGS, or "other"."""
    parts = stands.apart(parts, _main_of(run, parts))
    counts = stands.rows_of(parts)
    if lean := stands.leaning(counts):
        return lean
    unsettled = sum(counts.get(word, 0) for word in outcomes.UNSETTLED)
    for word in (Word.SUPPORTED, Word.REFUTED):
        if counts.get(word):
            return f"{word} so far" if unsettled else word
    return "other"


def _rank(standing: str) -> int:
    """The place in STANDINGS; what is not there comes last."""
    return STANDINGS.index(standing) if standing in STANDINGS else len(STANDINGS)


def _picks(run: data.Run) -> list[Picked]:
    """What the teams' own rules pick from this run's numbers; nothing where it has none for them."""
    phases = breakdown.read(run)
    try:
        return picks_of(decisions_of(run.dispute, phases.table, run.claims, run.alpha))
    except ValueError:
        return []


# -- a row for each claim ----------------------------------------------------------------------------------------------


def grouped(run: data.Run, places: Sequence[int]) -> dict[str, list[int]]:
    """Of these places those of a claim's parts by its id, the main claims first, then what has a verdict, then the
    rest."""
    claims, groups = run.claims, _by_claim(run, places)
    first = list(dict.fromkeys(name for name, _ in run.dispute.headlines()))

    def importance(name: str) -> tuple[int, int]:
        kinds = {claims[place].verdict for place in groups[name]}
        if name in first:
            return 0, first.index(name)
        return (1 if kinds & {"supported", "refuted", "depends"} else 2 if kinds & {"inconclusive"} else 3), 0

    return {name: groups[name] for name in sorted(groups, key=importance)}


def rows(run: data.Run, places: Sequence[int], refuted_first: bool = False) -> list[Json]:
    """The claims that have parts at these places, in the order of importance, with those parts inside. With
    `refuted_first` by how they stand before that."""
    groups = list(grouped(run, places).values())
    if refuted_first:
        groups.sort(key=lambda group: _rank(_standing(run, [run.claims[place] for place in group])))
    return [_claim_row(run, [run.claims[place] for place in group], group) for group in groups]


def _main_of(run: data.Run, parts: Sequence[data.Claim]) -> data.Claim:
    """Of a claim's parts the one that stands for it: the headline's, else the first that was measured."""
    known = {part.part: part for part in parts}
    named = (known.get(part or "") for name, part in run.dispute.headlines() if name == parts[0].claim)
    return next(filter(None, named), None) or next((part for part in parts if part.effects), parts[0])


def _claim_row(run: data.Run, parts: Sequence[data.Claim], places: Sequence[int]) -> Json:
    main = _main_of(run, parts)
    counted = stands.apart(parts, main)
    tally = (outcomes.tally_text(stands.rows_of(counted)), f"{len(parts)} parts" if len(parts) > 1 else "")
    return {
        "index": places[0],
        "indices": list(places),
        "look": look(stands.look_of_all(counted)),
        "title": words.clip(main.title, LONGEST),
        "sentence": sentence(main),
        "tally": " · ".join(filter(None, tally)),
        "picture": strip(main),
        "parts": [_part(run, part, place) for part, place in zip(parts, places, strict=True)],
    }


def _part(run: data.Run, claim: data.Claim, place: int) -> Json:
    is_open = claim.verdict == "inconclusive"
    return {
        "index": place,
        "look": look(stands.look_of(claim)),
        "title": words.clip(claim.part or "the whole claim", LONGEST),
        "sentence": sentence(claim),
        "tally": outcomes.tally_text(stands.rows_of([claim])),
        "picture": strip(claim),
        "cost": stands.cost(claim),
        "command": stands.reproduce(run, claim) if is_open else "",
    }


def sentence(claim: data.Claim) -> str:
    """Who claimed what and what was measured, in one plain sentence."""
    who = words.capital(words.listing([words.clip(name, 60) for name in claim.who]))
    measured = found_words(claim)
    where = f" ({claim.part})" if claim.part else ""
    if claim.is_comparison or claim.is_condition or claim.is_factorial:
        return words.clip(f"{claim.statement or claim.title} {f'Measured: {measured}.' if measured else ''}", 300)
    said = f"{who} claimed {claim.claimed}{where}" if claim.who and claim.claimed else claim.title
    return words.clip(
        f"{said}; measured: {measured}." if measured else f"{said}; {claim.reason or 'not measured'}.", 300
    )
