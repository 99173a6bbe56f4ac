"""`workbench runs`, `workbench baseline`, `workbench compare`, `workbench judge` and `workbench report`"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from .shared import (
    BASELINES,
    RUNS,
    AsJson,
    Failure,
    RunArgument,
    open_run,
    print_json,
    show,
    table,
    warn_changed,
    write,
)

if TYPE_CHECKING:
    import pandas as pd

    from llama_workbench.harness.store.folder import RunFolder

baseline = typer.Typer(
    help="Keep runs to compare with, under results/baselines.", no_args_is_help=True, rich_markup_mode=None
)


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder that holds the runs.")] = RUNS, as_json: AsJson = False
) -> None:
    """List the runs, newest first, with their verdicts; damaged ones with what is wrong.

    Every file of a finished run is compared with the checksum that the run wrote for it.

    \b
    --json prints a list:
      [{"path", "id", "status", "mode", "started", "workloads": [..], "verdicts": {word: count}, "problem"}]
    """
    if not folder.is_dir() and folder != RUNS:
        raise Failure(f"{folder}: there is no such folder")
    _show_runs(folder, "No runs in {}. Make one: pytest --benchmark", as_json)


@baseline.command("save")
def save_baseline(
    run: RunArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the baseline.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier baseline of that name.")] = False,
) -> None:
    """Keep a run as a baseline: copy its folder to results/baselines/NAME.

    The run must be complete and judged, and every file of it readable. The copy is checked before it gets its
    name. The logs of its processes are left out: they name paths of this machine.

    \b
    Examples:
      workbench baseline save results/runs/20260102T030405Z-1a2b main
      workbench compare main NEW
    """
    from llama_workbench.harness.report.baselines import save

    try:
        saved = save(open_run(run), name, under=BASELINES, force=force)
    except ValueError as error:
        raise Failure(str(error)) from error
    show(Text(f"{saved.path} (compare with it: workbench compare {name} NEW)"))


@baseline.command("list")
def list_baselines(as_json: AsJson = False) -> None:
    """List the baselines, newest first; damaged ones with what is wrong.

    --json prints a list as `workbench runs --json` does.
    """
    _show_runs(BASELINES, "No baselines in {}. Keep a run: workbench baseline save RUN NAME", as_json)


def _show_runs(folder: Path, if_none: str, as_json: bool) -> None:
    """Print the runs in a folder, newest first. `if_none`: what to say of a `{}` without runs."""
    from llama_workbench.harness.store.folder import describe, list_runs

    summaries = [describe(run, whole=True) for run in list_runs(folder)]
    if as_json:
        keys = ("path", "id", "status", "mode", "started", "workloads", "verdicts", "problem")
        print_json([{key: getattr(each, key) for key in keys} | {"path": str(each.path)} for each in summaries])
        return
    if not summaries:
        show(Text(if_none.format(folder)))
        return
    rows = table("run", "started", "status", "verdicts")
    for each in summaries:
        text = each.problem or ", ".join(f"{count} {word}" for word, count in each.verdicts.items())
        started = each.started[:16].replace("T", " ")
        rows.add_row(Text(each.path.name), Text(started), Text(each.status), Text(text))
    show(rows)


def compare(
    base: Annotated[str, typer.Argument(metavar="BASE", help="Folder of the earlier run, or its name under results/.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Folder of the run to check, or its name under results/.")],
    threshold: Annotated[float, typer.Option(metavar="PERCENT", help="More time than this is a regression.")] = 5.0,
    as_json: AsJson = False,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a summary in Markdown.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML.")] = None,
) -> None:
    """Has anything become slower from BASE to NEW?

    Each variant is compared as its ratio to the frozen yardstick that both runs timed in the same rounds, so the
    two may come from different days. On another machine, torch or device the answer is "cannot tell" at best.

    \b
    Exit codes:
      0  no regression
      1  a regression: the time grew by more than the threshold, beyond both intervals and a tolerance of 2 %
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
    from llama_workbench.harness.report import compare as compared
    from llama_workbench.harness.report.compare_text import render, to_junit, to_markdown, write_text
    from llama_workbench.harness.store.files import MANIFEST, SAMPLES

    if not 0 < threshold < float("inf"):
        raise Failure(f"--threshold must be a number of percent above 0, not {threshold:g}")
    pair = open_run(base), open_run(new)
    for run in pair:
        warn_changed(run, read=(MANIFEST, SAMPLES))
    comparison = compared.compare(*pair, threshold_percent=threshold)
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


