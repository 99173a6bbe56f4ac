"""The fixture `versus`: do two functions in a test agree, and with `--benchmark`: which is faster?"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..plan.options import Options
    from ..session.versus import Given, Outcome

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
        from ..session.away import kept_at, published
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
