"""`workbench compare`"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from llama_workbench.harness.spec.exits import VerbExit

from ..results import find_run
from .shared import MOST_USED, AsJson, Failure, Listed, print_json, show, warn_changed, with_exits, write_file

LISTED = Listed(3, MOST_USED, {"compare BASE NEW": "has anything become slower since a saved run? (for CI)"})

HELP = with_exits(
    """\
Has anything become slower from BASE to NEW, or does it need more instructions, memory or other operations?

Each variant's time is compared relative to the reference benchmark, which both runs timed. So the runs may be from
different days. If BASE has baselines of several machine types (workbench baseline save), the one of NEW's machine type
is used; if there is none, a note says so. On another machine, torch or device the answer is "cannot tell" at best. The
table also has instructions (runs with --count-instructions), memory (runs with --profile) and the operations of a call.

\b
Exit codes:

A time is a regression if the whole interval of the slow-down is above the threshold of 2.5 %. The interval includes
the run-to-run variation of unchanged code, if that was measured (workbench sessions), by the same version of the
workbench or by different ones. If not, the interval must also be above a tolerance: 3.3 % for functions that one
version measured; else 9 %, or 19 % for a call that is more than twice as long or as short as the reference benchmark,
or 50 % for one less than a twentieth as long. To detect less, time old and new code in one run:
pytest --benchmark --compare OLD NEW --fail-if slower:5

Instructions and memory: more than the threshold is a regression. Operations: any change.

With --gate time,instructions a variant's instruction count decides where its time is inconclusive. This finds added
work on shared machines, where times are too noisy, and slow-downs without added work as far as times show them. Counts
need the same torch, Python, valgrind and kernels, but not the same processor.

\b
Thresholds in the nearest pyproject.toml, here or above; the last [[for]] that fits counts:
  [tool.llama-workbench.compare]
  gate = ["time", "instructions"]
  time = 3
  instructions = 0.5
  memory = 2
  [[tool.llama-workbench.compare.for]]
  variant = "fast"        a pattern with * and ?
  workload = "decode-*"
  time = 10
  [[tool.llama-workbench.compare.sessions]]
  ...                     as workbench sessions prints it

\b
--json prints:
  {"format": 1, "base", "new", "verdict", "exit_code", "threshold_percent", "tolerance_percent", "gate": [..],
   "same_machine", "machine_differences": [..], "only_in_base": [..], "only_in_new": [..], "notes": [..],
   "rows": [{"workload", "variant", "what", "against", "base": {"ratio", "low", "high", "rounds"}, "new": {..},
             "change_percent", "low_percent", "high_percent", "verdict", "reason", "threshold_percent",
             "decides", "between_percent"}]}
  change_percent is of the variant's time: above 0 it became slower. null: not known yet.
  what: time, instructions, memory or operations; all but times have {"value", "unit"} as base and new.
  between_percent: run-to-run variation in the interval (standard deviation); null: a tolerance is used instead.
  decides: whether the row counts for the exit code. verdict: also "changed", of operations.

\b
Examples:
  workbench compare results/baselines/main results/runs/20260102T030405Z-1a2b
  workbench compare main NEW --gate time,instructions --markdown comparison.md --junit compare.xml
  workbench compare main NEW --threshold 10 --json
""",
    {
        VerbExit.DONE: "no regression",
        VerbExit.AGAINST: "a regression, by a metric of the gate (time, unless --gate or pyproject.toml names others)",
        VerbExit.COULD_NOT: "cannot tell: nothing in common, another machine or device, too few processes; or an error",
    },
)


def command(
    base: Annotated[
        str, typer.Argument(metavar="BASE", help="Earlier run: its folder, its name under results/, or its URL.")
    ],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="Run to check: its folder, its name under results/, or its URL.")
    ],
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
            help="Metrics that set the exit code: time, instructions, memory, operations. [default: time]",
        ),
    ] = "",
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with thresholds. [default: the nearest pyproject.toml]")
    ] = None,
    as_json: AsJson = False,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a summary in Markdown to this file.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML to this file.")] = None,
) -> None:
    """Compare two runs and end with 0, 1 or 2 (see HELP)."""
    from llama_workbench.harness.baselines.regressions import compare
    from llama_workbench.harness.baselines.text import render, to_junit, to_markdown
    from llama_workbench.harness.baselines.thresholds import gate_of, read_thresholds
    from llama_workbench.harness.fleet.baselines import matching
    from llama_workbench.harness.metrics.instructions.metric import INSTRUCTIONS
    from llama_workbench.harness.profilers.peak_memory import MEMORY
    from llama_workbench.harness.store.files import MANIFEST, SAMPLES

    if threshold is not None and not 0 < threshold < float("inf"):
        raise Failure(f"--threshold {threshold:g}: expected a number of percent above 0")
    thresholds = read_thresholds(config, start=Path.cwd())
    thresholds = thresholds.model_copy(update={"gate": gate_of(gate)}) if gate else thresholds
    fresh = find_run(new)
    matched = matching(find_run(base), fresh)
    runs = matched.run, fresh
    decide = [file for what, file in (("memory", MEMORY), ("instructions", INSTRUCTIONS)) if what in thresholds.gate]
    for run in runs:
        warn_changed(run, read=(MANIFEST, SAMPLES, *decide))
    compared = compare(*runs, thresholds=thresholds, threshold_percent=threshold)
    comparison = replace(compared, base=matched.name, notes=(*filter(None, [matched.note]), *compared.notes))
    for path, text in ((markdown, to_markdown), (junit, to_junit)):
        if path is not None:
            write_file(path, text(comparison))
    if as_json:
        print_json(comparison.to_json())
    else:
        show(render(comparison))
    raise typer.Exit(comparison.exit_code)
