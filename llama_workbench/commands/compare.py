"""`workbench compare`"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ..results import find_run
from .shared import AsJson, Failure, print_json, show, warn_changed, write_file

HELP = """\
Has anything become slower from BASE to NEW, or does it need more instructions, memory or other operations?

Each variant's time is compared as its ratio to the frozen yardstick that both runs timed, so the two may come from
different days. Where BASE has baselines of several kinds of machines (workbench baseline save), the one is taken that
was made on a machine like NEW's; where there is none, a note says so. On another machine, torch or device the answer
is "cannot tell" at best. Beside times stand the instructions (runs with --count-instructions), the memory (runs with
--profile) and the operations of a call.

\b
Exit codes, by what is in the gate (time, if nothing else is said):
  0  no regression
  1  a regression. Time: the whole interval of the slow-down lies beyond the threshold. Between two runs that are made
     of lives (processes begun anew) the threshold is 2.5 %, and the interval has in it what sessions of unchanged code
     were measured to differ by (workbench sessions), measured by the same version of the workbench or by another one.
     Where that was not measured, and between other runs (threshold 5 %), it must lie beyond a tolerance as well:
     3.3 % of functions that one version measured, else 9 %, or 19 % where the call is more than twice as long or as
     short as the yardstick's, or 50 % where it takes less than a twentieth of that. Less is seen where old and new code
     are timed in one run:
     pytest --benchmark --compare OLD NEW --fail-if slower:5
     Instructions, memory: more than the threshold. Operations: any change.
  2  cannot tell: the runs have nothing in common, no yardstick, another machine or device, too few rounds, or one is
     damaged
If the gate has time and instructions and a time cannot tell, the variant's instruction count decides: added work is
caught on shared machines, where times are too noisy, and a slow-down without added work as far as times show it.
Counts need the same torch, Python, valgrind and kernels, but no equal processors.

\b
Thresholds in pyproject.toml, looked for in this folder and above; of several [[for]] that fit, the last counts:
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
  change_percent is of the variant's time: above 0 it became slower. null is an end that is not known yet.
  what: time, instructions, memory or operations; all but times have {"value", "unit"} as base and new.
  between_percent: the standard deviation between sessions that the interval allows for; null: a tolerance counts.
  decides: whether the row has a say in the exit code. verdict: also "changed", of operations.

\b
Examples:
  workbench compare results/baselines/main results/runs/20260102T030405Z-1a2b
  workbench compare main NEW --gate time,instructions --markdown comparison.md --junit compare.xml
  workbench compare main NEW --threshold 10 --json
"""


def command(
    base: Annotated[
        str, typer.Argument(metavar="BASE", help="Folder or URL of the earlier run, or its name under results/.")
    ],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="Folder or URL of the run to check, or its name under results/.")
    ],
    threshold: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", help="More time than this is a regression, of all variants. [2.5 or 5]"),
    ] = None,
    gate: Annotated[
        str, typer.Option(metavar="WHAT,WHAT", help="What decides: time, instructions, memory, operations.")
    ] = "",
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Thresholds, instead of those of the nearest pyproject.toml.")
    ] = None,
    as_json: AsJson = False,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a summary in Markdown.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML.")] = None,
) -> None:
    """Compare two runs and end with 0, 1 or 2 (see HELP)."""
    from llama_workbench.harness.baselines.regressions import compare
    from llama_workbench.harness.baselines.text import render, to_junit, to_markdown
    from llama_workbench.harness.baselines.thresholds import gate_of, read_thresholds
    from llama_workbench.harness.fleet.baselines import matching
    from llama_workbench.harness.metrics.instructions.files import INSTRUCTIONS
    from llama_workbench.harness.profilers.peak_memory import MEMORY
    from llama_workbench.harness.store.files import MANIFEST, SAMPLES

    if threshold is not None and not 0 < threshold < float("inf"):
        raise Failure(f"--threshold must be a number of percent above 0, not {threshold:g}")
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
