"""Two sessions of one command as one: an answer counts where both give it, and an interval covers theirs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from llama_workbench.commands.app import main
from llama_workbench.harness.claims.reading import load_dispute
from llama_workbench.harness.report.answer import Measured, decide, picks_of
from llama_workbench.harness.report.sessions import DIFFER, BothSessions, SessionAnswers, agreement_of
from llama_workbench.harness.spec.words import Cause, Word
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.verdict_schema import Effect, Ends, Verdict
from tests.runs import write_run

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


# Do repeat runs say the same? `workbench compare --repeat` puts their intervals and verdicts against each other.


MODEL = "prefill-15m-t128"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    """Two runs of one code, and one in which a side is half as fast again."""
    home = tmp_path_factory.mktemp("runs")
    slower = {"team005_proposal": 0.4}
    return {
        name: write_run(home / name, seed=seed, rounds=30, only=[MODEL], factors=factors)
        for name, seed, factors in (("first", 1, {}), ("second", 2, {}), ("other", 3, slower))
    }


def test_runs_of_one_code_agree_and_of_another_do_not(runs: dict[str, RunFolder]) -> None:
    first, second, other = (runs[name].read(VERDICTS) for name in ("first", "second", "other"))
    alike = agreement_of(first, second)
    assert alike.intervals >= 3 and alike.verdicts >= 3 and not alike.disjoint and not alike.changed
    unlike = agreement_of(first, other)
    assert {one.variant for one, _ in unlike.disjoint} == {"team005_proposal"}
    assert all(one.verdict != later.verdict for one, later in unlike.changed) and unlike.changed


def test_a_pair_of_sides_counts_once_by_its_narrowest_interval() -> None:
    def said(claim: str, low: float, high: float) -> Verdict:
        effect = Effect(
            workload="w", variant="a", baseline="b", ratio=1.1, low=low, high=high, rounds=20, seconds=1.0,
            verdict=Word.FASTER, reason="",
        )  # fmt: skip
        return Verdict(
            claim=claim, who=(), verdict=Word.INCONCLUSIVE, reason="", effects=(effect,), part="", title=claim
        )  # fmt: skip

    wide, narrow, far = said("a", 1.0, 1.3), said("b", 1.05, 1.15), said("a", 1.2, 1.3)
    assert agreement_of([wide, narrow], [far]).intervals == 1
    assert len(agreement_of([wide, narrow], [far]).disjoint) == 1 and not agreement_of([wide], [far]).disjoint
    assert agreement_of([wide], [far]).verdicts == 0  # what is open is no verdict
    assert not agreement_of([wide], [said("a", 0.0, float("inf"))]).intervals  # nor has an open end an interval


def test_numbers_of_no_variant_are_of_their_claim_alone() -> None:
    def stated(part: str, value: float) -> Verdict:
        effect = Effect(
            workload="", variant="", baseline="", metric="share", ratio=float("nan"), low=value, high=value, rounds=1,
            seconds=0.0, verdict=Word.REFUTED, reason="",
        )  # fmt: skip
        return Verdict(
            claim="rules", who=(), verdict=Word.REFUTED, reason="", effects=(effect,), part=part, title="Rules"
        )  # fmt: skip

    first, second = stated("mask", 1.8), stated("softmax", 20.3)
    assert agreement_of([first, second], [second, first]).intervals == 2
    assert not agreement_of([first, second], [second, first]).disjoint and not agreement_of([first], [second]).intervals


def test_the_command(runs: dict[str, RunFolder], capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(runs[name].path) for name in ("first", "second", "other")]
    with pytest.raises(SystemExit, match="0"):
        main(["compare", "--repeat", *paths[:2]])
    said = capsys.readouterr().out
    assert "first, second" in said and "not overlapping:" not in said
    with pytest.raises(SystemExit, match="1"):
        main(["compare", *paths])
    said = " ".join(capsys.readouterr().out.split())
    assert "second, other" in said and "not overlapping: team005_proposal against" in said and "changed: " in said
    with pytest.raises(SystemExit, match="1"):
        main(["compare", "--json", *paths])
    assert [pair["second"] for pair in json.loads(capsys.readouterr().out)["pairs"]] == ["second", "other", "other"]
    with pytest.raises(SystemExit, match="2"):
        main(["compare", *paths, "--threshold", "3"])
    assert "--threshold" in capsys.readouterr().err


def test_a_table_over_two_sessions_says_what_each_says_by_itself(
    runs: dict[str, RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "PAGE.md"
    page.write_text("".join(f"<!-- {name}:begin -->\n<!-- {name}:end -->\n" for name in ("session", "verdicts")))
    judge = ["judge", str(runs["first"].path), "--write", str(page)]
    with pytest.raises(SystemExit, match="0"):
        main([*judge, "--session", str(runs["second"].path)])
    text = page.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    pair = agreement_of(*(runs[name].read(VERDICTS) for name in ("first", "second")))
    assert sum(line.endswith("| the same |") for line in rows) == pair.verdicts >= 3
    assert not any(line.endswith("| asked in one session only |") for line in rows)
    assert "A repeat run, second: " in text and " verdicts that both runs decided " in text
    assert "there " not in text
    assert f"--session {runs['second'].path.name}" in text
    with pytest.raises(SystemExit, match="0"):
        main([*judge, "--session", str(runs["second"].path), "--check"])
    with pytest.raises(SystemExit, match="0"):
        main([*judge, "--session", str(runs["other"].path)])
    text = page.read_text(encoding="utf-8")
    assert "- team005_proposal against team006_before on prefill-15m-t128: " in text  # each difference, with both
    with pytest.raises(SystemExit, match="2"):
        main([*judge, "--session", str(tmp_path / "none")])
    assert "none" in capsys.readouterr().err


def test_another_machine_is_said_beside_another_session(
    runs: dict[str, RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = write_run(tmp_path / "there", rounds=12, only=[MODEL], environment={"cpu_model": "Another CPU"})
    with pytest.raises(SystemExit, match="0"):
        main(["judge", str(runs["first"].path), "--markdown", "--session", str(there.path)])
    said = capsys.readouterr().out
    assert "- The machine or software is not the same, so they need not agree: " in said and "Another CPU" in said


def test_what_has_nothing_in_common_and_one_run_alone_are_refused(
    runs: dict[str, RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = write_run(
        tmp_path / "elsewhere", rounds=12, only=["prefill-7b-1layer-t128"], compare=("team006_before", "team006_after")
    )
    for words, said in (
        ([runs["first"].path], "need at least two runs to compare"),
        ([runs["first"].path, elsewhere.path], "no interval and no verdict in common"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(["compare", "--repeat", *map(str, words)])
        assert said in capsys.readouterr().err


def test_what_one_run_alone_measured_calm_is_said(
    runs: dict[str, RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where models beside it are calm in both, so that the machine's settings are the same."""
    there = write_run(tmp_path / "there", rounds=12, only=[MODEL])
    manifest = there.read_manifest()
    manifest["experiments"][0]["workload"]["calm"] = False
    there.write_json("run.json", manifest)
    told = f"{MODEL}: one run measured it calm, the other as it runs"
    for words in (
        ["compare", "--repeat", str(runs["first"].path), str(there.path)],
        ["judge", str(runs["first"].path), "--markdown", "--session", str(there.path)],
    ):
        with pytest.raises(SystemExit):
            main(words)
        assert told in " ".join(capsys.readouterr().out.split())


def test_another_machine_is_named(
    runs: dict[str, RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = write_run(tmp_path / "there", rounds=12, only=[MODEL], environment={"cpu_model": "Another CPU"})
    with pytest.raises(SystemExit):
        main(["compare", "--repeat", str(runs["first"].path), str(there.path)])
    assert "Another CPU" in " ".join(capsys.readouterr().out.split())
