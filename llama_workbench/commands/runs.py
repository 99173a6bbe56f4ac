"""`workbench runs`, `publish` and `baseline`: runs are listed, and copied to where they are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..results import BASELINES, RUNS, find_run
from .shared import ON_RUNS, AsJson, Failure, Listed, RunArgument, print_json, show, table

FolderOfRuns = Annotated[str, typer.Argument(help="Folder of the runs, or its URL.")]


def list_runs(
    folder: FolderOfRuns = str(RUNS),
    as_json: AsJson = False,
) -> None:
    """List the runs, newest first, with their verdicts. For a damaged run the fault is listed.

    Every file of a finished run is checked against the checksum that the run wrote. At a URL (s3, gs, az, sftp) only
    the files that the list shows are fetched and checked.

    \b
    --json prints a list:
      [{"path", "id", "status", "mode", "started", "workloads": [..], "verdicts": {word: count}, "problem"}]

    \b
    Examples:
      workbench runs
      workbench runs results/baselines
      workbench runs s3://bucket/runs
    """
    from llama_workbench.harness.store.folder import describe
    from llama_workbench.harness.store.folder import list_runs as runs_in
    from llama_workbench.harness.store.remote import is_url, listed

    there = is_url(folder)
    if not there and not Path(folder).is_dir() and Path(folder) != RUNS:
        raise Failure(f"{folder}: no such folder; give the folder of the runs, or its URL")
    runs = listed(folder) if there else {str(run.path): run for run in runs_in(folder)}
    summaries = [describe(run, whole=not there, light=there) for run in runs.values()]
    if as_json:
        keys = ("id", "status", "mode", "started", "workloads", "verdicts", "problem")
        rows = zip(runs, summaries, strict=True)
        print_json([{"path": path, **{key: getattr(summary, key) for key in keys}} for path, summary in rows])
        return
    if not summaries:
        show(Text(f"No runs in {folder}. Make one: pytest --benchmark"))
        return
    shown = table("run", "started", "status", "verdicts")
    for summary in summaries:
        text = summary.problem or ", ".join(f"{count} {word}" for word, count in summary.verdicts.items())
        started = summary.started[:16].replace("T", " ")
        shown.add_row(*map(Text, (summary.path.name, started, summary.status, text)))
    show(shown)


def publish(
    run: RunArgument,
    target: Annotated[str, typer.Argument(metavar="URL", help="New folder of the run, such as s3://bucket/runs/NAME.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is there already.")] = False,
) -> None:
    """Copy a run to another place.

    URLs are those that fsspec knows: s3, gs, az, sftp, file. Each kind of URL needs a package, which finds the
    credentials: s3fs for s3 (the extra `remote` installs it), gcsfs for gs, adlfs for az, paramiko for sftp.

    run.json is copied last, so that nobody reads half a run. If an upload breaks off, repeat the command; the run here
    stays as it is. The logs of its processes are not copied, because they contain paths of this machine.

    To fetch a run, give its URL as RUN and a local folder as the target. It can then be resumed here.

    \b
    Examples:
      workbench publish results/runs/20260102T030405Z-1a2b s3://bucket/runs/20260102T030405Z-1a2b
      workbench publish s3://bucket/runs/nightly results/runs/nightly
    """
    from llama_workbench.harness.baselines.saved import copied
    from llama_workbench.harness.store.remote import is_url, put

    if is_url(target):
        url = target.rstrip("/")
        put(find_run(run), url, force=force)
        show(Text(f"{url} (read it: workbench report {url}; all: workbench runs {url.rpartition('/')[0]})"))
    else:
        show(Text(str(copied(find_run(run), Path(target), force=force).path)))


baseline = typer.Typer(
    help="Save runs to compare with later, under results/baselines or at a URL.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@baseline.command("save")
def save_baseline(
    run: RunArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the saved baseline, such as main, or its URL.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier one.")] = False,
) -> None:
    """Save a run as a baseline: copy its folder to results/baselines/NAME.

    The run must be complete and have verdicts, and all its files must be readable. The copy is checked before it gets
    its name. The logs of its processes are not copied, because they contain paths of this machine. With a URL (s3, gs,
    az, sftp, ..) it is saved there, for other machines.

    \b
    Examples:
      workbench baseline save results/runs/20260102T030405Z-1a2b main
      workbench compare main NEW
      workbench baseline save RUN s3://bucket/baselines/main
    """
    from llama_workbench.harness.baselines.saved import check, save
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
    show(Text(f"{saved.path} (compare with it: workbench compare {name} NEW)"))


COMMANDS = {
    "runs": (list_runs, Listed(6, ON_RUNS, {"runs": "list the runs on this disk"})),
    "publish": (
        publish,
        Listed(14, ON_RUNS, {"publish RUN s3://bucket/runs/ID": "copy a run to where others read it"}),
    ),
    "baseline": (baseline, Listed(11, ON_RUNS, {"baseline save RUN main": "save a run to compare with later"})),
}
