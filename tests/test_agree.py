"""Do repeat runs say the same? `workbench compare --repeat` puts their intervals and verdicts against each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llama_workbench.commands.app import main
from llama_workbench.harness.report.sessions import agreement_of
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.verdict_schema import Effect, Verdict
from tests.runs import write_run

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
    assert "first, second" in said and "not overlapping:" not in said and "How much runs vary is said of 3" in said
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
