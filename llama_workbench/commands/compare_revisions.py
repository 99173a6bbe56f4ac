"""`workbench compare-revisions` and `bisect`: functions and models in two revisions of a repository."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from llama_workbench.harness.plan.options import Options, Request, typed
from llama_workbench.harness.spec.words import Cause, VerbExit

from .shared import MOST_USED, AsJson, Failure, Listed, ends, print_json, show, table, takes, write_file

if TYPE_CHECKING:
    from llama_workbench.harness.baselines.revisions import RevisionRow
    from llama_workbench.harness.report.comparison import Screen
    from llama_workbench.harness.session.questions import Inputs
    from llama_workbench.harness.session.run import Result
    from llama_workbench.harness.spec.regions import Condition, Kind
    from llama_workbench.harness.store.schema import SideEnvironment

Subject = Annotated[
    list[str],
    typer.Argument(
        metavar="FUNCTION...",
        help="FILE:FUNCTION or MODULE:FUNCTION, with () if it returns the function to call; or tests/bench, a suite of "
        "pytest-benchmark, pytest-codspeed or asv; repeatable.",
    ),
]
INPUTS = {
    "call": "Input generator, as in bench.py:texts: called with a seed, it returns a call's arguments; repeatable.",
    "check": "Function that decides whether two results are equal. [default: ==, arrays within rounding]",
    "workloads": "For functions that build models: workloads to compare them on. [default: a prefill and a decode]",
}
EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="WHERE",
        help="Environment to run in; given twice: for REV_A, then for REV_B. [default: this one]",
    ),
]
Build = Annotated[
    str,
    typer.Option(
        "--build",
        metavar="COMMAND",
        help="Command that builds a revision, such as 'pip install .', in an environment of its own, which is kept.",
    ),
]
Gate = Annotated[
    str,
    typer.Option(
        metavar="WHAT,WHAT", help="Metrics that set the exit code: time, or time,instructions (needs valgrind)."
    ),
]
MarkdownFile = Annotated[
    Path | None,
    typer.Option(
        "--markdown", metavar="FILE", help="Also write a summary in Markdown to this file, for a pull request."
    ),
]
Slower = Annotated[float, typer.Option(metavar="PERCENT", help="Percent more time that counts as slower.")]


@ends(
    {
        VerbExit.DONE: "nothing is more than --slower percent slower: proven for all that both revisions have",
        VerbExit.AGAINST: "something is: proven. With --gate time,instructions also by over 0.5 % more instructions",
    },
    refuses=True,
)
@takes(
    INPUTS
    | {
        "budget": "Measuring time for each comparison, in seconds. [default: 60, with --env or --build 240]",
        "strict": "Exclude functions that start processes or threads, or change a setting of the whole process.",
    }
)
def compare_revisions(
    base: Annotated[str, typer.Argument(metavar="REV_A", help="Earlier revision: a commit, branch or tag.")],
    new: Annotated[str, typer.Argument(metavar="REV_B", help='Later revision; "." is the working tree as it is now.')],
    subject: Subject,
    env: EnvOption = None,
    build: Build = "",
    slower: Slower = 5.0,
    gate: Gate = "time",
    markdown: MarkdownFile = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Is a function, or a model, slower in one revision of a repository than in another?

    Run this inside the repository. Your files are not touched: the files of both revisions are copied into the cache,
    and each revision imports its own packages. Both are timed in the same rounds, after their results were compared.
    The input generator is taken from today's files. Compiled code is built with --build, or must be installed.

    A folder or file of tests is a suite: each of its benchmarks is timed as it is, with a row by test. All rows share
    the 1 % chance that one is wrongly called slower. By itself it takes 20 processes of each side.

    Without --call the function must be a build(config, weights, *, max_length). Then models are compared, on
    --workloads.

    With --env functions run in other environments: two versions of torch, of Python or of your package, with the same
    revision or two. WHERE is a virtual environment, an interpreter, or packages to install ('numpy==2.1', or
    'python3.9 numpy==1.26'), which are installed once and kept. The workbench need not be installed there. Each round
    then has two fresh processes. Modules in this folder are found before those that are installed in an environment.

    With --build COMMAND each revision is copied, and the command runs in the copy, once for the same files. What it
    installs is kept in the cache, and only this revision finds it. What is installed here is found there too.

    \b
    Exit codes:

    A function that one of the revisions does not have, or that cannot be imported in REV_A, is reported as "missing".
    The others set the exit code. If all are missing it is 2.

    \b
    --json prints:
      {"format": 1, "base", "new", "slower_percent", "exit_code", "rows": [{"subject", "workload", "ratio", "low",
       "high", "rounds", "verdict", "cause", "reason", "instructions_percent", "where", "run"}],
       "environments": {side: {"python", "packages", "differs", "variables", "options"}}}
      ratio: time in REV_A over that in REV_B; below 1 it is slower. verdict: slower, not slower, refused, inconclusive,
      missing. reason: why it is inconclusive, or what decided instead of the time.
      instructions_percent: null if uncounted.
      where: in which functions the difference is; empty: none, or not examined.

    \b
    Examples:
      workbench compare-revisions main . mypackage.text:encode --call bench.py:texts
      workbench compare-revisions main . tests/bench
      workbench compare-revisions main . mypackage:fast --call bench.py:texts --build 'pip install --no-deps .'
      workbench compare-revisions v1.2 v1.3 bench.py:encode bench.py:decode --call bench.py:texts --slower 2
      workbench compare-revisions main . mypackage.model:build --workloads prefill-15m-t8
      workbench compare-revisions . . mypackage.text:encode --call bench.py:texts --env .venv-old --env numpy==2.1
    """
    from llama_workbench.harness.baselines.revisions import exit_code, revisions_markdown
    from llama_workbench.harness.baselines.thresholds import gate_of
    from llama_workbench.harness.calls.revisions import revision_text
    from llama_workbench.harness.report.text import environments_text
    from llama_workbench.harness.store.forms import plain
    from llama_workbench.harness.suites.run import is_suite

    if build and env:
        raise Failure(f"--build {build!r}: makes the environments of both revisions; leave out --env")
    if build and os.environ.pop("PYTHONPATH", ""):
        typer.echo("workbench: PYTHONPATH is left out: both revisions would import from there", err=True)
    revisions, (before, after) = (base, new), map(revision_text, (base, new))
    environments: Mapping[str, SideEnvironment] = {}
    if any(map(is_suite, subject)):
        lone = [f"--{name}" for name in ("call", "check", "workloads", "strict") if given[name]]
        lone += ["--env"] * bool(env) + [f"--gate {gate}"] * (gate != "time")
        if lone or not all(map(is_suite, subject)):
            functions = [path for path in subject if not is_suite(path)]
            suite_path = next(path for path in subject if is_suite(path))
            raise Failure(f"{' '.join([*functions, *lone])}: not with a suite of tests: {suite_path}; leave it out")
        rows = _suite_rows(subject, revisions, condition("slower", "--slower", slower), given["budget"], build, as_json)
    else:
        decides = {*gate_of(gate)}
        if decides not in ({"time"}, {"time", "instructions"}):
            raise Failure(f"--gate {gate}: expected time, or time,instructions")
        counts = "instructions" in decides  # where times cannot decide
        inputs, seconds = inputs_of(given, 240.0 if env or build else 60.0, env or ())
        inputs, asked_if = replace(inputs, build=build), condition("maybe-slower", "--slower", slower)

        def measure(name: str) -> Result:
            return measured(name, revisions, inputs, asked_if, seconds, counts=counts, strict=given["strict"])

        rows, environments = _rows(subject, measure, counts=counts)
        if not as_json:
            _show(rows, after, before, slower)
    code, line = exit_code(rows), environments_text(environments)
    if markdown is not None:
        write_file(markdown, revisions_markdown(rows, before, after, slower, line))
    if as_json:
        head = {"format": 1, "base": base, "new": new, "slower_percent": slower, "exit_code": code}
        print_json(head | {"rows": [row.to_json() for row in rows], "environments": plain(environments)})
    elif line:
        typer.echo(line)
    raise typer.Exit(code)


