"""`workbench index`"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from .shared import ON_RUNS, Failure, Listed, show

LISTED = Listed(15, ON_RUNS, {"index s3://bucket/runs": "rebuild the list of the runs there"})


def command(
    folder: Annotated[str, typer.Argument(metavar="URL", help="Folder of the runs, such as s3://bucket/runs.")],
) -> None:
    """Rebuild the index of a folder of runs at a URL.

    `workbench runs` and the dashboard read the index instead of thousands of folders. Publishing and removing runs
    keeps the index up to date. Rebuild it when runs came or went another way, or when it is damaged.

    \b
    Examples:
      workbench index s3://bucket/runs
    """
    from llama_workbench.harness.remote.index import rebuild
    from llama_workbench.harness.remote.place import Place, is_url

    if not is_url(folder):
        raise Failure(f"{folder}: local folders need no index; give a URL such as s3://bucket/runs")
    count, damaged = rebuild(Place.at(folder))
    unread = f", {damaged} of which cannot be read" if damaged else ""
    show(Text(f"{folder}: {count} run{'' if count == 1 else 's'}{unread}"))
