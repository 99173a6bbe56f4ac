"""`workbench agree`"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, starmap
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from llama_workbench.harness.spec.exits import VerbExit

from ..results import find_run
from .shared import ON_RUNS, AsJson, Failure, Listed, ends, print_json, show, table, warn_changed

if TYPE_CHECKING:
    from llama_workbench.harness.report.agreement import RunAgreement
    from llama_workbench.harness.store.schema import Manifest


LISTED = Listed(10, ON_RUNS, {"agree RUN RUN": "do two runs of the same command agree?"})


@ends(
    {
        VerbExit.DONE: "no verdict of a run contradicts a verdict of another",
        VerbExit.AGAINST: "at least one does",
        VerbExit.COULD_NOT: "the runs have no interval and no verdict in common; or an error, which is printed",
    }
)
def command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN ...", help="Two or more runs: folders, names or URLs.")],
    as_json: AsJson = False,
) -> None:
    """Compare the intervals and verdicts that two repeat runs have in common.

    Repeat runs are runs of the same command. On one machine at most one interval in a hundred should not overlap with
    the interval of the repeat run.

    \b
    Exit codes:

    \b
    --json prints a list, one entry for each two runs:
      [{"first", "second", "compared", "apart": [{"workload", "variant", "baseline", "first", "second"}],
        "judged", "other_words": [{"claim", "part", "first", "second"}]}]
      compared: intervals in both runs; apart: those that do not overlap. judged: verdicts in both runs; other_words:
      those that changed.

    \b
    Examples:
      workbench agree results/runs/first results/runs/second
      workbench agree results/runs/night-*
    """
    from llama_workbench.harness.report.agreement import agreement_of
    from llama_workbench.harness.store.files import MANIFEST, VERDICTS

    if len(runs) < 2:
        raise Failure(f"{runs[0]}: need at least two runs to compare: workbench agree RUN RUN")
    folders = [find_run(run) for run in runs]
    for folder in folders:
        warn_changed(folder, read=(MANIFEST, VERDICTS))
    verdicts = [folder.read(VERDICTS) for folder in folders]
    names = combinations([folder.path.name for folder in folders], 2)
    pairs = dict(zip(names, starmap(agreement_of, combinations(verdicts, 2)), strict=True))
    if as_json:
        print_json([{"first": first, "second": second} | pair.to_json() for (first, second), pair in pairs.items()])
    else:
        _show(pairs, [folder.manifest() for folder in folders])
    if not any(pair.compared or pair.judged for pair in pairs.values()):
        raise Failure("these runs have no interval and no verdict in common; give runs of the same command")
    raise typer.Exit(int(any(pair.other_words for pair in pairs.values())))


def _show(pairs: Mapping[tuple[str, str], RunAgreement], runs: Sequence[Manifest]) -> None:
    from llama_workbench.harness.report.agreement import NOT_COMPARABLE, unlike_runs
    from llama_workbench.harness.report.text import claim_text, effect_text

    rows = table("runs", "intervals in both", "not overlapping", "verdicts in both", "changed")
    for names, pair in pairs.items():
        numbers = (pair.compared, len(pair.apart), pair.judged, len(pair.other_words))
        rows.add_row(Text(", ".join(names)), *map(str, numbers))
    show(rows)
    for pair in pairs.values():
        for effect, later in pair.apart:
            show(
                Text(
                    f"not overlapping: {effect.sides} on {effect.where}: {effect_text(effect)} and {effect_text(later)}"
                )
            )
        for verdict, other in pair.other_words:
            show(Text(f"changed: {claim_text(verdict)}: {verdict.verdict} and {other.verdict}"))
    if differences := dict.fromkeys(line for other in runs[1:] for line in unlike_runs(runs[0], other)):
        show(Text(f"{NOT_COMPARABLE}: {'; '.join(differences)}"))
