"""`workbench publish`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..results import find_run
from .shared import ON_RUNS, Listed, RunArgument, show

LISTED = Listed(14, ON_RUNS, {"publish RUN s3://bucket/runs/ID": "copy a run to where others read it"})


def command(
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
