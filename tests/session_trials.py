"""How far do ratios to the yardstick shift between sessions? `python -m tests.session_trials 24` prints a table.

Each session measures the same code anew, with the commands of the workflow but for counts. Every second one has a busy
neighbour for each core. What sessions differ by beyond what the rounds within each explain is estimated with
DerSimonian and Laird's method, by workload and variant. Sessions are kept in a file, which the next call continues.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.stats import chi2, t
from statsmodels.stats.meta_analysis import combine_effects

from llama_workbench.harness.calibrate.trials import busy_neighbours
from llama_workbench.harness.evidence.evidence import evidence_from_manifest
from llama_workbench.harness.spec.comparison import Comparison
from llama_workbench.harness.stats.confidence import pseudo_median, running_interval
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.variants import YARDSTICK

from .workflow import Scratch

KEPT = Path("results/session-trials.jsonl")

MEASURED = (
    ("--variants", "team006_before,mine", "--add-variant", "mine.py:mine", "--workloads", "prefill-tiny-t16",
     "--budget", "12"),
    ("--variants", "fast,gpt_fast", "--workloads", "prefill-15m-t8", "--budget", "30"),
)  # fmt: skip
"""What a session measures, in turns: that of the workflow's test, and that of the README."""

LEAST_ROUNDS = 4


@dataclass(frozen=True)
class Ratio:
    """A variant's time over the yardstick's in one session: its log, its standard error by the rounds within, and the
    ends of its interval (None: none yet). call_ms: the median time of the variant's call. processes: that measured."""

    session: int
    busy: bool
    workload: str
    variant: str
    log_ratio: float
    error: float
    low: float | None
    high: float | None
    rounds: int
    processes: int
    call_ms: float


def main(sessions: int, file: Path = KEPT) -> None:
    """Go on until there are so many sessions, and print the table."""
    known = [Ratio(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
    with tempfile.TemporaryDirectory(prefix="session-trials-") as folder:
        scratch = Scratch(Path(folder))
        scratch.write(calls=20)
        for number in range(max((each.session for each in known), default=-1) + 1, sessions):
            found = one(scratch, number)
            with file.open("a", encoding="utf-8") as out:
                out.writelines(json.dumps(asdict(each)) + "\n" for each in found)
            known += found
            sys.stderr.write("".join(f"{each}\n" for each in found))
    sys.stdout.write(table(known))


def one(scratch: Scratch, number: int) -> list[Ratio]:
    """The session of this number."""
    busy = bool(number // len(MEASURED) % 2)
    run = scratch.folder / f"run-{number}"
    options = [*MEASURED[number % len(MEASURED)], "--run-dir", str(run)]
    command = [sys.executable, "-m", "pytest", "--benchmark", *options]
    with busy_neighbours() if busy else ExitStack():
        done = subprocess.run(
            command, cwd=scratch.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    if done.returncode:
        sys.stderr.write(f"session {number} failed: {done.stdout[-2000:]}\n")
        return []
    return read(RunFolder(run), number, busy)


def read(run: RunFolder, number: int, busy: bool) -> list[Ratio]:
    """What a run says of each variant that was timed beside the yardstick, or beside what was."""
    samples = run.read_samples()
    manifest = run.read_manifest()
    evidence = evidence_from_manifest(manifest, samples)
    found = []
    for experiment in manifest["experiments"]:
        workload, baseline = experiment["workload"]["name"], experiment["baseline"]
        for variant in experiment["variants"]:
            if "@" in variant or variant == YARDSTICK:
                continue
            steps = [Comparison(workload, variant, YARDSTICK)]
            if not len(evidence.differences(steps[0]).values):
                steps = [Comparison(workload, variant, baseline), Comparison(workload, baseline, YARDSTICK)]
            series = [evidence.differences(each).values for each in steps]
            if min(map(len, series)) < LEAST_ROUNDS:
                continue
            ends = [running_interval(each, evidence.alpha / len(steps)) for each in series]
            low, high = sum(each.low for each in ends), sum(each.high for each in ends)
            mine = samples[(samples["workload"] == workload) & (samples["variant"] == variant)]
            found.append(
                Ratio(
                    session=number,
                    busy=busy,
                    workload=workload,
                    variant=variant,
                    log_ratio=sum(map(pseudo_median, series)),
                    error=math.sqrt(sum(float(np.var(each, ddof=1)) / len(each) for each in series)),
                    low=low if math.isfinite(low) else None,
                    high=high if math.isfinite(high) else None,
                    rounds=min(map(len, series)),
                    processes=int(mine["process"].nunique()),
                    call_ms=float((mine["cpu_ns"] / mine["repeats"]).median() / 1e6),
                )
            )
    return found


@dataclass(frozen=True)
class Shift:
    """What sessions of the same code differ by beyond their rounds: standard deviation of the log ratio, the upper end
    of its 95 % interval where the rounds explain nothing, and the bound that the difference of two sessions keeps to
    with 95 % probability. `covered`: of all pairs of sessions, how many differ by less than the ends of their intervals
    allow, in percent; None where there are no intervals."""

    sessions: int
    call_ms: float
    inside: float
    between: float
    between_high: float
    bound: float
    covered: float | None


def shift(ratios: Sequence[Ratio]) -> Shift:
    """Of one variant on one workload."""
    values = np.array([each.log_ratio for each in ratios])
    variances = np.array([each.error**2 for each in ratios])
    between = math.sqrt(max(float(combine_effects(values, variances, method_re="dl").tau2), 0.0))
    more = len(ratios) - 1
    high = float(np.std(values, ddof=1)) * math.sqrt(more / chi2.ppf(0.025, more))
    bound = float(t.ppf(0.975, more)) * math.sqrt(2) * between
    told = [each for each in ratios if each.low is not None and each.high is not None]
    pairs = [(a, b) for a in told for b in told if a.session < b.session]
    held = [a.low <= b.high and b.low <= a.high for a, b in pairs if a.low is not None and b.low is not None]  # type: ignore[operator]
    covered = 100 * sum(held) / len(held) if held else None
    calls = float(np.median([each.call_ms for each in ratios]))
    return Shift(len(ratios), calls, float(np.median(np.sqrt(variances))), between, high, bound, covered)


def table(known: Sequence[Ratio]) -> str:
    """In Markdown: a line for each workload and variant, of all sessions and of those without busy neighbours."""
    lines = [
        "| workload | variant | call | sessions | within (s.e.) | between (s.d.) | at most | two differ by "
        "| intervals meet |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for busy, told in ((None, ""), (False, ", no busy neighbour"), (True, ", busy neighbours")):
        for key in dict.fromkeys((each.workload, each.variant) for each in known):
            of = [each for each in known if (each.workload, each.variant) == key and busy in (None, each.busy)]
            if len(of) < 3:
                continue
            found = shift(of)
            percent = (found.inside, found.between, found.between_high, found.bound)
            figures = " | ".join(f"{100 * math.expm1(each):.2f} %" for each in percent)
            meet = "no intervals" if found.covered is None else f"{found.covered:.0f} %"
            lines.append(
                f"| {key[0]}{told} | {key[1]} | {found.call_ms:.2f} ms | {found.sessions} | {figures} | {meet} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(Path, sys.argv[2:]))
