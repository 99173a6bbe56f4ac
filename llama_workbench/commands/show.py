"""`workbench show`"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .shared import MOST_USED, Failure, Listed, RunArgument, run_of_one_machine, show, write

if TYPE_CHECKING:
    from llama_workbench.harness.report.comparison import Screen

BAR = 32  # characters of the longest bar
INDENT = 2
LEAST_WIDTH = 60  # characters of a line of code with its time and number


LISTED = Listed(
    1, MOST_USED, {"show results/runs/ID": "a comparison on one screen: which is faster, by how much, and where"}
)


def command(
    run: RunArgument,
    claim: Annotated[
        str, typer.Option(metavar="ID", help="For a run of claims: show what this claim compares, on each workload.")
    ] = "",
    code: Annotated[bool, typer.Option("--code/--no-code", help="Show the lines of code that take the time.")] = True,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a pull request.")] = False,
) -> None:
    """Show each comparison of a run on one screen: which is faster, what a call costs, where the difference is, and
    what to do.

    The difference is located for functions whose times differ, and for models that were measured with --profile.

    \b
    Examples:
      pytest --benchmark --compare old.py:f new.py:f --call inputs.py:texts
      workbench show results/runs/20260102T030405Z-1a2b
      workbench show results/runs/20260102T030405Z-1a2b --markdown > comment.md
      workbench show reference --claim single-file-faster
    """
    from llama_workbench.harness.fleet.rejudge import rejudge
    from llama_workbench.harness.report.comparison import screen_markdown, screens
    from llama_workbench.harness.report.stored import evidence_of

    folder = run_of_one_machine(run)
    verdicts, manifest = rejudge(folder)
    asked = [verdict for verdict in verdicts if (verdict.claim == claim if claim else verdict.is_comparison)]
    all_screens = screens(folder, asked, evidence_of(folder, manifest)) if asked else []
    judged = f"workbench judge {folder.path}"
    if not all_screens:
        raise Failure(f"{folder.path}: {_why_nothing(claim, {verdict.claim for verdict in verdicts})} ({judged})")
    for number, screen in enumerate(all_screens):
        write("\n" * bool(number))
        if claim:
            part = screen.verdict.part and f" ({screen.verdict.part})"
            write(f"{claim}{part} on {screen.place}: {screen.effect.verdict.look.word.lower()}\n{chr(10) * markdown}")
            for remark in (each for each in screen.effect.said if each != screen.queueing):
                write(f"! {remark}\n{chr(10) * markdown}")
        if markdown:
            write(screen_markdown(screen))
        else:
            _show(screen, code)


def _why_nothing(claim: str, claims: Collection[str]) -> str:
    from llama_workbench.variants.spelling import did_you_mean

    if not claim:
        return (
            "this run compares no two functions or variants by name; if it measured claims, choose one with --claim ID"
        )
    if claim in claims:
        return f"{claim} compares no times in this run"
    return f"it has no claim {claim}; {did_you_mean(claim, claims, 'its verdicts name them')}"


def _show(screen: Screen, code: bool) -> None:
    from llama_workbench.harness.report.causes import changes
    from llama_workbench.harness.report.code_lines import code_text
    from llama_workbench.harness.report.measures import measure_rows
    from llama_workbench.harness.report.terminal import console

    effect, explained = screen.effect, screen.explained
    show(Text(screen.headline, style=f"bold {screen.way.look.terminal}".strip()))
    for name, text in screen.told.items():
        show(Text.assemble((f"{name}: ", "bold"), text))
    if screen.between:
        show(Text(screen.between, style="dim"))
    table = Table.grid(padding=(0, 2))
    for row in measure_rows(screen.measures):
        table.add_row(*(Text(cell) for cell in (row[0], f"{row[1]} → {row[2]}", row[3])))
    show(Padding(table, (1, 0, 0, 2)))
    if screen.brackets:
        show(Padding(Text(screen.brackets, style="dim"), (0, 0, 0, 2)))
    if explained is not None and (causes := changes(explained)):
        show(Padding(Text("Where the difference is"), (1, 0, 0, 0)))
        bars = Table.grid(padding=(0, 2))
        largest = max(abs(each.value) for each in causes) or 1.0
        for cause in causes:
            colour = ("green" if cause.value < 0 else "red") if cause.is_told else "dim"
            bar = Text("█" * max(1, round(BAR * abs(cause.value) / largest)), style=colour)
            bars.add_row(Text(cause.name), Text(str(cause), justify="right"), bar)
        show(Padding(bars, (0, 0, 0, 2)))
    if explained is not None and explained.division is not None and code:
        width = max(console().width - INDENT, LEAST_WIDTH)
        for name, side in ((effect.baseline, "baseline"), (effect.variant, "variant")):
            show(Padding(Text(name, style="bold"), (1, 0, 0, 0)))
            show(Padding(Text(code_text(explained, side, width)), (0, 0, 0, INDENT)))
    sys.stdout.flush()