def judge(
    run: RunArgument,
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of VERDICTS.md.")] = False,
    files: Annotated[
        list[Path] | None,
        typer.Option("--write", metavar="FILE", help="Put the results between the markers of this file. Repeatable."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if a file of --write (README.md) is out of date.")
    ] = False,
) -> None:
    """Judge a run again from its samples, also one that was killed, and rewrite its verdicts.json and standings.json.

    --write fills each pair of lines <!-- NAME:begin --> and <!-- NAME:end --> that the file has:
    "answer" (sentences about the main claims), "headlines" (a row for each), "verdicts" (every verdict).

    \b
    Exit codes:
      0  judged (whatever the verdicts), or the files are up to date
      1  with --check: a file is out of date
      2  could not

    --json prints the list that verdicts.json holds.

    \b
    Examples:
      workbench judge results/runs/20260102T030405Z-1a2b
      workbench judge results/baselines/main --write README.md --write VERDICTS.md
      workbench judge results/baselines/main --write README.md --check     in CI
    """
    from llama_workbench.harness.rejudge import rejudge
    from llama_workbench.harness.report.markdown import markdown_table
    from llama_workbench.harness.report.standings import write_standings
    from llama_workbench.harness.report.terminal import verdict_report
    from llama_workbench.harness.store.files import JUDGED, STANDINGS, VERDICTS

    folder = open_run(run)
    targets = files or ([Path("README.md")] if check else [])
    warn_changed(folder, read=JUDGED, rewritten=() if check else (VERDICTS, STANDINGS))
    verdicts, manifest = rejudge(folder)
    if not check:
        folder.write_json(VERDICTS, verdicts)
        folder.renew(VERDICTS)
        if folder.finished_rounds():
            write_standings(folder)
    if markdown:
        write(markdown_table(verdicts, manifest, command=_again(folder.path, [Path("README.md")])))
    elif as_json:
        print_json(verdicts)
    elif not targets:
        show(verdict_report(verdicts, manifest))
    if targets:
        _update(targets, verdicts, manifest, folder.path, check)


def _update(
    targets: list[Path], verdicts: list[dict[str, Any]], manifest: dict[str, Any], run: Path, check: bool
) -> None:
    """Write or check the files. Exit code 1 where one is out of date."""
    from llama_workbench.harness.report.answer import answer, headlines
    from llama_workbench.harness.report.markdown import markdown_table, update_file

    stale = False
    for file in targets:
        blocks = {
            "answer": answer(verdicts),
            "headlines": headlines(verdicts),
            "verdicts": markdown_table(verdicts, manifest, command=_again(run, [file])),
        }
        changed = update_file(file, blocks, check=check)
        stale |= check and changed
        if check and changed:
            sys.stderr.write(f"{file}: out of date; make it anew: {_again(run, targets)}\n")
        else:
            sys.stderr.write(f"{file}: {'written' if changed else 'up to date'}\n")
    if stale:
        raise typer.Exit(1)


def _again(run: Path, files: list[Path]) -> str:
    """The command that fills the files again, as it is typed in the folder of the first."""
    place = Path(os.path.relpath(run.resolve(), files[0].resolve().parent)).as_posix()
    return f"workbench judge {place}" + "".join(f" --write {file.name}" for file in files)


def report(
    run: RunArgument,
    profiling: Annotated[
        bool, typer.Option("--profiling", help="The execution plan's own form: top consumers, bottlenecks, targets.")
    ] = False,
    decision: Annotated[
        bool, typer.Option("--decision", help="Which option each team's own rule picks, from this run's numbers.")
    ] = False,
    roofline: Annotated[
        bool, typer.Option("--roofline", help="What share of what this machine can do each variant reaches.")
    ] = False,
    claim: Annotated[str | None, typer.Option(metavar="ID", help="Export this claim's evidence to files.")] = None,
    part: Annotated[str | None, typer.Option(metavar="PART", help="The claim's part, where it has several.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its evidence as one page, readable offline.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Its figure as SVG.")] = None,
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its figure as PNG (needs the extra `export`).")
    ] = None,
) -> None:
    """Print a run's time shares, what the dispute's rules make of them, and its roofline; or export a claim's evidence.

    Needs a run with phases or with a roofline: one that measured claims about shares of the time, or about the
    roofline. Without an option it prints all that there is, as Markdown. With --claim it prints nothing: it writes
    what one verdict rests on, for a pull request or a paper.

    \b
    Examples:
      pytest --benchmark --claims mask-is-the-bottleneck,refactor-2x-3x
      workbench report results/runs/20260102T030405Z-1a2b --profiling
      workbench report results/baselines/reference --decision
      workbench report results/runs/20260102T030405Z-1a2b --roofline
      workbench report reference --claim qkv-61 --part "of a layer" --html qkv.html --svg qkv.svg
    """
    files = {kind: path for kind, path in (("html", html), ("svg", svg), ("png", png)) if path is not None}
    if claim is None and part is None and not files:
        _print(open_run(run), profiling=profiling, decision=decision, roofline=roofline)
        return
    if claim is None:
        raise Failure(f"--{next(iter(files), 'part')} is about one claim: name it with --claim ID")
    if not files:
        raise Failure(f"--claim {claim} needs a file to write: --html FILE, --svg FILE or --png FILE")
    if profiling or decision or roofline:
        raise Failure("--profiling, --decision and --roofline are about a whole run: leave them out with --claim")
    if len(set(files.values())) < len(files):
        raise Failure("--html, --svg and --png need a file each")
    _export(open_run(run), claim, part, files)


