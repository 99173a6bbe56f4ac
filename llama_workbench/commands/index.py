"""`workbench index`"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from .shared import Failure, show


def command(
    folder: Annotated[str, typer.Argument(metavar="URL", help="The folder that holds the runs: s3://bucket/runs")],
) -> None:
    """Rebuild the index of a folder from the runs in it.

    `workbench runs` and the dashboard read the index instead of thousands of folders. Publishing and removing runs
    keeps it up to date; this is for runs that came or went another way, and for an index that is damaged.

    \b
    Examples:
      workbench index s3://bucket/runs
    """
    from llama_workbench.harness.remote.index import rebuild
    from llama_workbench.harness.remote.place import Place, is_url

    if not is_url(folder):
        raise Failure(f"{folder}: an index is for the runs at a URL; those of a plain folder are read at once")
    count, damaged = rebuild(Place.at(folder))
    unread = f", {damaged} of which cannot be read" if damaged else ""
    show(Text(f"{folder}: {count} run{'' if count == 1 else 's'}{unread}"))
