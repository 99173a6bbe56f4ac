"""What `pytest --benchmark` collects: one test a workload and variant, which replays what was measured beforehand.

pytest-benchmark times all of A and then all of B; the workbench measures a workload interleaved, and then each test
hands its samples over, so that pytest-benchmark's table, JSON and comparisons show the same numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from ..evidence.evidence import clocks_of
from ..session.run import Result
from ..spec.words import Cause, SessionExit, of_left_out
from ..stats.samples import call_times_ns
from ..store.files import RunError
from ..store.folder import RunFolder
from ..store.passes import PROFILES
from ..store.schema import Gate, Manifest
from ..store.verdict_schema import FLEET, HOME, too_early

if TYPE_CHECKING:
    pass


UNGATED = Gate(passed=False)
"""Of a variant that came to no gate."""


@pytest.mark.filterwarnings("ignore::pytest_benchmark.logger.PytestBenchmarkWarning")  # of what is not replayed
def test_variant(benchmark, case, record_property):  # type: ignore[no-untyped-def]
    """Replay one variant's samples on one workload."""
    if case.left_out:
        record_property("left out", case.left_out)  # for JUnit XML; on the terminal the verdicts' section has it
    case.replay(benchmark)


class ReplayTimer:
    """A timer for pytest-benchmark: answers 0, then a sample, over and over (seconds)."""

    __module__ = "workbench"
    __name__ = "interleaved_thread_time"

    def __init__(self) -> None:
        self._answers: Iterator[float] = itertools.repeat(0.0)

    def load(self, seconds: Sequence[float]) -> None:
        """The samples to replay."""
        self._answers = itertools.chain.from_iterable((0.0, value) for value in seconds)

    def __call__(self) -> float:
        return next(self._answers, 0.0)


@dataclass
class ReplayedCase:
    """One variant on one workload, as pytest sees it: seconds a call, or why there are none.

    named: whether the user named the variant, so that it must pass. left_out: why it did not, and cause: the kind of
    that; unable: it need not pass here. passed: only its gate was asked for. fell: whether its test failed.
    """

    workload: str
    variant: str
    named: bool = False
    timer: ReplayTimer = field(default_factory=ReplayTimer)
    seconds: tuple[float, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    skipped: str = "not measured"
    left_out: str = ""
    cause: Cause = Cause.NONE
    unable: bool = False
    passed: bool = False
    fell: bool = False

    def replay(self, benchmark: Any) -> None:
        """Hand the samples to pytest-benchmark. Where there are none, fail or skip: the verdicts' section says why."""
        if self.left_out and self.named and not self.unable:
            self.fell = True
            pytest.fail(f"{self.variant} is left out of {self.workload}", pytrace=False)
        if self.passed:
            return
        if not self.seconds:
            pytest.skip(self.skipped)
        self.timer.load(self.seconds)
        benchmark.extra_info.update(self.facts)
        benchmark.pedantic(lambda: None, rounds=len(self.seconds), iterations=1)


def load(cases: Mapping[tuple[str, str], ReplayedCase], result: Result) -> None:
    """Give each case (by workload and variant) its samples, on the clock that counts for it, and facts about them. In a
    run over several machines they are those of the first that has any."""
    if result.manifest.mode != FLEET:
        _load(cases, result.folder, result.manifest)
        return
    for machine in (each for each in result.manifest.machines if each.folder is not None):
        run = RunFolder(result.folder.path / HOME / machine.name)
        open_ = {key: case for key, case in cases.items() if not case.seconds}
        with suppress(RunError):  # said already; the others have theirs
            _load(open_, run, run.manifest())


def _load(cases: Mapping[tuple[str, str], ReplayedCase], folder: RunFolder, manifest: Manifest) -> None:
    samples = folder.read_samples() if folder.finished_rounds() else None
    profiles = {(entry.workload, entry.variant): entry.path for entry in folder.read(PROFILES)}
    clocks = clocks_of(manifest)
    gates_only = manifest.mode == "gates"
    untimed = "output checked only" if gates_only else "not timed: nothing compares it here, or the budget was spent"
    for experiment in manifest.experiments:
        workload = experiment.workload.name
        excluded = {entry.variant: entry for entry in (*manifest.excluded, *experiment.excluded)}
        for variant in experiment.variants:
            if (case := cases.get((workload, variant))) is None:
                continue
            clock = clocks.of(workload, variant)
            if samples is not None and variant not in excluded:
                times = call_times_ns(samples.where(workload=workload, variant=variant), clock=clock)
                case.seconds = tuple((times[times > 0] / 1e9).tolist())
            gate = experiment.gates.get(variant, UNGATED)
            case.facts = {
                "workload": workload,
                "variant": variant,
                "clock": {"cpu": "thread CPU"}.get(clock, clock),
                "run": folder.path.name,
                "profile": profiles.get((workload, variant)),
                "gate": gate.detail,
            }
            case.passed = gates_only and variant not in excluded and gate.passed
            case.skipped, case.unable = "left out" if variant in excluded else untimed, gate.unable
            if experiment.workload.kind == "call" and experiment.baseline in {*excluded} - {variant}:
                case.skipped = f"its baseline {experiment.baseline} is left out"
            if variant in excluded:
                case.left_out, case.cause = excluded[variant].reason, excluded[variant].cause


def exit_of(
    cases: Mapping[tuple[str, str], ReplayedCase], result: Result, *, gates_only: bool, others_failed: bool
) -> SessionExit:
    """How the session ends. others_failed: whether tests failed that are none of ours."""
    fell = [case.cause for case in cases.values() if case.fell]
    met = [] if gates_only else result.failed_conditions()
    if result.interrupted:
        return SessionExit.INTERRUPTED
    if others_failed or (met and result.failed_conditions(by_numbers=True)):
        return SessionExit.CONDITION_MET
    if fell:
        return SessionExit(of_left_out(fell))
    if not gates_only and not result.verdicts:
        return SessionExit.NO_VERDICT
    if met:
        return SessionExit.CONDITION_MET
    if too_early(result.verdicts):
        return SessionExit.NO_VERDICT
    return SessionExit.DONE
