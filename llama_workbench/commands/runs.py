"""`workbench runs`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..results import RUNS
from .shared import AsJson, Failure, show_runs


def command(
    folder: Annotated[str, typer.Argument(help="Folder that holds the runs, or its URL.")] = str(RUNS),
    as_json: AsJson = False,
) -> None:
    """List the runs, newest first, with their verdicts. A damaged one is listed with its fault.

    Every file of a finished run is compared with the checksum that the run wrote for it. Of a URL (s3, gs, az, sftp)
    the index is read, which `workbench publish` keeps.

    \b
    --json prints a list:
      [{"path", "id", "status", "mode", "started", "workloads": [..], "verdicts": {word: count}, "problem"}]
    """
    from llama_workbench.harness.remote.place import is_url

    if not is_url(folder) and not Path(folder).is_dir() and Path(folder) != RUNS:
        raise Failure(f"{folder}: there is no such folder")
    show_runs(folder if is_url(folder) else Path(folder), "No runs in {}. Make one: pytest --benchmark", as_json)
