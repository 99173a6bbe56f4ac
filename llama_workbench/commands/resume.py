"""`workbench resume`"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ..results import run_to_go_on
from .shared import Failure, RunArgument, show, write

if TYPE_CHECKING:
    from llama_workbench.harness.run import Options, Result
    from llama_workbench.harness.store.folder import RunFolder


Budget = Annotated[
    float | None,
    typer.Option("--budget", metavar="SECONDS", help="Of rounds; by default as many as its last sitting had."),
]
AddVariant = Annotated[
    list[str] | None,
    typer.Option("--add-variant", metavar="FILE:FUNCTION", help="A variant of yours that the run measured."),
]
Compare = Annotated[
    tuple[str, str] | None,
    typer.Option("--compare", metavar="A B", help="The functions that the run compares: FILE:FUNCTION each."),
]
Call = Annotated[list[str] | None, typer.Option("--call", metavar="FILE:FUNCTION", help="What they are called with.")]
Check = Annotated[
    str | None,
    typer.Option("--check", metavar="FILE:FUNCTION", help="What compares their answers, if it was given."),
]
Checkpoint = Annotated[
    Path | None, typer.Option("--checkpoint", metavar="PATH", help="The checkpoint, if the run was given one.")
]
ClaimsDir = Annotated[
    Path | None, typer.Option("--claims-dir", metavar="FOLDER", help="Where its claims are, if not those we ship.")
]
On = Annotated[str | None, typer.Option("--on", metavar="CLUSTER", help="Of a run over a cluster: ray, or ray://HEAD.")]


def command(
    run: RunArgument,
    budget: Budget = None,
    add_variant: AddVariant = None,
    compare: Compare = None,
    call: Call = None,
    check: Check = None,
    checkpoint: Checkpoint = None,
    claims_dir: ClaimsDir = None,
    on: On = None,
) -> None:
    """Go on with a run that was interrupted or killed, or ended with open verdicts.

    It measures the same plan in the same folder: all finished rounds are kept, variants pass their gates anew, and the
    same stopping rule goes on over old and new rounds together. `pytest --benchmark --continue RUN` does the same.

    Runs keep no paths, so code of yours is given again; where it is missing, the message says how.

    It is refused where the rounds to come would be of another kind: the code of a variant or of the workbench, a
    library, the machine, the weights, or the text of a claim changed. What was left out of the run stays out.

    \b
    Exit codes:
      0    measured and judged, whatever the verdicts
      1    a condition of --fail-if is met
      2    refused, or could not: the reason is printed, and the run is as it was
      130  interrupted (Ctrl-C): what was measured is kept and judged

    \b
    Examples:
      workbench resume results/runs/20260102T030405Z-1a2b --budget 60
      workbench resume my-run --add-variant ../mine.py:build_mine
      workbench resume my-run --compare old.py:f new.py:f --call bench.py:texts
      workbench resume my-fleet --on ray
    """
    given = {"added": tuple(add_variant or ()), "compare": compare, "calls": tuple(call or ()), "check": check}
    result = _measured(run, budget, given, on=on, checkpoint=checkpoint, claims_dir=claims_dir)
    _show(result)
    if result.interrupted:
        raise typer.Exit(130)
    if result.failed_conditions():
        raise typer.Exit(1)


def _measured(
    run: str,
    budget: float | None,
    given: dict[str, Any],
    *,
    on: str | None,
    checkpoint: Path | None,
    claims_dir: Path | None,
) -> Result:
    """What the run came to. given: the user's code, as `go_on` takes it. Raises Failure."""
    from llama_workbench.harness import run as session

    options = session.Options(checkpoint=checkpoint)
    options = replace(options, claims_folder=claims_dir) if claims_dir else options
    try:
        return _gone_on(run_to_go_on(run), options, given, budget=budget, on=on)
    except session.USER_ERRORS as error:
        raise Failure(str(error)) from error


def _gone_on(
    folder: RunFolder, options: Options, given: dict[str, Any], *, budget: float | None, on: str | None
) -> Result:
    """Raises `run.USER_ERRORS`."""
    from llama_workbench.harness import run as session
    from llama_workbench.harness.progress import progress_on
    from llama_workbench.harness.report.terminal import console
    from llama_workbench.harness.resume import go_on

    if on:
        from llama_workbench.harness.fleet_session import again
        from llama_workbench.harness.plan.selection import Request

        fleet = again(folder, Request(**given), options, on=on, budget=budget)
        with closing(progress_on(console())) as progress:
            return fleet.measure(fleet.plan, progress)
    earlier, options = go_on(folder, options, **given, budget=budget)
    with closing(progress_on(console())) as progress:
        return session.Run(earlier.plan, options, progress, earlier).measure()


def _show(result: Result) -> None:
    from llama_workbench.harness.report.further import further
    from llama_workbench.harness.report.terminal import verdict_report
    from llama_workbench.harness.store.forms import plain

    if result.verdicts:
        show(verdict_report(plain(result.verdicts), result.manifest))
    if command := further(result.folder.path, result.verdicts, result.manifest):
        write(f"go on: {command}\n")
    for condition in result.failed_conditions():
        show(Text(f"fails: --fail-if {condition}"))