def _suite_rows(
    paths: Sequence[str],
    revisions: tuple[str, str],
    asked: Condition,
    budget: float | None,
    build: str,
    as_json: bool,
) -> list[RevisionRow]:
    """Compare a suite of benchmarks, and print a row for each of its tests. Raises Failure."""
    from llama_workbench.harness.baselines.revisions import RevisionRow
    from llama_workbench.harness.suites.run import by_impact, compare_suites, suite_table

    if budget is not None:
        _check_budget(budget)
    with _progress() as progress:
        suite = compare_suites(paths, revisions, asked, Options(), progress, budget, build)
    result = _whole(suite.result)
    run = str(shown(result.folder.path))
    screens = asked_screens(paths[0], result)
    rows = [RevisionRow(screen.effect.workload, screen, run=run) for screen in screens]
    rows += [RevisionRow(test, is_missing=True, why=f"only in {side}") for test, side in suite.only_at().items()]
    rows = by_impact(rows)
    if not as_json:
        show(suite_table(rows, revisions, asked.percent))
    for line in (*suite.notes(), f"run: {run}"):
        typer.echo(line, err=as_json)
    return rows


def _rows(
    subjects: Sequence[str], measure: Callable[[str], Result], *, counts: bool
) -> tuple[list[RevisionRow], Mapping[str, SideEnvironment]]:
    """What each subject came to, and the environments of the sides. What goes wrong with one takes no other's row away;
    where nothing else happened, that of the first is raised."""
    from llama_workbench.harness.baselines.revisions import RevisionRow
    from llama_workbench.harness.session.questions import MissingAt
    from llama_workbench.harness.session.run import USER_ERRORS

    user_errors: tuple[type[Exception], ...] = (Failure, *USER_ERRORS)
    rows: list[RevisionRow] = []
    faults: list[Exception] = []
    environments: Mapping[str, SideEnvironment] = {}
    for name in subjects:
        try:
            result = measure(name)
            screens = asked_screens(name, result)
        except MissingAt as error:
            typer.echo(f"workbench: {error}", err=True)
            rows.append(RevisionRow(name, is_missing=True, why=error.reason))
        except user_errors as error:
            faults.append(error)
            rows.append(RevisionRow(name, why=str(error)))
        else:
            environments = result.manifest.environments
            entries = [entry for experiment in result.manifest.experiments for entry in experiment.excluded]
            lacking = {entry.variant for entry in entries if entry.cause is Cause.NOT_IMPORTED}
            run = str(shown(result.folder.path))
            rows += [RevisionRow(name, each, counts, run, lacking == {each.effect.baseline}) for each in screens]
    if len(faults) == len(subjects):
        raise faults[0]
    return rows, environments


