"""Do blocks (two processes that take turns on one core) give the ratio that rounds (one process) give? And how noisy?

    python -m studies.methods_compared [SECONDS]

Each pair is measured by both methods in turns: a round of these two variants alone, then a block. The variants of a
pair differ in how much memory a call goes through, because a switch between processes leaves caches to the other.
Prints the ratio by both methods, the ratio of the ratios (1: no bias), and the spread of a log ratio, scaled to one
second that the method takes with all that it needs beside its samples.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_workbench.cache import cache_directory
from llama_workbench.datasets import geometries, workloads
from llama_workbench.datasets.checkpoints import synthesize
from llama_workbench.harness.evidence.effect import ALPHA
from llama_workbench.harness.measure.processes import WorkerProcess
from llama_workbench.harness.spec.sample import Round, Sample
from llama_workbench.harness.stats.confidence import running_interval
from llama_workbench.harness.stats.samples import differences, log_times_of_rounds

PAIRS = (
    ("decode-15m-c64", "candle", "candle@aa"),
    ("prefill-15m-t128", "candle", "candle@aa"),
    ("decode-15m-c64", "team005_proposal", "single_file_inline"),
    ("prefill-15m-t128", "team006_before", "yardstick"),
    ("decode-15m-c1024", "candle", "team005_proposal"),
    ("decode-15m-c64", "candle", "fast"),
    ("prefill-15m-t128", "candle", "fast"),
)
BLOCK_SECONDS = 0.6


@contextmanager
def gated(workload: str, names: tuple[str, str]) -> Iterator[WorkerProcess]:
    """A measuring process in which both variants passed their gates."""
    work, cache = workloads.get(workload), cache_directory()
    folder = str(synthesize(geometries.get(work.geometry), cache=cache))
    with tempfile.TemporaryDirectory() as logs:
        log = Path(logs) / "worker.log"
        hello = {"process": 1, "added": {}, "draw": "methods"}
        with closing(WorkerProcess(threads=1, cache=cache, log=log, hello=hello)) as process:
            process.ask("open", 300.0, workload=work.model_dump(), folder=folder, seed=0)
            for name in names:
                answer = process.ask("gate", 600.0, workload=workload, variant=name)
                if not answer["gate"]["passed"]:
                    raise SystemExit(f"{name} on {workload}: {answer['gate']['detail']}")
            process.ask("freeze", 60.0)
            yield process


def log_ratio(workload: str, answer: dict[str, Any], names: tuple[str, str]) -> float:
    """log t_baseline - log t_variant of one round or block."""
    one = Round(workload, 1, 0, tuple(Sample(*each) for each in answer["samples"]))
    [value] = differences(log_times_of_rounds([one], clock="cpu"), baseline=names[0], variant=names[1]).values
    return float(value)


def measured(workload: str, names: tuple[str, str], seconds: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log ratios by method, [2, n], and the seconds that a round and a block took."""
    values: list[tuple[float, float]] = []
    spent = np.zeros(2)
    with gated(workload, names) as process, tempfile.TemporaryDirectory() as scratch:
        where = {"workload": workload, "outputs": f"{scratch}/outputs"}
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(values) < 12:
            begun = time.monotonic()
            alone = process.ask("round", 120.0, active=names, round_index=len(values), **where)
            between = time.monotonic()
            sides = {"sides": names, "seconds": BLOCK_SECONDS, "limit": 60.0}
            block = process.ask("block", 120.0, round_index=len(values), **sides, **where)
            spent += between - begun, time.monotonic() - between
            if block["samples"]:
                values.append((log_ratio(workload, alone, names), log_ratio(workload, block, names)))
    return np.array(values).T, spent / len(values)


def shown(values: NDArray[np.float64]) -> str:
    """The ratio and its interval."""
    interval = running_interval(values, ALPHA)
    centre, low, high = (math.exp(each) for each in (interval.centre, interval.low, interval.high))
    return f"{centre:.4f} [{low:.4f}, {high:.4f}]"


def main() -> None:
    """Measure all pairs and print a table in Markdown."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    print("| workload | pair | n | rounds | blocks | rounds / blocks | spread x √s, rounds | blocks |")
    print("|---|---|---|---|---|---|---|---|")
    for workload, *names in PAIRS:
        baseline, variant = names
        (alone, block), took = measured(workload, (baseline, variant), seconds)
        spread = [float(np.std(each, ddof=1)) * math.sqrt(s) for each, s in zip((alone, block), took, strict=True)]
        row = [workload, f"{variant} / {baseline}", str(len(alone)), *map(shown, (alone, block, alone - block))]
        print("| " + " | ".join([*row, *(f"{100 * each:.2f} %" for each in spread)]) + " |", flush=True)


if __name__ == "__main__":
    main()
