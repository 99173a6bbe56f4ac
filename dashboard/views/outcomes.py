"""How a claim stands, as every page and export shows it: its look, its rows, its cost, and the command for it.

The words are those of `harness.report.outcome`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from llama_workbench.harness.report import answer as answers
from llama_workbench.harness.report import outcome as outcomes
from llama_workbench.harness.report.again import command_of
from llama_workbench.harness.report.further import further
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.store.verdict_schema import Verdict

from .. import words
from . import data

LEANS: Mapping[str, str] = {Word.SUPPORTED: "green", Word.REFUTED: "red"}


def look_of(verdict: Verdict) -> words.Appearance:
    """How a verdict is shown; of an open one the word says which kind it is, and the colour which way."""
    word = outcomes.outcome(verdict)
    if verdict.is_open:
        counts = outcomes.tally(verdict)
        sides = outcomes.by_side(verdict.effects) if outcomes.leaning(counts) == Word.SUPPORTED else {}
        return _open_look(answers.words_of_sides(sides) if sides else word, counts)
    shown = verdict.verdict.look
    return shown if word == verdict.verdict else replace(shown, word=words.capital(word))


def _open_look(word: str, counts: Mapping[str, int]) -> words.Appearance:
    shown = Word.INCONCLUSIVE.look
    colour = LEANS.get(outcomes.leaning(counts), shown.colour)
    return replace(shown, word=f"{word[0].upper()}{word[1:]}", colour=colour)


def look_of_all(parts: Sequence[data.Claim]) -> words.Appearance:
    """How the parts of one claim are shown together: as one verdict that has all of their rows."""
    counts = rows_of(parts)
    if lean := leaning(counts):
        return replace(Word.DEPENDS.look, word=words.capital(lean))
    verdicts = {part.verdict for part in parts}
    settled = [word for word in counts if word not in outcomes.UNSETTLED]
    if len(parts) == 1 or not settled or (len(verdicts) == 1 and Word.INCONCLUSIVE not in verdicts):
        return look_of(parts[0])
    if len(settled) > 1 or settled[0] not in LEANS:
        return Word.DEPENDS.look
    if len(counts) == 1:
        return Word(settled[0]).look
    return _open_look(outcomes.settled_text(counts), counts)


def leaning(counts: Mapping[str, int]) -> str:
    """Of rows of which some are supported and some refuted: what most of them are; else empty."""
    supported, refuted = counts.get(Word.SUPPORTED, 0), counts.get(Word.REFUTED, 0)
    if not supported or not refuted:
        return ""
    if supported == refuted:
        return Word.DEPENDS
    return f"mostly {Word.SUPPORTED if supported > refuted else Word.REFUTED}"


def apart(parts: Sequence[data.Claim], main: data.Claim) -> Sequence[data.Claim]:
    """The parts that count: parts on the same rows are answers of which one can be right, so there the main one."""
    return [main] if all(part.effects == main.effects for part in parts) else parts


def rows_of(parts: Sequence[data.Claim]) -> dict[str, int]:
    """How many rows of these parts came out how."""
    return outcomes.counted(word for part in parts for word in outcomes.row_words(part))


def answer_of(run: data.Run) -> answers.Answer:
    """The headline of the run and the lines below it."""
    return answers.answer(run.claims, run.dispute)


def is_about_one(run: data.Run) -> bool:
    """Whether the headline answers one claim, instead of counting how all stand."""
    answer = answer_of(run)
    return any(line.sentence == answer.headline for line in answer.lines)


def main_claim(run: data.Run, claims: Sequence[data.Claim]) -> int:
    """Which of these claims the headline is about; the first where it is about none alone."""
    lines = answers.answer(claims, run.dispute).lines
    return next((place for place, each in enumerate(claims) if lines and each is lines[0].verdict), 0)


def cost(claim: data.Claim) -> str:
    """What an open claim would cost; empty where it is not open, or nobody can say."""
    return outcomes.cost_text(claim) if claim.is_open else ""


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
    return command_of(claim, run.manifest)
