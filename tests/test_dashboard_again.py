"""What another session says stands beside a verdict, and only another session's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llama_workbench.harness.spec.words import Word
from tests import runs
from tests.dashboard_pages import everything, open_in_app

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")

from llama_workbench.dashboard.views import again, entries

MODEL = "prefill-15m-t128"
COMMIT = {"id": "a" * 40, "dirty": False}


def write(home: Path, name: str, seed: int, commit: Any = COMMIT, **more: Any) -> None:
    facts = {"commit": commit} | more.pop("environment", {})
    started = f"2026-11-2{seed}T10:00:00+00:00"
    runs.write_run(
        home / "runs" / name, seed=seed, rounds=30, only=[MODEL], environment=facts, manifest={"started": started},
        **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("results")
    write(home, "first", 1)
    write(home, "second", 2)
    write(home, "older-code", 3, {"id": "b" * 40, "dirty": False})
    write(home, "not-committed", 4, COMMIT | {"dirty": True})
    write(home, "elsewhere", 5, environment={"cpu_model": "Another CPU"})
    return home


def test_a_session_is_of_the_same_code_on_the_same_machine(home: Path) -> None:
    listed = entries.RunList(home).entries()
    assert list(again.sessions_of("first", listed)) == ["second"]
    assert list(again.sessions_of("second", listed)) == ["first"]
    for name in ("older-code", "not-committed", "elsewhere", "unknown"):
        assert not again.sessions_of(name, listed)


def test_the_pages_say_what_it_says(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = everything(open_in_app("answer", monkeypatch, home, run="first"))
    assert "Another session (second) agrees in all " in first and " verdicts that both settle." in first
    claim = everything(open_in_app("claim", monkeypatch, home, run="first", claim="refactor-2x-3x"))
    assert "Another session (second): the same." in claim
    assert "Another session" not in everything(open_in_app("answer", monkeypatch, home, run="elsewhere"))


def test_each_way_in_which_a_session_answers(home: Path) -> None:
    from llama_workbench.dashboard.views import data

    [claim, *_] = [each for each in data.read_run(home / "runs" / "first").claims if each.verdict is Word.REFUTED]
    part = (claim.claim, claim.part)
    for word, text in ((Word.REFUTED, "the same"), (Word.INCONCLUSIVE, "inconclusive"), (Word.SUPPORTED, "supported")):
        assert again.of_claim(claim, {"x": {part: word}}) == f"Another session (x): {text}."
    alike, open_, unlike = ({part: word} for word in (Word.REFUTED, Word.INCONCLUSIVE, Word.SUPPORTED))
    assert (
        again.of_claim(claim, {"x": alike, "y": open_, "z": alike})
        == "3 other sessions: the same (2), inconclusive (1)."
    )
    assert again.of_claim(claim, {"x": {}}) == again.of_run([claim], {"x": open_}) == ""
    said = again.of_run([claim], {"x": alike, "y": open_, "z": unlike})
    assert said == "2 other sessions agree in 1 of 2 verdicts that they settle too."
