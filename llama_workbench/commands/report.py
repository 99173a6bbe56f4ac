"""`workbench report`"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..results import find_run
from .shared import ON_RUNS, Failure, Listed, RunArgument, warn_changed, write, write_file

if TYPE_CHECKING:
    from llama_workbench.harness.spec.dispute import ProfilingForm
    from llama_workbench.harness.spec.table import Table
    from llama_workbench.harness.store.folder import RunFolder


LISTED = Listed(
    8,
    ON_RUNS,
    {
        "report results/runs/ID": "its answer as Markdown",
        "report RUN --claim ID --html F": "one claim as a page to share",
    },
)


def command(
    run: RunArgument,
    profiling: Annotated[
        bool,
        typer.Option("--profiling", help="Print the form of the teams' plan: top consumers, bottlenecks, targets."),
    ] = False,
    decision: Annotated[
        bool, typer.Option("--decision", help="Print which option each team's own rule picks, by this run's numbers.")
    ] = False,
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

    Without options everything is printed as Markdown, the answer first. The options need a run that measured claims
    about the time breakdown. With --claim nothing is printed: the evidence for one verdict is written to files, for a
    pull request or a paper.

    \b
    Examples:
      pytest --benchmark --claims mask-is-the-bottleneck,refactor-2x-3x
      workbench report results/runs/20260102T030405Z-1a2b --profiling
      workbench report results/baselines/reference --decision
      workbench report reference --claim qkv-61 --part "of a layer" --html qkv.html --svg qkv.svg
    """
    files = {kind: path for kind, path in (("html", html), ("svg", svg), ("png", png)) if path is not None}
    if claim is None and part is None and not files:
        _print(find_run(run), profiling=profiling, decision=decision)
        return
    if claim is None and [*files] == ["svg"] and _draw(find_run(run), files["svg"]):
        return
    if claim is None:
        raise Failure(f"--{next(iter(files), 'part')} needs a claim: add --claim ID")
    if not files:
        raise Failure(f"--claim {claim} needs a file to write: add --html FILE, --svg FILE or --png FILE")
    if profiling or decision:
        raise Failure("--profiling and --decision are about a whole run; leave them out with --claim")
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


def _print(folder: RunFolder, *, profiling: bool, decision: bool) -> None:
    """Print the parts that are asked for; where none is, the answer and those parts that the run has."""
    from llama_workbench.harness.metrics.registry import judged_files
    from llama_workbench.harness.metrics.share.metric import PHASES
    from llama_workbench.harness.report.answer import answer_markdown, decision_markdown, decisions_of
    from llama_workbench.harness.report.ladder import ladder_markdown, ladder_of
    from llama_workbench.harness.session.judging import rejudge
    from llama_workbench.harness.slices import faces
    from llama_workbench.harness.store.verdict_schema import FLEET

    warn_changed(folder, read=judged_files())
    everything = not (profiling or decision)
    if folder.manifest().mode == FLEET:
        _print_fleet(folder, everything)
        return
    table = folder.read_table(PHASES)
    verdicts, manifest = rejudge(folder)
    dispute, alpha = manifest.dispute, manifest.alpha
    no_phases = f"this run has no time breakdown; to measure one: {dispute.command('phases_of_one')}"
    ladder = ladder_of(verdicts, dispute, manifest) if everything else None
    if not len(table) and (profiling or (decision and dispute.numbers.shares)):
        raise Failure(f"{folder.path}: {no_phases}")
    if everything:
        write(f"# The answer\n\n{answer_markdown(verdicts, dispute)}\n")
    if ladder is not None:
        write(f"# What is left to gain, step by step\n\n{ladder_markdown(ladder)}\n")
    for face in faces("report") if everything else ():
        if text := face.markdown(folder, alpha):
            write(f"{text}\n")
    measured = everything and bool(len(table))
    try:
        if profiling or measured:
            write(_profiling(dispute.form, table, alpha) + "\n" * everything)
        decisions = decisions_of(dispute, table, verdicts, alpha) if decision or everything else {}
    except ValueError as error:
        raise Failure(f"{folder.path / PHASES}: {error}") from error
    if decisions:
        write(decision_markdown(dispute, decisions))
    elif decision:
        asked = dispute.numbers.shares_of
        lacks = f"no time breakdown of {asked}, which the rules ask about" if dispute.rule else "no rules of any team"
        raise Failure(f"{folder.path}: this run has {lacks}")
    if everything and not len(table):
        write(f"Where the time goes: {no_phases}\n")


def _print_fleet(folder: RunFolder, everything: bool) -> None:
    """What holds over the machines. What one of them found beside verdicts is in its own run."""
    from llama_workbench.harness.report.answer import answer_markdown
    from llama_workbench.harness.report.machines import machine_markdown
    from llama_workbench.harness.session.judging import several_machines

    judged, dispute = several_machines().verdicts_of(folder), folder.manifest().dispute
    runs = [str(folder.path / each.folder) for each in judged.machines if each.folder]
    if not everything:
        raise Failure(f"{folder.path}: a run of several machines; name the run of one: workbench report {runs[0]}")
    write(f"# The answer\n\n{answer_markdown(judged.verdicts, dispute)}\n")
    write(machine_markdown(judged.verdicts, judged.over))
    write("".join(f"\nMore about one machine: workbench report {run}" for run in runs) + "\n")


def _profiling(form: ProfilingForm, table: Table, alpha: float) -> str:
    """The profiling form of each workload and variant in the columns of phases.parquet."""
    from llama_workbench.harness.metrics.share.shares import top_consumers
    from llama_workbench.harness.report.markdown import profiling_markdown

    pairs = table.distinct("workload", "variant")
    return profiling_markdown(
        form, {(name, side): top_consumers(table, name, side, alpha=alpha) for name, side in pairs}
    )
