"""Do suites of other people raise false alarms? `python -m studies.suite_trials FOLDER [REPEATS] [--write]`.

FOLDER holds their source distributions, unpacked, or repositories, under the names of `SUITES`; what they import is
installed. Of each, a scratch repository is made with three revisions: as it is; with a comment more in one file; with
an empty loop in one function, which makes one benchmark 5 % slower. `workbench compare-revisions` compares the first
with the second REPEATS times (3), and once with the third; once more and longer where that is not found. A file keeps
what it said, and the next call continues it.
`--write` puts the table into docs/validation.md.
"""

from __future__ import annotations

import ast
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llama_workbench.harness.machine.environment import Since, child_environment
from llama_workbench.harness.report.markdown import update_file
from llama_workbench.harness.store.folder import RunFolder
from tests.action import git

KEPT = Path("results/suite-trials.jsonl")
PAGE = Path("docs/validation.md")
LONGER = 3
"""So many times as long a comparison takes that is made once more."""

PERCENT = 5.0
SLOWER = "2"
"""What counts as slower, in percent: below the half of what is added, so that unchanged code must be told from it."""


@dataclass(frozen=True)
class Suite:
    """name: the folder. tests: the argument of the command. file, function: where the loop goes, at the beginning of
    the body. slowed: the benchmark that becomes 5 % slower. calls: how often a call of it calls the function."""

    name: str
    version: str
    tests: str
    file: str
    function: str
    slowed: str
    calls: int = 1


SUITES = (
    Suite("pluggy", "1.6.0", "testing/benchmark.py", "src/pluggy/_callers.py", "_multicall",
          "testing/benchmark.py::test_call_hook[5-1-1]", 6),
    Suite("yarl", "1.25.1", "tests/test_quoting_benchmarks.py", "yarl/_quoting_py.py", "_Unquoter.__call__",
          "tests/test_quoting_benchmarks.py::test_unquoter_long_pct", 100),
    Suite("cattrs", "26.2.1", "bench", "src/cattrs/converters.py", "BaseConverter.structure",
          "bench/test_attrs_collections.py::test_structure_attrs_mappings[Converter]"),
    Suite("zeroconf", "0.150.0", "tests/benchmarks", "src/zeroconf/_protocol/incoming.py", "DNSIncoming.__init__",
          "tests/benchmarks/test_incoming.py::test_parse_incoming_message"),
    Suite("packaging", "26.3", "benchmarks", "src/packaging/requirements.py", "Requirement.__init__",
          "benchmarks/requirement.py::TimeRequirementSuite.time_constructor", 500),
    Suite("rich", "14.3.3", "benchmarks", "rich/text.py", "Text.wrap",
          "benchmarks/benchmarks.py::TextSuite.time_wrapping"),
)  # fmt: skip


def main(folder: Path, repeats: int = 3, *, write: bool = False, file: Path = KEPT) -> None:
    """Go on until each suite has its trials, and print the table."""
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    order = [False, True, *[False] * (repeats - 1)]  # a first answer for each suite, then more of the same
    for turn, slowed in enumerate(order):
        for suite in SUITES:
            mine = [trial for trial in known if trial["suite"] == suite.name]
            if sum(bool(trial["passes"]) == slowed for trial in mine) > order[:turn].count(slowed):
                continue
            known.append(kept(one(suite, folder / suite.name, mine, slowed=slowed), file))
    for suite in SUITES:
        mine = [trial for trial in known if trial["suite"] == suite.name]
        [slower, *others] = [trial for trial in mine if trial["passes"]]
        if suite.slowed not in slower["alarms"] and not others:
            budget = LONGER * slower["seconds"]
            known.append(kept(one(suite, folder / suite.name, mine, slowed=True, budget=budget), file))
    sys.stdout.write(table(known))
    if write:
        update_file(PAGE, {"suites": table(known)})


def kept(trial: dict[str, Any], file: Path) -> dict[str, Any]:
    """The same, once it is in the file."""
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(trial) + "\n")
    sys.stderr.write(f"{trial}\n")
    return trial


