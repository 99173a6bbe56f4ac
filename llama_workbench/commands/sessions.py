"""`workbench sessions`"""

from __future__ import annotations

from typing import Annotated

import typer

from ..results import find_run
from .shared import Failure, warn_changed, write


def command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help="Folders, names or URLs of runs of one code.")],
) -> None:
    """By how much do runs of the same code differ, beyond what the processes within each differ by?

    Measure the same, unchanged code with the same command at least ten times, hours apart. What is printed goes into
    your pyproject.toml: then `workbench compare` allows for so much between two runs, and for no flat tolerance. One
    table for each kind of workload and each variant; put a pattern such as "*" in the place of a variant's name where
    it shall hold for all. In percent: the standard deviation, and what it is at most (95 %).

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
