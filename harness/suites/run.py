"""A run of a suite: an ordinary run folder, in which each test is a workload and each side a variant."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from llama_workbench import ROOT
from llama_workbench.cache import cache_directory
from llama_workbench.variants import FUNCTION_YARDSTICK, digests

from ..baselines.revisions import INCONCLUSIVE, NOT_SLOWER, SLOWER, RevisionRow, Row, time_text
from ..calls.revisions import WORKING_TREE, commit_of, files_of, name_of, repository_of, revision_text
from ..evidence.effect import ALPHA
from ..measure.participants import MeasureError, Progress
from ..measure.processes import WorkerFailed
from ..plan.experiments import Plan
from ..plan.options import Options
from ..plan.sources import MEASURING
from ..report.text import call_times
from ..session.revisions import build_of
from ..session.run import Result, Run
from ..spec.regions import Condition
from ..spec.sample import Round
from ..stats.confidence import fixed_interval
from ..store.folder import RunFolder
from ..store.gate_schema import Excluded, Sources
from ..store.schema import ITS_TEST, Clock, ExperimentRecord, Workload
from .driver import LOST, PROCESSES, SPARE, WAITS, Checkout, Collected, Pairs, Places, Test, processes_needed

SUITE = "suite"
"""What the one side is called that a run without a comparison has."""


class SuitePlan(Plan):
    """Tests that are known only once a process has collected them."""

    @property
    def calm(self) -> bool:
        """Python and the system have their way, as in people's own sessions."""
        return False


@dataclass(frozen=True)
class SuiteResult:
    """What a run of a suite came to."""

    result: Result
    collected: Collected
    tests: dict[str, Test]
    sides: tuple[Checkout, ...]

    def only_at(self) -> dict[str, str]:
        """Test → the one side of two that has it."""
        return {test: at[0] for test, at in self.collected.tests.items() if len(at) < len(self.sides)}

    def notes(self) -> list[str]:
        """What there is to know beside the numbers, a line each, tracebacks below theirs."""
        lines = [f"{line} (in the measuring processes)" for line in self.collected.left_out]
        lines += self.collected.problems()
        for file, versions in self.collected.files.items():
            if len({*versions.values()}) > 1:
                lines.append(f"{file} differs between the two: a difference in time may be its own")
        for test, sides in self.collected.skipped.items():
            why = "; ".join(f"{why} ({side})" for side, why in sides.items())
            lines.append(f"{test}: not measured: {why}")
        return lines


class Suite:
    """Measures a suite in place of a plan's workloads. budget: seconds, where they were given. wanted: the tests; None:
    all."""

    def __init__(
        self,
        sides: Sequence[Checkout],
        options: Options,
        progress: Progress,
        budget: float | None,
        wanted: Sequence[str] | None,
    ) -> None:
        self.sides = tuple(sides)
        self.progress = progress
        self.budget = budget
        self.wanted = wanted
        self.horizon = 0
        self.begun = time.monotonic()
        self.driver = Pairs(self.sides, options.seed)

    def measure(self, folder: RunFolder, keep: Callable[[Round], None], write_manifest: Callable[[], None]) -> None:
        self.progress.phase("collecting the suite")
        (logs := folder.path / "log").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="workbench-suite-", ignore_cleanup_errors=True) as scratch:
            self._pairs(Places(Path(scratch), cache_directory(), logs), keep, write_manifest)

    def experiments(self) -> list[ExperimentRecord]:
        names = [side.name for side in self.sides]
        return [_experiment(test, state, names, self.horizon) for test, state in self.driver.tests.items()]

    def _pairs(self, places: Places, keep: Callable[[Round], None], write_manifest: Callable[[], None]) -> None:
        """Pairs of processes until each test has its rounds. The first says how many there will be."""
        driver, lost, horizon = self.driver, 0, math.inf
        while driver.number == 0 or ((tests := driver.open(horizon)) and lost <= LOST):
            started = time.monotonic()
            try:
                with driver.processes(places) as processes:
                    if driver.number == 1:
                        tests = self._taken(places)
                        write_manifest()
                    for test, finished in driver.rounds(processes, tests):
                        state = driver.tests[test]
                        state.seconds, started = state.seconds + time.monotonic() - started, time.monotonic()
                        if finished is not None:
                            keep(finished)
                        self._show(test)
            except WorkerFailed as failure:
                lost += 1
                if driver.number == 1:
                    raise MeasureError(f"the suite cannot be started: {failure.reason}; {places}") from failure
            if driver.number == 1:
                out = {test for test, state in driver.tests.items() if state.left_out} | {*driver.collected.skipped}
                once = sum(driver.tests[test].seconds for test in out)
                horizon = self.horizon = self._planned(time.monotonic() - self.begun - once)

    def _taken(self, places: Places) -> list[str]:
        """The tests that all sides have, in the order of the first pair. Raises MeasureError where there are none."""
        collected = self.driver.collected
        tests = [test for test, sides in collected.tests.items() if len(sides) == len(self.sides)]
        if self.wanted is not None:
            tests = [test for test in tests if test in {*self.wanted}]
        if not tests:
            what = "both sides have" if len(self.sides) > 1 else "can be collected"
            raise MeasureError("\n".join([f"no benchmark that {what}; {places}", *collected.problems()]))
        self.driver.take(tests)
        self.horizon = processes_needed(len(tests), ALPHA)
        self.progress.phase(f"{len(tests)} benchmarks, {' and '.join(side.name for side in self.sides)}")
        return self.driver.open(math.inf)

    def _planned(self, seconds_each: float) -> int:
        """How many processes each side will have, by what the first ones took."""
        least = processes_needed(len(self.driver.tests), ALPHA)
        planned = max(PROCESSES, least + SPARE) if self.budget is None else max(least, int(self.budget / seconds_each))
        self.progress.note(f"{planned} processes of each side, about {planned * seconds_each / 60:.1f} min in all")
        return planned

    def _show(self, test: str) -> None:
        done = sum(state.rounds for state in self.driver.tests.values())
        share = done / (len(self.driver.tests) * max(self.horizon, 1))
        spent = time.monotonic() - self.begun
        left = spent * (1 / share - 1) if share and self.driver.number > 1 else math.nan
        self.progress.step(f"{test}, process {self.driver.number}", min(share, 1.0), left)


