"""`workbench combine`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..results import find_run
from .shared import show


def command(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN RUN ...", help="Runs of two machines or more: folders, or names.")
    ],
    into: Annotated[
        Path | None, typer.Option("--into", metavar="FOLDER", help="Where to make it. [default: results/runs/TIME]")
    ] = None,
) -> None:
    """Make one run out of those of several machines, and judge it over them.

    Each run is copied whole, without its logs. A claim is supported, or refuted, where it is so on each of these
    machines. Where machines differ it "depends on the machine". What several machines measured has their mean, and
    how much they differ. Two runs of one kind of machine count as two machines.

    Refused where claims, code, packages, weights or workloads differ: the reason is printed.

    A combined run among them stands for its machines, so that you can add one more.

    \b
    Examples:
      workbench combine server-a server-b laptop --into results/runs/three-machines
      workbench judge results/runs/three-machines
      workbench report results/runs/three-machines
    """
    from llama_workbench.harness.fleet.combine import combine
    from llama_workbench.harness.report.outcome import verdict_text
    from llama_workbench.harness.report.text import claim_text
    from llama_workbench.harness.store.files import VERDICTS

    fleet = combine([find_run(name) for name in runs], into)
    for machine in fleet.machines():
        show(Text(f"{machine.name}: {machine.kind}"))
    for verdict in fleet.run.read(VERDICTS):
        show(Text(f"{verdict_text(verdict)} · {claim_text(verdict)}"))
    show(Text(f"{fleet.path} (workbench judge {fleet.path} says more)"))
