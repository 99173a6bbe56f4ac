"""What `pytest --benchmark` collects: one test a workload and variant, which replays what was measured beforehand.

pytest-benchmark times all of A and then all of B; the workbench measures a workload interleaved, and then each test
hands its samples over, so that pytest-benchmark's table, JSON and comparisons show the same numbers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ..evidence.evidence import clocks_of
from ..profilers.py_spy import PROFILES
from ..session.run import Result
from ..spec.words import Cause, SessionExit, of_left_out
from ..stats.samples import call_times_ns
from ..store.files import RunError
from ..store.folder import RunFolder
from ..store.gate_schema import Gate
from ..store.schema import Manifest
from ..store.verdict_schema import FLEET, HOME, too_early

if TYPE_CHECKING:
    from ..plan.options import Options
    from ..session.versus import Given, Outcome
    from ..suites.driver import Checkout
    from ..suites.run import SuiteResult


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
    return SessionExit.NOT_MEASURED if result.trouble else SessionExit.DONE


# `pytest --benchmark tests/bench`: the benchmarks among the tests of a session are measured in fresh processes first.
# Then each of them hands what was measured over, so that pytest-benchmark's table and files show the same numbers.


def of_suite(item: pytest.Item) -> bool:
    """Whether a test is measured here: one that compares functions measures them itself."""
    from ..suites.measuring import is_benchmark

    return is_benchmark(item) and "versus" not in getattr(item, "fixturenames", ())


class SuiteSession:
    """The hooks of such a session. options: how a run is made, and the budget that was given."""

    def __init__(self, options: Callable[[], Options], budget: float | None) -> None:
        self.options = options
        self.budget = budget
        self.suite: SuiteResult | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        is_off = session.config.option.collectonly or session.config.getoption("benchmark_disable", False)
        if is_off or session.testsfailed or not (items := [item for item in session.items if of_suite(item)]):
            return
        from ..report.terminal import console
        from ..session.run import USER_ERRORS
        from ..spec.words import SessionExit
        from ..suites.run import call_seconds, measure_suite
        from .progress import progress_on

        wanted = [item.nodeid for item in items]
        try:
            with closing(progress_on(console(session.config.get_terminal_writer()._file))) as progress:
                side, options = _side(session.config), self.options()
                self.suite = suite = measure_suite(side, options, progress, budget=self.budget, wanted=wanted)
        except USER_ERRORS as error:
            pytest.exit(f"could not measure: {error}", returncode=SessionExit.NOT_MEASURED)
        if suite.result.interrupted:
            raise KeyboardInterrupt
        seconds = call_seconds(suite.result.folder)
        for item in items:
            _replay(item, suite, seconds.get(item.nodeid, ()))

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.suite is None:
            return
        from rich.text import Text

        from ..report.terminal import console, show
        from ..suites.run import call_seconds, time_table

        terminalreporter.section("workbench: suite")
        out = console(terminalreporter._tw._file)
        show(time_table(call_seconds(self.suite.result.folder), self.suite.tests), out)
        for line in self.suite.notes():
            show(Text(line), out)
        path = self.suite.result.folder.path
        terminalreporter.write_line(f"run: {path}")
        terminalreporter.write_line(f"later: workbench compare {path} NEW; two revisions: workbench compare-revisions")


def _side(config: pytest.Config) -> Checkout:
    """The suite as this session has it: the same settings, plugins and tests."""
    from ..suites.driver import Checkout
    from ..suites.run import SUITE

    given = config.known_args_namespace
    words = [*(["-c", str(config.inipath)] if config.inipath else []), "--rootdir", str(config.rootpath)]
    for name in dict.fromkeys(given.plugins):
        words += [] if name.startswith("llama_workbench") else ["-p", name]
    for setting in given.override_ini or ():
        words += ["-o", setting]
    return Checkout(SUITE, config.rootpath, config.invocation_params.dir, (*words, *config.args))


def _replay(item: pytest.Item, suite: SuiteResult, seconds: Sequence[float]) -> None:
    """Let a test hand its samples over in place of running again."""
    from ..suites.measuring import BENCHMARK

    state, skipped = suite.tests.get(item.nodeid), suite.collected.skipped.get(item.nodeid, {})
    failed = next(iter(state.left_out.values()), "") if state else "the measuring process did not collect it"
    case = ReplayedCase(item.nodeid, suite.sides[0].name, named=True, seconds=tuple(seconds))
    case.facts = dict(state.extra) if state else {}
    marker = item.get_closest_marker(BENCHMARK)
    item.add_marker(pytest.mark.benchmark(**{**(marker.kwargs if marker else {}), "timer": case.timer}), append=False)

    def run() -> None:
        fixture = item.funcargs.get(BENCHMARK)  # type: ignore[attr-defined]
        if failed:
            pytest.fail(failed, pytrace=False)
        if skipped:
            pytest.skip("; ".join(skipped.values()))
        if state and seconds and type(fixture).__module__.startswith("pytest_benchmark"):
            fixture.group = state.group
            case.replay(fixture)

    item.runtest = run  # type: ignore[method-assign]


# The fixture `versus`: do two functions in a test agree, and with `--benchmark`: which is faster?


BUDGET_SECONDS = 30.0


class Comparisons:
    """A session's comparisons of functions. unasked: options of ours that do nothing in it. options: how a run is made;
    None where nothing is measured. for_versus: options of ours that only tests with `versus` heed."""

    def __init__(
        self, unasked: Sequence[str], options: Callable[[], Options] | None, for_versus: Sequence[str] = ()
    ) -> None:
        self.unasked = unasked
        self.options = options
        self.for_versus = for_versus
        self.outcomes: list[tuple[str, Outcome]] = []

    def pytest_report_header(self) -> str | None:
        if not self.unasked:
            return None
        names = ", ".join(f"--workbench-{name}" for name in self.unasked)
        return f"workbench: {names}: no effect without --benchmark, which measures"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Raises UsageError where options would be ignored in silence."""
        if not self.for_versus or session.testsfailed:
            return
        from ..suites.measuring import is_benchmark

        if not any("versus" in getattr(item, "fixturenames", ()) or is_benchmark(item) for item in session.items):
            names = " and ".join(f"--{name}" for name in self.for_versus)
            problem = "only tests with the fixture `versus` or `benchmark` use it, and none was found; leave it out"
            raise pytest.UsageError(f"{names}: {problem}")

    @pytest.fixture
    def versus(self, request: pytest.FixtureRequest) -> Callable[..., Outcome | None]:
        """versus(variant, baseline, payload=...): do two functions agree, and with --benchmark: which is faster?

        faster_than=1.2 fails the test unless the variant is proven to be more than 20 % faster, between=(0.98, 1.02)
        unless it is proven to be so many times as fast. check(got, expected) compares answers; budget: seconds.
        """

        def compare(
            variant: Given,
            baseline: Given,
            *,
            payload: Given,
            check: Given | None = None,
            faster_than: float | None = None,
            between: tuple[float, float] | None = None,
            threads: int | None = None,
            budget: float = BUDGET_SECONDS,
        ) -> Outcome | None:
            __tracebackhide__ = True
            from ..session.versus import Disagreement, FunctionQuestion, Outcome  # not before a test asks for it

            question = FunctionQuestion(variant, baseline, payload, check, faster_than, between, threads)
            question.condition()  # a mistake in it is told in every session
            wrong, outcome = "", None
            try:
                if self.options is None or (options := self.options()).gates_only:
                    question.gate()
                    return None
                if not request.config.getoption("workbench_budget"):
                    options = options.for_rounds(budget)
                outcome = Outcome.of(self._measured(request, question, options))
            except Disagreement as error:
                wrong = str(error)
            if outcome is None:
                pytest.fail(wrong, pytrace=False)
            self.outcomes.append((request.node.nodeid, outcome))
            if outcome.fails:
                pytest.fail(str(outcome), pytrace=False)
            return outcome

        return compare

    def _measured(self, request: pytest.FixtureRequest, question: Any, options: Options) -> Any:
        """The run. Its progress goes to the terminal, past pytest's capture."""
        from ..report.terminal import console
        from ..session.run import kept_at, published
        from .progress import progress_on

        options = replace(options, no_causes=True)  # a test waits for one condition
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{request.node.name}-{len(self.outcomes)}")
        if options.publish_to:
            options = kept_at(options, f"{options.publish_to}/{name}")
        elif options.run_dir:
            options = replace(options, run_dir=options.run_dir / name)
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            writer = request.config.get_terminal_writer()
            writer.line()
            with closing(progress_on(console(writer._file))) as progress:
                measuring = partial(question.measure, options, progress)
                result = published(measuring, options, progress) if options.publish_to else measuring()
        if result.interrupted:
            raise KeyboardInterrupt
        if result.trouble:
            pytest.fail(result.trouble, pytrace=False)
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.outcomes:
            terminalreporter.section("workbench: comparisons")
        for name, outcome in self.outcomes:
            terminalreporter.write_line(f"{name}: {outcome}", red=outcome.fails)
            terminalreporter.write_line(f"  run: {outcome.run}")
