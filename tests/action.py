"""The steps of action.yml and of the workflows, run in a scratch repository as a runner runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped] # comes with transformers

from llama_workbench import ROOT

WORK = """\
def total(numbers):
    return [sum(numbers) for _ in range({additions})][-1]
"""

SUITE = "import work\n\n\ndef test_total(benchmark):\n    assert benchmark(work.total, [1, *range(20)]) == 191\n"

INPUTS = "def numbers(seed):\n    return ([seed, *range(20)],)\n"


def action() -> dict[str, Any]:
    """The action, as it stands in the file."""
    content: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    return content


def git(folder: Path, *words: str) -> str:
    """What git prints there. Raises CalledProcessError."""
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@dataclass(frozen=True)
class PullRequest:
    """A checkout of a pull request, as deep as the checkout action makes it; `base`: the commit that it is against.
    temporary: the runner's folder."""

    folder: Path
    base: str
    temporary: Path

    @classmethod
    def opened(cls, folder: Path, *, additions: int, of: int = 2000, fork: bool = False) -> PullRequest:
        """One that makes so many additions where its base makes `of`; `fork`: in a repository of somebody else's."""
        base, head = folder / "base", folder / ("fork" if fork else "base")
        base.mkdir(parents=True)
        git(base, "init", "--quiet")
        git(base, "config", "uploadpack.allowAnySHA1InWant", "true")
        (base / "work.py").write_text(WORK.format(additions=of), encoding="utf-8")
        (base / "inputs.py").write_text(INPUTS, encoding="utf-8")
        (base / "bench").mkdir()
        (base / "bench" / "test_work.py").write_text(SUITE, encoding="utf-8")
        git(base, "add", "--all")
        git(base, "commit", "--quiet", "--message", "as it was")
        commit = git(base, "rev-parse", "HEAD")
        if fork:
            git(folder, "clone", "--quiet", str(base), "fork")
        (head / "work.py").write_text(WORK.format(additions=additions), encoding="utf-8")
        (head / "notes.md").write_text("What this is for.\n", encoding="utf-8")
        git(head, "checkout", "--quiet", "-b", "change")
        git(head, "add", "--all")
        git(head, "commit", "--quiet", "--message", "as it shall be")
        if fork:  # a forge keeps what is proposed in the base repository too
            git(base, "fetch", "--quiet", str(head), "change:change")
        git(folder, "clone", "--quiet", "--depth=1", "--branch=change", f"file://{base}", "checkout")
        temporary = folder / "temporary"
        temporary.mkdir()
        return cls(folder / "checkout", commit, temporary)

    def compare(self, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run the step that compares. inputs: with "_" for "-"."""
        [step] = [step for step in action()["runs"]["steps"] if step["name"] == "Compare"]
        given = {name.replace("_", "-"): text for name, text in inputs.items()}
        known = {name: each.get("default", "") for name, each in action()["inputs"].items()} | {"base": self.base}
        filled = {name: filled_in(text, known | given) for name, text in step["env"].items()}
        return run_step(step["run"], self.folder, self.temporary, filled)

    @property
    def summary(self) -> str:
        """What the step wrote for the pull request."""
        return (self.temporary / "workbench" / "comparison.md").read_text(encoding="utf-8")

    def outputs(self) -> dict[str, str]:
        """What the step gave to later ones."""
        lines = (self.temporary / "output").read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines)


def filled_in(text: str, inputs: Mapping[str, str]) -> str:
    """As GitHub fills inputs in: `inputs.NAME`, or `inputs.ONE == '' && inputs.NAME || 'TEXT'`."""
    text = re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda match: inputs[match[1]], text)
    either = r"\$\{\{ inputs\.([a-z-]+) == '' && inputs\.([a-z-]+) \|\| '([a-z]+)' \}\}"
    return re.sub(either, lambda match: match[3] if inputs[match[1]] else inputs[match[2]] or match[3], text)


def run_step(
    script: str, folder: Path, temporary: Path, more: Mapping[str, str], first: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a step's script as GitHub runs it on Linux. first: a folder that comes first on the path. It may have nothing
    in it that GitHub fills in: what comes from a pull request must not become code."""
    assert "${{" not in script
    path = [*map(str, [first] if first else []), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PATH": os.pathsep.join(path), "RUNNER_TEMP": str(temporary), **more}
    environment |= {"GITHUB_STEP_SUMMARY": str(temporary / "summary.md"), "GITHUB_OUTPUT": str(temporary / "output")}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def workflow() -> dict[str, Any]:
    """The workflow that measures, as it stands in the file."""
    file = ROOT / ".github" / "workflows" / "workbench.yml"
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content


@dataclass(frozen=True)
class Scratch:
    """A repository outside of this one, whose workflow is ours. measured_with: the words of what it measures."""

    folder: Path
    measured_with: str = ""

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run a step of the job that compares."""
        [script] = [step["run"] for step in workflow()["jobs"]["compare"]["steps"] if step.get("name") == name]
        return run_step(script, self.folder, self.folder, {"MEASURE": self.measured_with})

    def must(self, name: str) -> None:
        """The same of a step that has to succeed."""
        done = self.run(name)
        assert done.returncode == 0, f"{name}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}"
