"""`pytest --benchmark tests/bench`: the benchmarks among the tests of a session are measured in fresh processes first.
Then each of them hands what was measured over, so that pytest-benchmark's table and files show the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..plan.options import Options
    from ..suites.driver import Checkout
    from ..suites.run import SuiteResult


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
        from ..spec.exits import SessionExit
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
        from ..suites.run import call_seconds
        from ..suites.table import time_table

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
