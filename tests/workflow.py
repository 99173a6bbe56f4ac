"""The commands of .github/workflows/workbench.yml, to be run in a scratch repository."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped] # comes with transformers

from llama_workbench import ROOT

WORKBENCH = Path(sys.executable).with_name("workbench")

FILE = ROOT / ".github" / "workflows" / "workbench.yml"

MINE = '''\
from llama_workbench import variants


class Repeated:
    """A forward at the same position writes the same into the caches, which makes repeating it harmless."""

    def __init__(self, model):
        self.model, self.reset = model, model.reset

    def forward(self, tokens, position):
        for _ in range({calls}):
            logits = self.model.forward(tokens, position)
        return logits


def mine(config, weights, *, max_length):
    return Repeated(variants.get("fast").build(config, weights, max_length=max_length))
'''
"""The subject of the scratch repository: a forward, computed so many times. The pull request makes 21 of 20."""

MEASURE = (
    "--variants team006_before,mine --add-variant mine.py:mine --workloads prefill-tiny-t16 --budget 12 "
    "--count-instructions"
)
"""team006_before is so short that it, its partner and the yardstick share their rounds: a few seconds are enough."""


def workflow() -> dict[str, Any]:
    """The workflow, as it stands in the file."""
    content: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return content


def script(job: str, name: str) -> str:
    """What a step runs. GitHub fills in `${{ }}` before bash sees it, so a script that runs here has none."""
    [found] = [step["run"] for step in workflow()["jobs"][job]["steps"] if step.get("name") == name]
    assert "${{" not in found, name
    return str(found)


@dataclass(frozen=True)
class Scratch:
    """A repository outside of this one, whose workflow is ours."""

    folder: Path
    measured_with: str = MEASURE

    def write(self, *, calls: int) -> None:
        """Its code, with so many forwards in a call."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "mine.py").write_text(MINE.format(calls=calls), encoding="utf-8")

    def run(self, name: str, *, job: str = "compare", **more: str) -> subprocess.CompletedProcess[str]:
        """Run a step of the workflow by its name, as GitHub runs it on Linux."""
        path = os.pathsep.join([more.pop("first", ""), str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = os.environ | {"PATH": path.lstrip(os.pathsep), "MEASURE": self.measured_with, **more}
        environment |= {"GITHUB_STEP_SUMMARY": str(self.folder / "summary.md")}
        return subprocess.run(
            ["bash", "-e", "-c", script(job, name)],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def measure(self) -> None:
        """Measure what is there. Raises RuntimeError where that fails."""
        done = self.run("Measure")
        if done.returncode:
            raise RuntimeError(f"the workflow cannot measure:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")

    def keep(self) -> None:
        """Keep that as the baseline."""
        done = self.run("Keep this run as the new baseline")
        if done.returncode:
            raise RuntimeError(done.stderr)