def _experiment(test: str, state: Test, sides: Sequence[str], horizon: int) -> ExperimentRecord:
    return ExperimentRecord(
        workload=Workload(name=test, kind="call", payload=ITS_TEST, tokens=1, threads=1, calm=False),
        variants=[*sides, FUNCTION_YARDSTICK],
        baseline=sides[0],
        clock=Clock(default="wall" if WAITS < state.waits < math.inf else "cpu"),
        rounds=state.rounds,
        horizon=horizon or None,
        own_processes=True,
        seconds=state.seconds,
        wall_seconds=state.seconds,
        sampled_seconds=state.sampled,
        compared_seconds=state.sampled,
        excluded=[Excluded(variant=side, reason=f"its test fails: {why}") for side, why in state.left_out.items()],
    )


def measure_suite(
    side: Checkout, options: Options, progress: Progress, *, budget: float | None, wanted: Sequence[str]
) -> SuiteResult:
    """Measure these tests as they are now. Raises what `run.USER_ERRORS` lists."""
    return _measured((side,), (), (), options, progress, budget=budget, wanted=wanted)


def compare_suites(
    paths: Sequence[str], revisions: tuple[str, str], condition: Condition, options: Options, progress: Progress,
    budget: float | None, build: str = "",
) -> SuiteResult:  # fmt: skip
    """Measure a suite at two revisions, the first as baseline. build: the command that builds one. Raises what
    `run.USER_ERRORS` lists."""
    names = [f"{SUITE}-{name_of(revision)}" for revision in revisions]
    names[1] += "-2" * (names[0] == names[1])
    sides = [_side_at(name, revision, paths, build) for name, revision in zip(names, revisions, strict=True)]
    pair = (names[0], names[1])
    return _measured(sides, (pair,), (condition,), options, progress, budget=budget)


def _measured(
    sides: Sequence[Checkout],
    pairs: tuple[tuple[str, str], ...],
    conditions: tuple[Condition, ...],
    options: Options,
    progress: Progress,
    *,
    budget: float | None,
    wanted: Sequence[str] | None = None,
) -> SuiteResult:
    plan = SuitePlan("compare", (), pairs, (), {}, conditions=conditions)
    suite = Suite(sides, options, progress, budget, wanted)
    run = Run(plan, options, progress)
    run.instead = suite
    run.sources = Sources(variants={}, harness=digests.digest_of_folders((*MEASURING, ROOT / "harness" / "suites")))
    return SuiteResult(run.measure(), suite.driver.collected, suite.driver.tests, suite.sides)


def _side_at(name: str, revision: str, paths: Sequence[str], build: str) -> Checkout:
    """The suite in a revision: in the working tree itself, in a copy of the commit's files, or where it is built."""
    here = Path.cwd().resolve()
    root = repository_of(here)
    within = here.relative_to(root)
    if build:
        made = build_of(revision, build)
        return Checkout(name, made.files, made.files / within, tuple(paths), made.python)
    tree = root if revision == WORKING_TREE else files_of(root, commit_of(root, revision))
    return Checkout(name, tree, tree / within, tuple(paths))


