"""`workbench history`"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ..results import RUNS
from .shared import ON_RUNS, AsJson, Failure, Listed, print_json, show, table

if TYPE_CHECKING:
    from llama_workbench.harness.baselines.course import DatedRun


LISTED = Listed(12, ON_RUNS, {"history": "at which commit did a time change?"})


def command(
    folder: Annotated[str, typer.Argument(help="Folder of the runs, or its URL.")] = str(RUNS),
    as_json: AsJson = False,
) -> None:
    """At which commit did a variant become slower or faster, by all runs together?

    Runs of the same commit on the same machine configuration are pooled. For each variant on each workload, change
    points are searched in its time relative to the reference benchmark (E-divisive means). In a history without a
    change, one is reported with at most 1 % probability. A change is found once three runs follow it. A run with
    uncommitted changes counts as a commit of its own.

    \b
    --json prints a list, newest commit last:
      [{"workload", "variant", "before", "after", "first_run", "change_percent", "low_percent", "high_percent",
        "runs_before", "runs_after"}]
      before, after: the commits on both sides of the change. change_percent: above 0 it became slower (99 % interval).

    \b
    Examples:
      workbench history
      workbench history s3://bucket/runs --json
    """
    from llama_workbench.harness.baselines.course import all_change_points

    runs = sorted(_runs(folder), key=lambda run: run.standings.started)
    steps = all_change_points(runs)
    if as_json:
        print_json([asdict(step) for step in steps])
        return
    if not steps:
        show(Text(f"No change point in {len(runs)} runs."))
        return
    rows = table("variant", "workload", "from", "to", "change in time", "runs")
    for step in steps:
        counts = f"{step.runs_before} and {step.runs_after}"
        cells = (step.variant, step.workload, step.before, step.after, step.change_text(), counts)
        rows.add_row(*map(Text, cells))
    show(rows)


def _runs(folder: str) -> Iterator[DatedRun]:
    """The runs there that can be read; of the others the reason goes to stderr. Raises Failure."""
    from pathlib import Path

    from llama_workbench.harness.baselines.course import DatedRun
    from llama_workbench.harness.report.standings import read_standings
    from llama_workbench.harness.store.files import RunError
    from llama_workbench.harness.store.folder import run_folders
    from llama_workbench.harness.store.remote import is_url, listed

    if not is_url(folder) and not Path(folder).is_dir():
        raise Failure(f"{folder}: no such folder; give the folder of the runs, or its URL")
    for run in listed(folder).values() if is_url(folder) else run_folders(folder):
        try:
            yield DatedRun(run.path.name, read_standings(run))
        except RunError as error:
            sys.stderr.write(f"{error}\n")
