"""`workbench show` and `report`: what a run found, on the screen and in files."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..results import find_run
from .shared import (
    MOST_USED,
    ON_RUNS,
    Failure,
    Listed,
    RunArgument,
    run_of_one_machine,
    show,
    warn_changed,
    write,
    write_file,
)

if TYPE_CHECKING:
    from llama_workbench.harness.store.folder import RunFolder


def report(
    run: RunArgument,
    claim: Annotated[
        str | None, typer.Option(metavar="ID", help="Write this claim's evidence to files instead.")
    ] = None,
    part: Annotated[str | None, typer.Option(metavar="PART", help="Part of the claim, if it has several.")] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write its evidence to this file, as one page that can be read offline."),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write its figure to this file, as SVG; without a claim time against size."),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write its figure to this file, as PNG (needs the extra `export`)."),
    ] = None,
) -> None:
    """Print a run's answer, time breakdown, decisions and roofline; or export a claim's evidence.

    What the run has is printed as Markdown, the answer first. With --claim nothing is printed: the evidence for one
    verdict is written to files, for a pull request or a paper.

    \b
    Examples:
      pytest --benchmark --claims mask-is-the-bottleneck,refactor-2x-3x
      workbench report results/runs/20260102T030405Z-1a2b
      workbench report reference --claim qkv-61 --part "of a layer" --html qkv.html --svg qkv.svg
    """
    files = {kind: path for kind, path in (("html", html), ("svg", svg), ("png", png)) if path is not None}
    if claim is None and part is None and not files:
        _print(find_run(run))
        return
    if claim is None and [*files] == ["svg"] and _draw(find_run(run), files["svg"]):
        return
    if claim is None:
        raise Failure(f"--{next(iter(files), 'part')} needs a claim: add --claim ID")
    if not files:
        raise Failure(f"--claim {claim} needs a file to write: add --html FILE, --svg FILE or --png FILE")
    if len(set(files.values())) < len(files):
        raise Failure("--html, --svg and --png need different files")
    _export(find_run(run), claim, part, files)


def _draw(folder: RunFolder, path: Path) -> bool:
    """Write the picture that the whole run has, where it has one."""
    from llama_workbench.harness.slices import faces

    drawn = next((svg for face in faces("screen") if (svg := face.svg(folder))), "")
    if drawn:
        write_file(path, drawn)
    return bool(drawn)


def _export(folder: RunFolder, claim: str, part: str | None, files: Mapping[str, Path]) -> None:
    """Write a claim's evidence to files, by kind ("html", "svg", "png")."""
    from llama_workbench.dashboard.export import evidence as export
    from llama_workbench.dashboard.views import data
    from llama_workbench.harness.store.files import MANIFEST, VERDICTS

    warn_changed(folder, read=(MANIFEST, VERDICTS))
    run = data.read_run(folder.path)
    export.write(run, export.find_claim(run, claim, part), files)
    for path in files.values():
        sys.stderr.write(f"{path}: written\n")


def _print(folder: RunFolder) -> None:
    """Print the answer and all else that the run has."""
    from llama_workbench.harness.metrics.registry import judged_files
    from llama_workbench.harness.report.answer import answer_markdown, decisions_of, picks_markdown, picks_of
    from llama_workbench.harness.report.ladder import ladder_markdown, ladder_of
    from llama_workbench.harness.session.judging import rejudge
    from llama_workbench.harness.slices import faces
    from llama_workbench.harness.store.passes import PHASES
    from llama_workbench.harness.store.verdict_schema import FLEET

    warn_changed(folder, read=judged_files())
    if folder.manifest().mode == FLEET:
        _print_fleet(folder)
        return
    verdicts, manifest = rejudge(folder)
    dispute, alpha = manifest.dispute, manifest.alpha
    write(f"# The answer\n\n{answer_markdown(verdicts, dispute)}\n")
    if (ladder := ladder_of(verdicts, dispute, manifest)) is not None:
        write(f"# What is left to gain, step by step\n\n{ladder_markdown(ladder)}\n")
    for face in faces("report"):
        if text := face.markdown(folder, alpha):
            write(f"{text}\n")
    try:
        decisions = decisions_of(dispute, folder.read_table(PHASES), verdicts, alpha)
    except ValueError as error:
        raise Failure(f"{folder.path / PHASES}: {error}") from error
    if decisions:
        write(f"# What the teams' own rules pick\n\n{picks_markdown(picks_of(decisions))}\n")


def _print_fleet(folder: RunFolder) -> None:
    """What holds over the machines. What one of them found beside verdicts is in its own run."""
    from llama_workbench.harness.report.answer import answer_markdown
    from llama_workbench.harness.report.machines import machine_markdown
    from llama_workbench.harness.session.judging import several_machines

    judged, dispute = several_machines().verdicts_of(folder), folder.manifest().dispute
    runs = [str(folder.path / each.folder) for each in judged.manifest.machines if each.folder]
    write(f"# The answer\n\n{answer_markdown(judged.verdicts, dispute)}\n")
    write(machine_markdown(judged.verdicts, judged.over))
    write("".join(f"\nMore about one machine: workbench report {run}" for run in runs) + "\n")


def show_run(
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


COMMANDS = {
    "show": (
        show_run,
        Listed(
            1,
            MOST_USED,
            {"show results/runs/ID": "a comparison on one screen: which is faster, by how much, and where"},
        ),
    ),
    "report": (
        report,
        Listed(
            8,
            ON_RUNS,
            {
                "report results/runs/ID": "its answer as Markdown",
                "report RUN --claim ID --html F": "one claim as a page to share",
            },
        ),
    ),
}
