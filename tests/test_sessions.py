"""Two sessions of one command as one: an answer counts where both give it, and an interval covers theirs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from llama_workbench.harness.claims.reading import load_dispute
from llama_workbench.harness.report.answer import Measured, decide, picks_of
from llama_workbench.harness.report.sessions import DIFFER, BothSessions, SessionAnswers
from llama_workbench.harness.spec.words import Cause, Word
from llama_workbench.harness.store.verdict_schema import Effect, Ends, Verdict

FASTER = Ends(1.01, None)
RANGE = Ends(1.06, 1.11)


def effect(low: float, high: float, word: Word, workload: str = "w", *, unit: str = "") -> Effect:
    ratio = math.nan if math.isinf(high) else (low + high) / 2
    return Effect(
        workload=workload, variant="a", baseline="b", metric="time", unit=unit, ratio=ratio, low=low, high=high,
        rounds=12, seconds=1.0, verdict=word, reason=f"is {word}",
    )  # fmt: skip


def verdict(word: Word, *effects: Effect, region: Ends = FASTER, part: str = "", together: bool = False) -> Verdict:
    return Verdict(
        claim="c", part=part, who=(), title="Claim", verdict=word, reason="why", region=region, together=together,
        effects=effects,
    )  # fmt: skip


def both(first: Sequence[Verdict], second: Sequence[Verdict]) -> BothSessions:
    return BothSessions(SessionAnswers("first", first, {}), SessionAnswers("second", second, {}))


def over(first: Verdict, second: Verdict) -> Verdict:
    [found] = both([first], [second]).verdicts
    return found


YES = effect(1.02, 1.04, Word.SUPPORTED)
NO = effect(0.98, 1.00, Word.REFUTED)
OPEN = effect(1.00, 1.03, Word.INCONCLUSIVE)
NOTHING = effect(0.0, math.inf, Word.INCONCLUSIVE)


def test_what_both_settle_alike_is_settled_and_the_interval_covers_both() -> None:
    later = effect(1.03, 1.09, Word.SUPPORTED)
    found = over(verdict(Word.SUPPORTED, YES, together=True), verdict(Word.SUPPORTED, later))
    [whole] = found.effects
    assert (found.verdict, found.reason, found.together) == (Word.SUPPORTED, "why", False)
    assert (whole.low, whole.high, whole.rounds, whole.seconds) == (1.02, 1.09, 24, 2.0)
    assert whole.ratio == pytest.approx(math.sqrt(1.03 * 1.06))
    [share] = over(
        verdict(Word.REFUTED, effect(1.0, 3.0, Word.REFUTED, unit="%"), region=Ends(5.0, None)),
        verdict(Word.REFUTED, effect(2.0, 4.0, Word.REFUTED, unit="%"), region=Ends(5.0, None)),
    ).effects
    assert (share.ratio, share.low, share.high) == (2.5, 1.0, 4.0)


def test_what_one_leaves_open_is_open() -> None:
    settled, open_ = verdict(Word.SUPPORTED, YES), verdict(Word.INCONCLUSIVE, OPEN)
    assert over(settled, open_).cause is Cause.NOT_SETTLED
    for found in (over(settled, open_), over(open_, settled)):
        assert found.verdict is Word.INCONCLUSIVE
        assert (found.effects[0].low, found.effects[0].high) == (1.0, 1.04) and found.effects[0].reason == OPEN.reason


def test_sessions_that_contradict_each_other_settle_nothing() -> None:
    found = over(verdict(Word.SUPPORTED, YES), verdict(Word.REFUTED, NO))
    assert (found.verdict, found.effects[0].verdict, found.effects[0].reason) == (
        Word.INCONCLUSIVE, Word.INCONCLUSIVE, DIFFER,
    )  # fmt: skip
    below, above = effect(1.0, 1.05, Word.REFUTED), effect(1.12, 1.2, Word.REFUTED)  # of 6 to 11 %
    found = over(verdict(Word.REFUTED, below, region=RANGE), verdict(Word.REFUTED, above, region=RANGE))
    assert found.verdict is Word.INCONCLUSIVE and found.effects[0].reason == DIFFER
    exact = [verdict(word) for word in (Word.SUPPORTED, Word.REFUTED)]  # a verdict that is not of its effects
    assert over(*exact).reason == DIFFER


def test_workload_by_workload() -> None:
    """Each session settles one of two, and not the same one."""
    here = verdict(Word.INCONCLUSIVE, effect(0.98, 1.0, Word.REFUTED, "x"), effect(0.99, 1.02, Word.INCONCLUSIVE, "y"))
    there = verdict(Word.INCONCLUSIVE, effect(0.99, 1.02, Word.INCONCLUSIVE, "x"), effect(0.98, 1.0, Word.REFUTED, "y"))
    assert {each.verdict for each in over(here, there).effects} == {Word.INCONCLUSIVE}
    held = over(verdict(Word.DEPENDS, YES, effect(0.98, 1.0, Word.REFUTED, "y")), verdict(Word.SUPPORTED, YES))
    assert held.verdict is Word.DEPENDS  # the other did not measure the second


def test_what_one_alone_measured_or_asked_is_as_it_has_it() -> None:
    assert over(verdict(Word.SUPPORTED, YES), verdict(Word.INCONCLUSIVE, NOTHING)).effects == (YES,)
    assert over(verdict(Word.INCONCLUSIVE, NOTHING), verdict(Word.SUPPORTED, YES)).verdict is Word.SUPPORTED
    there = verdict(Word.NOT_MEASURABLE)
    assert over(verdict(Word.SUPPORTED, YES), there).verdict is Word.SUPPORTED
    assert over(verdict(Word.SUPPORTED, YES), verdict(Word.REFUTED, NO, region=RANGE)).effects == (YES,)
    sessions = both([verdict(Word.SUPPORTED, YES)], [verdict(Word.SUPPORTED, YES, part="another")])
    assert sessions.verdicts == [verdict(Word.SUPPORTED, YES)]
    assert sessions.each_says(sessions.verdicts[0]) == "asked in one session only"


def test_no_evidence_in_one_session_is_no_evidence() -> None:
    excluded = effect(1.02, 1.04, Word.NOT_EVIDENCE)
    assert over(verdict(Word.SUPPORTED, YES), verdict(Word.NOT_EVIDENCE, excluded)).verdict is Word.NOT_EVIDENCE


def test_each_says_what_it_says_by_itself() -> None:
    same = both([verdict(Word.SUPPORTED, YES)], [verdict(Word.SUPPORTED, YES)])
    assert same.each_says(same.verdicts[0]) == "the same"
    unlike = both([verdict(Word.SUPPORTED, YES)], [verdict(Word.INCONCLUSIVE, OPEN)])
    assert unlike.each_says(unlike.verdicts[0]) == "supported; inconclusive: at most 3 % faster"


def test_a_rule_may_pick_what_either_session_leaves_possible() -> None:
    dispute = load_dispute()

    def session(name: str, mask: float) -> SessionAnswers:
        shares = {"mask_create": Measured(mask, mask - 0.1, mask + 0.1), "cache": Measured(1, 0.9, 1.1)}
        return SessionAnswers(name, [], {"prefill": decide(dispute, shares, {})})

    alike = BothSessions(session("first", 2), session("second", 3)).decisions
    assert picks_of(alike) == picks_of(session("first", 2).decisions)
    unlike = BothSessions(session("first", 2), session("second", 12)).decisions
    plan, alone = (picks_of(each)[1].actions for each in (unlike, alike))
    assert [len(each) for each in plan] == [2] and [len(each) for each in alone] == [1]