def inputs_of(given: Mapping[str, Any], usual_seconds: float, environments: Sequence[str] = ()) -> tuple[Inputs, float]:
    """What the sides are called with, and for how many seconds they are measured; `given`: the options of INPUTS, and
    `budget`, as they were typed."""
    from llama_workbench.harness.session.questions import Inputs

    asked, budget = typed(Request, given), given["budget"]
    inputs = Inputs(asked.calls, asked.check, asked.workloads, tuple(environments))
    return inputs, usual_seconds if budget is None else budget


def asked_screens(subject: str, result: Result) -> list[Screen]:
    """What the run says of its condition, on each thing that the subject was called with. Raises Failure."""
    from llama_workbench.harness.report.comparison import screens
    from llama_workbench.harness.report.standings import evidence_of
    from llama_workbench.harness.spec.regions import FAIL_IF

    folder, manifest = result.folder, result.manifest
    asked = [verdict for verdict in result.verdicts if verdict.claim == FAIL_IF and verdict.effects]
    if not asked:
        excluded = [f"{each.variant}: {each.reason}" for each in manifest.excluded]
        raise Failure("\n".join(excluded or [f"{subject}: nothing was measured"]))
    return screens(folder, asked, evidence_of(folder, manifest))


def condition(kind: Kind, option: str, percent: float) -> Condition:
    """What is asked of a comparison. option: that gave the percent. Raises Failure."""
    from llama_workbench.harness.spec.regions import Condition

    if not 0 <= percent < float("inf"):
        raise Failure(f"{option} {percent:g}: expected a number of percent, 0 or more")
    return Condition(kind, percent)


