"""`workbench resume`"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from llama_workbench.harness.plan.options import Options, Request, Start, every_option, typed
from llama_workbench.harness.spec.words import SessionExit, VerbExit, of_left_out
from llama_workbench.harness.store.verdict_schema import too_early

from ..results import run_to_go_on
from .shared import ON_RUNS, Listed, RunArgument, ends, show, takes, write

if TYPE_CHECKING:
    from llama_workbench.harness.session.run import Result
    from llama_workbench.harness.store.folder import RunFolder


LISTED = Listed(7, ON_RUNS, {"resume results/runs/ID": "continue a run that was cut off, or has inconclusive verdicts"})


@ends(
    {
        VerbExit.DONE: SessionExit.DONE.meaning,
        VerbExit.AGAINST: "a condition of --fail-if is met",
        VerbExit.COULD_NOT: "cannot be resumed: the reason is printed, and the run is as it was",
        VerbExit.INTERRUPTED: SessionExit.INTERRUPTED.meaning,
    },
    refuses=True,
)
@takes({option.name: option.again for option in every_option() if option.again})
def command(run: RunArgument, **given: Any) -> None:
    """Continue a run that was interrupted or killed, or ended with inconclusive verdicts.

    The same plan is measured in the same folder. All finished rounds are kept, outputs are checked again, and old and
    new rounds together decide when to stop. `pytest --benchmark --continue RUN` does the same.

    Runs do not store paths. Your code is looked for in the current folder; if it is not there, pass it again. The
    message says how.

    A run cannot be resumed if new rounds would not match the old ones: because the code of a variant or of the
    workbench, a library, the machine, the weights or the text of a claim changed. What was excluded stays excluded.

    \b
    Exit codes:

    \b
    Examples:
      workbench resume results/runs/20260102T030405Z-1a2b --budget 60
      workbench resume my-run --add-variant ../mine.py:build_mine
      workbench resume my-run --compare old.py:f new.py:f --call bench.py:texts
      workbench resume my-fleet --on ray
    """
    from llama_workbench.harness.report.causes import explanations_in
    from llama_workbench.harness.report.outcome import further
    from llama_workbench.harness.report.terminal import verdict_report
    from llama_workbench.harness.slices import tables

    result, options = _measured(run_to_go_on(run), given), typed(Options, given)
    of_slices = tables(result.folder)
    for table in of_slices:
        show(table)
    if result.verdicts and not of_slices:
        show(verdict_report(result.verdicts, result.manifest, explanations_in(result.folder)))
    if command := further(result.folder.path, result.verdicts, result.manifest, options):
        write(f"to continue: {command}\n")
    for condition in result.failed_conditions():
        show(Text(f"fails: --fail-if {condition}"))
    raise typer.Exit(_exit_code(result))


def _exit_code(result: Result) -> VerbExit:
    if result.interrupted:
        return VerbExit.INTERRUPTED
    if result.failed_conditions(by_numbers=True):
        return VerbExit.AGAINST
    asked = [each for each in result.verdicts if each.is_comparison or each.is_condition]
    if left_out := of_left_out([effect.cause for verdict in asked for effect in verdict.effects]):
        return VerbExit(left_out)
    if result.failed_conditions():
        return VerbExit.AGAINST
    return VerbExit.NO_VERDICT if too_early(result.verdicts) else VerbExit.DONE


def _measured(folder: RunFolder, given: Mapping[str, Any]) -> Result:
    """What the run came to. given: what was typed, by the keys of the options. Raises `run.USER_ERRORS`."""
    from llama_workbench.harness.plugin.progress import progress_on
    from llama_workbench.harness.report.terminal import console
    from llama_workbench.harness.session import run as session
    from llama_workbench.harness.session.run import go_on

    start, request, options = typed(Start, given), typed(Request, given), typed(Options, given)
    budget = given["budget"]
    if start.on:
        from llama_workbench.harness.session.judging import several_machines

        fleet = several_machines().measured_on(start.on, request, options, earlier=folder, budget=budget)
        with closing(progress_on(console())) as progress:
            result: Result = fleet.measure(progress)
            return result
    earlier, options = go_on(folder, options, request, budget=budget)
    with closing(progress_on(console())) as progress:
        return session.Run(earlier.plan, options, progress, earlier).measure()
