"""Two revisions of a repository: their files, a comparison of both, and the commit that made a function slower."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llama_workbench.commands.app import main
from llama_workbench.harness.calls import revisions as files
from llama_workbench.harness.calls.source import SourceError
from llama_workbench.harness.session.questions import Disagreement, NotSlower, Step, bisect
from llama_workbench.harness.spec.words import VerbExit
from tests.unchanged import SESSIONS

pytestmark = [pytest.mark.covers(*SESSIONS), pytest.mark.usefixtures("warm", "short_sessions")]

COMMITS = 7
SLOW = 4
"""Which of the commits, from 1, made it slower."""


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose function sorts twice from one commit on; what it is called with is in no commit."""
    root = tmp_path / "project"
    (root / "pack").mkdir(parents=True)
    (root / "pack" / "__init__.py").write_text("")
    (root / "pack" / "text.py").write_text(
        "from pack.tools import ordered\n\ndef words(text):\n    from pack import tools\n"
        "    assert tools.ordered is ordered\n    return ordered(text.split())\n"
    )
    git(root, "init", "--quiet", "--initial-branch=trunk")
    for number in range(1, COMMITS + 1):
        twice = "sorted(words)\n    " if number >= SLOW else ""
        (root / "pack" / "tools.py").write_text(f"def ordered(words):\n    {twice}return sorted(words)  # {number}\n")
        git(root, "add", "--all")
        git(root, "commit", "--quiet", "--message", f"commit {number}")
    (root / "bench.py").write_text(
        "import random\n\nTEXT = ' '.join(random.Random(1).choices('abcdefgh', k=2000))\n\n"
        "def texts():\n    return TEXT\n"
    )
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(root)
    return root


def code_of(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


# -- files of a revision -----------------------------------------------------------------------------------------------


def test_the_files_of_a_revision_are_written_once_and_the_repository_is_left_alone(repository: Path) -> None:
    before = git(repository, "status", "--porcelain"), git(repository, "worktree", "list")
    first = files.source_at("pack.text:words", "HEAD~6", option="x")
    tools = Path(first.folder, "pack", "tools.py")
    assert "# 1" in tools.read_text() and (first.name, first.revision) != ("words", "")
    stamp = tools.stat().st_mtime_ns
    assert files.source_at("pack.text:words", "HEAD~6", option="x") == first
    assert tools.stat().st_mtime_ns == stamp
    named = files.parse_at("new=pack/text.py:words@trunk", option="x")
    assert (named.name, named.revision, named.shown) == ("new", "trunk", "text.py:words@trunk")
    assert (git(repository, "status", "--porcelain"), git(repository, "worktree", "list")) == before


def test_in_a_folder_of_the_repository_files_are_looked_for_there(repository: Path) -> None:
    source = files.source_at("text.py:words", "trunk", option="x", folder=repository / "pack")
    assert source.where.endswith("/pack/text.py") and str(repository) not in source.where


def test_the_cache_keeps_the_last_revisions(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "KEPT", 3)
    for back in range(COMMITS):
        files.source_at("pack.text:words", f"HEAD~{back}", option="x")
    assert len(list((repository.parent / "cache" / "revisions").iterdir())) == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pack.text:words@nowhere", "git rev-parse found nothing for nowhere"),
        ("pack.text:words@--all", "no revision"),
        ("bench.py:texts@trunk", r"--compare \(at trunk\) .* there is no file 'bench.py'"),
    ],
)
def test_what_is_in_no_revision_is_told(repository: Path, text: str, told: str) -> None:
    with pytest.raises(SourceError, match=told):
        files.parse_at(text, option="--compare")


def test_outside_of_a_repository_that_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a git repository"):
        files.parse_at("json:dumps@main", option="x", folder=tmp_path)


# -- measured ----------------------------------------------------------------------------------------------------------


