"""How a claim stands, as every page and export shows it: its look, its rows, its cost, and the command for it.

The words are those of `harness.report.outcome`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llama_workbench.harness.report import answer as answers
from llama_workbench.harness.report import outcome as outcomes
from llama_workbench.harness.report.outcome import command_of, further, trust_of
from llama_workbench.harness.report.text import duration_text
from llama_workbench.harness.spec.words import GIVEN, UNDERSTATED, Word
from llama_workbench.harness.store import schema
from llama_workbench.harness.store.verdict_schema import Effect, Verdict

from .. import words
from . import data

UNDERSTATED_LOOK = replace(
    Word.REFUTED.look, word="Understated", icon="add_circle", colour="green", symbol="cross-thin", row="understated"
)
"""Of what is true, and more than that: a plus in a circle."""

LONGEST_WORD = 160
"""Letters of the word that answers a question, which a dispute may bring."""


def look_of_row(verdict: Verdict, word: Word) -> words.Appearance:
    """How those rows of a verdict are shown that came out as `word`: of one that no row was tested for, as that."""
    if verdict.verdict is Word.NOT_TESTED and word is Word.INCONCLUSIVE:
        return Word.NOT_TESTED.look
    return UNDERSTATED_LOOK if word == Word.REFUTED and verdict.is_understated else word.look


def look_of_word(word: str) -> words.Appearance:
    """How verdicts with this word are shown (see `Verdict.word`)."""
    return UNDERSTATED_LOOK if word == UNDERSTATED else Word(word).look


def look_of(verdict: Verdict) -> words.Appearance:
    """How a verdict is shown; of an open one the word says which kind it is, and the colour which way most of its rows
    are."""
    word = outcomes.outcome(verdict)
    if verdict.is_open:
        counts = outcomes.tally(verdict)
        sides = outcomes.by_side(verdict.effects) if outcomes.leaning(counts) == Word.SUPPORTED else {}
        leaning = Word(outcomes.leaning(counts))
        most = leaning if 2 * counts.get(leaning, 0) > sum(counts.values()) else Word.INCONCLUSIVE
        colour = look_of_row(verdict, most).colour
        word = answers.words_of_sides(sides) if sides else word
        return replace(Word.INCONCLUSIVE.look, word=words.capital(word), colour=colour)
    shown = look_of_row(verdict, verdict.verdict)
    return shown if word == verdict.verdict else replace(shown, word=words.capital(word))


def look_of_line(line: answers.Line) -> words.Appearance:
    """How the answer to a question is shown: as its verdict, with the word that answers it."""
    shown = line.overall.look if line.overall else look_of(line.verdict)
    return replace(shown, word=words.capital(words.clip(line.word, LONGEST_WORD)))


def answer_of(run: data.Run) -> answers.Answer:
    """The headline of the run and the lines below it."""
    return answers.answer(run.claims, run.dispute)


def beside(run: data.Run, claim: data.Claim) -> tuple[str, ...]:
    """What a fair reader needs beside the answer to the question that is asked of this claim; empty where none is."""
    return next((line.beside for line in answer_of(run).lines if line.verdict is claim), ())


def main_claim(run: data.Run, claims: Sequence[data.Claim]) -> int:
    """Which of these claims the headline is about; the first where it is about none alone."""
    lines = answers.answer(claims, run.dispute).lines
    return next((place for place, each in enumerate(claims) if lines and each is lines[0].verdict), 0)


def main_part(run: data.Run, parts: Sequence[data.Claim]) -> data.Claim:
    """Of a claim's parts the one that stands for it: that of its first question or headline, else the first that was
    measured."""
    known = {part.part: part for part in parts}
    asked = [(each.claim, part) for each in run.dispute.question for part in each.parts]
    named = (known.get(part or "") for name, part in [*asked, *run.dispute.headlines()] if name == parts[0].claim)
    return next(filter(None, named), None) or next((part for part in parts if part.effects), parts[0])


def sentence(claim: data.Claim) -> str:
    """Who claimed what and what was measured, in one plain sentence."""
    who = words.capital(words.listing([words.clip(name, 60) for name in claim.who]))
    measured = answers.found_words(claim)
    where = f" ({claim.part})" if claim.part else ""
    if claim.is_comparison or claim.is_condition or claim.is_factorial:
        return words.clip(f"{claim.statement or claim.title} {f'Measured: {measured}.' if measured else ''}", 300)
    said = f"{who} claimed {claim.claimed}{where}" if claim.who and claim.claimed else claim.title
    return words.clip(
        f"{said}; measured: {measured}." if measured else f"{said}; {claim.reason or 'not measured'}.", 300
    )


def meaning(claim: data.Claim) -> str:
    """What the verdict means in plain words, for after the verdict's own word."""
    meaning = claim.verdict.look.meaning.format(claimed=claim.claimed or "not recorded")
    if len(claim.effects) > 1 and claim.verdict in {"supported", "refuted", "faster", "slower", "same"}:
        return f"on every workload {meaning}"
    return meaning


