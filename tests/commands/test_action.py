"""The action that compares a pull request with its base, and the workflows: their own steps run here."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # comes with transformers

from llama_workbench import ROOT
from llama_workbench.harness.baselines.text import MARKER
from tests.action import PullRequest, Scratch, action, filled_in, run_step, workflow
from tests.unchanged import SESSIONS

pytestmark = pytest.mark.covers(".github", "action.yml", *SESSIONS)

COMMENT = ROOT / ".github" / "workflows" / "comment.yml"

# -- the comparison ----------------------------------------------------------------------------------------------------

GIVEN = {"subjects": "work.py:total\n", "call": "inputs.py:numbers\n", "gate": "time"}


@pytest.mark.long
def test_unchanged_code_of_a_fork_passes(tmp_path: Path) -> None:
    opened = PullRequest.opened(tmp_path, additions=2000, fork=True)
    done = opened.compare(**GIVEN | {"slower": "100", "budget": "60"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is slower" in opened.summary and opened.outputs()["exit-code"] == "0"


@pytest.mark.long
def test_a_suite_of_a_pull_request_fails_by_test_id_and_needs_no_valgrind(tmp_path: Path) -> None:
    opened = PullRequest.opened(tmp_path, additions=2600)
    done = opened.compare(suite="bench\n", budget="1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "→ the working tree: 1 of 1 slower" in opened.summary and "test_work.py::test_total" in opened.summary
    assert opened.outputs()["exit-code"] == "1"
    (opened.temporary / "workbench" / "comparison.md").unlink()
    done = opened.compare(suite="bench\n", subjects="work.py:total\n")
    assert done.returncode == 2 and "work.py:total: not with a suite of tests: bench" in done.stderr
    known = {"suite": "bench", "gate": "time,instructions"}
    [install] = [step for step in action()["runs"]["steps"] if step["name"] == "Install"]
    assert filled_in(install["env"]["GATE"], known) == "time"
    assert filled_in(install["env"]["GATE"], known | {"suite": ""}) == "time,instructions"


def test_what_cannot_be_measured_fails_and_what_cannot_be_told_is_a_warning(tmp_path: Path) -> None:
    opened = PullRequest.opened(tmp_path, additions=2000)
    done = opened.compare(**GIVEN | {"subjects": "work.py:gone"})
    assert done.returncode == 2 and "gone" in done.stderr and "::warning::" not in done.stdout
    done = opened.compare(**GIVEN | {"slower": "0", "budget": "0.5"})
    assert done.returncode == 0 and "::warning::Inconclusive: whether this is slower" in done.stdout, (
        done.stdout + done.stderr
    )
    assert "1 inconclusive" in opened.summary


def test_what_a_user_writes_is_not_code_of_a_script() -> None:
    for step in action()["runs"]["steps"]:
        assert "${{" not in step.get("run", ""), step["name"]
    steps = {step.get("name"): step.get("run") for step in workflow()["jobs"]["compare"]["steps"]}
    assert "${{" not in steps["Measure"] + steps["Compare"]


# -- the comment -------------------------------------------------------------------------------------------------------

GH = """\
#!{python}
# As much of `gh api` as the workflow uses, on comments in a file.
import json, pathlib, re, sys
path, words = pathlib.Path("comments.json"), sys.argv[2:]
comments = json.loads(path.read_text()) if path.exists() else []
(place,) = [word for word in words if word.startswith("repos/")]
if place == "repos/us/it/pulls":
    assert "head=them:change" in words
    print(7 if "c0ffee" in words[words.index("--jq") + 1] else "")
elif "--jq" in words:
    program = words[words.index("--jq") + 1]
    user = re.search(r'login == "([^"]*)"', program)[1]
    text = re.search(r'contains\\("([^"]*)"\\)', program)[1]
    print(*(each["id"] for each in comments if each["login"] == user and text in each["body"]), sep="\\n")
else:
    (field,) = [word for word in words if word.startswith("body=@")]
    body = pathlib.Path(field.removeprefix("body=@")).read_text()
    if "POST" in words:
        assert place == "repos/us/it/issues/7/comments", place
        comments.append({{"id": 100 + len(comments), "login": "github-actions[bot]", "body": body}})
    else:
        assert "PATCH" in words
        (found,) = [each for each in comments if place == f"repos/us/it/issues/comments/{{each['id']}}"]
        found["body"] = body