def _export(folder: RunFolder, claim: str, part: str | None, files: Mapping[str, Path]) -> None:
    """Write a claim's evidence to files, by kind ("html", "svg", "png")."""
    from llama_workbench.dashboard.export import evidence as export
    from llama_workbench.dashboard.views import data
    from llama_workbench.harness.store.files import MANIFEST, VERDICTS

    warn_changed(folder, read=(MANIFEST, VERDICTS))
    run = data.read_run(folder.path)
    try:
        export.write(run, export.find_claim(run, claim, part), files)
    except export.ExportError as error:
        raise Failure(str(error)) from error
    for path in files.values():
        sys.stderr.write(f"{path}: written\n")


def _print(folder: RunFolder, *, profiling: bool, decision: bool, roofline: bool) -> None:
    """Print the parts that are asked for; where none is, those that the run has."""
    from llama_workbench.harness.rejudge import rejudge
    from llama_workbench.harness.report.decision import SHARES_OF, decision_markdown, decisions_of
    from llama_workbench.harness.store.files import JUDGED, PHASES, ROOFLINE

    warn_changed(folder, read=JUDGED)
    everything = not (profiling or decision or roofline)
    peaks = folder.records(ROOFLINE) if roofline or everything else []
    if roofline and not peaks:
        raise Failure(
            f"{folder.path}: this run has no roofline; measure one: pytest --benchmark --claims ID, "
            "with a claim whose metric is roofline (workbench claims)"
        )
    table = folder.read_phases()
    if table.empty and (profiling or decision or not peaks):
        raise Failure(f"{folder.path}: this run has no phases; measure some: pytest --benchmark --claims qkv-61")
    verdicts, manifest = rejudge(folder)
    alpha = float(manifest.get("alpha") or 0.01)
    if peaks:
        from llama_workbench.harness.metrics.roofline.metric import all_reached
        from llama_workbench.harness.report.passes import roofline_markdown

        of_each = min((verdict["alpha"] for verdict in verdicts), default=alpha)  # as the run was judged at
        write(roofline_markdown(*all_reached(peaks, alpha=of_each), alpha=of_each))
    everything = everything and not table.empty
    try:
        if profiling or everything:
            write(_profiling(table, alpha))
        decisions = decisions_of(table, verdicts, alpha) if decision or everything else {}
    except ValueError as error:
        raise Failure(f"{folder.path / PHASES}: {error}") from error
    if decisions:
        write(decision_markdown(decisions))
    elif decision or everything:
        raise Failure(f"{folder.path}: this run has no phases of {SHARES_OF}, whose shares the rules ask about")


def _profiling(table: pd.DataFrame, alpha: float) -> str:
    """The profiling form of each workload and variant in the columns of phases.parquet."""
    from llama_workbench.harness.metrics.share.shares import top_consumers
    from llama_workbench.harness.report.passes import Consumer, profiling_markdown

    pairs = table[["workload", "variant"]].astype(str).drop_duplicates()
    forms = {
        (workload, variant): [
            Consumer(phase, 100 * share.value, 100 * share.low, 100 * share.high)
            for phase, share in top_consumers(table, workload, variant, alpha=alpha).items()
        ]
        for workload, variant in pairs.itertuples(index=False, name=None)
    }
    return profiling_markdown(forms)
