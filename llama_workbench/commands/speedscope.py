"""`workbench speedscope`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .shared import write


def command(
    archive: Annotated[
        Path | None, typer.Option(help="What `npm pack` made of that version elsewhere; then npm is not asked.")
    ] = None,
) -> None:
    """Install speedscope, the viewer that the dashboard opens raw profiles in: one version, by npm, hash checked."""
    from llama_workbench.dashboard.flames.viewer import VERSION, install

    write(f"speedscope {VERSION} lies in {install(archive)}\n")
