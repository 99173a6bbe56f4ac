"""Is the planted cause found and its line marked, and none where there is none? `python -m studies.cause_trials 20 100`
prints a table.

Each trial is a pair of functions in a folder of its own, measured as `--compare` does, and sampled whether they differ
or not. Planted are causes of several kinds; twenty of each, and a hundred of identical code. Trials are kept in a file,
which the next call continues.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_workbench.harness.judge import stopping
from llama_workbench.harness.judge.stopping import StoppingRule
from llama_workbench.harness.report.causes import diff_of, explanations_in
from llama_workbench.harness.session import run
from llama_workbench.harness.session.questions import FunctionQuestion
from llama_workbench.harness.stats.means import exact_ends
from llama_workbench.harness.store.folder import RunFolder
from tests.runs import Quiet

KEPT = Path("results/cause-trials.jsonl")

SLOW_LINE = '"".join(letter for letter in word if letter.isalpha())'


@dataclass(frozen=True)
class Planted:
    """Both codes of a pair."""

    old: str
    new: str
    function: str
    """In which the new one does more or less; empty where it does not."""

    unedited: str = ""
    """Its line that runs more often, where the edit is in another function."""

    @property
    def lines(self) -> list[str]:
        """The lines to be marked: those of the new code that the old one does not have."""
        old = self.old.splitlines()
        return [self.unedited or line.strip() for line in self.new.splitlines() if line not in old]


WORK = """
def cleaned(word):
    return word.strip(".,")


def counted(words):
    counts = {}
    for word in words:
        counts[cleaned(word)] = counts.get(cleaned(word), 0) + 1
    return counts


def sorted_counts(text):
    return sorted(counted(text.split()).items())


def NAME(text):
    return [word for word, count in sorted_counts(text) if count > 1]
"""

TENSORS = """
import torch


def product(x):
    return x @ x


def scaled(x):
    y = x * 0.5
    return y + 1.0


def NAME(x):
    for _ in range(4):
        x = scaled(product(x)).tanh()
    return x
"""

LAYERS = """
import torch


def mask_of(length):
    return torch.ones(length, length, dtype=torch.float64).tril_().log_()


def attended(x, mask):
    return torch.softmax(x @ x.T + mask, -1) @ x


def NAME(x):
    x = x[:, :16]
    mask = mask_of(len(x))
    for _ in range(6):
        x = attended(x, mask).tanh()
    return x
"""

INPUTS = """
import random


def text(seed):
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefgh", k=rng.randrange(2, 7))) + rng.choice(["", ",", "."]) for _ in range(1500)]
    return (" ".join(words),)


def tensor(seed):
    import torch

    return (torch.randn(192, 192, generator=torch.Generator().manual_seed(seed), dtype=torch.float64),)
