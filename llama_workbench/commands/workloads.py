"""`workbench workloads`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from .shared import MODELS, AsJson, Listed, print_json, show, table

LISTED = Listed(21, MODELS, {"workloads": "list what models are timed on"})


def command(
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="List the workloads of this file. [default: those that ship]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the workloads: what models are timed on.

    \b
    --json prints a list of the workloads as in datasets/workloads.toml, families expanded:
      [{"name", "kind": "prefill"|"decode"|"generate"|"component", "geometry", "tokens", "new_tokens", "chunk",
        "batch", "context", "dtype", "threads", "lengths": "repeated"|"distinct"|"trace", "trace", "length_divisor",
        "length_limit", "component", "description"}]

    \b
    Examples:
      workbench workloads
      pytest --benchmark --workloads prefill-15m-t128,decode-15m-c64
    """
    from llama_workbench.datasets.workloads import WORKLOADS_FILE, workloads

    every = workloads(file or WORKLOADS_FILE).values()
    if as_json:
        print_json([workload.model_dump(mode="json") for workload in every])
        return
    rows = table("workload", "model shape", "what is done")
    for workload in every:
        rows.add_row(Text(workload.name), Text(workload.geometry), Text(workload.description))
    show(rows)
