"""`workbench doctor`"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from .shared import AsJson, Failure, print_json, show

STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


def command(
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="Time for the A/A trial.")] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Is this machine fit to measure? One line for each thing that spoils measurements, with what to do.

    The last check is a trial: a small operation timed against an identical copy of itself.

    \b
    Exit codes:
      0  nothing is bad (there may be warnings)
      1  something is bad
      2  could not

    \b
    --json prints:
      {"fit": true|false, "checks": [{"name", "state": "ok"|"warn"|"bad", "found", "fix"}]}
    """
    from llama_workbench.harness.calibrate.doctor import aa_trial, examine, examine_aa, read_facts

    if not 0 < seconds < float("inf"):
        raise Failure(f"--seconds must be a number above 0, not {seconds:g}")
    checks = [*examine(read_facts()), examine_aa(aa_trial(seconds))]
    fit = all(check.state != "bad" for check in checks)
    if as_json:
        print_json({"fit": fit, "checks": [asdict(check) for check in checks]})
        raise typer.Exit(0 if fit else 1)
    blocks: list[RenderableType] = []
    for check in checks:
        blocks.append(Text.assemble((f"{check.state:<4}", STYLES[check.state]), f"  {check.name}: {check.found}"))
        if check.fix:
            blocks.append(Padding(Text(check.fix, style="dim"), (0, 0, 0, 6)))
    blocks.append(Text("fit to measure" if fit else "not fit to measure", style="bold"))
    show(Group(*blocks))
    raise typer.Exit(0 if fit else 1)
