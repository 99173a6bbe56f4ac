"""`workbench baseline save` and `workbench baseline list`"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from ..results import BASELINES, find_run
from .shared import AsJson, Failure, RunArgument, show, show_runs

command = typer.Typer(
    help="Keep runs to compare with, under results/baselines.", no_args_is_help=True, rich_markup_mode=None
)


@command.command("save")
def save_baseline(
    run: RunArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the baseline.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier baseline of that name.")] = False,
) -> None:
    """Keep a run as a baseline: copy its folder to results/baselines/NAME.

    The run must be complete and judged, and every file of it readable. The copy is checked before it gets its
    name. The logs of its processes are left out: they name paths of this machine.

    \b
    Examples:
      workbench baseline save results/runs/20260102T030405Z-1a2b main
      workbench compare main NEW
    """
    from llama_workbench.harness.report.baselines import save

    try:
        saved = save(find_run(run), name, under=BASELINES, force=force)
    except ValueError as error:
        raise Failure(str(error)) from error
    show(Text(f"{saved.path} (compare with it: workbench compare {name} NEW)"))


@command.command("list")
def list_baselines(as_json: AsJson = False) -> None:
    """List the baselines, newest first; damaged ones with what is wrong.

    --json prints a list as `workbench runs --json` does.
    """
    show_runs(BASELINES, "No baselines in {}. Keep a run: workbench baseline save RUN NAME", as_json)