def certainty(run: data.Run, claim: data.Claim) -> str:
    """With what confidence its intervals hold, and what they are over."""
    known = [effect for effect in claim.effects if effect.value is not None and effect.rounds]
    if not known:
        return "There is nothing to be sure of."
    rounds = [effect.rounds for effect in known]
    if all(effect.unit and effect.lower == effect.upper == effect.value for effect in known):
        return f"Exact: counted or tried ({sum(rounds)} in all), so there is no interval."
    least, most = min(rounds), max(rounds)
    spread = f"{least}" if least == most else f"{least} to {most}"
    often = ", however often one looks" if claim.metric is None or not claim.metric.looks_once else ""
    sure = f"{words.percent(1 - claim.alpha)} confidence{often}"
    if claim.verdict in GIVEN:
        sure += f"; the verdict is wrong with at most {words.percent(run.alpha)} probability"
    if claim.metric is not None and not claim.metric.has_confidence:
        return f"Counted {spread} times. The interval is a bound from experience and has no known probability."
    seconds = sum(effect.seconds or 0 for effect in known)
    spent = f", {duration_text(seconds)} of timing" if seconds else ""
    floors = [run.floors[effect.workload] for effect in known if effect.workload in run.floors]
    same = "" if claim.unit else data.identical_code(floors)
    beside = f" On these workloads {same}." if same else ""
    return f"Each interval holds with {sure}. Processes: {spread}{spent}.{beside}"


def how(run: data.Run, claim: data.Claim) -> dict[str, str]:
    """How a claim was measured: facts by name, empty where there is nothing to say."""
    return {
        "How sure": certainty(run, claim),
        "Why": claim.reason,
        "Decided by": claim.decided_by,
        "Trust": trust_of(run.noise).sentence,
        "Seed": "not recorded" if run.manifest.seed is None else str(run.manifest.seed),
    }


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


# -- what the gates found for two sides: the logits, and where their operations differ --------------------------------

_FIRST = re.compile(r"op (\d+) of \d+ / \d+: (.*) against (.*)", re.DOTALL)  # as the worker's gate writes it


@dataclass(frozen=True)
class Traces:
    """Whether two sides ran the same operations: "the same", "differ" or "not compared".

    rows: (what, baseline, variant). counts: (operation, calls of the baseline, of the variant), where they differ.
    """

    state: str
    detail: str = ""  # the first difference, as the run says it
    rows: tuple[tuple[str, str, str], ...] = ()
    counts: tuple[tuple[str, int, int], ...] = ()


def traces(run: data.Run, workload: str, baseline: str, variant: str) -> Traces:
    """Compare two sides by the digests of their op traces, and by what the run says of their first difference."""
    entry = data.experiment(run, workload)
    ours, theirs = entry.traces.get(baseline), entry.traces.get(variant)
    pair = {baseline, variant}
    record = next((row for row in entry.trace_differences[::-1] if {row.baseline, row.variant} == pair), None)
    if record is None and (ours is None or theirs is None):
        return Traces("not compared")
    same = record.same if record else bool(ours and theirs and ours.digest == theirs.digest)
    what = ("operations in a call", "fused attention kernels", "digest of the sequence")
    rows = list(zip(what, _facts(ours), _facts(theirs), strict=True))
    detail = (record and record.detail) or ""
    order = -1 if record and record.baseline == variant else 1  # the run may have compared them the other way round
    if not same and (first := _FIRST.fullmatch(detail)):
        first_side, other = first.groups()[1:][::order]
        rows.append((f"first that differs: number {first[1]}", first_side, other))
    elif not same and detail:
        rows.append(("what differs", detail, ""))
    counts = [(name, b, a) if order < 0 else (name, a, b) for name, a, b in (record and record.counts) or ()]
    return Traces("the same" if same else "differ", detail, tuple(rows), tuple(counts))


def _facts(trace: schema.Trace | None) -> tuple[str, str, str]:
    if trace is None:
        return "", "", ""
    kernels = "not recorded" if trace.attention_kernels is None else ", ".join(trace.attention_kernels) or "none"
    return str(trace.ops), kernels, trace.digest


def gates_row(run: data.Run, effect: Effect) -> dict[str, str]:
    """What the gates found for the two sides of an effect, or for its one side: a row of a table."""
    gates = data.experiment(run, effect.workload).gates
    variant = {"variant": effect.variant, "logits": logits(gates.get(effect.variant))}
    if not effect.baseline:
        return {"workload": effect.where, **variant}
    compared = traces(run, effect.workload, effect.baseline, effect.variant)
    return {
        "workload": effect.where,
        "baseline": effect.baseline,
        "its logits": logits(gates.get(effect.baseline)),
        **variant,
        "operation traces": compared.state + (f": {compared.detail}" if compared.detail else ""),
    }


def logits(gate: schema.Gate | None) -> str:
    """The logits gate of one variant in a few words."""
    if gate is None:
        return "not compared"
    numbers = gate.max_error is not None and gate.tolerance is not None
    error = f" (error {gate.max_error:.1e} of {gate.tolerance:.1e})" if numbers else ""
    return f"{'pass' if gate.passed else 'fail'}{error}"
