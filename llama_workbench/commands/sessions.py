"""`workbench sessions`"""

from __future__ import annotations

from typing import Annotated

import typer

from ..results import find_run
from .shared import MACHINE, Failure, Listed, warn_changed, write

LISTED = Listed(25, MACHINE, {"sessions RUN RUN RUN": "how much do runs of unchanged code differ on it?"})


def command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help="Runs of the same code: folders, names or URLs.")],
) -> None:
    """Measure run-to-run variation of unchanged code.

    Measure the same code with the same command at least ten times, hours apart. Put what this command prints into your
    pyproject.toml. `workbench compare` then allows for this variation between two runs, and for no flat tolerance.

    There is one table for each kind of workload and each variant; replace a variant's name by a pattern such as "*"
    to apply a table to all. Values are in percent: the standard deviation beyond what the processes of one run differ
    by, and its upper bound (95 %).

    \b
    Examples:
      for n in $(seq 10); do pytest --benchmark --variants fast --run-dir results/runs/s$n; sleep 3600; done
      workbench sessions results/runs/s* >> pyproject.toml
    """
    from llama_workbench.harness.baselines.sessions import shifts, to_toml
    from llama_workbench.harness.report.standings import read_standings
    from llama_workbench.harness.store.files import MANIFEST, SAMPLES

    folders = [find_run(run) for run in runs]
    for folder in folders:
        warn_changed(folder, read=(MANIFEST, SAMPLES))
    measured = [read_standings(folder) for folder in folders]
    try:
        differences = shifts(measured)
    except ValueError as error:
        raise Failure(str(error)) from error
    write(to_toml(differences, measured))
