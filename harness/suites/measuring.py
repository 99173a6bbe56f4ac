"""The plugin of a measuring process: it collects the suite, runs the tests that it is asked for, and is their fixture
`benchmark`, whose calls are timed in samples, each on request."""

from __future__ import annotations

import gc
import inspect
import json
import math
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from hashlib import sha256
from itertools import repeat
from resource import RUSAGE_SELF, getrusage
from time import perf_counter_ns, thread_time_ns
from typing import Any

import pytest

from llama_workbench.variants import function_yardstick

from ..worker.channel import Channel
from .others import PLUGIN, AsvBenchmark, AsvModules, LeftOut, leave_out

PRIME_NS = 5_000_000
"""A call that is shorter is made once untimed before each sample: the other side's sample left the caches cold."""

ENOUGH_NS, MOST_NS = 2_000_000, 50_000_000
"""Calls that take so long together say how long one takes; with what comes before and after, they take no longer."""

LOOKS, SLOW_NS = 12, 300_000_000
"""So many times a number of calls is timed at most to learn how long one takes, three times if that is no longer."""

BENCHMARK, MARKERS = "benchmark", ("benchmark", "codspeed_benchmark")

TEXT = 2000
"""Characters of a traceback that are told."""


class Meter:
    """Clocks and counters, stopped where nothing counts. spent: CPU time of the thread and wall time (ns), minor page
    faults, and how often the process gave its core up to wait."""

    def __init__(self) -> None:
        self.spent = [0, 0, 0, 0]

    def __enter__(self) -> None:
        used = getrusage(RUSAGE_SELF)
        self.before = used.ru_minflt, used.ru_nvcsw
        self.wall_ns, self.cpu_ns = perf_counter_ns(), thread_time_ns()

    def __exit__(self, *_: object) -> None:
        cpu_ns, wall_ns = thread_time_ns() - self.cpu_ns, perf_counter_ns() - self.wall_ns
        used = getrusage(RUSAGE_SELF)
        counted = used.ru_minflt - self.before[0], used.ru_nvcsw - self.before[1]
        self.spent = [one + more for one, more in zip(self.spent, (cpu_ns, wall_ns, *counted), strict=True)]


class UsedTwice(Exception):
    """A test called its fixture `benchmark` twice: which of the calls counts?"""


def is_benchmark(item: pytest.Item) -> bool:
    """Whether a test is one of a suite: it has the fixture `benchmark`, or a marker by which all of it is timed; or is
    asv's."""
    marked = any(item.get_closest_marker(name) for name in MARKERS)
    is_test = isinstance(item, pytest.Function) and (marked or BENCHMARK in item.fixturenames)
    return is_test or isinstance(item, AsvBenchmark)


def group_of(item: pytest.Item) -> str | None:
    """The group that a test's marker puts it into."""
    marker = item.get_closest_marker(BENCHMARK)
    return marker.kwargs.get("group") if marker else None


def measure(channel: Channel, words: Sequence[str]) -> int:
    """Run pytest with these words, and answer until there are no more commands; its exit code if it ends before."""
    # An editable install of the workbench is loaded before pytest looks for plugins: no warning of it may be an error.
    known = "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"
    ours = ["-p", "no:llama_workbench.harness.plugin.plugin", "-W", known]
    measuring = Measuring(channel)
    code = pytest.main([*ours, *words], plugins=[measuring, AsvModules()])
    if measuring.is_asked:
        os._exit(int(code))  # a plugin failed; the log has it
    return int(code)


