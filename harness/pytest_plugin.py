"""`pytest --benchmark`: measures in fresh processes, replays the samples into pytest-benchmark, prints the verdicts.

Without `--benchmark` this plugin does nothing. Heavy imports wait until the option is seen.
"""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rich.console import Console

    from .plan.experiments import Plan
    from .run import Options, Result

BENCHMARKS = Path(__file__).with_name("benchmarks.py")

# --- options -------------------------------------------------------------------------------------------------------


OPTIONS: Mapping[str, dict[str, Any]] = {
    "benchmark": {
        "action": "store_true",
        "help": "measure the variants and judge the claims instead of running tests; with no other option: every claim",
    },
    "claims": {"metavar": "ID,ID", "default": "", "help": "only these claims (`workbench claims` lists them)"},
    "claims-dir": {"metavar": "FOLDER", "help": "folder of claim files (default: those that ship)"},
    "variants": {
        "metavar": "NAME,NAME",
        "default": "",
        "help": "only these variants (`workbench variants` lists them)",
    },
    "workloads": {
        "metavar": "NAME,NAME",
        "default": "",
        "help": "only these workloads (`workbench workloads` lists them)",
    },
    "add-variant": {
        "metavar": "FILE:FUNCTION",
        "action": "append",
        "default": [],
        "help": "a variant of yours, named after its build function; may be given several times",
    },
    "compare": {
        "nargs": 2,
        "metavar": ("A", "B"),
        "help": "no claim: is B faster or slower than A (the baseline) by more than 1 %%, or the same?",
    },
    "budget": {
        "type": float,
        "metavar": "SECONDS",
        "help": "stop measuring after this many seconds (default 480; with --all 1530); open effects are inconclusive",
    },
    "all": {
        "action": "store_true",
        "help": "settle the whole register: also the claims and parts of claims that take long",
    },
    "threads": {
        "type": int,
        "metavar": "N",
        "help": "threads of each workload (default: 1, as it says)",
    },
    "device": {
        "metavar": "KIND",
        "default": "cpu",
        "help": "where the models compute: cpu (default), or cuda (CUDA_VISIBLE_DEVICES says which of several)",
    },
    "checkpoint": {
        "metavar": "PATH",
        "help": "a real Llama (Hugging Face folder or .gguf file) for all",
    },
    "seed": {"type": int, "metavar": "N", "default": 0, "help": "seed of weights, prompts and orders (default 0)"},
    "run-dir": {"metavar": "FOLDER", "help": "where the run is kept (default: results/runs/<time>)"},
    "profile": {
        "action": "store_true",
        "help": "then profile each variant: py-spy stacks, memray peaks",
    },
    "profile-native": {
        "action": "store_true",
        "help": "--profile with native frames (kernels) in the stacks; slows the profiled calls 1.5-2.5 times",
    },
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--NAME` for each option; where another plugin has taken that name, `--workbench-NAME` remains."""
    group = parser.getgroup("workbench", "workbench: claims about Llama architectures, settled by measurement")
    for name, settings in OPTIONS.items():
        destination = f"workbench_{name.replace('-', '_')}"
        try:
            group.addoption(f"--{name}", f"--workbench-{name}", dest=destination, **settings)
        except ValueError:
            group.addoption(f"--workbench-{name}", dest=destination, **settings)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


# --- the state of one benchmark session ----------------------------------------------------------------------------


class ReplayTimer:
    """A timer for pytest-benchmark: answers 0, then a sample, over and over (seconds)."""

    __module__ = "workbench"
    __name__ = "interleaved_thread_time"

    def __init__(self) -> None:
        self._readings: Iterator[float] = itertools.repeat(0.0)

    def load(self, seconds: Sequence[float]) -> None:
        """The samples to replay."""
        self._readings = itertools.chain.from_iterable((0.0, value) for value in seconds)

    def __call__(self) -> float:
        return next(self._readings, 0.0)


@dataclass
class Case:
    """One variant on one workload, as pytest sees it."""

    workload: str
    variant: str
    timer: ReplayTimer = field(default_factory=ReplayTimer)
    seconds: tuple[float, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    skipped: str = "not measured"

    def replay(self, benchmark: Any) -> None:
        """Hand the samples to pytest-benchmark; skip with the reason where there are none."""
        if not self.seconds:
            pytest.skip(self.skipped)
        self.timer.load(self.seconds)
        benchmark.extra_info.update(self.facts)
        benchmark.pedantic(_nothing, rounds=len(self.seconds), iterations=1)


def _nothing() -> None:
    pass


@dataclass
class State:
    plan: Plan
    options: Options
    cases: dict[tuple[str, str], Case]
    result: Result | None = None


_STATE = pytest.StashKey[State]()


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("workbench_benchmark", False) or hasattr(config, "workerinput"):
        return
    if getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("--benchmark measures one thing at a time: leave out -n (pytest-xdist)")
    from . import run as session
    from .plan.selection import Request

    get = config.getoption
    compare = get("workbench_compare")
    try:
        request = Request(
            claims=_words(get("workbench_claims")),
            variants=_words(get("workbench_variants")),
            workloads=_words(get("workbench_workloads")),
            added=tuple(get("workbench_add_variant")),
            compare=(compare[0], compare[1]) if compare else None,
            everything=get("workbench_all"),
            threads=get("workbench_threads"),
            device=get("workbench_device"),
        )
        options = session.Options(
            seed=get("workbench_seed"),
            profile=get("workbench_profile"),
            profile_native=get("workbench_profile_native"),
        )
        if request.everything:
            options = replace(options, budget_seconds=session.WHOLE_BUDGET_SECONDS)
        if get("workbench_budget") is not None:
            options = replace(options, budget_seconds=get("workbench_budget"))
        if get("workbench_run_dir"):
            options = replace(options, run_dir=Path(get("workbench_run_dir")))
        if get("workbench_checkpoint"):
            options = replace(options, checkpoint=Path(get("workbench_checkpoint")))
        if get("workbench_claims_dir"):
            options = replace(options, claims_folder=Path(get("workbench_claims_dir")))
        options = replace(options, gates_only=bool(get("benchmark_disable", False)))
        session.check(request, options)
        plan = session.plan_run(request, options)
    except session.USER_ERRORS as error:
        raise pytest.UsageError(str(error)) from error
    cases = {
        (experiment.workload.name, variant): Case(experiment.workload.name, variant)
        for experiment in plan.experiments
        for variant in experiment.variants
    }
    config.stash[_STATE] = State(plan, options, cases)
    config.args = [str(BENCHMARKS)]  # this session measures; tests have their own


def pytest_report_header(config: pytest.Config) -> list[str]:
    state = config.stash.get(_STATE, None)
    if state is None:
        return []
    plan = state.plan
    what = (
        f"comparing {plan.ad_hoc[0][0]} with {plan.ad_hoc[0][1]}"
        if plan.mode == "compare"
        else (f"{len(plan.claims)} claims")
    )
    return [
        f"workbench: {what}, {len(plan.comparisons())} effects on {len(plan.experiments)} workloads, "
        f"at most {state.options.budget_seconds:.0f} s of measuring"
    ]


# --- collection ----------------------------------------------------------------------------------------------------


class _Benchmarks(pytest.Module):
    """Our module under its one import name, whatever the folders around it are called."""

    def _getobj(self) -> Any:
        return import_module(f"{__package__}.benchmarks")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if module_path != BENCHMARKS or parent.config.stash.get(_STATE, None) is None:
        return None
    module: pytest.Module = _Benchmarks.from_parent(parent, path=module_path)
    return module


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    state = metafunc.config.stash.get(_STATE, None)
    if state is None or "case" not in metafunc.fixturenames or metafunc.module.__name__ != f"{__package__}.benchmarks":
        return
    metafunc.parametrize(
        "case",
        [
            pytest.param(
                case,
                id=f"{case.workload}-{case.variant}",
                marks=pytest.mark.benchmark(group=case.workload, timer=case.timer),
            )
            for case in state.cases.values()
        ],
    )


# --- measuring -----------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Measure what is selected, before the first test replays it."""
    config = session.config
    state = config.stash.get(_STATE, None)
    if state is None or config.option.collectonly or session.testsfailed:
        return
    from . import run as runs
    from .progress import progress_on

    selected = {
        (case.workload, case.variant)
        for item in session.items
        if isinstance(item, pytest.Function) and isinstance(case := item.callspec.params.get("case"), Case)
    }
    plan = runs.restricted(state.plan, selected)
    if state.plan.experiments and not plan.experiments:
        pytest.exit(
            "nothing to measure: -k left no two variants that a claim compares; select both sides of one", returncode=5
        )
    progress = progress_on(_console(config))
    try:
        state.result = runs.Run(plan, state.options, progress).measure()
    except runs.USER_ERRORS as error:
        progress.close()
        pytest.exit(f"could not measure: {error}", returncode=3)
    finally:
        progress.close()
    if state.result.interrupted:
        _let_ctrl_c_end_it(config)
    _load(state)


def _let_ctrl_c_end_it(config: pytest.Config) -> None:
    """Nothing is left but to show what lies on disk already: Ctrl-C ends that at once, without pytest's traceback."""
    ours = threading.current_thread() is threading.main_thread()
    if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        config.add_cleanup(_hear_ctrl_c)


def _hear_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _load(state: State) -> None:
    """Give every case its samples, in seconds a call on the clock that counts, and the facts beside them."""
    from . import run as runs

    assert state.result is not None
    for (workload, variant), found in runs.replay(state.result).items():
        case = state.cases.get((workload, variant))
        if case is not None:
            case.seconds, case.facts, case.skipped = found.seconds, found.facts, found.skipped


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    state = session.config.stash.get(_STATE, None)
    if state is None or state.result is None:
        return
    _let_ctrl_c_end_it(session.config)
    if state.result.interrupted:
        session.exitstatus = pytest.ExitCode.INTERRUPTED
    elif not state.result.verdicts and not state.options.gates_only:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    state = config.stash.get(_STATE, None)
    if state is None or state.result is None:
        return
    from .report.terminal import show, verdict_report
    from .store.forms import plain

    terminalreporter.section("workbench: verdicts")
    result = state.result
    out = _console(config)
    if state.options.gates_only:
        terminalreporter.write_line("--benchmark-disable: gates only, nothing was timed and nothing judged")
    else:
        show(verdict_report(plain(result.verdicts), result.manifest), out)
    terminalreporter.write_line(
        f"run: {_shown(result.folder.path)} (workbench judge, workbench compare, make dashboard)"
    )


def _shown(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


# --- progress ------------------------------------------------------------------------------------------------------


def _console(config: pytest.Config) -> Console:
    from .report.terminal import console

    return console(config.get_terminal_writer()._file)
