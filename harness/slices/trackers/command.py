"""`workbench export`"""

from __future__ import annotations

from typing import Annotated

import typer

from llama_workbench.commands.shared import ON_RUNS, Failure, Listed, RunArgument, print_json, run_of_one_machine

VERB = "export"
LISTED = Listed(13, ON_RUNS, {"export results/runs/ID": "its times, for a service that plots them over commits"})


def command(
    run: RunArgument,
    as_format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Format to print: bencher or github-action-benchmark.")
    ] = "bencher",
) -> None:
    """Print a run's times as JSON for a service that plots them over commits.

    For each variant on each workload: the time of a call in nanoseconds and, where there is an interval, its time
    relative to the reference benchmark. Relative times can be compared between different machines.

    \b
    Examples:
      workbench export results/runs/ID > bmf.json      # bencher run --adapter json --file bmf.json
      workbench export results/runs/ID --format github-action-benchmark > out.json   # tool: customSmallerIsBetter
    """
    from llama_workbench.variants.spelling import did_you_mean

    from .formats import FORMATS

    if as_format not in FORMATS:
        raise Failure(f"--format {as_format}: {did_you_mean(as_format, FORMATS, ' or '.join(FORMATS))}")
    print_json(FORMATS[as_format](run_of_one_machine(run)))