def measured(
    subject: str,
    revisions: tuple[str, str],
    inputs: Inputs,
    asked: Condition,
    budget: float,
    *,
    causes: bool = True,
    counts: bool = False,
    strict: bool = False,
) -> Result:
    """The run that compares one function. causes: whether it looks where a difference is. counts: whether instructions
    are counted. strict: as in `Options`. Raises Failure; progress goes to standard error."""
    from llama_workbench.harness.session.questions import compare_revisions as compare_sides

    _check_budget(budget)
    options = Options(budget_seconds=budget, no_causes=not causes, count_instructions=counts, strict=strict)
    with _progress() as progress:
        return _whole(compare_sides(subject, revisions, inputs, asked, options, progress))


def _check_budget(seconds: float) -> None:
    if not seconds > 0:
        raise Failure(f"--budget {seconds:g}: expected a number of seconds above 0")


def _progress() -> AbstractContextManager[Any]:
    """Progress on standard error."""
    from llama_workbench.harness.plugin.progress import progress_on
    from llama_workbench.harness.report.terminal import console

    return closing(progress_on(console(sys.stderr)))


def _whole(result: Result) -> Result:
    """The same, unless it was interrupted."""
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def shown(path: Path) -> Path:
    """As it is told here: relative to this folder where it lies below it."""
    here = Path.cwd()
    return path.resolve().relative_to(here) if path.resolve().is_relative_to(here) else path


def _show(rows: list[RevisionRow], new: str, base: str, percent: float) -> None:
    from llama_workbench.harness.baselines.revisions import MISSING, UNDECIDED

    counted = any(row.counted for row in rows)
    columns = table(
        "function",
        "inputs",
        f"time in {new} over {base}",
        "processes",
        *["instructions"] * counted,
        f"more than {percent:g} % slower?",
    )
    for row in rows:
        called_with, time, processes, instructions = row.cells
        columns.add_row(*map(Text, (row.subject, called_with, time, processes, *[instructions] * counted, row.verdict)))
    show(columns)
    for row in rows:
        if row.reason and (row.verdict in (*UNDECIDED, MISSING) or row.verdict != row.by_time):
            show(Text(f"{row.subject}: {row.reason}"))
    for row in rows:
        if row.screen and row.screen.why:
            show(Text(f"{row.subject}: why: {row.screen.why}"))
    for run in dict.fromkeys(row.run for row in rows if row.run):
        show(Text(f"run: {run}"))


