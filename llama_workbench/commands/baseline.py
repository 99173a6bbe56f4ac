"""`workbench baseline save`"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from ..results import BASELINES, find_run
from .shared import ON_RUNS, Failure, Listed, RunArgument, show

LISTED = Listed(11, ON_RUNS, {"baseline save RUN main": "save a run to compare with later"})

command = typer.Typer(
    help="Save runs to compare with later, under results/baselines or at a URL.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@command.command("save")
def save_baseline(
    run: RunArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the saved baseline, such as main, or its URL.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the one of this machine type.")] = False,
) -> None:
    """Save a run as a baseline: copy its folder to results/baselines/NAME.

    A name can have one baseline for each machine type. Save a run of each under the same name, and `workbench compare`
    picks the one of its own machine type. With --force the one of the same machine type is replaced.

    The run must be complete and have verdicts, and all its files must be readable. The copy is checked before it gets
    its name. The logs of its processes are not copied, because they contain paths of this machine. With a URL (s3, gs,
    az, sftp, ..) it is saved there, for other machines.

    \b
    Examples:
      workbench baseline save results/runs/20260102T030405Z-1a2b main
      workbench compare main NEW
      workbench baseline save RUN s3://bucket/baselines/main
    """
    from llama_workbench.harness.baselines.saved import baselines_of, check, save
    from llama_workbench.harness.store.folder import RunFolder
    from llama_workbench.harness.store.remote import is_url, put

    if is_url(name):
        check(folder := find_run(run))
        put(folder, name, force=force)
        show(Text(f"{name} (compare with it: workbench compare {name} NEW)"))
        return
    try:
        saved = save(find_run(run), name, under=BASELINES, force=force)
    except ValueError as error:
        raise Failure(str(error)) from error
    kinds = baselines_of(RunFolder(BASELINES / name))
    count = f"; {len(kinds)} machine types under this name" if len(kinds) > 1 else ""
    show(Text(f"{saved.path} (compare with it: workbench compare {name} NEW){count}"))
