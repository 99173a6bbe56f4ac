"""`workbench compare-revisions`"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llama_workbench.harness.plan.options import Options, Request, typed

from .shared import AsJson, Failure, print_json, takes

if TYPE_CHECKING:
    from llama_workbench.harness.session.revisions import Inputs

Subject = Annotated[
    list[str], typer.Argument(metavar="SUBJECT...", help="FILE:FUNCTION or MODULE:FUNCTION, with () for a factory.")
]
INPUTS = {
    "call": "Makes the arguments of a call; may be given several times.",
    "check": "Compares two answers, where == is not enough.",
    "workloads": "Of a build function: on what the models are compared.",
}
EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="WHERE",
        help="The environment that the sides run in; given twice: that of REV_A, then that of REV_B.",
    ),
]
Slower = Annotated[float, typer.Option(metavar="PERCENT", help="More time than this is a regression.")]


@takes(INPUTS | {"budget": "Of measuring, for each comparison (60; with --env 240)."})
def command(
    base: Annotated[str, typer.Argument(metavar="REV_A", help="The earlier revision: a commit, branch or tag.")],
    new: Annotated[str, typer.Argument(metavar="REV_B", help='The later one; "." is the working tree as it is now.')],
    subject: Subject,
    env: EnvOption = None,
    slower: Slower = 5.0,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Is a function slower in one revision of a repository than in another? Or a model?

    The files of both revisions are written into the cache, and each side imports its own, packages and all; the
    repository is not touched. Both are timed in the same rounds, or in two processes that share one core, so that
    what the machine does meets both. Their answers must agree first. Their arguments come from today's files. Run it
    inside the repository. Compiled code of the repository is not built: it must be installed.

    Without --call the subject is a build(config, weights, *, max_length), and the models that it builds are compared,
    on --workloads.

    With --env each side of a function runs in an environment of its own: two versions of torch, of Python or of a
    package of yours, with the same revision or two. It is a virtual environment, an interpreter, or what to install
    ('numpy==2.1', or 'python3.9 numpy==1.26': made once, and kept). The workbench need not be there. Each round then
    begins two processes anew. Modules in this folder come before those that an environment has installed.

    \b
    Exit codes:
      0  no subject is more than --slower percent slower: proven for all
      1  one is: proven
      2  cannot tell in this time, the answers differ, or it cannot be measured

    \b
    --json prints:
      {"format": 1, "base", "new", "slower_percent", "exit_code", "rows": [{"subject", "workload", "ratio", "low",
       "high", "rounds", "verdict", "reason", "where", "run"}],
       "environments": {side: {"python", "packages", "differs"}}}
      ratio: time in REV_A over time in REV_B; below 1 it became slower. verdict: slower, not slower or cannot tell.
      where: in which functions the difference is; empty where there is none, or nobody could look.

    \b
    Examples:
      workbench compare-revisions main . mypackage.text:encode --call bench.py:texts
      workbench compare-revisions v1.2 v1.3 bench.py:encode bench.py:decode --call bench.py:texts --slower 2
      workbench compare-revisions main . mypackage.model:build --workloads prefill-15m-t8
      workbench compare-revisions . . mypackage.text:encode --call bench.py:texts --env .venv-old --env numpy==2.1
    """
    from llama_workbench.harness.session.revisions import Inputs

    asked = typed(Request, given)
    inputs = Inputs(asked.calls, asked.check, asked.workloads, tuple(env or ()))
    seconds = given["budget"] if given["budget"] is not None else 240.0 if env else 60.0
    results = [(each, measured(each, (base, new), inputs, slower, seconds)) for each in subject]
    raise typer.Exit(_reported(results, base, new, slower, as_json=as_json))


def _reported(results: list[tuple[str, Any]], base: str, new: str, slower: float, *, as_json: bool) -> int:
    """The exit code, after all is printed. results: each subject with its run. Raises Failure."""
    from llama_workbench.harness.report.text import environments_text

    rows = [row for subject, result in results for row in _rows(subject, result)]
    environments = results[-1][1].manifest["environments"]
    words = {row["verdict"] for row in rows}
    code = 1 if "slower" in words else 2 if "cannot tell" in words else 0
    if as_json:
        head = {"format": 1, "base": base, "new": new, "slower_percent": slower, "exit_code": code}
        print_json(head | {"rows": rows, "environments": environments})
    else:
        _show(rows, base, new, slower)
        if said := environments_text(environments):
            typer.echo(said)
    return code


