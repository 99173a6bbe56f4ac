"""A program proposes a speed-up: accepted, refused or open, as JSON in the form that it publishes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from llama_workbench.commands.app import main
from tests.session.test_revisions import git
from tests.unchanged import SESSIONS

pytestmark = [pytest.mark.covers(*SESSIONS), pytest.mark.usefixtures("warm", "short_sessions")]

BEFORE = """\
def words(text):
    found = []
    for word in text.split():
        if word not in found:
            found.append(word)
    return sorted(found)
"""

FASTER = "def words(text):\n    return sorted(set(text.split()))\n"

BENCH = """\
import random

def texts(seed):
    draw = random.Random(seed)
    return " ".join(str(draw.randrange(300)) for _ in range(1000))
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With one commit; the change lies in the working tree."""
    git(tmp_path, "init", "--quiet", "--initial-branch=trunk")
    (tmp_path / "mine.py").write_text(BEFORE, encoding="utf-8")
    (tmp_path / "bench.py").write_text(BENCH, encoding="utf-8")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "as it was")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code, and all of standard output."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["judge-change", *words])
    return int(ended.value.code or 0), capsys.readouterr().out


def judged(capsys: pytest.CaptureFixture[str], code: int, change: str, *words: str) -> dict[str, Any]:
    """The answer on a change, which must have this exit code and the published form."""
    Path("mine.py").write_text(change, encoding="utf-8")
    found, out = said(capsys, "mine.py:words", "--call", "bench.py:texts", *words)
    answer: dict[str, Any] = json.loads(out)
    schema = json.loads(said(capsys, "--schema")[1])
    jsonschema.validate(answer, schema)
    assert (found, answer["exit_code"]) == (code, code), answer
    return answer


def test_what_is_faster_and_right_is_accepted(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = judged(capsys, 0, FASTER, "--faster", "50", "--budget", "600")
    [compared] = answer["comparisons"]
    assert answer["decision"] == compared["decision"] == "accepted" and compared["low"] > 1.5
    assert compared["before_ns"] > compared["after_ns"] > 0 and compared["reason"] == ""
    assert [gate["passed"] for gate in answer["gates"]] == [True, True]
    assert (Path(answer["run"]) / "verdicts.json").exists()


def test_what_is_slower_is_refused(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slower = BEFORE.replace(
        "    found = []\n", "    found = []\n    _ = [word in found for word in text.split() * 100]\n"
    )
    assert judged(capsys, 1, slower, "--budget", "600")["decision"] == "refused"


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (FASTER.replace("split()))", "split()))[1:]"), "items for"),
        (
            "def words(text):\n    raise RuntimeError('pool is empty')\n",
            "RuntimeError: pool is empty (mine.py, line 2)",
        ),
    ],
)
def test_other_answers_are_refused(
    repository: Path, capsys: pytest.CaptureFixture[str], change: str, told: str
) -> None:
    answer = judged(capsys, 6, change, "--budget", "5")
    old, new = answer["gates"]
    assert old["passed"] and not new["passed"] and told in new["detail"]
    assert told in answer["comparisons"][0]["reason"] and answer["comparisons"][0]["ratio"] is None


def test_what_takes_longer_than_there_is_time_cannot_be_told(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = "import time\n\ndef words(text):\n    time.sleep(0.2)\n    return 0\n"
    Path("mine.py").write_text(slow, encoding="utf-8")
    git(repository, "commit", "--quiet", "--all", "--message", "slow")
    answer = judged(capsys, 7, f"{slow}\n", "--budget", "2")
    assert answer["decision"] == "inconclusive" and "give --budget" in answer["comparisons"][0]["reason"]


def test_what_cannot_be_asked_is_one_line(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys) == (2, "")
    code, out = said(capsys, "mine.py:gone", "--call", "bench.py:texts")
    assert (code, out) == (2, "")


REMEMBERS = """\
def words(text, known=[]):
    if not known:
        known.append(sorted(set(text.split())))
    return known[0]
"""

BENCH_OF_WORK = """\
def texts():
    return " ".join(map(str, range(1000)))

texts.flops = 1e8
"""


@pytest.mark.long
def test_a_function_with_flops_is_refused(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bench.py").write_text(BENCH_OF_WORK, encoding="utf-8")
    answer = judged(capsys, 7, REMEMBERS, "--budget", "4")
    [compared] = answer["comparisons"]
    assert (compared["decision"], compared["cause"]) == ("refused", "beyond roof")
    assert "faster than this machine can be: reports" in compared["reason"]
    with pytest.raises(SystemExit) as ended:
        main(["compare-revisions", "HEAD", ".", "mine.py:words", "--call", "bench.py:texts", "--budget=4", "--json"])
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert (ended.value.code, row["verdict"], row["cause"]) == (7, "refused", "beyond roof"), row["reason"]


def test_judge_change_is_strict(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change = (
        "import subprocess\n\ndef words(text):\n    subprocess.run(['true'])\n    return sorted(set(text.split()))\n"
    )
    answer = judged(capsys, 7, change, "--budget", "5")
    assert answer["decision"] == "refused" and "--strict or judge-change" in json.dumps(answer)