def one(
    suite: Suite, theirs: Path, before: Sequence[dict[str, Any]], *, slowed: bool, budget: int = 0
) -> dict[str, Any]:
    """Compare it with an unchanged revision, or with the slowed one. budget: seconds; 0: as long as the command does by
    itself. Raises CalledProcessError, AssertionError."""
    with tempfile.TemporaryDirectory(prefix="suite-trials-") as scratch:
        copy = Path(scratch) / suite.name
        shutil.copytree(theirs, copy, ignore=shutil.ignore_patterns(".git", "results", "__pycache__"))
        git(copy, "init", "--quiet")
        git(copy, "add", "--all", "--force")
        git(copy, "commit", "--quiet", "--message", "as it is")
        changed, passes = copy / suite.file, 0
        if slowed:
            ns = statistics.median(trial["slowed_ns"] for trial in before if not trial["passes"])
            passes = passes_of(PERCENT / 100 * ns / suite.calls)
            changed.write_text(with_loop(changed.read_text(encoding="utf-8"), suite.function, passes), encoding="utf-8")
        else:
            changed.write_text(changed.read_text(encoding="utf-8") + "# the same\n", encoding="utf-8")
        git(copy, "commit", "--quiet", "--all", "--message", "changed")
        begun, machine = time.monotonic(), Since.now()
        command = [str(Path(sys.executable).with_name("workbench")), "compare-revisions", "HEAD~1", "HEAD", suite.tests]
        command += ["--slower", SLOWER, "--json", *(["--budget", str(budget)] if budget else [])]
        done = subprocess.run(command, cwd=copy, env=child_environment(), capture_output=True, text=True)
        assert done.returncode in (0, 1, 2), done.stderr
        told = json.loads(done.stdout)
        seconds, others = time.monotonic() - begun, machine.busy()
        rows = {row["subject"]: row for row in told["rows"]}
        row = rows[suite.slowed]
        run = RunFolder(copy / row["run"])
        return {
            "suite": suite.name,
            "version": suite.version,
            "passes": passes,
            "budget": budget,
            "seconds": round(seconds),
            "exit_code": done.returncode,
            "tests": sum(each["ratio"] is not None for each in told["rows"]),
            "processes": row["rounds"],
            "alarms": [name for name, each in rows.items() if each["high"] is not None and each["high"] < 1],
            "faster": [name for name, each in rows.items() if each["low"] is not None and each["low"] > 1],
            "half_widths": [round((each["high"] - each["low"]) / 2, 4) for each in rows.values() if each["low"]],
            "slowed": [row[end] for end in ("ratio", "low", "high")],
            "slowed_ns": call_ns(run, suite.slowed),
            "others": round(others, 3),
        }


def call_ns(run: RunFolder, test: str) -> float:
    """CPU time of a call of the first side, nanoseconds: the median over its samples."""
    side = next(each for each in run.manifest().experiments if each.workload.name == test).baseline
    rows = run.read_samples().select(["workload", "variant", "cpu_ns", "repeats"]).rows()
    return statistics.median(ns / calls for workload, variant, ns, calls in rows if (workload, variant) == (test, side))


def passes_of(ns: float) -> int:
    """How many passes an empty loop has that takes so many nanoseconds, its beginning and end included."""
    few, many = (
        min(timeit.repeat(f"for _ in range({passes}): pass", number=20_000, repeat=50)) * 1e9 / 20_000
        for passes in (10, 110)
    )
    return max(0, round(10 + 100 * (ns - few) / (many - few)))


def with_loop(text: str, function: str, passes: int) -> str:
    """The same module, in which the function begins with an empty loop. Raises StopIteration where it is not there."""
    body: list[ast.stmt] = ast.parse(text).body
    for name in function.split("."):
        defined = [each for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name == name]
        body = defined[-1].body  # what comes before are overloads
    first = next(each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)))
    lines = text.splitlines(keepends=True)
    lines.insert(first.lineno - 1, f"{' ' * first.col_offset}for _ in range({passes}): pass\n")
    return "".join(lines)


def table(known: Sequence[dict[str, Any]]) -> str:
    """In Markdown: what was said of each suite."""
    lines = [
        "| suite | benchmarks | runs of unchanged code | called slower or faster | half of the intervals within"
        " | a run takes | other programs | about 5 % added: time over before | called slower |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for suite in SUITES:
        mine = [trial for trial in known if trial["suite"] == suite.name]
        same, slower = [each for each in mine if not each["passes"]], [each for each in mine if each["passes"]]
        wrong = sum(len(each["alarms"]) + len(each["faster"]) for each in same)
        widths = [width for each in same for width in each["half_widths"]]
        if not same:
            continue
        found = [answer_text(each, suite.slowed) for each in slower]
        lines.append(
            f"| {suite.name} {suite.version} | {same[0]['tests']} | {len(same)}"
            f" | {wrong} of {sum(one['tests'] for one in same)}"
            f" | ±{100 * statistics.median(widths):.1f} % | {statistics.median(one['seconds'] for one in same):.0f} s"
            f" | {100 * statistics.median(one['others'] for one in mine):.0f} %"
            f" | {', '.join(map(slowed_text, slower)) or 'not measured'} | {', '.join(found)} |"
        )
    return "\n".join(lines) + "\n"


def answer_text(trial: dict[str, Any], slowed: str) -> str:
    """Whether the slowed benchmark is called slower; "in 300 s yes" where it was measured once more."""
    longer = f"in {trial['seconds']} s " if trial.get("budget") else ""
    return longer + ("yes" if slowed in trial["alarms"] else "no")


def slowed_text(trial: dict[str, Any]) -> str:
    """The new time over the old, as the command prints it."""
    ratio, high, low = (1 / each for each in trial["slowed"])
    return f"{ratio:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    given = [each for each in sys.argv[1:] if each != "--write"]
    main(Path(given[0]), *map(int, given[1:]), write="--write" in sys.argv)
