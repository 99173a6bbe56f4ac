"""`workbench compare`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..results import find_run
from .shared import AsJson, Failure, print_json, show, warn_changed


def command(
    base: Annotated[str, typer.Argument(metavar="BASE", help="Folder of the earlier run, or its name under results/.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Folder of the run to check, or its name under results/.")],
    threshold: Annotated[float, typer.Option(metavar="PERCENT", help="More time than this is a regression.")] = 5.0,
    as_json: AsJson = False,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a summary in Markdown.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML.")] = None,
) -> None:
    """Has anything become slower from BASE to NEW?

    Each variant is compared as its ratio to the frozen yardstick that both runs timed, so the two may come from
    different days. On another machine, torch or device the answer is "cannot tell" at best.

    \b
    Exit codes:
      0  no regression
      1  a regression: the time grew by more than the threshold, beyond both intervals and a tolerance of 2 %. With a
         threshold of 5 % the whole interval of the slow-down lies above 7.1 % then. Less than that is seen where old
         and new code are timed in one run: pytest --benchmark --compare OLD NEW --fail-if slower:5
      2  cannot tell: nothing in common, no yardstick, another machine or device, too few rounds, or a damaged run

    \b
    --json prints:
      {"format": 1, "base", "new", "verdict", "exit_code", "threshold_percent", "tolerance_percent",
       "same_machine", "machine_differences": [..], "only_in_base": [..], "only_in_new": [..], "notes": [..],
       "rows": [{"workload", "variant", "against", "base": {"ratio", "low", "high", "rounds"}, "new": {..},
                 "change_percent", "low_percent", "high_percent", "verdict", "reason"}]}
      change_percent is of the variant's time: above 0 it became slower. null is an end that is not known yet.

    \b
    Examples:
      workbench compare results/baselines/main results/runs/20260102T030405Z-1a2b
      workbench compare main NEW --markdown "$GITHUB_STEP_SUMMARY" --junit compare.xml
      workbench compare main NEW --threshold 10 --json
    """
    from llama_workbench.harness.report.compare import compare
    from llama_workbench.harness.report.compare_text import render, to_junit, to_markdown, write_text
    from llama_workbench.harness.store.files import MANIFEST, SAMPLES

    if not 0 < threshold < float("inf"):
        raise Failure(f"--threshold must be a number of percent above 0, not {threshold:g}")
    runs = find_run(base), find_run(new)
    for run in runs:
        warn_changed(run, read=(MANIFEST, SAMPLES))
    comparison = compare(*runs, threshold_percent=threshold)
    for path, text in ((markdown, to_markdown), (junit, to_junit)):
        if path is not None:
            try:
                write_text(path, text(comparison))
            except OSError as error:
                raise Failure(f"{path}: cannot be written ({error.strerror})") from error
    if as_json:
        print_json(comparison.to_json())
    else:
        show(render(comparison))
    raise typer.Exit(comparison.exit_code)
