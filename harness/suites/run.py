"""A run of a suite: an ordinary run folder, in which each test is a workload and each side a variant."""

from __future__ import annotations

import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from llama_workbench import ROOT
from llama_workbench.variants import FUNCTION_REFERENCE, digests

from ..baselines.revisions import INCONCLUSIVE, NOT_SLOWER, SLOWER, RevisionRow, time_text
from ..calls.revisions import WORKING_TREE, commit_of, files_of, name_of, repository_of, revision_text
from ..evidence.effect import ALPHA
from ..measure.participants import MeasureError, Progress
from ..measure.processes import WorkerFailed, WorkerProcess
from ..plan.experiments import MEASURING, Plan
from ..plan.options import Options
from ..report.text import call_times
from ..session.questions import build_of
from ..session.run import Result, Run
from ..spec.regions import Condition
from ..spec.sample import Round, Sample
from ..stats.confidence import LookPlan, first_interval, fixed_interval
from ..store.folder import RunFolder
from ..store.schema import ITS_TEST, Clock, Excluded, ExperimentRecord, Sources, Workload

# Measures a suite: the tests of one or two sides, each side in a fresh process, sample by sample in turns.


SAMPLE_NS, TEST_NS = 8_000_000, 50_000_000
"""Least time of a sample, and of all samples of a test in a process; one call where that takes longer."""

MOST_SAMPLES = 9
GROUP_FACTOR = 10
"""Sides that differ by more than this have different numbers of calls in a sample."""

REFERENCE_CALLS = 4
"""In the one sample of the reference benchmark, about four milliseconds."""

PROCESSES, SPARE = 20, 4
"""How many processes of each side there are, where no budget was given; more where an interval for so many tests at
once needs them, and then so many more than that."""

LOST = 3
"""So many processes may fail beside those that a test ended."""

WAITS = 1.1
"""A test whose wall time is always more than so many times its CPU time waits, or computes elsewhere: wall counts."""

LONG_NS, TOO_LONG_NS = 300_000_000, 10_000_000_000
"""Of longer calls the first is the only one before the samples; and a test of still longer ones is measured only by
itself: with others it would take all the time."""

COLLECT_SECONDS, TEST_SECONDS = 600.0, 600.0


@dataclass(frozen=True)
class Places:
    """Folders of a run's processes: for their files, the workbench's cache, and what they print."""

    scratch: Path
    cache: Path
    logs: Path

    def __str__(self) -> str:
        return f"what pytest printed is in {self.logs}"


@dataclass(frozen=True)
class Checkout:
    """A suite as it is in one checkout. name: in the run. root: the checkout; folder: where pytest is started there.
    words: of pytest's command line. python: of the environment in which it was built; empty: it was not."""

    name: str
    root: Path
    folder: Path
    words: tuple[str, ...]
    python: str = ""

    def begin(self, seed: int, places: Places) -> WorkerProcess:
        """A fresh process. seed: of its hashes, the same on all sides."""
        kept, log = places.scratch / self.name, places.logs / f"{self.name}.log"
        first = () if self.python else (self.folder, self.root, self.root / "src")  # before what a build installed
        paths = [str(path) for path in first if path.is_dir()]
        own_files = ["--basetemp", str(kept / "files"), "-o", f"cache_dir={kept / 'cache'}"]
        hello = {"folder": str(self.folder), "paths": [*dict.fromkeys(paths)], "words": [*own_files, *self.words]}
        own = {"PYTHONHASHSEED": str(seed), "PYTHONPYCACHEPREFIX": str(kept / "code"), "PYTHONDONTWRITEBYTECODE": ""}
        return WorkerProcess(
            threads=1, cache=places.cache, log=log, module="suites.process", hello=hello, own=own, variables={},
            python=self.python or sys.executable,  # as that of any environment: nothing of ours is on its path
        )  # fmt: skip


