"""How a claim stands, as every page and export shows it: its look, its rows, its cost, and the command for it.

The words are those of `harness.report.outcome`, which takes verdicts in the form of verdicts.json.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from llama_workbench.harness.report import answer as answers
from llama_workbench.harness.report import outcome as outcomes
from llama_workbench.harness.report.again import command_again
from llama_workbench.harness.report.further import further
from llama_workbench.harness.report.text import OPEN, Json

from .. import words
from . import data

LEANS = {"right": "green", "wrong": "red"}


def record(claim: data.Claim) -> Json:
    """The claim's verdict in the form of verdicts.json."""
    same = ("who", "title", "statement", "verdict", "reason", "cause", "claimed", "due_to")
    plain = {name: getattr(claim, name) for name in same}
    return plain | {
        "claim": claim.id,
        "part": claim.part or None,
        "region": {"low": claim.low, "high": claim.high},
        "effects": [_effect(effect) for effect in claim.effects],
    }


def _effect(effect: data.Effect) -> dict[str, Any]:
    row = asdict(effect)
    del row["named"]
    if not effect.unit:
        row["ratio"] = row.pop("value")
    more = row.pop("seconds_more")
    return row if more is None else row | {"seconds_more": more if math.isfinite(more) else None}


def look_of(claim: data.Claim) -> words.Appearance:
    """How the claim's verdict is shown; of an open one the word says which kind it is, and the colour which way."""
    return look(record(claim))


def look(verdict: Json) -> words.Appearance:
    """The same for a verdict in the form of verdicts.json."""
    told = outcomes.outcome(verdict)
    if verdict["verdict"] == OPEN:
        counts = outcomes.tally(verdict)
        sides = outcomes.by_side(verdict["effects"]) if outcomes.leaning(counts) == "right" else {}
        return _open_look(answers.words_of_sides(sides) if sides else told, counts)
    shown = words.look(verdict["verdict"])
    return shown if told == verdict["verdict"] else replace(shown, word=words.capital(told))


def _open_look(word: str, counts: Mapping[str, int]) -> words.Appearance:
    shown = words.look(OPEN)
    colour = LEANS.get(outcomes.leaning(counts), shown.colour)
    return replace(shown, word=f"{word[0].upper()}{word[1:]}", colour=colour)


def look_of_all(parts: Sequence[data.Claim]) -> words.Appearance:
    """How the parts of one claim are shown together: as one verdict that has all of their rows."""
    counts = rows_of(parts)
    if lean := leaning(counts):
        return replace(words.look("depends"), word=words.capital(lean))
    verdicts = {part.verdict for part in parts}
    settled = [word for word in counts if word not in outcomes.UNSETTLED]
    if len(parts) == 1 or not settled or (len(verdicts) == 1 and OPEN not in verdicts):
        return look_of(parts[0])
    if len(settled) > 1 or settled[0] not in ALONE:
        return words.look("depends")
    if len(counts) == 1:
        return words.look(ALONE[settled[0]])
    return _open_look(outcomes.settled_text(counts), counts)


def leaning(counts: Mapping[str, int]) -> str:
    """Of rows that are partly right and partly wrong: what most of them are; else empty."""
    right, wrong = counts.get("right", 0), counts.get("wrong", 0)
    if not right or not wrong:
        return ""
    return "both ways" if right == wrong else "mostly right" if right > wrong else "mostly wrong"


def apart(parts: Sequence[data.Claim], main: data.Claim) -> Sequence[data.Claim]:
    """The parts that count: parts on the same rows are answers of which one can be right, so there the main one."""
    return [main] if all(part.effects == main.effects for part in parts) else parts


ALONE = {"right": "supported", "wrong": "refuted"}


def rows_of(parts: Sequence[data.Claim]) -> dict[str, int]:
    """How many rows of these parts came out how."""
    return outcomes.counted(word for part in parts for word in outcomes.row_words(record(part)))


def answer_of(run: data.Run) -> answers.Answer:
    """The headline of the run and the lines below it."""
    return answers.answer(map(record, run.claims), run.dispute)


def main_claim(run: data.Run, claims: Sequence[data.Claim]) -> int:
    """Which of these claims the headline is about; the first where it is about none alone."""
    lines = answers.answer(map(record, claims), run.dispute).lines
    first = (lines[0].verdict["claim"], lines[0].verdict["part"] or "") if lines else None
    return next((place for place, each in enumerate(claims) if (each.id, each.part) == first), 0)


def cost(claim: data.Claim) -> str:
    """What an open claim would cost; empty where it is not open, or nobody can say."""
    return outcomes.cost_text(record(claim)) if claim.verdict == OPEN else ""


def go_on(run: data.Run, claim: data.Claim) -> str:
    """The command that goes on with this run until the claim is settled; empty where more time would not help."""
    return further(run.path, [claim], run.manifest)


def with_profile(run: data.Run, workload: str) -> str:
    """The command of a run that also has profiles and peak memory on this workload."""
    if run.is_of_functions and run.claims:
        return f"{reproduce(run, run.claims[0])} --profile"
    return shlex.join(["pytest", "--benchmark", "--profile", *(["--workloads", workload] if workload else [])])


def reproduce(run: data.Run, claim: data.Claim) -> str:
    """The command that measures this claim again, with what this run chose."""
    return command_again(
        record(claim),
        command=run.manifest.command,
        seed=run.manifest.seed,
        workloads={experiment.workload.name for experiment in run.manifest.experiments},
    )