def test_a_slower_revision_is_found_and_the_working_tree_is_one_too(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("compare-revisions", "HEAD~6", ".", "pack.text:words", "--call", "bench.py:texts", "--slower", "20")
    assert code_of(*words, "--budget", "600", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == 1
    [row] = found["rows"]
    assert (row["verdict"], row["workload"]) == ("slower", "texts") and row["low"] <= row["ratio"] <= row["high"] < 1
    assert (repository / row["run"] / "verdicts.json").is_file()


def test_other_answers_cannot_be_compared(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "pack" / "tools.py").write_text("def ordered(words):\n    return words\n")
    assert code_of("compare-revisions", "trunk", ".", "pack.text:words", "--call", "bench.py:texts") == VerbExit.WRONG
    said = capsys.readouterr()
    assert "words-now is left out\n" in said.err and "[0]: 'b' for 'a'" not in said.err
    assert "inconclusive" in said.out and said.out.count("[0]: 'b' for 'a'") == 1


@pytest.fixture
def grown(repository: Path) -> Path:
    """Where the working tree has a function, a file and a module more than any commit, and what can be imported now."""
    text = repository / "pack" / "text.py"
    (repository / "late.py").write_text("import nothing_of_that_name\n\ndef first(text):\n    return text[0]\n")
    git(repository, "add", "late.py")
    git(repository, "commit", "--quiet", "--message", "cannot be imported")
    (repository / "late.py").write_text("def first(text):\n    return text[0]\n")
    text.write_text(f"{text.read_text()}\n\ndef count(text):\n    return len(text.split())\n")
    (repository / "more.py").write_text("def last(text):\n    return text[-1]\n")
    return repository


MISSING = {
    "pack.text:count": "not there at trunk: text.py: no function 'count'; it defines words",
    "more.py:last": "there is no file 'more.py'",
    "late.py:first": "first-trunk: gates failed: late.py: importing it raised ModuleNotFoundError",
}
"""Subject → what its row says."""


def test_what_a_revision_does_not_have_is_a_row_and_the_others_stay(
    grown: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("compare-revisions", "trunk", ".", *MISSING, "pack.text:words", "--call", "bench.py:texts")
    words += ("--slower", "20", "--budget", "600", "--markdown", "out.md")
    assert code_of(*words, "--json") == 0
    said = capsys.readouterr()
    rows = {row["subject"]: row for row in json.loads(said.out)["rows"]}
    assert rows.pop("pack.text:words")["verdict"] == "not slower"
    assert {subject: row["verdict"] for subject, row in rows.items()} == dict.fromkeys(MISSING, "missing")
    markdown = Path("out.md").read_text()
    assert markdown.startswith("### trunk → the working tree: nothing is slower, 3 missing in one revision\n")
    assert "**What to do:** Nothing: it is not 20 % slower." in markdown and "Measure more" not in markdown
    for subject, told in MISSING.items():
        assert told in rows[subject]["reason"] and rows[subject]["ratio"] is None
        assert told.partition("'")[0] in markdown.replace("\\", "")
    assert "pack.text:count: not there at trunk" in said.err


def test_a_function_that_the_later_revision_lost_is_missing_too(
    grown: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(grown, "add", "--all")
    git(grown, "commit", "--quiet", "--message", "more")
    words = (
        "compare-revisions",
        "trunk",
        "trunk~2",
        "more.py:last",
        "--call",
        "bench.py:texts",
        "--markdown",
        "out.md",
    )
    assert code_of(*words) == 2, "nothing could be measured"
    said = " ".join(capsys.readouterr().out.split())
    assert "missing more.py:last: not there at trunk~2: " in said
    assert "**missing**" in Path("out.md").read_text()


def test_of_a_whole_commit_its_beginning_is_shown(grown: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit = git(grown, "rev-parse", "trunk")
    words = ("compare-revisions", commit, ".", "more.py:last", "--call", "bench.py:texts", "--markdown", "out.md")
    assert code_of(*words) == 2, "nothing could be measured"
    said, markdown = capsys.readouterr(), Path("out.md").read_text()
    assert f"not there at {commit[:9]}: " in said.err and commit[:9] in said.out
    assert markdown.startswith(f"### {commit[:9]} → the working tree: 1 missing")
    names = ("main~3", "v1.2", "feature/one")
    assert [*map(files.revision_text, names)] == [*names]


def test_what_only_the_later_revision_cannot_import_may_be_slower(
    grown: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(grown, "commit", "--quiet", "--all", "--message", "it can")
    (grown / "late.py").write_text("import nothing_of_that_name\n\ndef first(text):\n    return text[0]\n")
    assert code_of("compare-revisions", "trunk", ".", "late.py:first", "--call", "bench.py:texts", "--json") == 6
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert (row["verdict"], row["cause"]) == ("inconclusive", "not imported")
    assert row["reason"].startswith("first-now: ")


def test_a_name_that_is_in_neither_revision_is_told_beside_what_was_measured(
    grown: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = ("--call", "bench.py:texts", "--slower", "20", "--budget", "600")
    assert code_of("compare-revisions", "trunk", ".", "pack.text:wrods", *calls) == 2
    assert "no function 'wrods'" in capsys.readouterr().err
    assert code_of("compare-revisions", "trunk", ".", "pack.text:wrods", "pack.text:words", *calls, "--json") == 2
    verdicts = [row["verdict"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert verdicts == ["inconclusive", "not slower"]


def test_an_installed_module_does_not_stand_for_a_revision(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of("compare-revisions", "HEAD~6", "trunk", "bisect:bisect", "--call", "bench.py:texts") == 6
    assert "the revision has no such module" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("trunk", ".", "pack.text:words"), "needs an input generator: add --call"),
        (("trunk", ".", "pack.text:words", "--call", "bench.py:texts", "--budget", "0"), "--budget 0: expected"),
        (("trunk", ".", "pack.text:words", "--call", "bench.py:texts", "--slower", "-1"), "--slower -1: expected"),
        (("gone", ".", "pack.text:words", "--call", "bench.py:texts"), "found nothing for gone"),
    ],
)
def test_a_question_that_cannot_be_asked_is_told(
    repository: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert code_of("compare-revisions", *words) == 2
    assert told in capsys.readouterr().err


@pytest.mark.long
def test_the_commit_that_made_it_slower_is_found(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("bisect", "HEAD~6", "trunk", "pack.text:words", "--call", "bench.py:texts", "--slower", "20")
    assert code_of(*words, "--budget", "600", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["commits"] == [git(repository, "rev-parse", f"HEAD~{COMMITS - SLOW}")]
    assert found["chance_percent"] == len(found["steps"]) <= 4


def test_what_gives_other_answers_cannot_be_bisected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    for answer in ("1", "2"):
        (tmp_path / "mine.py").write_text(f"def f(x): return {answer}\ndef made(seed): return seed\n", encoding="utf-8")
        git(tmp_path, "add", "mine.py")
        git(tmp_path, "commit", "--quiet", "--message", answer)
    monkeypatch.chdir(tmp_path)
    assert code_of("bisect", "HEAD~1", "HEAD", "mine.py:f", "--call", "mine.py:made", "--budget", "2") == 2
    assert "HEAD cannot be compared with HEAD~1: f-" in capsys.readouterr().err


# -- which commits are asked about -------------------------------------------------------------------------------------


def answers(repository: Path, slow: Callable[[int], bool | None]) -> Callable[[str, float], Step]:
    """Comparisons whose outcome is known: commit n is `slow(n)`."""
    numbers = {git(repository, "rev-parse", f"HEAD~{COMMITS - number}"): number for number in range(1, COMMITS + 1)}

    def measure(commit: str, percent: float) -> Step:
        answer = slow(numbers[commit])
        return Step(commit, answer, *((0.5, 0.4, 0.64) if answer else (1.0, 0.9, 1.1)))

    return measure


@pytest.mark.parametrize("first", range(2, COMMITS + 1))
def test_wherever_it_became_slower(repository: Path, first: int) -> None:
    found = bisect(
        "HEAD~6", "trunk", slower_percent=5, alpha=0.01, folder=repository,
        measure=answers(repository, lambda number: number >= first),
    )  # fmt: skip
    assert found.commits == (git(repository, "rev-parse", f"HEAD~{COMMITS - first}"),)
    assert len(found.steps) <= 4 and found.chance_percent == pytest.approx(len(found.steps))
    assert found.limit_percent == pytest.approx(25), "half of what the bad one is slower at least, in logs"


def test_commits_that_stay_open_are_named_with_the_guilty_one(repository: Path) -> None:
    def slow(number: int) -> bool | None:
        if number == 5:
            raise Disagreement("does not even import")
        return None if number == 4 else number >= 5

    found = bisect(
        "HEAD~6", "trunk", slower_percent=5, alpha=0.01, folder=repository, measure=answers(repository, slow)
    )
    assert found.commits == tuple(git(repository, "rev-parse", f"HEAD~{COMMITS - number}") for number in (4, 5, 6))


def test_where_nothing_became_slower_nothing_is_looked_for(repository: Path) -> None:
    for answer, told in ((False, "trunk is not more than 5 % slower"), (None, "not shown to be")):
        with pytest.raises(NotSlower, match=told):
            bisect(
                "HEAD~6", "trunk", slower_percent=5, alpha=0.01, folder=repository,
                measure=answers(repository, lambda number, answer=answer: answer),  # type: ignore[misc]
            )  # fmt: skip
    with pytest.raises(SourceError, match="HEAD~6 does not come after trunk"):
        bisect(
            "trunk", "HEAD~6", slower_percent=5, alpha=0.01, folder=repository,
            measure=answers(repository, lambda number: True),
        )  # fmt: skip
