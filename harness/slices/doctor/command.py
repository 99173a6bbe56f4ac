"""`workbench doctor`"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from llama_workbench.commands.shared import MACHINE, AsJson, Failure, Listed, ends, print_json, show
from llama_workbench.harness.spec.exits import VerbExit

LISTED = Listed(23, MACHINE, {"doctor": "is it fit to measure?"})

STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


@ends({VerbExit.DONE: "nothing is bad (there may be warnings)", VerbExit.AGAINST: "something is bad"})
def command(
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="Time for the A/A check, in seconds.")] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Is this machine fit to measure? One line for each thing that spoils measurements, with what to do about it.

    The last line is an A/A check: a small operation is timed against an identical copy of itself.

    \b
    Exit codes:

    \b
    --json prints:
      {"fit": true|false, "checks": [{"name", "state": "ok"|"warn"|"bad", "found", "fix"}]}

    \b
    Examples:
      workbench doctor
      workbench doctor --seconds 20
    """
    from .examination import aa_trial, examine, examine_aa, read_facts

    if not 0 < seconds < float("inf"):
        raise Failure(f"--seconds {seconds:g}: expected a number above 0")
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
