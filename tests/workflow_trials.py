"""How often is the workflow right beside a busy neighbour? `python -m tests.workflow_trials 20` prints a table.

Each trial is a pull request against a scratch repository. It runs the workflow's own commands: measures anew, and
compares with the one baseline. Half of the pull requests change nothing, half make 21 forwards of 20, which is 5 % more
work. One process for each core computes in bursts the whole time. A trial takes a minute or two. Trials are kept in a
file, which the next call continues.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from llama_workbench.harness.calibrate.rates import Rate
from llama_workbench.harness.calibrate.trials import busy_neighbours

from .workflow import WORKBENCH, Scratch

KEPT = Path("results/workflow-trials.jsonl")
KINDS = {"unchanged code": (20, 0), "5 % more work": (21, 1)}
"""Forwards in a call, and the exit code that is right."""

GATES = {"workflow": "time and instructions (the workflow)", "time": "time alone"}
NO_RUN = 3
"""In place of an exit code, where measuring itself failed: never right."""

BASE, NEW = "results/baselines/main", "results/runs/new"


def main(trials: int, file: Path = KEPT) -> None:
    """Go on until there are so many of each kind, and print the table."""
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    with tempfile.TemporaryDirectory(prefix="workflow-trials-") as folder, busy_neighbours():
        scratch = Scratch(Path(folder))
        scratch.write(calls=20)
        if len(known) < trials * len(KINDS):
            scratch.measure()
            scratch.keep()
        while len(known) < trials * len(KINDS):
            kind = list(KINDS)[len(known) % len(KINDS)]
            known.append(one(scratch, kind))
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(known[-1]) + "\n")
            sys.stderr.write(f"{len(known)}: {known[-1]}\n")
    sys.stdout.write(table(known))


def one(scratch: Scratch, kind: str) -> dict[str, Any]:
    """A pull request of this kind: the exit codes of both gates, and the change of the count in percent."""
    scratch.write(calls=KINDS[kind][0])
    try:
        scratch.measure()
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return {"kind": kind, "workflow": NO_RUN, "time": NO_RUN}
    done = scratch.run("Compare")
    command = [str(WORKBENCH), "compare", BASE, NEW, "--json"]
    found = json.loads(subprocess.run(command, cwd=scratch.folder, capture_output=True, check=False).stdout)
    rows = {row["what"]: row for row in found["rows"] if row["variant"] == "mine"}
    percent = {
        what: [rows[what][f"{end}_percent"] for end in ("change", "low", "high")] for what in ("time", "instructions")
    }
    code = 2 if "::warning::" in done.stdout else done.returncode
    return {"kind": kind, "workflow": code, "time": found["exit_code"], "percent": percent}


def table(known: list[dict[str, Any]]) -> str:
    """In Markdown: how many of each kind each gate passes, fails and cannot tell."""
    lines = ["| pull request | what decides | passes | fails | cannot tell | no run | right |"]
    lines.append("|---|---|---|---|---|---|---|")
    for kind, (_, right) in KINDS.items():
        for gate, name in GATES.items():
            codes = Counter(trial[gate] for trial in known if trial["kind"] == kind)
            rate = Rate(codes[right], codes.total())
            counts = " | ".join(str(codes[code]) for code in (0, 1, 2, NO_RUN))
            lines.append(f"| {kind} | {name} | {counts} | {rate.count} of {rate.of}: {rate} |")
    return "\n".join([*lines, "", *map(count_line, KINDS, [known] * len(KINDS))]) + "\n"


def count_line(kind: str, known: list[dict[str, Any]]) -> str:
    """Between what the counts of one kind differed from the baseline's, in a sentence."""
    found = [trial["percent"]["instructions"][0] for trial in known if trial["kind"] == kind and "percent" in trial]
    told = f"{min(found):+.3f} to {max(found):+.3f} %" if found else "nothing known"
    return f"Counts of {kind} against the baseline's: {told}."


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(Path, sys.argv[2:]))