@dataclass
class Test:
    """What is known of one test of all sides so far. left_out: side → why it has no number there. waits: the least
    share of wall time over CPU time. rounds: how many it has; seconds: what they took. group, extra: what it
    says of itself."""

    left_out: dict[str, str] = field(default_factory=dict)
    waits: float = math.inf
    rounds: int = 0
    seconds: float = 0.0
    sampled: float = 0.0
    group: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Collected:
    """The suite as its sides have it: test → the sides, in the order in which the last side has its tests. errors:
    (side, where) → why that could not be collected. left_out: what the project's settings ask for and is not done.
    skipped: test → side → why it is no benchmark there. files: file of tests → side → its digest."""

    tests: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[tuple[str, str], str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    skipped: dict[str, dict[str, str]] = field(default_factory=dict)
    files: dict[str, dict[str, str]] = field(default_factory=dict)

    def problems(self) -> list[str]:
        """What could not be collected, with the tracebacks: once, where it is the same on all sides."""
        sides: dict[tuple[str, str], list[str]] = {}
        for (side, where), text in self.errors.items():
            sides.setdefault((where or "the suite", text), []).append(side)
        return [f"{where} cannot be collected in {', '.join(at)}:\n{text}" for (where, text), at in sides.items()]


class Pairs:
    """Pairs of processes, one of each side, until every test has its number of rounds."""

    def __init__(self, sides: Sequence[Checkout], seed: int) -> None:
        self.sides = sides
        self.rng = random.Random(f"suite {seed}")
        self.collected = Collected()
        self.tests: dict[str, Test] = {}
        self.number = 0  # of the pair of processes

    @contextmanager
    def processes(self, places: Places) -> Iterator[dict[str, WorkerProcess]]:
        """A fresh process of each side, with its tests collected. Raises WorkerFailed."""
        self.number += 1
        seed = self.rng.randrange(2**32)
        with ExitStack() as opened:
            begun = {}
            for side in self.rng.sample(self.sides, len(self.sides)):
                begun[side.name] = side.begin(seed, places)
                opened.callback(begun[side.name].close)
            asked = {name: each.begin("collect", COLLECT_SECONDS) for name, each in begun.items()}
            answers = {name: answer.result() for name, answer in asked.items()}
            if self.number == 1:
                self._collect(answers)
            yield begun

    def _collect(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        suite = self.collected
        for side in reversed(self.sides):
            answer = answers[side.name]
            if "ended" in answer:
                suite.errors[side.name, ""] = f"pytest ended with exit code {answer['ended']}"
            for where, text in answer.get("errors", {}).items():
                suite.errors[side.name, where] = text
            suite.left_out += [line for line in answer.get("left_out", ()) if line not in suite.left_out]
            for file, digest in answer.get("files", {}).items():
                suite.files.setdefault(file, {})[side.name] = digest
            for test in answer.get("tests", ()):
                suite.tests.setdefault(test, []).append(side.name)

    def take(self, tests: Sequence[str]) -> None:
        """Measure these, which all sides have."""
        self.tests |= {test: Test() for test in tests}

    def open(self, horizon: float) -> list[str]:
        """The tests that need more rounds, in a fresh order: file by file, so that fixtures of a file can be shared."""
        files: dict[str, list[str]] = {}
        for test, state in self.tests.items():
            if state.rounds < horizon and not state.left_out and test not in self.collected.skipped:
                files.setdefault(test.partition("::")[0], []).append(test)
        order = self.rng.sample([*files.values()], len(files))
        return [test for of_file in order for test in self.rng.sample(of_file, len(of_file))]

    def rounds(
        self, processes: Mapping[str, WorkerProcess], order: Sequence[str]
    ) -> Iterator[tuple[str, Round | None]]:
        """Every test of the order in these processes, and its round, where it has a number. One that ends a process
        ends the pair."""
        for test, following in zip(order, [*order[1:], ""], strict=True):
            try:
                turn = _Turn(processes, test, following, self.rng, TOO_LONG_NS if len(self.tests) > 1 else math.inf)
                samples = turn.samples()
                ended = turn.finish()
            except WorkerFailed as failure:
                gone = [name for name, process in processes.items() if not process.alive()]
                self.tests[test].left_out |= dict.fromkeys(gone or [*processes], failure.reason)
                yield test, None
                return
            state = self.tests[test]
            if turn.too_long:
                self.collected.skipped[test] = turn.too_long
                yield test, None
                continue
            for side, outcome in ended.items():
                if outcome["is"] == "failed":
                    state.left_out[side] = outcome["why"]
                elif outcome["is"] != "passed":
                    self.collected.skipped.setdefault(test, {})[side] = outcome["why"]
            if any(outcome["is"] != "passed" for outcome in ended.values()):
                yield test, None
                continue
            state.group, state.extra = turn.about
            state.rounds += 1
            state.waits = min(state.waits, turn.waits())
            state.sampled += sum(each.wall_ns for each in samples) / 1e9
            yield test, Round(test, self.number, state.rounds - 1, tuple(samples))


class _Turn:
    """One test in one process of each side. too_long: side → how long a call takes, where that is more than `most_ns`:
    then the other side has not begun."""

    def __init__(
        self, processes: Mapping[str, WorkerProcess], test: str, following: str, rng: random.Random, most_ns: float
    ) -> None:
        self.processes = processes
        self.too_long: dict[str, str] = {}
        self.rng = rng
        self.ended: dict[str, dict[str, str]] = {}
        self.about: tuple[str | None, Mapping[str, Any]] = None, {}
        self.ready: dict[str, dict[str, float]] = {}
        self.shares: dict[str, list[float]] = {}
        for name in self._order():
            answer = self._ask(name, "test", test=test, following=following)
            if answer is None:
                continue
            self.ready[name] = answer
            if answer["whole_ns"] > most_ns:
                self.too_long[name] = f"a call takes {answer['whole_ns'] / 1e9:.3g} s: measure this test by itself"
                break

    def _order(self) -> list[str]:
        return self.rng.sample([*self.processes], len(self.processes))

    def _ask(self, name: str, verb: str, **arguments: Any) -> Any:
        """The answer; None where the test has ended instead, now or before."""
        if name in self.ended:
            return None
        answer = self.processes[name].ask(verb, TEST_SECONDS, **arguments)
        if isinstance(answer, dict) and "outcome" in answer:
            self.ended[name], self.about = answer["outcome"], (answer["group"], answer["extra"])
            return None
        return answer

    def samples(self) -> list[Sample]:
        """All samples of the sides in turns, and one of the reference benchmark; fewer where a test ends early."""
        if self.ended or self.too_long:
            return []
        calls = self._calls()
        if any(each["whole_ns"] <= LONG_NS for each in self.ready.values()):
            for name in self._order():  # what else the machine did may have made the first calls seem long
                times = self._ask(name, "sample", calls=calls[name])
                if times is None:
                    return []
                taken_ns = max(times[1] if times[3] else times[0], 1) / calls[name]
                self.ready[name]["call_ns"] = min(self.ready[name]["call_ns"], taken_ns)
            calls = self._calls()
        longest = max(calls[name] * each["whole_ns"] for name, each in self.ready.items())
        count = min(MOST_SAMPLES, max(1, round(TEST_NS / longest)))
        taken: list[Sample] = []
        for number in range(count):
            order = [*self._order(), *[FUNCTION_REFERENCE] * (number == count // 2)]
            for position, name in enumerate(order):
                verb, process = ("reference", order[-2]) if name == FUNCTION_REFERENCE else ("sample", name)
                times = self._ask(process, verb, calls=calls[name])
                if times is None:
                    return []
                taken.append(Sample(name, number, position, 1, calls[name], *times[:3]))
                self.shares.setdefault(name, []).append(times[1] / max(times[0], 1) if times[3] else 1.0)
        return taken

    def waits(self) -> float:
        """The typical share of wall time over CPU time, of the side that waits more. Where a process never gives its
        core up, others take it away."""
        return max(statistics.median(self.shares[name]) for name in self.processes)

    def _calls(self) -> dict[str, int]:
        """In a sample, by side: the same number, so that the loop costs all the same."""
        most = {
            name: max(1, min(math.ceil(SAMPLE_NS / times["call_ns"]), int(4 * SAMPLE_NS / times["whole_ns"])))
            for name, times in self.ready.items()
        }
        call_ns = [times["call_ns"] for times in self.ready.values()]
        if max(call_ns) <= GROUP_FACTOR * min(call_ns):
            most = dict.fromkeys(most, min(most.values()))
        return {**most, FUNCTION_REFERENCE: REFERENCE_CALLS}

    def finish(self) -> dict[str, dict[str, str]]:
        """Let the tests end: what became of each."""
        for name in self.ready:
            self._ask(name, "finish")
        return self.ended


def processes_needed(tests: int, alpha: float) -> int:
    """With how many processes of each side so many tests have intervals that hold all at once."""
    least = 12
    while first_interval(LookPlan(alpha / max(tests, 1), least, one_sided=True)) > least:
        least += 1
    return least


SUITE = "suite"
"""What the one side is called that a run without a comparison has."""


class SuitePlan(Plan):
    """Tests that are known only once a process has collected them."""

    @property
    def calm(self) -> bool:
        """Python and the system have their way, as in people's own sessions."""
        return False


class SuiteRun(Run):
    """Measures a suite in place of a plan's workloads. budget: seconds, where they were given. wanted: the tests; None:
    all. result: what it came to."""

    result: Result

    def __init__(
        self,
        plan: SuitePlan,
        options: Options,
        progress: Progress,
        sides: Sequence[Checkout],
        budget: float | None,
        wanted: Sequence[str] | None,
    ) -> None:
        super().__init__(plan, options, progress)
        self.sources = Sources(variants={}, harness=digests.digest_of_folders((*MEASURING, ROOT / "harness/suites")))
        self.sides = tuple(sides)
        self.budget = budget
        self.wanted = wanted
        self.horizon = 0
        self.driver = Pairs(self.sides, options.seed)
        self.collected, self.tests = self.driver.collected, self.driver.tests

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

    def _measure(self, begun: float) -> None:
        """Pairs of processes until each test has its rounds. The first says how many there will be."""
        self.progress.phase("collecting the suite")
        (logs := self.folder.path / "log").mkdir(exist_ok=True)
        driver, lost, horizon = self.driver, 0, math.inf
        with tempfile.TemporaryDirectory(prefix="workbench-suite-", ignore_cleanup_errors=True) as scratch:
            places = Places(Path(scratch), self.cache, logs)
            while driver.number == 0 or ((tests := driver.open(horizon)) and lost <= LOST):
                started = time.monotonic()
                try:
                    with driver.processes(places) as processes:
                        if driver.number == 1:
                            tests = self._taken(places)
                            self._write_manifest("running")
                        for test, finished in driver.rounds(processes, tests):
                            state = self.tests[test]
                            state.seconds, started = state.seconds + time.monotonic() - started, time.monotonic()
                            if finished is not None:
                                self._keep(finished)
                            self._show(test, time.monotonic() - begun)
                except WorkerFailed as failure:
                    lost += 1
                    if driver.number == 1:
                        raise MeasureError(f"the suite cannot be started: {failure.reason}; {places}") from failure
                if driver.number == 1:
                    out = {test for test, state in self.tests.items() if state.left_out} | {*self.collected.skipped}
                    once = sum(self.tests[test].seconds for test in out)
                    horizon = self.horizon = self._planned(time.monotonic() - begun - once)

    def _taken(self, places: Places) -> list[str]:
        """The tests that all sides have, in the order of the first pair. Raises MeasureError where there are none."""
        tests = [test for test, sides in self.collected.tests.items() if len(sides) == len(self.sides)]
        if self.wanted is not None:
            tests = [test for test in tests if test in {*self.wanted}]
        if not tests:
            what = "both sides have" if len(self.sides) > 1 else "can be collected"
            raise MeasureError("\n".join([f"no benchmark that {what}; {places}", *self.collected.problems()]))
        self.driver.take(tests)
        self.horizon = processes_needed(len(tests), ALPHA)
        self.progress.phase(f"{len(tests)} benchmarks, {' and '.join(side.name for side in self.sides)}")
        return self.driver.open(math.inf)

    def _planned(self, seconds_each: float) -> int:
        """How many processes each side will have, by what the first ones took."""
        least = processes_needed(len(self.tests), ALPHA)
        planned = max(PROCESSES, least + SPARE) if self.budget is None else max(least, int(self.budget / seconds_each))
        self.progress.note(f"{planned} processes of each side, about {planned * seconds_each / 60:.1f} min in all")
        return planned

    def _show(self, test: str, spent: float) -> None:
        done = sum(state.rounds for state in self.tests.values())
        share = done / (len(self.tests) * max(self.horizon, 1))
        left = spent * (1 / share - 1) if share and self.driver.number > 1 else math.nan
        self.progress.step(f"{test}, process {self.driver.number}", min(share, 1.0), left)

    def _experiments(self) -> list[ExperimentRecord]:
        return [
            ExperimentRecord(
                workload=Workload(name=test, kind="call", payload=ITS_TEST, tokens=1, threads=1, calm=False),
                variants=[*(side.name for side in self.sides), FUNCTION_REFERENCE],
                baseline=self.sides[0].name,
                clock=Clock(default="wall" if WAITS < state.waits < math.inf else "cpu"),
                rounds=state.rounds,
                horizon=self.horizon or None,
                own_processes=True,
                seconds=state.seconds,
                wall_seconds=state.seconds,
                sampled_seconds=state.sampled,
                compared_seconds=state.sampled,
                excluded=[
                    Excluded(variant=name, reason=f"its test fails: {why}") for name, why in state.left_out.items()
                ],
            )
            for test, state in self.tests.items()
        ]


def measure_suite(
    side: Checkout, options: Options, progress: Progress, *, budget: float | None, wanted: Sequence[str]
) -> SuiteRun:
    """Measure these tests as they are now. Raises what `run.USER_ERRORS` lists."""
    run = SuiteRun(SuitePlan("compare", (), (), (), {}), options, progress, (side,), budget, wanted)
    run.result = run.measure()
    return run


def compare_suites(
    paths: Sequence[str], revisions: tuple[str, str], condition: Condition, options: Options, progress: Progress,
    budget: float | None, build: str = "",
) -> SuiteRun:  # fmt: skip
    """Measure a suite at two revisions, the first as baseline. build: the command that builds one. Raises what
    `run.USER_ERRORS` lists."""
    names = [f"{SUITE}-{name_of(revision)}" for revision in revisions]
    names[1] += "-2" * (names[0] == names[1])
    sides = [_side_at(name, revision, paths, build) for name, revision in zip(names, revisions, strict=True)]
    plan = SuitePlan("compare", (), ((names[0], names[1]),), (), {}, conditions=(condition,))
    run = SuiteRun(plan, options, progress, sides, budget, None)
    run.result = run.measure()
    return run


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


def call_seconds(folder: RunFolder) -> dict[str, list[float]]:
    """Test → the median time of a call in each process, by the clock that counts. Raises RunError."""
    samples, taken = folder.read_samples(), dict[str, list[float]]()
    for experiment in folder.manifest().experiments:
        here = samples.where(workload=experiment.workload.name, variant=SUITE)
        times = here[f"{experiment.clock.default or 'cpu'}_ns"] / here["repeats"] / 1e9
        medians = [float(statistics.median(times[here["process"] == number])) for number in {*here["process"].tolist()}]
        taken[experiment.workload.name] = medians
    return taken


# What a run of a suite shows: a row for each test.


def difference(row: RevisionRow, percent: float) -> str:
    """What became of a test, in words. percent: how much more time counts as slower."""
    if row.screen is None or row.verdict not in (SLOWER, NOT_SLOWER, INCONCLUSIVE):
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


def by_impact(rows: Sequence[RevisionRow]) -> list[RevisionRow]:
    """The slowest first, then what became faster, then the rest."""

    def impact(row: RevisionRow) -> tuple[int, float]:
        if row.screen is None:
            return 2, 0.0
        effect = row.screen.effect
        if effect.rounds and (effect.high < 1 or effect.low > 1):
            return 0, effect.ratio
        return 1, effect.ratio if effect.rounds else 2.0

    return sorted(rows, key=impact)


def suite_table(rows: Sequence[RevisionRow], revisions: tuple[str, str], percent: float) -> Table:
    """A row for each test of two sides; then why those have no number that have none."""
    base, new = map(revision_text, revisions)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in (f"time in {new} over {base}", f"in {base}", f"in {new}", "verdict", "test"):
        table.add_column(Text(head), overflow="fold")
    for row in rows:
        before = after = time = ""
        if row.screen is not None and row.screen.effect.rounds:
            before, after = call_times(row.screen.call_ns)
            time = time_text(row.screen.effect)
        table.add_row(*map(Text, (time, before, after, difference(row, percent), row.subject)))
        if row.reason and not time:
            table.add_row(*[""] * 4, Text(f"  {row.reason}"))
    return table


def time_table(seconds: Mapping[str, Sequence[float]]) -> Table:
    """A row for each test of one side: the time of a call over its processes, with its interval."""
    table = Table("time of a call", "processes", "test", box=None, pad_edge=False, header_style="bold")
    for test, taken in seconds.items():
        interval = fixed_interval([math.log(each) for each in taken], ALPHA)
        shown = "not measured"
        if taken:
            middle = 1e9 * math.exp(interval.centre)
            shown = call_times((middle, middle))[0]
        if math.isfinite(interval.high):
            shown += f" ± {100 * math.expm1((interval.high - interval.low) / 2):.2g} %"
        table.add_row(*map(Text, (shown, str(len(taken)), test)))
    return table