@ends(
    {
        VerbExit.DONE: "the commit (or the few that are left) is printed",
        VerbExit.COULD_NOT: "BAD is not proven to be slower, or it cannot be measured: the reason is printed",
    }
)
@takes(INPUTS | {"budget": "Measuring time for each comparison, in seconds. [default: 60]"})
def bisect(
    good: Annotated[str, typer.Argument(metavar="GOOD", help="Revision in which the function was fast.")],
    bad: Annotated[str, typer.Argument(metavar="BAD", help="Later revision in which it is slow.")],
    subject: Annotated[str, typer.Argument(metavar="FUNCTION", help="FILE:FUNCTION or MODULE:FUNCTION.")],
    slower: Slower = 5.0,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Which commit made a function, or a model, slower?

    BAD must be at least --slower percent slower than GOOD; then commits in between are tested by binary search, along
    first parents. Each of them is compared with GOOD: it counts as slow if it is slower by more than half of what BAD
    is proven to be, or by more than --slower if that is more.

    Each answer is wrong with at most 1 % probability, and the named commit with at most the sum. A commit that is
    inconclusive, cannot be imported or gives other results is skipped; then several commits may be left. The search
    assumes that one commit is to blame.

    \b
    Exit codes:

    \b
    --json prints:
      {"format": 1, "commits": [..], "limit_percent", "chance_percent",
       "steps": [{"commit", "slow": true|false|null, "ratio", "low", "high"}]}

    \b
    Examples:
      workbench bisect v1.2 main mypackage.text:encode --call bench.py:texts
      workbench bisect v1.2 main mypackage.model:build --workloads prefill-15m-t8
    """
    inputs, budget = inputs_of(given, 60.0)
    if len(inputs.payloads) > 1:
        raise Failure("--call: give only one input generator; bisect needs one number for each commit")
    if not inputs.payloads and len(inputs.workloads) != 1:
        raise Failure(
            f"{subject}: needs an input generator: add --call FILE:FUNCTION, or --workloads NAME if it builds a model"
        )
    bisection, named = _found(good, bad, subject, inputs, slower, budget)
    if as_json:
        print_json({"format": 1, **bisection})
        return
    worst, steps = bisection["steps"][0], len(bisection["steps"])
    which = "this commit made it slower" if len(named) == 1 else f"one of these {len(named)} commits made it slower"
    size = f"{1 / worst['ratio']:.3f} [{1 / worst['high']:.3f}, {1 / worst['low']:.3f}] times the time of {good}"
    show(Text("\n".join([*named, f"{which}: {subject} takes {size} in {bad}."])))
    show(Text(f"{steps} comparisons; wrong with at most {bisection['chance_percent']:g} % probability."))


def _found(
    good: str, bad: str, subject: str, inputs: Inputs, slower: float, budget: float
) -> tuple[dict[str, Any], list[str]]:
    """What the search found, as plain values, and the commits that are left, in words. Raises Failure."""
    from llama_workbench.harness.calls.revisions import repository_of, subject_of
    from llama_workbench.harness.evidence.effect import ALPHA
    from llama_workbench.harness.session.questions import Disagreement, Outcome, Step
    from llama_workbench.harness.session.questions import bisect as search

    def measure(commit: str, percent: float) -> Step:
        asked = condition("maybe-slower", "--slower", percent)
        outcome = Outcome.of(measured(subject, (good, commit), inputs, asked, budget, causes=False))
        slow = {"supported": True, "refuted": False}.get(outcome.verdict)
        words = {True: "slower", False: "not slower", None: "inconclusive"}[slow]
        typer.echo(f"{subject_of(repository_of(Path.cwd()), commit)}: {words}", err=True)
        return Step(commit, slow, outcome.ratio, outcome.low, outcome.high)

    try:
        bisection = search(good, bad, slower_percent=slower, alpha=ALPHA, measure=measure, folder=Path.cwd())
        return asdict(bisection), [subject_of(repository_of(Path.cwd()), commit) for commit in bisection.commits]
    except Disagreement as error:  # that of any other commit is passed over
        raise Failure(f"{bad} cannot be compared with {good}: {error}") from error


COMMANDS = {
    "compare-revisions": (
        compare_revisions,
        Listed(
            0,
            MOST_USED,
            {"compare-revisions main . m:f": "is m:f slower now? (--call FILE:FUNCTION generates its inputs)"},
        ),
    ),
    "bisect": (bisect, Listed(5, MOST_USED, {"bisect v1.2 main m:f": "which commit made it slower?"})),
}
