"""What other sessions say: the same code on the same machine, measured again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from llama_workbench.harness.spec.words import GIVEN, Word
from llama_workbench.harness.store.folder import RunSummary

from . import data
from .entries import Entry, measured

CHANGED = " with changes"
"""How the commit of a run ends whose code was not committed."""

Answers = Mapping[tuple[str, str], Word]
"""What a session says, by claim and part."""


def sessions_of(name: str, listed: Sequence[Entry]) -> dict[str, Answers]:
    """The sessions of the run of this name among those that are listed, by name; none where its commit is not known, or
    was changed."""
    run = next((entry for entry in listed if entry.name == name), None)
    if run is None or not run.summary.commit or run.summary.commit.endswith(CHANGED):
        return {}
    others = {measured(entry): entry for entry in listed if _same(entry.summary, run.summary)}
    others.pop(measured(run), None)
    asked = _answers_of(run.summary).keys()
    answers = {each.name: _answers_of(each.summary) for each in others.values()}
    return {name: each for name, each in answers.items() if not asked.isdisjoint(each)}


def _same(run: RunSummary, other: RunSummary) -> bool:
    return run.problem is None and (run.commit, run.machine, run.mode) == (other.commit, other.machine, other.mode)


def _answers_of(run: RunSummary) -> dict[tuple[str, str], Word]:
    return {(claim, part): word for claim, part, word in run.claims}


def of_run(claims: Sequence[data.Claim], sessions: Mapping[str, Answers]) -> str:
    """How far they agree with the verdicts of a run, in a sentence; empty where none settles any of these."""
    both = {
        name: [claim.verdict is answers[_part(claim)] for claim in claims if _both_settle(claim, answers)]
        for name, answers in sessions.items()
    }
    both = {name: alike for name, alike in both.items() if alike}
    alike = [each for some in both.values() for each in some]
    if not alike:
        return ""
    count = f"{'all' if all(alike) else f'{sum(alike)} of'} {len(alike)} verdicts"
    if len(both) == 1:
        return f"Another session ({next(iter(both))}) agrees in {count} that both settle."
    return f"{len(both)} other sessions agree in {count} that they settle too."


def _both_settle(claim: data.Claim, answers: Answers) -> bool:
    return claim.verdict in GIVEN and answers.get(_part(claim)) in GIVEN


def of_claim(claim: data.Claim, sessions: Mapping[str, Answers]) -> str:
    """What they say of a claim, in a sentence; empty where none was asked."""
    there = {name: answers[_part(claim)] for name, answers in sessions.items() if _part(claim) in answers}
    if not there:
        return ""
    counts = Counter(_answer(claim.verdict, word) for word in there.values())
    if len(there) == 1:
        return f"Another session ({next(iter(there))}): {next(iter(counts))}."
    return f"{len(there)} other sessions: {', '.join(f'{text} ({count})' for text, count in counts.most_common())}."


def _answer(here: Word, there: Word) -> str:
    return "the same" if here is there else there.look.word.lower()


def _part(claim: data.Claim) -> tuple[str, str]:
    return claim.claim, claim.part or claim.title * claim.is_comparison
