"""Trials: comparisons of known outcome, each measured as a user would; and which one is measured next.

That is `pytest --benchmark --compare OLD NEW`, in a fresh folder and a process of its own. What it said is read from
its run folder."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llama_workbench import ROOT
from llama_workbench.variants import digests

from ...machine.environment import child_environment, fingerprint, one_line, usable_cores
from ...machine.lifeline import tied
from ...measure.processes import ALLOCATOR
from ...plan.experiments import MEASURING
from ...report.text import excluded_lines, one_text_line
from ...spec.words import Word
from ...store.files import VERDICTS, RunError
from ...store.folder import RunFolder
from .known import ALLOCATIONS, CASES, FUNCTIONS, IDENTICAL, KINDS, MODELS, PLANTED, REPEATS, TWINS, KnownComparison
from .rates import Trial

# -- which one is measured next ----------------------------------------------------------------------------------------

WAITING = 24
"""Comparisons that wait for their second run, at most: half as many on average, so that the runs of one comparison
are as many trials and several minutes apart."""

SHARES = {FUNCTIONS: 3, ALLOCATIONS: 1, MODELS: 1}
"""Comparisons of each kind: one of allocations or models takes several times as long."""

WORKS: dict[tuple[str, int], int] = {(TWINS, 0): 5, (IDENTICAL, 0): 3} | {(PLANTED, percent): 1 for percent in REPEATS}
"""Comparisons of each: what work, and how much more of it in percent."""


@dataclass(frozen=True)
class Selection:
    """What is measured and summed up: of what kinds, with what work and cases. cases: all where there are none."""

    kinds: Sequence[str] = KINDS
    works: Sequence[tuple[str, int]] = (*WORKS,)
    cases: Sequence[str] = ()

    def __contains__(self, trial: Trial) -> bool:
        asked = trial.kind in self.kinds and (trial.work, trial.percent) in self.works
        return asked and trial.case in (self.cases or (trial.case,))

    def cases_of(self, kind: str) -> list[str]:
        """Those of a kind."""
        return [case for case in CASES[kind] if case in (self.cases or (case,))]


def waiting(trials: Sequence[Trial]) -> list[KnownComparison]:
    """Comparisons with one run, but for the one that was measured last."""
    runs = Counter(trial.number for trial in trials)
    return [trial.comparison for trial in trials[:-1] if runs[trial.number] == 1]


def following(trials: Sequence[Trial], asked: Selection, draw: random.Random, left: int | None) -> KnownComparison:
    """What to measure next: one that waits for its second run, or a new one of what there is least of. trials: those
    that may be one of a pair with it. left: how many will be measured, if that is known: the last ones are second
    runs."""
    again = waiting(trials)
    if again and (draw.random() < len(again) / WAITING or (left is not None and left <= len(again))):
        return draw.choice(again)
    made = {trial.number: (trial.kind, (trial.work, trial.percent), trial.case) for trial in trials}.values()
    of_kind, of_work, of_case = Counter(kind for kind, *_ in made), Counter(each[:2] for each in made), Counter(made)

    def scarce(new: tuple[str, tuple[str, int], str]) -> tuple[float, float, int]:
        kind, work, _ = new
        return of_kind[kind] / SHARES[kind], of_work[kind, work] / WORKS[work], of_case[new]

    new = [(kind, work, case) for kind in asked.kinds for work in asked.works for case in asked.cases_of(kind)]
    kind, (work, percent), case = min(draw.sample(new, len(new)), key=scarce)
    return KnownComparison(kind, work, case, percent, draw.getrandbits(48))


def is_busy(trials: Sequence[Trial], comparison: KnownComparison, draw: random.Random) -> bool:
    """Whether neighbours are busy in the next run: half of the time, also of each kind and work."""
    alike = [trial.busy for trial in trials if (trial.kind, trial.work) == (comparison.kind, comparison.work)]
    busy, quiet = sum(alike), len(alike) - sum(alike)
    return busy < quiet if busy != quiet else draw.random() < 0.5


# -- a trial -----------------------------------------------------------------------------------------------------------

JUDGING = tuple(ROOT / "harness" / name for name in ("stats", "evidence", "judge"))

BEYOND_SECONDS = 900.0
"""A run that takes so much longer than its budget hangs."""

RUN = "run"
"""The folder of a run, beside the files that it compares."""

OF_COMPARISON = ("kind", "work", "case", "percent", "number", "clothes", "called_with", "repeats", "log_ratio")
"""What a trial keeps of its comparison."""

NEIGHBOUR = """
import random, time
import numpy as np
values = np.ones(4_000_000)
while True:
    end = time.perf_counter() + random.uniform(0, 0.3)
    while time.perf_counter() < end:
        values *= 1.0
    time.sleep(random.uniform(0, 0.3))