def options_for(budget: float) -> Options:
    """How each comparison is made. Raises Failure."""
    if not budget > 0:
        raise Failure(f"--budget {budget:g}: expected a number of seconds above 0")
    return Options(budget_seconds=budget)


def measured(
    subject: str, revisions: tuple[str, str], inputs: Inputs, percent: float, budget: float, *, causes: bool = True
) -> Any:
    """The run that compares one function. `causes`: whether it looks where a difference is. Raises Failure; progress
    goes to standard error."""
    import sys

    from llama_workbench.harness.plugin.progress import progress_on
    from llama_workbench.harness.report.terminal import console
    from llama_workbench.harness.session.revisions import compare_revisions
    from llama_workbench.harness.session.run import USER_ERRORS
    from llama_workbench.harness.spec.conditions import Condition

    if not 0 <= percent < float("inf"):
        raise Failure(f"--slower {percent:g}: expected a number of percent, 0 or more")
    condition = Condition("maybe-slower", percent)
    options = replace(options_for(budget), no_causes=not causes)
    try:
        with closing(progress_on(console(sys.stderr))) as progress:
            result = compare_revisions(subject, revisions, inputs, condition, options, progress)
    except USER_ERRORS as error:
        raise Failure(str(error)) from error
    if result.interrupted:
        raise KeyboardInterrupt
    return result


WORDS = {"supported": "slower", "refuted": "not slower"}


def _rows(subject: str, result: Any) -> list[dict[str, Any]]:
    from llama_workbench.harness.report.causes import explanations_in, why
    from llama_workbench.harness.spec.conditions import FAIL_IF

    found = explanations_in(result.folder)
    effects = [effect for verdict in result.verdicts if verdict.claim == FAIL_IF for effect in verdict.effects]
    if not effects:
        excluded = result.manifest["excluded"] or [{"variant": subject, "reason": "nothing was measured"}]
        raise Failure("\n".join(f"{each['variant']}: {each['reason']}" for each in excluded))
    return [
        {
            "subject": subject,
            "workload": effect.workload,
            "ratio": effect.ratio if effect.rounds else None,
            "low": effect.low if effect.rounds else None,
            "high": effect.high if effect.high < float("inf") else None,
            "rounds": effect.rounds,
            "verdict": WORDS.get(effect.verdict, "cannot tell"),
            "reason": "; ".join(effect.said),
            "where": "; ".join(why(found, [effect])),
            "run": str(_shown(result.folder.path)),
        }
        for effect in effects
    ]


def _shown(path: Path) -> Path:
    here = Path.cwd()
    return path.resolve().relative_to(here) if path.resolve().is_relative_to(here) else path


def _show(rows: list[dict[str, Any]], base: str, new: str, percent: float) -> None:
    from rich.text import Text

    from .shared import show, table

    columns = table(
        "subject", "called with", f"time in {new} over {base}", "rounds", f"more than {percent:g} % slower?"
    )
    for row in rows:
        size = "not measured"
        if row["ratio"] is not None:
            ends = "no interval yet" if row["high"] is None else f"{1 / row['high']:.3f}, {1 / row['low']:.3f}"
            size = f"{1 / row['ratio']:.3f} [{ends}]"
        columns.add_row(*map(Text, (row["subject"], row["workload"], size, str(row["rounds"]), row["verdict"])))
    show(columns)
    for row in rows:
        if row["verdict"] == "cannot tell" and row["reason"]:
            show(Text(f"{row['subject']}: {row['reason']}"))
    for row in rows:
        if row["where"]:
            show(Text(f"{row['subject']}: where the difference is: {row['where']}"))
    for run in dict.fromkeys(row["run"] for row in rows):
        show(Text(f"run: {run}"))
