"""`workbench runs`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..results import RUNS
from .shared import ON_RUNS, AsJson, Failure, Listed, print_json, show, table

LISTED = Listed(6, ON_RUNS, {"runs": "list the runs on this disk"})


def command(
    folder: Annotated[str, typer.Argument(help="Folder of the runs, or its URL.")] = str(RUNS),
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
    from llama_workbench.harness.store.folder import describe, list_runs
    from llama_workbench.harness.store.remote import is_url, listed

    there = is_url(folder)
    if not there and not Path(folder).is_dir() and Path(folder) != RUNS:
        raise Failure(f"{folder}: no such folder; give the folder of the runs, or its URL")
    runs = listed(folder) if there else {str(run.path): run for run in list_runs(folder)}
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
