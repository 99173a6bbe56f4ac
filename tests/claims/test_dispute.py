"""What a dispute is about is a file beside its claims: another folder gets its own first screen, answer and rules."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llama_workbench.commands import app
from llama_workbench.harness.claims.model import ClaimError
from llama_workbench.harness.claims.reading import DISPUTE_FILE, SHIPPED, load_claims, load_dispute, stored_claims
from llama_workbench.harness.report.answer import answer, decisions_of, picks_of
from llama_workbench.harness.spec.dispute import Dispute
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.passes import PHASES
from llama_workbench.harness.store.schema import manifest_of
from tests.runs import write_run

FUNCTIONS = """
def words():
    return "the quick brown fox jumps over the lazy dog " * 20

def once(text):
    return sorted(text.split())

def twice(text):
    sorted(text.split())
    return sorted(text.split())
"""

CLAIM = """
id = "one-sort-is-enough"
title = "A second sort costs much"
who = ["Red"]
source = [{ document = "Red's letter", section = "Sorting" }]
statement = "Sorting twice takes at least 10 % more time."
assumes = []
decided_by = "Timing both in the same rounds."

[[function]]
name = "one-sort"
source = "../mine.py:once"

[[function]]
name = "two-sorts"
source = "../mine.py:twice"

[[call]]
name = "words"
payload = "../mine.py:words"

[[hypothesis]]
evidence = "operations"
variant = "one-sort"
baseline = "two-sorts"
workloads = ["words"]
metric = "time"
faster_than_percent = 10
"""

DISPUTE = """
[[question]]
claim = "one-sort-is-enough"
text = "Is one sort {claimed} than two?"
where = "on text"
words = { supported = "Aye", refuted = "Nay" }

[numbers.gains]
sort = { variant = "one-sort", baseline = "two-sorts" }

[options]
K = "keep the second sort"
D = "drop the second sort"

[[rule]]
team = "Blue"
name = "Blue's limit"
document = "Blue's reply"
section = "When to bother"
says = "drop what costs more than 5 %"

[[rule.pick]]
above = "gain of sort"
percent = 5
option = "D"
action = "drop it"

[[rule.pick]]
option = "K"
action = "leave it in"
"""


@pytest.fixture
def claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a small dispute: two teams, two functions, one question, one rule."""
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    folder = tmp_path / "claims"
    folder.mkdir()
    (folder / "sorts.toml").write_text(CLAIM)
    (folder / DISPUTE_FILE).write_text(DISPUTE)
    return folder


