"""`workbench publish`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..results import find_run
from .shared import RunArgument, show


def command(
    run: RunArgument,
    target: Annotated[str, typer.Argument(metavar="URL", help="The folder that the run gets: s3://bucket/runs/NAME")],
    force: Annotated[bool, typer.Option("--force", help="Replace a run that lies there.")] = False,
) -> None:
    """Copy a run to another place, and add it to the index of its new folder.

    URLs are those that fsspec knows: s3, gs, az, sftp, file. The library of the file system finds the credentials
    (`pip install 'llama-workbench[remote]'` brings that of S3; gcsfs, adlfs and paramiko are for gs, az and sftp).
    Its run.json is written last: who sees it sees a whole run. An upload that breaks off is begun anew by the same
    command, and the run here stays as it is. The logs of its processes are left out: they name paths of this machine.

    RUN may be a URL too, and the target a plain folder: that fetches a run, which then goes on here.

    \b
    Examples:
      workbench publish results/runs/20260102T030405Z-1a2b s3://bucket/runs/20260102T030405Z-1a2b
      workbench publish s3://bucket/runs/nightly results/runs/nightly
    """
    from llama_workbench.harness.remote.place import is_url
    from llama_workbench.harness.remote.publish import publish
    from llama_workbench.harness.remote.transfer import copy

    if is_url(target):
        place = publish(find_run(run), target, force=force)
        show(Text(f"{place.url} (read it: workbench report {place.url}; all: workbench runs {place.parent().url})"))
    else:
        show(Text(str(copy(find_run(run), Path(target), force=force).path)))
