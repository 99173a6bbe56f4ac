"""`workbench show`"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import typer

from .shared import MOST_USED, Failure, Listed, RunArgument, run_of_one_machine, show, write

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
    what to do; of a run of claims the answer to each of its questions.

    The difference is located for functions whose times differ, and for models that were measured with --profile.

    \b
    Examples:
      pytest --benchmark --compare old.py:f new.py:f --call inputs.py:texts
      workbench show results/runs/20260102T030405Z-1a2b
      workbench show results/runs/20260102T030405Z-1a2b --markdown > comment.md
      workbench show reference
      workbench show reference --claim single-file-faster
    """
    from llama_workbench.harness.report.comparison import screen_markdown, screens
    from llama_workbench.harness.report.standings import evidence_of
    from llama_workbench.harness.report.terminal import answer_report, console, screen_report
    from llama_workbench.harness.session.judging import rejudge
    from llama_workbench.harness.slices import tables
    from llama_workbench.harness.suites.run import call_seconds, time_table

    folder = run_of_one_machine(run)
    if of_slices := [] if markdown else tables(folder):
        for table in of_slices:
            show(table)
        return
    verdicts, manifest = rejudge(folder)
    asked = [verdict for verdict in verdicts if (verdict.claim == claim if claim else verdict.is_comparison)]
    all_screens = screens(folder, asked, evidence_of(folder, manifest)) if asked else []
    judged = f"workbench judge {folder.path}"
    if not (all_screens or claim or verdicts) and (of_tests := call_seconds(folder)):
        show(time_table(of_tests))
    elif not (all_screens or claim) and verdicts:
        show(answer_report(verdicts, manifest))
    elif not all_screens:
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
            show(screen_report(screen, console().width, code=code))


def _why_nothing(claim: str, claims: Collection[str]) -> str:
    from llama_workbench.variants.spelling import did_you_mean

    if not claim:
        return "it has no verdicts"
    if claim in claims:
        return f"{claim} compares no times in this run"
    return f"it has no claim {claim}; {did_you_mean(claim, claims, 'its verdicts name them')}"