class Measuring:
    """Takes the place of pytest's loop over all tests."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.errors: dict[str, str] = {}
        self.reports: list[pytest.TestReport] = []
        self.was_timed = False  # in the test that runs
        self.seconds: list[float] = []  # of a call, by the wall clock, of each of its samples
        self.about: dict[str, Any] = {}  # its group, and what it says of itself
        self.is_asked = False

    # -- what pytest asks ----------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(
        self, early_config: pytest.Config, parser: pytest.Parser
    ) -> Generator[None, object, object]:
        """Leave out what the project's settings ask for and would disturb; of pytest-benchmark what skips or saves."""
        leave_out(early_config, parser, list(early_config.invocation_params.args))
        names = ("only", "skip", "disable", "autosave", "save", "compare", "compare_fail", "json", "histogram")
        values: dict[str, Any] = {f"benchmark_{name}": None for name in names}
        values["benchmark_storage"] = f"file://{early_config.known_args_namespace.basetemp}-saved"
        early_config.pluginmanager.register(LeftOut(values, ""))
        return (yield)

    def pytest_configure(self, config: pytest.Config) -> None:
        for name in MARKERS:
            config.addinivalue_line("markers", f"{name}: a benchmark")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """The last fixture of a name counts; pytest-benchmark wants none beside its own, and has nothing to do here."""
        for plugin in session.config.pluginmanager.get_plugins():
            if getattr(plugin, "__name__", "") == "pytest_benchmark.plugin":
                session.config.pluginmanager.unregister(plugin)
        session.config.pluginmanager.register(Fixtures(self), PLUGIN)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors[report.nodeid] = report.longreprtext[-TEXT:]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items if is_benchmark(item)}
        left_out = [each.line for each in session.config.pluginmanager.get_plugins() if isinstance(each, LeftOut)]
        gc.collect()
        gc.freeze()  # no collection in a timed call walks what pytest and the imports hold
        self.is_asked = self.channel.receive() is not None
        files = {name.partition("::")[0]: sha256(item.path.read_bytes()).hexdigest() for name, item in items.items()}
        suite = {"tests": [*items], "files": files, "errors": self.errors, "left_out": [*filter(None, left_out)]}
        self.answer(suite)
        while (command := self.channel.receive()) is not None:
            item = items[command["test"]]
            self.reports, self.was_timed = [], False
            self.about = {"group": group_of(item), "extra": {}}
            item.ihook.pytest_runtest_protocol(item=item, nextitem=items.get(command["following"]))
            self.answer({"outcome": self.outcome(), **json.loads(json.dumps(self.about, default=str))})
        session._setupstate.teardown_exact(None)
        os._exit(0)  # nothing is reported or saved here

    # -- what the parent asks ------------------------------------------------------------------------------------------

    def answer(self, value: Any) -> None:
        self.channel.answer({"ok": value})

    def outcome(self) -> dict[str, str]:
        """What became of a test: passed, failed, skipped, or untimed, and why."""
        for report in self.reports:
            if report.failed:
                crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", "") or report.longreprtext
                return {"is": "failed", "why": " ".join(str(crash).split())[:300], "text": report.longreprtext[-TEXT:]}
        for report in self.reports:
            if report.skipped:
                why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
                why = str(getattr(report, "wasxfail", "") or why).removeprefix("Skipped: ")
                return {"is": "skipped", "why": why}
        return {"is": "passed" if self.was_timed else "untimed", "why": "" if self.was_timed else "it times no call"}

    def timed(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function in samples, as the parent asks for them; what its last call returned."""
        answer: Any = None

        def calls(number: int, meter: Meter) -> None:
            nonlocal answer
            with meter:
                for _ in repeat(None, number):
                    answer = function(*args, **kwargs)

        self.in_samples(calls)
        return answer

    def timed_one_by_one(
        self,
        function: Callable[..., Any],
        arguments: Callable[[], tuple[Sequence[Any], dict[str, Any]]],
        teardown: Callable[..., Any] | None,
        together: int = 1,
    ) -> Any:
        """The same with what comes before and after each call, outside the clock. together: so many calls have it in
        common."""
        answer: Any = None

        def calls(number: int, meter: Meter) -> None:
            nonlocal answer
            for begun in range(0, number, together):
                args, kwargs = arguments()
                with meter:
                    for _ in repeat(None, min(together, number - begun)):
                        answer = function(*args, **kwargs)
                if teardown is not None:
                    teardown(*args, **kwargs)

        self.in_samples(calls)
        return answer

    def in_samples(self, calls: Callable[[int, Meter], None]) -> None:
        """Say how long a call takes, then answer commands until the parent has enough; its last is answered when the
        test has ended. calls: makes so many. Raises what the function raises: the answer is then the test's outcome."""
        if self.was_timed:
            raise UsedTwice("the fixture `benchmark` can be used once in a test")

        def sample(number: int, calls: Callable[[int, Meter], None] = calls) -> list[int]:
            calls(number, meter := Meter())
            return meter.spent

        begun, number = perf_counter_ns(), 1
        call_ns = whole_ns = math.inf
        for place in range(LOOKS):
            started = perf_counter_ns()
            if started - begun > (MOST_NS if place > 2 else SLOW_NS) or (place > 2 and call_ns * number >= ENOUGH_NS):
                break
            number *= 4 if call_ns * number < ENOUGH_NS else 1
            cpu_ns, wall_ns, _, waited = sample(number)
            call_ns = min(call_ns, max((wall_ns if waited else cpu_ns) / number, 1.0))
            whole_ns = min(whole_ns, (perf_counter_ns() - started) / number)
        gc.collect()
        self.was_timed, self.seconds = True, []
        self.answer({"call_ns": call_ns, "whole_ns": whole_ns})
        while (command := self.channel.receive()) is not None:
            if command["do"] == "finish":
                self.seconds = self.seconds or [call_ns / 1e9]
                return
            timed = calls if command["do"] == "sample" else reference
            if call_ns < PRIME_NS:
                sample(1, timed)
            self.answer(spent := sample(command["calls"], timed))
            if timed is calls:
                self.seconds.append(spent[1] / command["calls"] / 1e9)
        os._exit(1)  # the parent is gone


def reference(number: int, meter: Meter) -> None:
    """The reference benchmark, by which saved runs are compared."""
    numbers = function_yardstick.inputs(1)
    with meter:
        for _ in repeat(None, number):
            function_yardstick.work(numbers)


class Fixtures:
    """What stands before all other plugins: the fixtures that a suite's tests ask for, and the call of a test."""

    def __init__(self, measuring: Measuring) -> None:
        self.measuring = measuring
        self.inner = False  # in a hook that is called again, to be timed

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Of a test that is marked and does not use the fixture, all is timed."""
        if self.inner or BENCHMARK in pyfuncitem.fixturenames or not is_benchmark(pyfuncitem):
            return None
        if inspect.iscoroutinefunction(pyfuncitem.obj):  # whichever plugin runs those
            self.measuring.timed(self.as_a_hook, (pyfuncitem,), {})
        else:
            names = pyfuncitem._fixtureinfo.argnames
            self.measuring.timed(pyfuncitem.obj, (), {name: pyfuncitem.funcargs[name] for name in names})
        return True

    def as_a_hook(self, item: pytest.Function) -> None:
        """Call the test as pytest does."""
        self.inner = True
        try:
            item.ihook.pytest_pyfunc_call(pyfuncitem=item)
        finally:
            self.inner = False

    @pytest.fixture
    def benchmark(self, request: pytest.FixtureRequest) -> Iterator[Benchmark]:
        made = Benchmark(self.measuring, request.node)
        yield made
        self.measuring.about = {"group": made.group, "extra": made.extra_info}


class Benchmark:
    """The fixture `benchmark`, as pytest-benchmark and pytest-codspeed have it."""

    cprofile_stats = None

    def __init__(self, measuring: Measuring, node: Any) -> None:
        self._measuring = measuring
        self.name, self.fullname, self.group = node.name, node.nodeid, group_of(node)
        callspec = getattr(node, "callspec", None)
        self.param, self.params = getattr(callspec, "id", None), getattr(callspec, "params", None)
        self.extra_info: dict[str, Any] = {}
        self.options: dict[str, Any] = {}
        self.enabled, self.disabled, self.has_error, self.skipped = True, False, False, False
        self.stats: Any = None

    def __call__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        answer = self._measuring.timed(function, args, kwargs)
        self._tell()
        return answer

    def pedantic(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
        iterations: int = 1,
    ) -> Any:
        """Rounds are the workbench's. setup and teardown are called before and after so many calls as a round has
        iterations; without them a round is nothing."""
        if setup is None and teardown is None:
            return self(target, *args, **(kwargs or {}))

        def arguments() -> tuple[Sequence[Any], dict[str, Any]]:
            made = setup() if setup is not None else None
            return made or (args, kwargs or {})

        answer = self._measuring.timed_one_by_one(target, arguments, teardown, iterations)
        self._tell()
        return answer

    def _tell(self) -> None:
        """For tests that read what was measured: the samples of this process are the rounds."""
        from pytest_benchmark.stats import Metadata

        self.stats = Metadata(self, 1, self.options)
        for seconds in self._measuring.seconds:
            self.stats.update(seconds)
