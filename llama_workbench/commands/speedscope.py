"""`workbench speedscope`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .shared import MACHINE, Listed, write

LISTED = Listed(26, MACHINE, {"speedscope": "install the viewer for raw profiles"})


def command(
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Install from this file, which `npm pack` wrote elsewhere. [default: npm downloads it]"
        ),
    ] = None,
) -> None:
    """Install speedscope, the viewer in which the dashboard opens raw profiles. npm fetches one version, and its hash
    is checked.

    \b
    Examples:
      workbench speedscope
    """
    from llama_workbench.dashboard.export.viewer import VERSION, install

    write(f"speedscope {VERSION} is installed in {install(archive)}\n")
