"""How often is the action right? `python -m studies.action_trials 20` prints a table.

Each is a scratch repository with a pull request that changes nothing, or makes 5 % more of the work, or comes from a
fork; the action's own step compares it with its base, every second time beside a busy neighbour for each core. Kept are
the exit code by time and instructions, and what the time alone says, in a file, which the next call continues.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from llama_workbench.harness.slices.calibrate.rates import Rate
from llama_workbench.harness.slices.calibrate.trials import busy_neighbours
from tests.action import PullRequest

KEPT = Path("results/action-trials.jsonl")

KINDS = {
    "unchanged code": (2000, False, 0),
    "5 % more work": (2100, False, 1),
    "unchanged code of a fork": (2000, True, 0),
}
"""How many additions the pull request makes where its base makes 2,000, whether a fork does, and the right answer."""

GIVEN = {"subjects": "work.py:total\n", "call": "inputs.py:numbers\n", "budget": "15", "slower": "2.5"}
"""2.5 %: the middle between unchanged code and 5 % more."""


def main(trials: int, file: Path = KEPT) -> None:
    """Go on until there are so many of each kind, and print the table."""
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    while len(known) < trials * len(KINDS):
        known.append(one(list(KINDS)[len(known) % len(KINDS)], busy=bool(len(known) // len(KINDS) % 2)))
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(known[-1]) + "\n")
        sys.stderr.write(f"{len(known)}: {known[-1]}\n")
    sys.stdout.write(table(known))


def one(kind: str, *, busy: bool) -> dict[str, Any]:
    """A pull request of this kind: the exit code of the step, and what the time alone would have made it."""
    additions, fork, _ = KINDS[kind]
    with tempfile.TemporaryDirectory(prefix="action-trials-") as folder, ExitStack() as stack:
        opened = PullRequest.opened(Path(folder), additions=additions, fork=fork)
        if busy:
            stack.enter_context(busy_neighbours())
        opened.compare(**GIVEN)
        code = int(opened.outputs()["exit-code"])
        [run] = (opened.folder / "results" / "runs").iterdir()
        [asked] = [each for each in json.loads((run / "verdicts.json").read_text()) if each["claim"] == "fail-if"]
        time = {"supported": 1, "refuted": 0}.get(asked["verdict"], 2)
    return {"kind": kind, "busy": busy, "action": code, "time": time}


def table(known: list[dict[str, Any]]) -> str:
    """In Markdown: how many of each kind pass, fail and cannot be told, by both and by time alone."""
    lines = ["| pull request | what decides | passes | fails | inconclusive | right |", "|---|---|---|---|---|---|"]
    for kind, (_, _, right) in KINDS.items():
        for what, name in (("action", "time and instructions"), ("time", "time alone")):
            codes = Counter(trial[what] for trial in known if trial["kind"] == kind)
            rate = Rate(codes[right], codes.total())
            counts = " | ".join(str(codes[code]) for code in (0, 1, 2))
            lines.append(f"| {kind} | {name} | {counts} | {rate.count} of {rate.of}: {rate} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(Path, sys.argv[2:]))
