"""`workbench runs`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..results import RUNS
from .shared import ON_RUNS, AsJson, Failure, Listed, show_runs

LISTED = Listed(6, ON_RUNS, {"runs": "list the runs on this disk"})


def command(
    folder: Annotated[str, typer.Argument(help="Folder of the runs, or its URL.")] = str(RUNS),
    as_json: AsJson = False,
) -> None:
    """List the runs, newest first, with their verdicts. For a damaged run the fault is listed.

    Every file of a finished run is checked against the checksum that the run wrote. At a URL (s3, gs, az, sftp) the
    index is read, which `workbench publish` keeps up to date.

    \b
    --json prints a list:
      [{"path", "id", "status", "mode", "started", "workloads": [..], "verdicts": {word: count}, "problem"}]

    \b
    Examples:
      workbench runs
      workbench runs s3://bucket/runs
    """
    from llama_workbench.harness.remote.place import is_url

    if not is_url(folder) and not Path(folder).is_dir() and Path(folder) != RUNS:
        raise Failure(f"{folder}: no such folder; give the folder of the runs, or its URL")
    show_runs(folder if is_url(folder) else Path(folder), "No runs in {}. Make one: pytest --benchmark", as_json)
