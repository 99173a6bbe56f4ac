"""`workbench combine`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from llama_workbench.commands.shared import ON_RUNS, Listed, show
from llama_workbench.results import find_run

VERB = "combine"
LISTED = Listed(16, ON_RUNS, {"combine RUN RUN": "runs of several machines: what holds on each of them?"})


def command(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN RUN ...", help="Runs of two machines or more: folders or names.")
    ],
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="FOLDER", help="Folder of the new run. [default: results/runs/TIME]"),
    ] = None,
) -> None:
    """Combine runs of several machines into one run, and compute its verdicts over all machines.

    Each run is copied, without its logs. A claim is supported, or refuted, if it is so on each machine. Otherwise the
    verdict is "depends on the machine". Effects that several machines measured are shown with their mean and with how
    much the machines differ. Two runs of the same machine type count as two machines.

    Runs whose claims, code, packages, weights or workloads differ cannot be combined; the reason is printed.

    To add a machine later, combine the runs in the folder machines of the combined run with that machine's run.

    \b
    Examples:
      workbench combine server-a server-b laptop --into results/runs/three-machines
      workbench judge results/runs/three-machines
      workbench report results/runs/three-machines
    """
    from llama_workbench.harness.report.outcome import verdict_text
    from llama_workbench.harness.report.text import claim_text
    from llama_workbench.harness.store.files import VERDICTS

    from .machines import combine

    fleet = combine([find_run(name) for name in runs], into)
    for machine in fleet.machines():
        show(Text(f"{machine.name}: {machine.kind}"))
    for verdict in fleet.run.read(VERDICTS):
        show(Text(f"{verdict_text(verdict)} · {claim_text(verdict)}"))
    show(Text(f"{fleet.path} (workbench judge {fleet.path} says more)"))
