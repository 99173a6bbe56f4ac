"""`workbench baseline save`, `list`, `show` and `rm`"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from ..results import BASELINES, find_run
from .shared import ON_RUNS, AsJson, Failure, Listed, RunArgument, print_json, show, show_runs, table, write

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
    from llama_workbench.harness.fleet.baselines import baselines_of, save
    from llama_workbench.harness.remote import publish
    from llama_workbench.harness.remote.place import is_url
    from llama_workbench.harness.store.folder import RunFolder

    if is_url(name):
        kept = publish.save(find_run(run), name, force=force)
        show(Text(f"{kept.url} (compare with it: workbench compare {kept.url} NEW)"))
        return
    try:
        saved = save(find_run(run), name, under=BASELINES, force=force)
    except ValueError as error:
        raise Failure(str(error)) from error
    kinds = baselines_of(RunFolder(BASELINES / name))
    count = f"; {len(kinds)} machine types under this name" if len(kinds) > 1 else ""
    show(Text(f"{saved.path} (compare with it: workbench compare {name} NEW){count}"))


@command.command("list")
def list_baselines(
    folder: Annotated[str, typer.Argument(help="Folder of the saved baselines, or its URL.")] = str(BASELINES),
    as_json: AsJson = False,
) -> None:
    """List the saved baselines, newest first. For a damaged one the fault is listed.

    --json prints a list as `workbench runs --json` does.
    """
    show_runs(folder, "No baselines in {}. Save a run: workbench baseline save RUN NAME", as_json)


@command.command("show")
def show_baseline(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the saved baseline, or any run.")],
    as_json: AsJson = False,
) -> None:
    """Show a saved baseline: when and where it was measured, its A/A checks, its workloads and its verdicts.

    \b
    --json prints {"path", "id", "status", "started", "machine", "commit", "noise", "workloads",
    "claims": [[claim, part, verdict], ..], "problem", "machines": {folder: machine}}.

    \b
    Examples:
      workbench baseline show main
    """
    from llama_workbench.harness.fleet.baselines import baselines_of
    from llama_workbench.harness.report.outcome import outcome
    from llama_workbench.harness.store.errors import RunError
    from llama_workbench.harness.store.files import VERDICTS
    from llama_workbench.harness.store.folder import describe

    run = find_run(str(BASELINES / name) if (BASELINES / name).is_dir() else name)
    if not run.path.is_dir():
        raise Failure(f"{name}: no such baseline or run; to list them: workbench baseline list")
    facts_of_run = asdict(describe(run, whole=True))
    also = {str(each.path): describe(each, whole=True) for each in baselines_of(run) if each.path != run.path}
    machines = {path: each.problem or each.machine for path, each in also.items()}
    facts = ("path", "id", "status", "started", "machine", "commit", "noise", "problem")
    if as_json:
        print_json(
            {key: facts_of_run[key] for key in (*facts, "workloads", "claims")}
            | {"path": str(run.path), "machines": machines}
        )
        return
    about, verdicts = table("", ""), table("claim", "part", "verdict")
    for key in facts:
        if facts_of_run[key]:
            about.add_row(Text(key), Text(str(facts_of_run[key])))
    for path, text in machines.items():
        about.add_row(Text("also"), Text(f"{Path(path).name}: {text}"))
    about.add_row(Text("workloads"), Text(", ".join(facts_of_run["workloads"])))
    outcomes: dict[tuple[str, str], str] = {}
    with suppress(RunError):  # without them the words alone are shown
        outcomes = {(each.claim, each.part): outcome(each) for each in run.read(VERDICTS)}
    for claim, part, verdict in facts_of_run["claims"]:
        verdicts.add_row(Text(claim), Text(part), Text(outcomes.get((claim, part)) or verdict))
    show(Group(about, Text(), verdicts))


@command.command("rm")
def remove_baseline(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the saved baseline, or its URL.")],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Delete it. Without this, only say what would be deleted.")
    ] = False,
) -> None:
    """Delete a saved baseline: results/baselines/NAME with all its files.

    \b
    Examples:
      workbench baseline rm main --yes
    """
    from llama_workbench.harness.baselines.saved import kept, remove
    from llama_workbench.harness.remote.place import is_url
    from llama_workbench.harness.remote.publish import unpublish

    try:
        place = name if is_url(name) else kept(name, under=BASELINES).path
    except ValueError as error:
        raise Failure(str(error)) from error
    if not yes:
        write(f"would delete {place} and all its files; to do it: workbench baseline rm {name} --yes\n")
        return
    if is_url(name):
        unpublish(name)
    else:
        remove(name, under=BASELINES)
    show(Text(f"{place} is deleted"))
