"""`workbench compare`"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llama_workbench.harness.spec.words import VerbExit

from ..results import find_run
from .shared import (
    MOST_USED,
    AsJson,
    Failure,
    Listed,
    ends,
    print_json,
    run_of_one_machine,
    show,
    warn_changed,
    write_file,
)

if TYPE_CHECKING:
    from llama_workbench.harness.baselines.regressions import RunComparison
    from llama_workbench.harness.baselines.thresholds import Thresholds
    from llama_workbench.harness.store.folder import RunFolder

LISTED = Listed(
    3,
    MOST_USED,
    {
        "compare BASE NEW": "has anything become slower since a saved run? (for CI)",
        "compare RUN RUN --repeat": "do repeat runs of one command agree?",
    },
)


@ends(
    {
        VerbExit.DONE: "no regression; of repeat runs: no verdict contradicts another",
        VerbExit.AGAINST: "a regression, by a metric of the gate (time, unless --gate or pyproject.toml names others); "
        "of repeat runs: a verdict contradicts another",
        VerbExit.COULD_NOT: "inconclusive: nothing in common, another machine or device, few processes; or an error",
    }
)
def command(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="BASE NEW", help="Earlier run, and run to check: folders, names under results/, or URLs."
        ),
    ],
    repeat: Annotated[
        bool, typer.Option("--repeat", help="The runs are repeat runs of one command. [default: if more than two]")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT", help="Percent more time that is a regression, for all variants. [default: 2.5]"
        ),
    ] = None,
    gate: Annotated[
        str,
        typer.Option(
            metavar="WHAT,WHAT",
            help="Metrics that set the exit code: time, instructions, memory. [default: time]",
        ),
    ] = "",
    as_json: AsJson = False,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a summary in Markdown to this file.")
    ] = None,
) -> None:
    """Has anything become slower from BASE to NEW, or does it need more instructions or memory?

    With --repeat, or with three runs or more: do repeat runs of the same command contradict each other?

    Each variant's time is compared relative to the reference benchmark, which both runs timed. So the runs may be from
    different days. On another machine, torch or device the answer is "inconclusive" at best. The table also has
    instructions (runs with --count-instructions) and memory (runs with --profile).

    \b
    Exit codes:

    A time is a regression if the whole interval of the slow-down is above the threshold of 2.5 %. If one version of the
    workbench measured both runs of a function, and other programs left the machine alone, the interval includes what
    runs of unchanged code differ by: 0.25 % (standard deviation). Else it must also be above a tolerance: 9 %, or 19 %
    for a call more than twice as long or as short as the reference benchmark, or 50 % below a twentieth of it. To
    detect less, time old and new code in one run: pytest --benchmark --compare OLD NEW --fail-if slower:5

    Instructions and memory: more than the threshold is a regression.

    With --gate time,instructions a variant's instruction count decides where its time is inconclusive. This finds added
    work on shared machines, where times are too noisy, and slow-downs without added work as far as times show them.
    Counts need the same torch, Python, valgrind and kernels, but not the same processor.

    Of repeat runs each two are compared. On one machine at most one interval in a hundred should not overlap with that
    of the repeat run.

    \b
    Thresholds in the nearest pyproject.toml, here or above:
      [tool.llama-workbench.compare]
      gate = ["time", "instructions"]
      time = 3
      instructions = 0.5
      memory = 2

    \b
    --json prints:
      {"format": 1, "base", "new", "verdict", "exit_code", "threshold_percent", "tolerance_percent", "gate": [..],
       "same_machine", "machine_differences": [..], "only_in_base": [..], "only_in_new": [..], "notes": [..],
       "rows": [{"workload", "variant", "what", "against", "base": {"ratio", "low", "high", "rounds"}, "new": {..},
                 "change_percent", "low_percent", "high_percent", "verdict", "reason", "threshold_percent",
                 "decides", "between_percent"}]}
      change_percent is of the variant's time: above 0 it became slower. null: not known yet.
      what: time, instructions or memory; all but times have {"value", "unit"} as base and new.
      between_percent: run-to-run variation in the interval (standard deviation); null: a tolerance is used instead.
      decides: whether the row counts for the exit code.
    Of repeat runs:
      {"format": 1, "pairs": [{"first", "second", "intervals", "disjoint": [{"workload", "variant", "baseline", "first",
       "second"}], "verdicts", "changed": [{"claim", "part", "first", "second"}]}]}
      intervals, verdicts: how many both runs have. disjoint: intervals that do not overlap.
      changed: verdicts that differ.

    \b
    Examples:
      workbench compare results/baselines/main results/runs/20260102T030405Z-1a2b
      workbench compare main NEW --gate time,instructions --markdown comparison.md
      workbench compare main NEW --threshold 10 --json
      workbench compare results/runs/first results/runs/second --repeat
    """
    from llama_workbench.harness.baselines.text import render, to_markdown
    from llama_workbench.harness.baselines.thresholds import gate_of, read_thresholds

    if len(runs) < 2:
        raise Failure(f"{runs[0]}: need at least two runs to compare: workbench compare BASE NEW")
    if threshold is not None and not 0 < threshold < float("inf"):
        raise Failure(f"--threshold {threshold:g}: expected a number of percent above 0")
    if repeat or len(runs) > 2:
        if threshold or gate or markdown:
            raise Failure("--threshold, --gate and --markdown are for two runs that are no repeat runs")
        _compare_repeats([find_run(name) for name in runs], as_json)
    thresholds = read_thresholds(Path.cwd())
    thresholds = thresholds.model_copy(update={"gate": gate_of(gate)}) if gate else thresholds
    thresholds = thresholds.model_copy(update={"time": threshold}) if threshold is not None else thresholds
    base, new = map(run_of_one_machine, runs)
    comparison = _compared(base, new, thresholds)
    if markdown is not None:
        write_file(markdown, to_markdown(comparison))
    if as_json:
        print_json(comparison.to_json())
    else:
        show(render(comparison))
    raise typer.Exit(comparison.exit_code)


def _compared(base: RunFolder, new: RunFolder, thresholds: Thresholds) -> RunComparison:
    """A run against an earlier one."""
    from llama_workbench.harness.baselines.regressions import compare
    from llama_workbench.harness.slices import faces
    from llama_workbench.harness.store.files import MANIFEST, STANDINGS
    from llama_workbench.harness.store.passes import MEMORY

    counted = {"memory": MEMORY, **{face.WHAT: face.FILE for face in faces("beside")}}
    decide = [file for what, file in counted.items() if what in thresholds.gate]
    for run in (base, new):
        warn_changed(run, read=(MANIFEST, STANDINGS, *decide))
    return compare(base, new, thresholds=thresholds)


def _compare_repeats(runs: Sequence[RunFolder], as_json: bool) -> None:
    """Say what of repeat runs contradicts; ends the command."""
    from llama_workbench.harness.baselines.text import render_repeats
    from llama_workbench.harness.report.sessions import agreement_of, unlike_runs
    from llama_workbench.harness.store.files import MANIFEST, VERDICTS

    for run in runs:
        warn_changed(run, read=(MANIFEST, VERDICTS))
    names, verdicts = [run.path.name for run in runs], [run.read(VERDICTS) for run in runs]
    two = list(combinations(range(len(runs)), 2))
    pairs = {(names[one], names[other]): agreement_of(verdicts[one], verdicts[other]) for one, other in two}
    if as_json:
        entries = [{"first": first, "second": second} | pair.to_json() for (first, second), pair in pairs.items()]
        print_json({"format": 1, "pairs": entries})
    else:
        manifests = [run.manifest() for run in runs]
        unlike = dict.fromkeys(line for other in manifests[1:] for line in unlike_runs(manifests[0], other))
        show(render_repeats(pairs, [*unlike]))
    if not any(pair.intervals or pair.verdicts for pair in pairs.values()):
        raise Failure("these runs have no interval and no verdict in common; give runs of the same command")
    raise typer.Exit(int(any(pair.changed for pair in pairs.values())))
