"""`pytest --benchmark tests/bench`: the benchmarks among the tests of a session are measured in fresh processes first.
Then each of them hands what was measured over, so that pytest-benchmark's table and files show the same numbers. And
the fixture `versus`. pytest imports this module in every session: what measures is imported where it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..plan.options import Options
    from ..session.questions import Given, Outcome
    from ..suites.run import Checkout, SuiteRun


def of_suite(item: pytest.Item) -> bool:
    """Whether a test is measured here: one that compares functions measures them itself."""
    from ..suites.measuring import is_benchmark

    return is_benchmark(item) and "versus" not in getattr(item, "fixturenames", ())


class SuiteSession:
    """The hooks of such a session. options: how a run is made, and the budget that was given."""

    def __init__(self, options: Callable[[], Options], budget: float | None) -> None:
        self.options = options
        self.budget = budget
        self.suite: SuiteRun | None = None

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
        show(time_table(call_seconds(self.suite.result.folder)), out)
        for line in self.suite.notes():
            show(Text(line), out)
        path = self.suite.result.folder.path
        terminalreporter.write_line(f"run: {path}")
        terminalreporter.write_line(f"later: workbench compare {path} NEW; two revisions: workbench compare-revisions")


def _side(config: pytest.Config) -> Checkout:
    """The suite as this session has it: the same settings, plugins and tests."""
    from ..suites.run import SUITE, Checkout

    given = config.known_args_namespace
    words = [*(["-c", str(config.inipath)] if config.inipath else []), "--rootdir", str(config.rootpath)]
    for name in dict.fromkeys(given.plugins):
        words += [] if name.startswith("llama_workbench") else ["-p", name]
    for setting in given.override_ini or ():
        words += ["-o", setting]
    return Checkout(SUITE, config.rootpath, config.invocation_params.dir, (*words, *config.args))


def _replay(item: pytest.Item, suite: SuiteRun, seconds: Sequence[float]) -> None:
    """Let a test hand its samples over in place of running again."""
    from ..suites.measuring import BENCHMARK
    from .benchmarks import ReplayedCase

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
            from ..session.questions import Disagreement, FunctionQuestion, Outcome  # not before a test asks for it

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
        from .progress import progress_on

        options = replace(options, no_causes=True)  # a test waits for one condition
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{request.node.name}-{len(self.outcomes)}")
        if options.run_dir:
            options = replace(options, run_dir=options.run_dir / name)
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            writer = request.config.get_terminal_writer()
            writer.line()
            with closing(progress_on(console(writer._file))) as progress:
                result = question.measure(options, progress)
        if result.interrupted:
            raise KeyboardInterrupt
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.outcomes:
            terminalreporter.section("workbench: comparisons")
        for name, outcome in self.outcomes:
            terminalreporter.write_line(f"{name}: {outcome}", red=outcome.fails)
            terminalreporter.write_line(f"  run: {outcome.run}")