"""
"""Computes in bursts of random length on memory that does not fit into a cache, until it is ended."""


def machine() -> str:
    """In one line, what must be the same for two runs of a comparison to be a pair."""
    facts = fingerprint(1, allocator=ALLOCATOR, device="cpu")
    return f"{one_line(facts)}, kernel {facts.get('kernel') or 'unknown'}"


def rule() -> str:
    """The code that measures and judges, in a few letters: trials by another one are no second runs."""
    return digests.digest_of_folders((*MEASURING, *JUDGING))[:12]


@contextmanager
def busy_neighbours() -> Iterator[None]:
    """As many as there are cores."""
    with ExitStack() as stack:
        for _ in range(usable_cores()):
            process = subprocess.Popen(
                tied([sys.executable, "-P", "-c", NEIGHBOUR]), stdin=subprocess.DEVNULL, env=child_environment()
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def measured(comparison: KnownComparison, *, budget: float, busy: bool, by: str, on: str) -> Trial:
    """Run a comparison, for so many seconds of rounds. by: see `rule`; on: see `machine`."""
    begun, started = datetime.now(UTC), time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="workbench-calibrate-", ignore_cleanup_errors=True) as name,
        ExitStack() as stack,
    ):
        folder = Path(name)
        comparison.write(folder)
        if busy:
            stack.enter_context(busy_neighbours())
        trouble = _run(folder, [*comparison.command, "--budget", f"{budget:g}"], budget + BEYOND_SECONDS)
        outcome = _read(RunFolder(folder / RUN), trouble)
    return Trial(
        **{name: getattr(comparison, name) for name in OF_COMPARISON},
        files=comparison.digest[:12],
        rule=by,
        machine=on,
        budget=budget,
        busy=busy,
        begun=begun.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - started, 1),
        **outcome,
    )


def _run(folder: Path, words: list[str], limit: float) -> str:
    """Measure there. The end of what a run said that failed; empty where it did not."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--benchmark", "--no-causes", *words]
    with subprocess.Popen(
        tied([*command, "--run-dir", RUN]),
        cwd=folder,
        env={name: value for name, value in child_environment().items() if not name.startswith("PYTEST_")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return f"took more than {limit:.0f} s"
        finally:  # also where the user interrupts this
            process.kill()
            process.wait()
    lines = [line for line in output.splitlines() if line.strip(" =")]
    return one_text_line(" / ".join(lines[-3:])) if process.returncode else ""


def _read(run: RunFolder, trouble: str) -> dict[str, Any]:
    """What a run came to, as fields of `Trial`. trouble: why the command failed, if it did."""
    try:
        manifest = run.manifest()
        [effect] = [effect for verdict in run.read_json(VERDICTS) for effect in verdict["effects"]]
        samples = run.read_samples()
    except (RunError, ValueError) as error:
        return {"answer": Word.INCONCLUSIVE.value, "trouble": trouble or one_text_line(error)}
    ends = {name: effect[key] for name, key in (("estimate", "ratio"), ("low", "low"), ("high", "high"))}
    spent = sum(each.seconds or 0.0 for each in manifest.experiments)
    sampled = sum(each.sampled_seconds or 0.0 for each in manifest.experiments)
    return {
        "answer": effect["verdict"],
        **{name: math.log(end) for name, end in ends.items() if end and math.isfinite(end)},
        "rounds": effect["rounds"],
        "processes": len(set(samples["process"].tolist())),
        "fired": sum(control.fired for control in manifest.noise.controls) if manifest.noise else 0,
        "inside": round(sampled / spent, 4) if spent else None,
        "seed": manifest.seed,
        "trouble": "; ".join(excluded_lines(manifest)) or ("" if effect["rounds"] else trouble),
    }