def is_suite(subject: str) -> bool:
    """Whether what is compared is a folder or a file of tests, or one test: FILE:FUNCTION is a function."""
    path = subject.partition("::")[0]
    return ":" not in path and (path.endswith(".py") or "/" in path or Path(path).exists())


def call_seconds(folder: RunFolder, side: str = SUITE) -> dict[str, list[float]]:
    """Test → the median time of a call in each process, by the clock that counts. Raises RunError."""
    samples, taken = folder.read_samples(), dict[str, list[float]]()
    for experiment in folder.manifest().experiments:
        here = samples.where(workload=experiment.workload.name, variant=side)
        times = here[f"{experiment.clock.default or 'cpu'}_ns"] / here["repeats"] / 1e9
        medians = [float(statistics.median(times[here["process"] == number])) for number in {*here["process"].tolist()}]
        taken[experiment.workload.name] = medians
    return taken


# What a run of a suite shows: a row for each test.


def difference(row: Row, percent: float) -> str:
    """What became of a test, in words. percent: how much more time counts as slower."""
    if not isinstance(row, RevisionRow) or row.verdict not in (SLOWER, NOT_SLOWER, INCONCLUSIVE):
        return row.verdict
    effect = row.screen.effect
    if row.screen.is_doubtful or not effect.rounds or math.isinf(effect.high):
        return INCONCLUSIVE
    if effect.high < 1:
        least = 100 * (1 / effect.high - 1)
        return f"slower by at least {least:.2g} %"
    if effect.low > 1:
        return f"faster by at least {100 * (effect.low - 1):.2g} %"
    largest = 100 * (max(1 / effect.low, effect.high) - 1)
    if largest <= percent:
        return f"no difference beyond {largest:.2g} %"
    return f"not {percent:g} % slower" if row.verdict == NOT_SLOWER else INCONCLUSIVE


def by_impact(rows: Sequence[Row]) -> list[Row]:
    """The slowest first, then what became faster, then the rest."""

    def impact(row: Row) -> tuple[int, float]:
        if not isinstance(row, RevisionRow):
            return 2, 0.0
        effect = row.screen.effect
        if effect.rounds and (effect.high < 1 or effect.low > 1):
            return 0, effect.ratio
        return 1, effect.ratio if effect.rounds else 2.0

    return sorted(rows, key=impact)


def own_words(tests: Mapping[str, Test]) -> dict[str, Mapping[str, str]]:
    """What the tests say of themselves, a column each, where any does: head → test → text."""
    extra = {test: ", ".join(f"{key}={value}" for key, value in state.extra.items()) for test, state in tests.items()}
    columns = {"group": {test: state.group or "" for test, state in tests.items()}, "extra info": extra}
    return {head: texts for head, texts in columns.items() if any(texts.values())}


def suite_table(rows: Sequence[Row], revisions: tuple[str, str], percent: float, tests: Mapping[str, Test]) -> Table:
    """A row for each test of two sides; then why those have no number that have none."""
    base, new = map(revision_text, revisions)
    own = own_words(tests)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in (f"time in {new} over {base}", f"in {base}", f"in {new}", "verdict", *own, "test"):
        table.add_column(Text(head), overflow="fold")
    for row in rows:
        before = after = time = ""
        if isinstance(row, RevisionRow) and row.screen.effect.rounds:
            before, after = call_times(row.screen.call_ns)
            time = time_text(row.screen.effect)
        words = [texts.get(row.subject, "") for texts in own.values()]
        table.add_row(*map(Text, (time, before, after, difference(row, percent), *words, row.subject)))
        if row.reason and not time:
            table.add_row(*[""] * (4 + len(own)), Text(f"  {row.reason}"))
    return table


def time_table(seconds: Mapping[str, Sequence[float]], tests: Mapping[str, Test] | None = None) -> Table:
    """A row for each test of one side, group by group: the time of a call over its processes, with its interval."""
    own = own_words(tests or {})
    group = own.get("group", {})
    table = Table("time of a call", "processes", *own, "test", box=None, pad_edge=False, header_style="bold")
    for test, taken in sorted(seconds.items(), key=lambda each: group.get(each[0], "")):
        interval = fixed_interval([math.log(each) for each in taken], ALPHA)
        shown = "not measured"
        if taken:
            middle = 1e9 * math.exp(interval.centre)
            shown = call_times((middle, middle))[0]
        if math.isfinite(interval.high):
            shown += f" ± {100 * math.expm1((interval.high - interval.low) / 2):.2g} %"
        words = [texts.get(test, "") for texts in own.values()]
        table.add_row(*map(Text, (shown, str(len(taken)), *words, test)))
    return table
