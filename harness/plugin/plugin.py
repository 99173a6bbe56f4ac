"""`pytest --benchmark`: measures in fresh processes, replays the samples into pytest-benchmark, prints the verdicts.

Without `--benchmark` it offers one fixture, `versus`, which checks that two functions agree. It takes no name that
someone else may want for an option: its own are `--workbench-NAME`, and short ones come with `--benchmark`. Heavy
imports wait until that is seen.
"""

from __future__ import annotations

import gc
import math
import shlex
import signal
import sys
import threading
from collections.abc import Collection, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from llama_workbench.variants.spelling import did_you_mean

from ..plan.options import LONG, Option, Options, Request, Start, every_option, more_sides, typed
from ..slices import tables
from ..spec.words import SessionExit
from ..suites.others import AsvModules, leave_out
from .suite import Comparisons, SuiteSession

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ..plan.experiments import Plan
    from ..report.comparison import Screen
    from ..session.run import Result
    from ..session.unfinished import Unfinished
    from ..store.folder import RunFolder

BENCHMARKS = Path(__file__).with_name("benchmarks.py")
GROUP = "workbench"
NO_CASE = SimpleNamespace(params={})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--workbench-NAME` for each option."""
    about = "workbench: is it faster? (with --benchmark, --NAME is short for --workbench-NAME)"
    exits = f"  exit codes of a session that measures:\n{SessionExit.listed()}\n  options"
    group = parser.getgroup(GROUP, f"{about}\n{exits}")
    for option in every_option():
        group.addoption(*option.names(LONG), dest=f"workbench_{option.key}", **option.argparse())


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, object, object]:
    """With `--benchmark`: add the short names that no plugin and no conftest.py has taken."""
    if "--benchmark" not in args:
        return (yield)
    with suppress(pytest.UsageError):  # the words are read again, and then it is said
        # pytest looks for conftest.py at each word that may be a path: values of short names are none.
        known = parser.parse_known_args(_in_full(args, parser))
        early_config.known_args_namespace.file_or_dir = known.file_or_dir
    leave_out(early_config, parser, _in_full(early_config.invocation_params.args, parser))
    if "--strict" in args:  # pytest has one of its own; here the word means ours as well
        args.insert(0, "--workbench-strict")
    result = yield
    add_short_names(parser)
    _refuse_unknown(args, parser)
    return result


def _refuse_unknown(args: Sequence[str], parser: pytest.Parser) -> None:
    """Raises UsageError for a word that looks like an option, is none, and has a name near it."""
    names = _names_taken(parser)
    for word in (word.partition("=")[0] for word in args if word.startswith("--") and len(word) > 2):
        if word not in names and (hint := did_you_mean(word, names, quote="")):
            raise pytest.UsageError(f"{word}: no such option; {hint}")


def add_short_names(parser: pytest.Parser) -> None:
    """Add `--NAME` for each option where that is free; none where `--benchmark` is someone else's."""
    taken = _names_taken(parser)
    if "--benchmark" in taken:
        return
    for option in every_option():
        if free := [name for name in option.names() if name not in taken]:
            settings = option.argparse() | {"help": f"short for {LONG}{option.name}"}
            parser.getgroup(GROUP).addoption(*free, dest=f"workbench_{option.key}", **settings)


def _in_full(args: Sequence[str], parser: pytest.Parser) -> list[str]:
    """The words of a command with each short name of ours as the long one."""
    ours = {name for option in every_option() for name in option.names()} - _names_taken(parser)
    return [f"{LONG}{word[2:]}" if word.partition("=")[0] in ours else word for word in args]


def _names_taken(parser: pytest.Parser) -> set[str]:
    """Names of all options so far. pytest has no public way to ask, and it says of a clash only that there is one."""
    groups = [*parser._groups, parser._anonymous]
    return {name for group in groups for option in group.options for name in option.names()}


def _line(config: pytest.Config) -> dict[str, Any]:
    """What the command line has of our options, by their keys."""
    return {option.key: config.getoption(f"workbench_{option.key}", option.default) for option in every_option()}


def _given(config: pytest.Config) -> list[Option]:
    """Options of ours that have another value than they have by themselves."""
    line = _line(config)
    return [option for option in every_option() if line[option.key] != option.default]


# --- one session that measures -------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """With `--benchmark`: plan what is asked for, and take the session over."""
    if not config.getoption("workbench_benchmark", False) or hasattr(config, "workerinput"):
        config.pluginmanager.register(Comparisons([option.name for option in _given(config)], None))
        return
    if getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("--benchmark measures in one process at a time: leave out -n (pytest-xdist)")
    from ..session import run as session

    start, only_tests = typed(Start, _line(config)), _only_tests(config)
    for_versus = [option.name for option in _given(config) if option.name != "benchmark"] if only_tests else []
    config.pluginmanager.register(Comparisons([], partial(options_of, config), for_versus))
    if only_tests:
        if start.on:
            raise pytest.UsageError(f"--on {start.on}: tests compare functions on this machine only; leave out --on")
        config.pluginmanager.register(SuiteSession(partial(options_of, config), config.getoption("workbench_budget")))
        config.pluginmanager.register(AsvModules())
        return
    try:
        request, options = typed(Request, _line(config)), options_of(config)
        more = more_sides(_paths(config)) if request.compare is not None else []
        request = replace(request, compare=(*(request.compare or ()), *more) or None)
        earlier, fleet = None, _fleet(config, start, request, options)
        if fleet is not None:
            plan, options = fleet.plan, fleet.options
        elif start.goes_on:
            from ..session.run import go_on

            earlier, options = go_on(
                _run_alone(config, start.goes_on), options, request, budget=config.getoption("workbench_budget")
            )
            plan = earlier.plan
        else:
            session.check(request, options)
            plan = session.plan_run(request, options)
    except session.USER_ERRORS as error:
        raise pytest.UsageError(str(error)) from error
    compared = {name for pair in plan.ad_hoc for name in pair}
    named = {*request.variants, *plan.added, *plan.functions.sources, *(compared if plan.mode == "compare" else ())}
    config.pluginmanager.register(Session(plan, options, named, earlier, fleet))
    tests = [path for path in _paths(config) if path not in more]
    config.args = [str(BENCHMARKS), *tests]  # this session measures; tests that are not named have their own


def _fleet(config: pytest.Config, start: Start, request: Request, options: Options) -> Any:
    """The run over a cluster, where `--on` names one; else None. Raises UsageError, and as `run.USER_ERRORS` lists."""
    if not start.on and start.on_each_kind:
        raise pytest.UsageError("--on-each-kind needs a cluster: add --on ray or --on ray://HEAD")
    if not start.on:
        return None
    from ..session.judging import several_machines

    earlier = _run_alone(config, start.goes_on) if start.goes_on else None
    if earlier is None and config.getoption("keyword", ""):
        raise pytest.UsageError(f"--on {start.on}: choose with --workloads and --variants; leave out -k")
    kinds, budget = start.on_each_kind, config.getoption("workbench_budget")
    measured_on = several_machines().measured_on
    return measured_on(start.on, request, options, on_each_kind=kinds, earlier=earlier, budget=budget)


def options_of(config: pytest.Config) -> Options:
    """How a run is made, by the session's options."""
    line = _line(config)
    options = replace(typed(Options, line), gates_only=bool(config.getoption("benchmark_disable", False)))
    if line["budget"] is None:
        options = options.usual(typed(Request, line))
    return options


def _paths(config: pytest.Config) -> list[str]:
    """The tests that the user named."""
    return list(config.args) if config.args_source is pytest.Config.ArgsSource.ARGS else []


def _only_tests(config: pytest.Config) -> bool:
    """Whether tests are named and nothing that this session would measure beside them: only these run, and where they
    compare functions that is measured."""
    return bool(_paths(config)) and not any(option.asks for option in _given(config))


def _run_alone(config: pytest.Config, name: str) -> RunFolder:
    """The run of `--continue`. Raises UsageError where other options say what to measure."""
    from llama_workbench.results import run_to_go_on

    words = [f"--{option.name}" for option in _given(config) if not option.again]
    words += ["-k"] if config.getoption("keyword", "") else []
    words += ["--benchmark-disable"] if config.getoption("benchmark_disable", False) else []
    if words:
        raise pytest.UsageError(f"--continue {name}: the run keeps its own plan; leave out {' and '.join(words)}")
    return run_to_go_on(name)


class _Benchmarks(pytest.Module):
    """Our module under its one import name, whatever the folders around it are called."""

    def _getobj(self) -> Any:
        return import_module(f"{__package__}.benchmarks")


class Session:
    """The hooks of a session that measures: a test for each workload and variant, which replays what was measured."""

    def __init__(
        self,
        plan: Plan,
        options: Options,
        named: Collection[str],
        earlier: Unfinished | None = None,
        fleet: Any = None,
    ) -> None:
        """named: variants that the user named. earlier: the run that goes on. fleet: the run over a cluster."""
        from .benchmarks import ReplayedCase

        self.plan = plan
        self.options = options
        self.earlier = earlier
        self.fleet = fleet
        self.cases = {
            (experiment.workload.name, variant): ReplayedCase(experiment.workload.name, variant, variant in named)
            for experiment in plan.experiments
            for variant in experiment.variants
        }
        self.result: Result | None = None
        self.screens: list[Screen] = []
        self.tables: list[RenderableType] = []

    def pytest_report_header(self) -> str:
        plan = self.plan
        claims, effects, workloads = len(plan.claims), len(plan.comparisons()), len(plan.experiments)
        what = f"{claims} claim{'s' * (claims != 1)}"
        if plan.mode == "compare":
            what = f"comparing {plan.sides[0]} with {', '.join(plan.sides[1:])}"
        goes_on = f"going on with {self.earlier.folder.path.name}, " if self.earlier else ""
        return (
            f"workbench: {goes_on}{what}, {effects} effect{'s' * (effects != 1)} on "
            f"{workloads} workload{'s' * (workloads != 1)}, {self.options.at_most}{self._after_rounds()}"
        )

    def _after_rounds(self) -> str:
        """What the options ask for after the rounds, and about how long that takes."""
        from ..evidence.effect import duration
        from ..measure.profiling import seconds_each
        from ..metrics.registry import metrics

        options, looks = self.options, sum(len(experiment.variants) for experiment in self.plan.experiments)
        asked = {
            metric.title: metric.seconds_each
            for metric in metrics()
            if metric.option and getattr(options, metric.option)
        }
        if options.profile:
            asked["profiles"] = seconds_each()
        return f", then {' and '.join(asked)} (about {duration(looks * sum(asked.values()))})" if asked else ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        return _Benchmarks.from_parent(parent, path=module_path) if module_path == BENCHMARKS else None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "case" not in metafunc.fixturenames or metafunc.module.__name__ != f"{__package__}.benchmarks":
            return
        mark = pytest.mark.benchmark
        cases = [
            pytest.param(case, id=f"{workload}-{variant}", marks=mark(group=workload, timer=case.timer))
            for (workload, variant), case in self.cases.items()
        ]
        metafunc.parametrize("case", cases)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Measure what is selected, before the first test replays it."""
        config = session.config
        if config.option.collectonly or session.testsfailed:
            return
        from ..session import run as runs
        from .benchmarks import ReplayedCase, load
        from .progress import progress_on

        selected = {
            (case.workload, case.variant)
            for item in session.items
            if isinstance(case := getattr(item, "callspec", NO_CASE).params.get("case"), ReplayedCase)
        }
        plan = self.plan if self.earlier or self.fleet else self.plan.restricted(selected)
        if self.plan.experiments and not plan.experiments:
            problem = "-k left no two variants that are compared; select both variants of a comparison"
            pytest.exit(f"nothing to measure: {problem}", returncode=SessionExit.NOTHING)
        try:
            with closing(progress_on(_console(config))) as progress:
                if self.fleet:
                    self.result = self.fleet.measure(progress)
                else:
                    self.result = runs.Run(plan, self.options, progress, self.earlier).measure()
        except runs.USER_ERRORS as error:
            pytest.exit(f"could not measure: {error}", returncode=SessionExit.NOT_MEASURED)
        if self.result.interrupted:
            _let_ctrl_c_end_it(config)
        load(self.cases, self.result)

    @pytest.hookimpl(tryfirst=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Pytest collects garbage five times before it ends, and Python once more: a quarter of a second of walking
        through modules, for someone who waits. A session within a program that goes on leaves its garbage alone."""
        if list(config.invocation_params.args) == sys.argv[1:]:
            gc.freeze()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.result is None:
            return
        _let_ctrl_c_end_it(session.config)
        from .benchmarks import exit_of

        others = session.testsfailed > sum(case.fell for case in self.cases.values())
        only_gates = self.options.gates_only
        self.tables = [] if only_gates else tables(self.result.folder)
        self.screens = [] if only_gates or self.tables else _screens_of(self.result)
        if (self.screens or self.tables) and not any(
            str(word).startswith("--benchmark-") for word in session.config.invocation_params.args
        ):
            # pytest-benchmark's own: the screen has the times, so there is no second table of them.
            session.config._benchmarksession.quiet = True  # type: ignore[attr-defined]
        session.exitstatus = exit_of(self.cases, self.result, gates_only=only_gates, others_failed=others)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        if self.result is None:
            return
        from ..report.causes import explanations_in
        from ..report.outcome import further, unmet
        from ..report.terminal import screen_report, settle_lines, show, verdict_report
        from ..report.text import excluded_lines

        out = _console(config)
        terminalreporter.section("workbench")
        for table in self.tables:
            show(table, out)
        if self.tables:
            for line in excluded_lines(self.result.manifest):
                terminalreporter.write_line(f"left out: {line}")
        elif self.screens:
            for screen in self.screens:
                show(screen_report(screen, out.width), out)
                for line in settle_lines(screen.verdict, self.result.manifest):
                    terminalreporter.write_line(line)
            for line in excluded_lines(self.result.manifest):
                terminalreporter.write_line(f"left out: {line}")
        elif self.options.gates_only:
            terminalreporter.write_line("--benchmark-disable: outputs were checked, and nothing was timed")
            for line in excluded_lines(self.result.manifest):
                terminalreporter.write_line(f"left out: {line}")
        else:
            causes = explanations_in(self.result.folder)
            show(verdict_report(self.result.verdicts, self.result.manifest, causes), out)
        failed = self.result.failed_conditions()
        for condition in failed:
            terminalreporter.write_line(f"fails: --fail-if {condition}", red=True)
        asked = [verdict for verdict in self.result.verdicts if verdict.is_condition]
        for condition in self.result.manifest.fail_if if self.screens or self.tables else ():
            if condition not in failed and (of_it := [each for each in asked if each.part == str(condition)]):
                terminalreporter.write_line(f"{unmet(*of_it)}: --fail-if {condition}")
        path, here = self.result.folder.path, Path.cwd()
        shown = path.resolve().relative_to(here) if path.resolve().is_relative_to(here) else path
        terminalreporter.write_line(f"run: {shown} (workbench show, workbench compare)")
        terminalreporter.write_line(f"open it in a browser: workbench dashboard {shlex.quote(str(shown))}")
        if command := further(path, self.result.verdicts, self.result.manifest, self.options):
            terminalreporter.write_line(f"to continue: {command}")


MOST_SCREENS = 3
"""So many comparisons of functions are shown on a screen each; more are rows of a table."""


def _screens_of(result: Result) -> list[Screen]:
    """The screens of a run that compared functions and nothing else, as `workbench show` prints them; none of other
    runs, and of those that have no interval yet."""
    from ..report.comparison import screens
    from ..report.standings import evidence_of
    from ..store.files import RunError

    asked = [verdict for verdict in result.verdicts if verdict.is_comparison]
    of_functions = all(each.workload.kind == "call" for each in result.manifest.experiments)
    of_one_machine = not result.manifest.machines
    if not (asked and of_functions and of_one_machine) or any(
        not (verdict.is_comparison or verdict.is_condition) for verdict in result.verdicts
    ):
        return []
    try:
        comparisons = screens(result.folder, asked, evidence_of(result.folder, result.manifest))
    except RunError:
        return []
    has_intervals = all(math.isfinite(screen.effect.low) or math.isfinite(screen.effect.high) for screen in comparisons)
    return comparisons if len(comparisons) <= MOST_SCREENS and has_intervals else []


def _let_ctrl_c_end_it(config: pytest.Config) -> None:
    """From here on only what is on disk is shown: Ctrl-C ends that at once, without pytest's traceback."""
    ours = threading.current_thread() is threading.main_thread()
    if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

        def restore() -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)

        config.add_cleanup(restore)


def _console(config: pytest.Config) -> Console:
    from ..report.terminal import console

    return console(config.get_terminal_writer()._file)
