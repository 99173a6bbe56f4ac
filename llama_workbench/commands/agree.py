"""`workbench agree`"""

from __future__ import annotations

from itertools import combinations
from typing import Annotated

import typer
from rich.text import Text

from ..results import find_run
from .shared import AsJson, Failure, print_json, show, table, warn_changed


def command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN ...", help="Two runs or more: folders, names or URLs.")],
    as_json: AsJson = False,
) -> None:
    """Does the next run say the same? Two runs of one command, from different processes, put against each other.

    Compared are the intervals of each pair of sides that both runs measured, and the verdicts that both gave. On one
    machine, one pair in a hundred at most should have no common point.

    \b
    Exit codes:
      0  no verdict of a run contradicts one of another
      1  one does
      2  the runs have no interval and no verdict in common

    \b
    --json prints a list, one entry for each two runs:
      [{"first", "second", "compared", "apart": [{"workload", "variant", "baseline", "first", "second"}],
        "judged", "other_words": [{"claim", "part", "first", "second"}]}]
      compared: pairs of sides with an interval in both runs; apart: those without a common point. judged: verdicts
      given in both; other_words: those that differ.

    \b
    Examples:
      workbench agree results/runs/first results/runs/second
      workbench agree results/runs/night-*
    """
    from llama_workbench.harness.machine.environment import comparable
    from llama_workbench.harness.report.agreement import agreement_of
    from llama_workbench.harness.report.text import claim_text, effect_text
    from llama_workbench.harness.store.files import MANIFEST, VERDICTS

    if len(runs) < 2:
        raise Failure(f"{runs[0]}: one run has nothing to agree with; name two or more")
    folders = [find_run(run) for run in runs]
    for folder in folders:
        warn_changed(folder, read=(MANIFEST, VERDICTS))
    environments = [folder.manifest().machine_facts for folder in folders]
    told = [(folder.path.name, folder.read(VERDICTS)) for folder in folders]
    found = [(first, second, agreement_of(ours, theirs)) for (first, ours), (second, theirs) in combinations(told, 2)]
    if as_json:
        print_json(
            [
                {
                    "first": first,
                    "second": second,
                    "compared": each.compared,
                    "apart": [
                        {name: getattr(one, name) for name in ("workload", "variant", "baseline")}
                        | {"first": [one.low, one.high], "second": [other.low, other.high]}
                        for one, other in each.apart
                    ],
                    "judged": each.judged,
                    "other_words": [
                        {"claim": one.claim, "part": one.part, "first": one.verdict, "second": other.verdict}
                        for one, other in each.other_words
                    ],
                }
                for first, second, each in found
            ]
        )
    else:
        rows = table("runs", "intervals in both", "no common point", "verdicts in both", "other words")
        for first, second, each in found:
            numbers = (each.compared, len(each.apart), each.judged, len(each.other_words))
            rows.add_row(Text(f"{first}, {second}"), *map(str, numbers))
        show(rows)
        for _, _, each in found:
            for one, other in each.apart:
                show(Text(f"apart: {one.sides} on {one.where}: {effect_text(one)} and {effect_text(other)}"))
            for verdict, later in each.other_words:
                show(Text(f"other words: {claim_text(verdict)}: {verdict.verdict} and {later.verdict}"))
        if differences := {line for each in environments[1:] for line in comparable(environments[0], each)}:
            show(Text(f"The machine or software is not the same, so they need not agree: {'; '.join(differences)}"))
    if not any(each.compared or each.judged for _, _, each in found):
        raise Failure("these runs have no interval and no verdict in common")
    raise typer.Exit(int(any(each.other_words for _, _, each in found)))
