"""The `workbench` command: the harness's, with the exports, which it may not import and so is handed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from llama_workbench.harness import cli


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the console script. Errors are one line on stderr and exit code 2."""
    cli.main(arguments, export=export_claim)


def export_claim(run: Path, claim: str, part: str | None, files: Mapping[str, Path]) -> None:
    """Write a claim's evidence out of the run folder `run`. Raises RunError and cli.Failure."""
    from .export import evidence as export  # pandas and jinja2, which the lists do without
    from .views import data

    opened = data.read_run(run)
    try:
        export.write(opened, export.find_claim(opened, claim, part), files)
    except export.ExportError as error:
        raise cli.Failure(str(error)) from error