path.write_text(json.dumps(comments))
"""
"""GitHub itself cannot be asked in a test."""


def comment(folder: Path, commit: str = "c0ffee") -> list[dict[str, Any]]:
    """The comments after the workflow that comments has run, as `gh` knows them."""
    of_comments = yaml.safe_load(COMMENT.read_text(encoding="utf-8"))
    [step] = [step for step in of_comments["jobs"]["comment"]["steps"] if step.get("name") == "Comment"]
    given = {"GITHUB_REPOSITORY": "us/it", "HEAD": "them:change", "COMMIT": commit}
    done = run_step(step["run"], folder, folder, given, first=folder / "bin")
    assert done.returncode == 0, done.stderr
    comments: list[dict[str, Any]] = json.loads((folder / "comments.json").read_text(encoding="utf-8"))
    return comments


def test_there_is_one_comment_and_it_is_updated(tmp_path: Path) -> None:
    gh = tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(GH.format(python=sys.executable), encoding="utf-8")
    gh.chmod(0o755)
    of_others = [
        {"id": 1, "login": "somebody", "body": f"they quote us: {MARKER}"},
        {"id": 2, "login": "github-actions[bot]", "body": "of another workflow"},
    ]
    (tmp_path / "comments.json").write_text(json.dumps(of_others), encoding="utf-8")
    assert comment(tmp_path) == of_others  # nothing was measured, so there is no summary
    for text in ("### first", "### second", "### third"):
        (tmp_path / "comparison.md").write_text(f"{text}\n\n{MARKER}\n", encoding="utf-8")
        *others, ours = comment(tmp_path)
        assert others == of_others and ours["body"] == f"{text}\n\n{MARKER}\n"
    (tmp_path / "comparison.md").write_text(f"### late\n\n{MARKER}\n", encoding="utf-8")
    assert comment(tmp_path, "0ther")[-1]["body"].startswith("### third"), "the pull request is at another commit now"


def test_only_the_workflow_that_runs_nothing_of_a_pull_request_may_write() -> None:
    of_comments = yaml.safe_load(COMMENT.read_text(encoding="utf-8"))
    assert of_comments["permissions"] == {"actions": "read", "pull-requests": "write"}
    steps = [step.get("uses", step.get("name")) for step in of_comments["jobs"]["comment"]["steps"]]
    assert len(steps) == 2 and steps[0].startswith("actions/download-artifact@") and steps[1] == "Comment"


def test_the_action_installs_what_it_belongs_to(tmp_path: Path) -> None:
    """pip itself is not asked: the packaging tests install the wheel."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("python", "valgrind"):
        (bin_folder / name).write_text('#!/bin/sh\necho "$@"\n')
        (bin_folder / name).chmod(0o755)
    [step] = [step for step in action()["runs"]["steps"] if step["name"] == "Install"]
    for given, installed in (("", "/the/action"), ("llama-workbench==0.1.0", "llama-workbench==0.1.0")):
        more = {"WORKBENCH": given, "GATE": "time,instructions", "GITHUB_ACTION_PATH": "/the/action"}
        done = run_step(step["run"], tmp_path, tmp_path, more, first=bin_folder)
        assert done.stdout == f"-m pip install --quiet {installed} py-spy\n", done.stderr


# -- the workflow that measures and keeps a baseline ------------------------------------------------------------------


def test_nothing_that_runs_code_of_a_pull_request_may_write() -> None:
    assert workflow()["permissions"] == {"contents": "read"}
    assert not [job for job in workflow()["jobs"].values() if "permissions" in job]


def test_every_action_is_named_by_its_commit() -> None:
    """A tag can be moved to other code."""
    files = [ROOT / "action.yml", *(ROOT / ".github" / "workflows").glob("*.yml")]
    used = [
        line.split("uses:")[1].strip() for file in files for line in file.read_text().splitlines() if "uses:" in line
    ]
    assert len(used) > 8
    for each in used:
        assert re.fullmatch(r"\./( #.*)?|actions/[a-z/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each), each


def test_a_comparison_that_cannot_tell_is_a_warning(tmp_path: Path) -> None:
    """Here: there are no runs at all."""
    done = Scratch(tmp_path).run("Compare")
    assert done.returncode == 0 and "::warning::The comparison with the baseline is inconclusive" in done.stdout