"""

UNGUARDED = WORK.replace('return word.strip(".,")', f"return {SLOW_LINE}")
GUARD = "    if word.isalpha():\n        return word\n"

PLANTED = {
    "a helper three calls deep": Planted(WORK, WORK.replace('word.strip(".,")', SLOW_LINE), "cleaned"),
    "an allocation in a loop": Planted(WORK,
        WORK.replace("    for word in words:\n", "    for word in words:\n        _ = [None] * 400\n"), "counted"
    ),
    "a guard that returns early": Planted(
        UNGUARDED, UNGUARDED.replace("    return \"\".join", f"{GUARD}    return \"\".join"), "cleaned"
    ),
    "an extra copy of a tensor": Planted(TENSORS, TENSORS.replace("    y = x * 0.5\n", (
        "    x = x.clone().clone().clone().clone().clone().clone().clone().clone()\n    y = x * 0.5\n"
    )), "scaled"),
    "another kernel": Planted(
        TENSORS, TENSORS.replace("return x @ x", "return (x[:, :, None] * x[None]).sum(1)"), "product"
    ),
    "a mask made in each layer": Planted(
        LAYERS, LAYERS.replace("= attended(x, mask)", "= attended(x, mask_of(len(x)))"), "mask_of",
        "return torch.ones(length, length, dtype=torch.float64).tril_().log_()",
    ),
    "identical code": Planted(WORK, WORK, ""),
}  # fmt: skip


@contextmanager
def always_sampled() -> Iterator[None]:
    """As if every pair differed."""
    found = stopping.differing

    def differing(rule: StoppingRule, pair: Any) -> tuple[float, float]:
        if told := found(rule, pair):
            return told
        baseline = float(np.median([each.call_baseline_ns for each in rule.found[pair]]))
        return baseline, baseline / math.exp(float(np.median(rule.series[pair])))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "differing", differing)
        yield


def measure(folder: Path, planted: Planted, seconds: float = 3.0) -> RunFolder:
    """A run that compares the old and the new code."""
    from llama_workbench.harness.plan.options import Options

    (folder / "before.py").write_text(planted.old.replace("NAME", "old"), encoding="utf-8")
    (folder / "work.py").write_text(planted.new.replace("NAME", "new"), encoding="utf-8")
    (folder / "inputs.py").write_text(INPUTS, encoding="utf-8")
    payload = f"{folder / 'inputs.py'}:{'tensor' if 'import torch' in planted.old else 'text'}"
    question = FunctionQuestion(f"{folder / 'work.py'}:new", f"{folder / 'before.py'}:old", payload)
    with always_sampled():
        return question.measure(Options(budget_seconds=seconds, run_dir=folder / "run"), Quiet()).folder


def one(kind: str) -> dict[str, Any]:
    """A trial: the first row, what it carries of the difference, and how many rows are told."""
    with tempfile.TemporaryDirectory(prefix="cause-trials-") as folder:
        run = measure(Path(folder), PLANTED[kind])
        told = next(iter(explanations_in(run).values()), None)
        if told is None:
            return {"kind": kind, "reason": "; ".join(each["reason"] for each in run.read_manifest()["excluded"])}
    if told.division is None:
        return {"kind": kind, "reason": told.sentence}
    more = told.call_ns[0] - told.call_ns[1]
    diffs = diff_of(told)
    first = told.causes[0] if told.causes else None
    return {
        "kind": kind,
        "first": first and first.name,
        "carries": first and round(first.row.ns / more, 3),
        "told": len(told.causes),
        "marked": [line.text.strip() for line in diffs[0].lines if line.is_cause and line.mark != "-"] if diffs else [],
        "seconds": round(told.sampled.seconds, 1),
    }


def found(trial: dict[str, Any]) -> bool:
    """Whether the planted function comes first, and the first code that is shown has the planted lines marked and no
    other; or nothing where nothing was planted."""
    planted = PLANTED[trial["kind"]]
    if not planted.function:
        return trial.get("told") == 0
    return trial.get("first") == planted.function and trial["marked"] == planted.lines


def right(trial: dict[str, Any]) -> bool:
    """Whether the planted function also makes up four fifths of the difference or more."""
    return found(trial) and (not PLANTED[trial["kind"]].function or trial["carries"] >= 0.8)


def table(known: list[dict[str, Any]]) -> str:
    """In Markdown: how often each kind was found, how often with most of the difference too, and what it took."""
    lines = ["| injected | first row and marked lines | and 80 % of the difference | seconds |", "|---|---|---|---|"]
    for kind in PLANTED:
        here = [trial for trial in known if trial["kind"] == kind]
        if here:
            seconds = np.median([trial.get("seconds", np.nan) for trial in here])
            cells = " | ".join(_share(sum(map(told, here)), len(here)) for told in (found, right))
            lines.append(f"| {kind} | {cells} | {seconds:.1f} |")
    return "\n".join(lines) + "\n"


def _share(count: int, of: int) -> str:
    """In percent, with its 95 % interval."""
    low, high = exact_ends(count, of, 0.05)
    return f"{count} of {of}: {100 * count / of:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def main(planted: int, identical: int, file: Path = KEPT) -> None:
    """Go on until there are so many of each kind, in turns, and print the table."""
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    while True:
        have = Counter(trial["kind"] for trial in known)
        wanted = {kind: planted if each.function else identical for kind, each in PLANTED.items()}
        left = [kind for kind in wanted if have[kind] < wanted[kind]]
        if not left:
            break
        known.append(one(min(left, key=lambda kind: have[kind] / wanted[kind])))
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(known[-1]) + "\n")
        sys.stderr.write(f"{len(known)}: {known[-1]}\n")
    sys.stdout.write(table(known))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *map(Path, sys.argv[3:]))
