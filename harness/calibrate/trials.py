"""Trials: comparisons of known outcome through the whole pipeline, from gates to verdicts, one line each in a file.

A trial takes one of PLANTED, measures it until it is settled or its seconds are over, and judges it, as
`pytest --benchmark --compare` does. Which one, which side comes first, whether neighbours are busy, and how it is
measured (in blocks or in rounds) alternate by the number of the trial, so that a file can be continued.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from llama_workbench.cache import cache_directory
from llama_workbench.datasets import geometries

from ..evidence.effect import ALPHA
from ..evidence.evidence import Evidence
from ..judge.stopping import StoppingRule
from ..judge.verdicts import judge_ad_hoc
from ..machine.environment import child_environment, fingerprint, usable_cores
from ..machine.lifeline import tied
from ..measure.measurement import Measurement, Schedule
from ..measure.participants import ExperimentState, Progress, Setting
from ..measure.processes import ALLOCATOR
from ..plan.experiments import Plan, make_plan
from ..plan.options import Request
from ..spec.comparison import Comparison
from ..spec.experiments import Target
from ..spec.regions import ANSWERS
from ..spec.sample import Round, sample_columns
from ..stats.samples import Clocks
from ..store.parquet import NO_SAMPLES
from .record import CalibrationError, Trial

WORKLOAD = "prefill-tiny-t16"
FILE = Path(__file__).with_name("planted.py")

PLANTED = {
    0: ("calls_20", "again_20"),
    1: ("calls_100", "calls_101"),
    2: ("calls_50", "calls_51"),
    3: ("calls_100", "calls_103"),
    5: ("calls_20", "calls_21"),
    10: ("calls_20", "calls_22"),
}
"""Percent more work of the second: both sides."""

METHODS = ("apart", "together")


def machine() -> dict[str, Any]:
    """What must be the same for trials to be counted together."""
    facts = fingerprint(1, allocator=ALLOCATOR, device="cpu")
    return {name: facts.get(name) for name in ("cpu_model", "cores", "torch", "python", "kernel")}


def _plan() -> Plan:
    names = tuple(dict.fromkeys(name for sides in PLANTED.values() for name in sides))
    return make_plan(
        Request(variants=names, added=tuple(f"{FILE}:{name}" for name in names), workloads=(WORKLOAD,)), []
    )


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


class Kind(NamedTuple):
    """What a trial is."""

    percent: int
    method: str
    busy: bool
    turned: bool  # the side with more work is the baseline


def kind_of(number: int) -> Kind:
    """The trial of a number: everything alternates."""
    percents = list(PLANTED)
    rest, place = divmod(number, len(percents))
    return Kind(percents[place], METHODS[rest % 2], bool(rest // 2 % 2), bool(rest // 4 % 2))


@dataclass
class Trials:
    """Variants that have passed their gates, to be compared again and again."""

    schedule: Schedule
    book: ExperimentState

    @classmethod
    @contextmanager
    def prepared(cls, progress: Progress) -> Iterator[Trials]:
        """Start the process and pass the gates."""
        from llama_workbench.datasets.checkpoints import synthesize  # imports torch

        cache, plan = cache_directory(), _plan()
        workload = plan.experiments[0].workload
        with tempfile.TemporaryDirectory(prefix="workbench-calibrate-") as logs:
            setting = Setting(
                added=plan.added,
                device="cpu",
                folders={workload.geometry: synthesize(geometries.get(workload.geometry), cache=cache)},
                parameters={},
                cache=cache,
                logs=Path(logs),
                seed=0,
                progress=progress,
            )
            measurement = Measurement.of(plan.experiments, setting)
            with measurement.processes.running():
                measurement.gates.pass_gates()
                [book] = measurement.participants.books
                if book.excluded:
                    raise CalibrationError(_left_out(book))
                yield cls(measurement.schedule, book)

    def one(self, number: int, seconds: float) -> Trial:
        """The trial of this number, of at most so many seconds."""
        percent, method, busy, turned = kind_of(number)
        sides = PLANTED[percent][::-1] if turned else PLANTED[percent]
        pair = Comparison(WORKLOAD, variant=sides[1], baseline=sides[0])
        whole = self.book.experiment
        target = Target(pair, ANSWERS, "operations", part="trial")
        self.book.experiment = replace(whole, variants=sides, baseline=sides[0], controls=(), targets=(target,))
        self.book.kept_together = [] if method == "apart" else list(sides)
        self.book.forget_rounds()
        rounds: list[Round] = []
        rule = StoppingRule([self.book.experiment], Clocks(), ALPHA)
        begun = time.monotonic()
        try:
            with busy_neighbours() if busy else ExitStack():
                self.schedule.run(rule, rounds.append, seconds=seconds)
        finally:
            self.book.experiment = whole
        took = time.monotonic() - begun
        if self.book.excluded:
            raise CalibrationError(_left_out(self.book))
        evidence = Evidence(samples=_frame(rounds), measured={WORKLOAD: sides})
        [effect] = judge_ad_hoc(evidence, baseline=pair.baseline, variant=pair.variant).effects
        work = math.log1p(percent / 100)
        ends = [math.log(end) if end and math.isfinite(end) else None for end in (effect.low, effect.high)]
        return Trial(
            number=number,
            percent=percent,
            method="blocks" if self.book.blocks else "rounds",
            busy=busy,
            log_ratio=work if turned else -work,
            answer=effect.verdict,
            low=ends[0],
            high=ends[1],
            rounds=effect.rounds,
            seconds=round(took, 2),
        )


def _left_out(book: ExperimentState) -> str:
    reasons = "; ".join(f"{name}: {reason}" for name, reason in book.excluded.items())
    return f"cannot calibrate here, variants of known work were left out ({reasons})"


def _frame(rounds: Sequence[Round]) -> pd.DataFrame:
    if not rounds:
        return NO_SAMPLES  # with the types that its columns have
    taken = [(one, sample) for one in rounds for sample in one.samples]
    rows = [(of.workload, sample.variant, of.process, of.number, *sample[1:]) for of, sample in taken]
    return pd.DataFrame(rows, columns=list(sample_columns()))
