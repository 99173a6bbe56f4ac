"""`workbench runs`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..results import RUNS
from .shared import AsJson, Failure, show_runs


def command(
    folder: Annotated[Path, typer.Argument(help="Folder that holds the runs.")] = RUNS, as_json: AsJson = False
) -> None:
    """List the runs, newest first, with their verdicts; damaged ones with what is wrong.

    Every file of a finished run is compared with the checksum that the run wrote for it.

    \b
    --json prints a list:
      [{"path", "id", "status", "mode", "started", "workloads": [..], "verdicts": {word: count}, "problem"}]
    """
    if not folder.is_dir() and folder != RUNS:
        raise Failure(f"{folder}: there is no such folder")
    show_runs(folder, "No runs in {}. Make one: pytest --benchmark", as_json)
