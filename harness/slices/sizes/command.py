"""`workbench sizes`"""

from __future__ import annotations

from typing import Annotated

import typer

from llama_workbench.commands.shared import (
    ON_RUNS,
    AsJson,
    Failure,
    Listed,
    RunArgument,
    print_json,
    run_of_one_machine,
    show,
)

LISTED = Listed(9, ON_RUNS, {"sizes RUN --against best": "which side is best at which size, and where that changes"})


def command(
    run: RunArgument,
    against: Annotated[
        str, typer.Option(metavar="NAME", help="Side to compare with, or best. [default: as the run was asked]")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show a run of several sides, or over several sizes: times, the best at each size, where two sides change places,
    and how times grow.

    `workbench report RUN --svg FILE` draws time against size.

    \b
    Examples:
      pytest --benchmark --compare in_list in_set --call bench.py:numbers --sizes 1,10,100,1000
      workbench sizes results/runs/20260102T030405Z-1a2b --against best
      workbench sizes results/runs/20260102T030405Z-1a2b --json
    """
    from .screen import report
    from .table import table_of

    try:
        table = table_of(run_of_one_machine(run), against)
    except ValueError as error:
        raise Failure(str(error)) from error
    if table is None:
        raise Failure(f"{run}: it compares two sides at no sizes; pytest --benchmark --compare A B C has such a table")
    if as_json:
        print_json(table.to_json())
    else:
        show(report(table))
