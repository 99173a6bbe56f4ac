"""Trials: comparisons of known outcome, each measured as a user would.

That is `pytest --benchmark --compare OLD NEW`, in a fresh folder and a process of its own. What it said is read from
its run folder."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

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
from ...store.schema import Manifest
from .known import KnownComparison
from .rates import Trial

JUDGING = tuple(ROOT / "harness" / name for name in ("stats", "evidence", "judge"))

BEYOND_SECONDS = 900.0
"""A run that takes so much longer than its budget hangs."""


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
    command = [sys.executable, "-P", "-m", f"{__package__}.neighbour"]
    with ExitStack() as stack:
        for _ in range(usable_cores()):
            process = subprocess.Popen(tied(command), stdin=subprocess.DEVNULL, env=child_environment())
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


@dataclass(frozen=True)
class TrialOutcome:
    """What a run came to, as in `Trial`."""

    answer: str = Word.INCONCLUSIVE.value
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    processes: int = 0
    fired: int = 0
    inside: float | None = None
    seed: int | None = None
    trouble: str = ""


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
        **vars(outcome),
    )


OF_COMPARISON = ("kind", "work", "case", "percent", "number", "clothes", "called_with", "repeats", "log_ratio")
"""What a trial keeps of its comparison."""

RUN = "run"
"""The folder of a run, beside the files that it compares."""


def _run(folder: Path, words: list[str], limit: float) -> str:
    """Measure there. The end of what a run said that failed; empty where it did not."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--benchmark", "--no-causes", *words]
    command += ["--run-dir", RUN]
    environment = {name: value for name, value in child_environment().items() if not name.startswith("PYTEST_")}
    with subprocess.Popen(
        tied(command),
        cwd=folder,
        env=environment,
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


def _read(run: RunFolder, trouble: str) -> TrialOutcome:
    """What stands in a run folder. trouble: why the command failed, if it did."""
    try:
        manifest = run.manifest()
        [effect] = [effect for verdict in run.read_json(VERDICTS) for effect in verdict["effects"]]
        samples = run.read_samples()
    except (RunError, ValueError) as error:
        return TrialOutcome(trouble=trouble or one_text_line(error))
    excluded = "; ".join(excluded_lines(manifest))
    return TrialOutcome(
        answer=effect["verdict"],
        estimate=_log(effect["ratio"]),
        low=_log(effect["low"]),
        high=_log(effect["high"]),
        rounds=effect["rounds"],
        processes=len(set(samples["process"].tolist())),
        fired=sum(control.fired for control in manifest.noise.controls) if manifest.noise else 0,
        inside=_inside(manifest),
        seed=manifest.seed,
        trouble=excluded or ("" if effect["rounds"] else trouble),
    )


def _log(ratio: float | None) -> float | None:
    return math.log(ratio) if ratio and math.isfinite(ratio) else None


def _inside(manifest: Manifest) -> float | None:
    """The share of the time of rounds that lies in samples."""
    spent = sum(each.seconds or 0.0 for each in manifest.experiments)
    sampled = sum(each.sampled_seconds or 0.0 for each in manifest.experiments)
    return round(sampled / spent, 4) if spent else None