def test_another_dispute_has_its_own_terminal_and_first_screen(
    claims: Path, run_pytest: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
    pytest.importorskip("plotly", reason="the dashboard's packages are not installed")
    from tests.dashboard_pages import everything, open_in_app, strips

    home = claims.parent
    monkeypatch.chdir(home)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    result = run_pytest("--benchmark", "--claims-dir=claims", "--budget=600", "--run-dir=results/runs/sorts")
    assert result.returncode == 0, result.stdout
    told = re.compile(r"Is one sort more than 10 % faster than two\? .* on text: aye\.")
    assert told.search(result.stdout)
    run = RunFolder(home / "results" / "runs" / "sorts")
    (claims / DISPUTE_FILE).unlink()  # the run carries what its first screen needs

    for words in (["judge", str(run.path)], ["report", str(run.path)]):
        with pytest.raises(SystemExit) as ended:
            app.main(words)
        out = capsys.readouterr().out
        assert ended.value.code == 0
        assert told.search(out) and (
            "report" not in words or "| Blue | drop what costs more than 5 % | **drop it**" in out
        )
        assert "Is the rewrite" not in out and "TEAM-" not in out

    page = open_in_app("answer", monkeypatch, home / "results")
    assert not page.exception
    [card] = strips(page)["answer"]["cards"]
    assert card["question"] == "Is one sort more than 10 % faster than two?" and card["look"]["word"] == "Aye"
    assert card["text"].endswith(" on text")
    teams = {team["name"]: team for team in strips(page)["claims"]["teams"]}
    assert list(teams) == ["Red", "Blue"]
    assert [said["text"] for said in teams["Red"]["said"]] == ["A second sort costs much"]
    [pick] = teams["Blue"]["picks"]
    assert (pick["picked"], pick["by"]) == ("Drop it", "Blue's limit")
    assert "TEAM-" not in everything(page) and "RoPE" not in everything(page)


@pytest.mark.whole
def test_judging_gives_a_run_the_questions_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that says nothing gets those that ship; with --claims-dir another folder's. Its claims stay."""
    run = write_run(tmp_path / "run", rounds=12, only=["prefill-15m-t128"], dispute={})
    manifest = run.read_manifest()
    assert run.manifest().dispute == Dispute()
    del manifest["dispute"]
    run.write_json("run.json", manifest)
    with pytest.raises(SystemExit):
        app.main(["judge", str(run.path)])
    assert run.manifest().dispute == load_dispute()
    assert "Is one file more than 1 % faster than many?" in capsys.readouterr().out
    folder = tmp_path / "claims"
    folder.mkdir()
    for path in SHIPPED.glob("single-file*.toml"):
        (folder / path.name).write_text(path.read_text("utf-8"), "utf-8")
    (folder / DISPUTE_FILE).write_text(
        '[[question]]\nclaim = "single-file-faster"\npart = "time"\ntext = "One or many?"\n'
    )
    with pytest.raises(SystemExit):
        app.main(["judge", str(run.path), "--claims-dir", str(folder)])
    assert "One or many? " in capsys.readouterr().out
    assert [question.text for question in run.manifest().dispute.question] == ["One or many?"]


@pytest.mark.whole
def test_judging_gives_a_run_the_words_of_a_folder_and_not_its_limits(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds=12, only=["prefill-15m-t128"])
    before = {claim.id: claim for claim in stored_claims(run)}
    folder = tmp_path / "claims"
    folder.mkdir()
    name, other = "single-file-faster", "mask-caching-helps"
    for each, title in ((name, "One file beats many"), (other, "Masks help")):
        text = (SHIPPED / f"{each}.toml").read_text("utf-8")
        text = re.sub("(?m)^margin = .*\n", "", text)  # the run's claims have none
        text = re.sub("(?m)^title = .*", f'title = "{title}"', text).replace('part = "time"', 'part = "speed"')
        limit = ("faster_than_percent = 1", "faster_than_percent = 2") if each == other else ("", "")
        (folder / f"{each}.toml").write_text(text.replace(*limit), "utf-8")
    with pytest.raises(SystemExit) as done:
        app.main(["judge", str(run.path), "--claims-dir", str(folder)])
    assert done.value.code == 0
    after = {claim.id: claim for claim in stored_claims(run)}
    assert after[name].title == "One file beats many" and after[other] == before[other], "its limit is another one"
    assert {**after, name: before[name]} == before
    labels = {verdict.part for verdict in run.read(VERDICTS) if verdict.claim == name}
    assert labels == {"speed"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('claim = "one-sort-is-enough"', 'claim = "one-sort"', r"question\[0\].claim = 'one-sort', expected a claim"),
        ('where = "on text"', 'part = "time"', r"question\[0\].part = 'time', expected none"),
        ('where = "on text"', 'wher = "on text"', r"question\[0\].wher = 'on text': unknown key; did you mean 'where'"),
        ("percent = 5", "percent = 'five'", r"rule\[0\].pick\[0\].percent = 'five', expected a limit in percent"),
        ("percent = 5\n", "", "percent: expected together with above or not_above"),
        ('above = "gain of sort"\npercent = 5\n', "", "pick: expected a condition .* in each but the last"),
        (
            '"gain of sort"',
            '"gain of sorts"',
            r"rule\[0\].pick\[0\] asks about 'gain of sorts', expected one of gain of sort",
        ),
        ('option = "D"', 'option = "E"', r"rule\[0\].pick\[0\].option = 'E', expected one of K, D"),
        ('team = "Blue"\n', "", r"rule\[0\].team is missing, expected who goes by it"),
        ('K = "keep', 'K = 3 # "keep', r"options.K = 3, expected a table from letters"),
        (
            "sort = { variant",
            "sort = 3 # { variant",
            r"numbers.gains.sort = 3, expected a table from a name to variant and baseline",
        ),
        ('claim = "one-sort-is-enough"', "claim = []", r"question\[0\].claim = \[\], expected the id of a claim"),
        ("[options]", "[options", "not valid TOML"),
    ],
)
def test_a_mistake_names_the_file_the_key_and_what_was_expected(claims: Path, old: str, new: str, told: str) -> None:
    assert old in DISPUTE
    (claims / DISPUTE_FILE).write_text(DISPUTE.replace(old, new, 1))
    with pytest.raises(ClaimError, match=told) as error:
        load_dispute(claims)
    assert str(claims / DISPUTE_FILE) in str(error.value)


@pytest.mark.whole
def test_check_reads_it(claims: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = claims / DISPUTE_FILE
    for text, code, said in (
        (DISPUTE, 0, {"format": 1, "right": True, "questions": 1, "rules": 1}),
        (DISPUTE.replace("one-sort-is-enough", "none"), 1, None),
    ):
        path.write_text(text)
        with pytest.raises(SystemExit) as ended:
            app.main(["check", str(path), "--json"])
        assert ended.value.code == code
        found = json.loads(capsys.readouterr().out)
        assert found == said if said else found["problems"][0].startswith(f"{path}: question[0].claim")


def test_it_is_no_claim_and_need_not_be_there(claims: Path) -> None:
    assert [claim.id for claim in load_claims(claims)] == ["one-sort-is-enough"]
    (claims / DISPUTE_FILE).unlink()
    assert load_dispute(claims) == Dispute()


def test_without_a_dispute_nothing_of_ours_is_asked(tmp_path: Path) -> None:
    """The same claims in a run that asks nothing: their own titles, and no rules."""
    run = write_run(tmp_path / "run", rounds=12, only=["prefill-15m-t128"], dispute={})
    verdicts, dispute = run.read(VERDICTS), run.manifest().dispute
    assert not any("?" in line.question for line in answer(verdicts, dispute).lines)
    assert picks_of(decisions_of(dispute, run.read_table(PHASES), verdicts, 0.01)) == []
    assert dispute.command("phases") == "pytest --benchmark"


def test_what_a_run_stores_is_what_was_read() -> None:
    shipped = load_dispute()
    assert manifest_of(json.loads(json.dumps({"dispute": shipped.stored()}))).dispute == shipped
    assert manifest_of({"dispute": {"question": 3}}).dispute == Dispute(), "what cannot be read is left out"
