"""The `workbench` command: what `pytest --benchmark` does not do.

Lists what there is to measure, compares two runs (for CI), and judges a run again from its samples. It measures
nothing and imports neither torch nor transformers; pandas is imported by the commands that read samples only, so
that the lists come at once.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from llama_workbench import ROOT

if TYPE_CHECKING:
    from .claims.claims import Hypothesis, Reading
    from .store.folder import RunFolder

RUNS = Path("results/runs")
BASELINES = Path("results/baselines")

app = typer.Typer(
    name="workbench",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""\
Settles claims about Llama model architectures by measurement.

Measuring is done by pytest (`pytest --benchmark`, or `make bench`); this command does the rest.

\b
Examples:
  workbench claims                         what is claimed, and by whom
  workbench variants team006_after         one variant, axis by axis
  workbench compare BASE NEW               has anything become slower? (for CI)
  workbench judge results/runs/ID          judge a run again, also one that was killed
  workbench report RUN --claim ID --html F one claim's evidence as a page to hand on
  workbench runs                           the runs on this disk
  workbench baseline save RUN main         keep a run to compare with
  workbench doctor                         is this machine fit to measure?
  workbench speedscope                     install what the dashboard opens raw profiles with

Every command says more with --help. Exit codes: 0 done, 2 could not (one line on stderr says why);
`compare`, `judge --check` and `doctor` also have 1, see there.
""",
)
baseline_app = typer.Typer(
    help="Keep runs to compare with, under results/baselines.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(baseline_app, name="baseline")

Export = Callable[[Path, str, str | None, Mapping[str, Path]], None]
"""Writes a claim's evidence: run folder, claim, part or None, files by kind ("html", "svg", "png")."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


class Failure(Exception):
    """Ends the command: one line on stderr, exit code 2."""


@app.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        _write(context.get_help() + "\n")


class OutputLost(Exception):
    """Standard output cannot be written to."""

    def __init__(self, number: int | None) -> None:
        self.errno = number or errno.EIO
        super().__init__(os.strerror(self.errno))


# -- lists -------------------------------------------------------------------------------------------------------------


@app.command("claims")
def list_claims(as_json: AsJson = False) -> None:
    """List the claims: id, who said it, what is claimed of which variant.

    \b
    --json prints a list of the claims as in claims/*.toml:
      [{"id", "title", "who": [..], "source": [{"document", "section"}], "statement", "assumes": [..], "decided_by",
        "hypothesis": [{"part", "evidence", "variant", "baseline": [..], "workloads": [..], "metric",
                        "quick", "device", "faster_than_percent", "slower_than_percent", "not_faster_than_percent",
                        "ratio", "gain_percent", "same_within_percent"}]}]
    A hypothesis that is not about a time has other keys (see harness/claims/claims.py).

    \b
    Examples:
      workbench claims
      workbench claims --json | jq -r '.[].id'
      pytest --benchmark --claims rope-3x-5x     measure one of them
    """
    from .claims.claims import load_claims

    claims = load_claims(ROOT / "claims")
    if as_json:
        _print_json([claim.model_dump(mode="json") for claim in claims])
        return
    blocks: list[RenderableType] = []
    for claim in claims:
        blocks.append(Text.assemble((claim.id, "bold"), f" · {', '.join(claim.who)}"))
        blocks.append(Padding(Text(claim.title), (0, 0, 0, 2)))
        for hypothesis in claim.hypothesis:
            said = _hypothesis_text(hypothesis)
            blocks.append(Padding(Text(said, style="dim"), (0, 0, 0, 4)))
    _print(Group(*blocks))


def _hypothesis_text(hypothesis: Hypothesis | Reading) -> str:
    """One hypothesis on a line: its part, what is measured, what is claimed, and how much there is of it."""
    from .claims.claims import Hypothesis

    part = f"{hypothesis.part}: " if hypothesis.part else ""
    count = len(hypothesis.workloads)
    where = f" ({count} workload{'s' * (count != 1)})" if count else ""
    slow = "" if hypothesis.quick else ", with --all only"
    slow += f", with --device {hypothesis.device} only" if hypothesis.device else ""
    if isinstance(hypothesis, Hypothesis):
        sides = f"{hypothesis.variant} against {', '.join(hypothesis.baseline)}: {hypothesis.region.describe()}"
        return f"{part}{sides}{where}{slow}"
    what = " ".join(word for word in (hypothesis.metric, hypothesis.quantity, " + ".join(hypothesis.phases)) if word)
    sides = " against ".join(name for name in (hypothesis.variant, hypothesis.baseline) if name)
    said = hypothesis.describe() or hypothesis.reason or ""
    return f"{part}{what}{' of ' + sides if sides else ''}: {said}{where}{slow}"


@app.command("variants")
def list_variants(
    name: Annotated[str | None, typer.Argument(help="Show this one, axis by axis.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """List the variants, or show one of them axis by axis.

    \b
    --json prints a list, or with NAME one object:
      {"name", "description", "source", "factors": {axis: level}, "installed": true|false}

    \b
    Engines are optional packages; of one that is not there the table says what to install.

    \b
    Examples:
      workbench variants
      workbench variants team005_proposal
      pytest --benchmark --compare team005_hybrid team005_proposal
      pytest --benchmark --add-variant my_model.py:build     measure your own
    """
    from llama_workbench import variants

    def plain(variant: variants.Variant) -> dict[str, Any]:
        return {
            "name": variant.name,
            "description": variant.description,
            "source": variant.source,
            "factors": dict(variant.factors),
            "installed": variants.missing(variant.name) is None,
        }

    if name is not None:
        try:
            variant = variants.get(name)
        except variants.UnknownVariant as error:
            raise Failure(str(error)) from error
        if as_json:
            _print_json(plain(variant))
            return
        table = _table(variant.name, variant.description)
        table.add_row("who does it so", Text(variant.source))
        table.add_row("installed", Text(variants.missing(variant.name) or "yes"))
        for axis, level in variant.factors.items():
            table.add_row(Text(axis), Text(level))
        _print(table)
        return
    known = [variants.get(each) for each in variants.names()]
    if as_json:
        _print_json([plain(variant) for variant in known])
        return
    table = _table("variant", "installed", "what it is")
    for variant in known:
        gone = variants.missing(variant.name)
        told = f"{variant.description} [{variant.source}]"
        table.add_row(Text(variant.name), Text("no" if gone else "yes"), Text(f"{told}; {gone}" if gone else told))
    _print(table)


@app.command("workloads")
def list_workloads(as_json: AsJson = False) -> None:
    """List the workloads: what a model is asked to do.

    \b
    --json prints a list of the workloads as in datasets/workloads.toml, families expanded:
      [{"name", "kind": "prefill"|"decode"|"generate"|"component", "geometry", "tokens", "new_tokens", "chunk",
        "batch", "context", "dtype", "threads", "lengths": "repeated"|"distinct"|"trace", "trace", "length_divisor",
        "length_limit", "component", "description"}]

    \b
    Examples:
      workbench workloads
      pytest --benchmark --workloads prefill-15m-t128,decode-15m-c64
    """
    from llama_workbench.datasets.workloads import workloads

    known = workloads().values()
    if as_json:
        _print_json([workload.model_dump(mode="json") for workload in known])
        return
    table = _table("workload", "geometry", "what is done")
    for workload in known:
        table.add_row(Text(workload.name), Text(workload.geometry), Text(workload.description))
    _print(table)


@app.command("runs")
def show_runs(
    folder: Annotated[Path, typer.Argument(help="Where the runs lie.")] = RUNS,
    as_json: AsJson = False,
) -> None:
    """List the runs, newest first, with their verdicts; damaged ones with what is wrong.

    Every file of a finished run is held against the checksum that the run wrote of it.

    \b
    --json prints a list:
      [{"path", "id", "status", "mode", "started", "workloads": [..], "verdicts": {word: count}, "problem"}]
    """
    if not folder.is_dir() and folder != RUNS:
        raise Failure(f"{folder}: there is no such folder")
    _show_summaries(folder, "No runs in {}. Make one: pytest --benchmark", as_json)


def _show_summaries(folder: Path, none: str, as_json: bool) -> None:
    """The runs in a folder, as a table or as JSON; `none` is said where there are none."""
    from .store.folder import list_runs

    summaries = [run.describe(whole=True) for run in list_runs(folder)]
    if as_json:
        _print_json(
            [
                {
                    "path": str(each.path),
                    "id": each.id,
                    "status": each.status,
                    "mode": each.mode,
                    "started": each.started,
                    "workloads": list(each.workloads),
                    "verdicts": dict(each.verdicts),
                    "problem": each.problem,
                }
                for each in summaries
            ]
        )
        return
    if not summaries:
        _print(Text(none.format(folder)))
        return
    table = _table("run", "started", "status", "verdicts")
    for each in summaries:
        told = each.problem or ", ".join(f"{count} {word}" for word, count in each.verdicts.items())
        started = each.started[:16].replace("T", " ")
        table.add_row(Text(each.path.name), Text(started), Text(each.status), Text(told))
    _print(table)


# -- two runs ----------------------------------------------------------------------------------------------------------


@app.command("speedscope")
def get_speedscope(
    archive: Annotated[
        Path | None, typer.Option(help="What `npm pack` made of that version elsewhere; then npm is not asked.")
    ] = None,
) -> None:
    """Install speedscope, with which the dashboard opens a raw profile: one version, by npm, its hash checked."""
    from .speedscope import VERSION, install

    _write(f"speedscope {VERSION} lies in {install(archive)}\n")


@app.command("compare")
def compare_runs(
    base: Annotated[str, typer.Argument(metavar="BASE", help="Folder of the earlier run, or its name under results/.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Folder of the run to check, or its name under results/.")],
    threshold: Annotated[
        float, typer.Option("--threshold", metavar="PERCENT", help="More time than this is a regression.")
    ] = 5.0,
    as_json: AsJson = False,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Also write a summary in Markdown.")
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML.")] = None,
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
    from .report.compare import compare, render, to_junit, to_markdown, write_text
    from .store.folder import MANIFEST, SAMPLES

    if not 0 < threshold < float("inf"):
        raise Failure(f"--threshold must be a number of percent above 0, not {threshold:g}")
    for run in (_run(base), _run(new)):
        _tell_changed(run, read=(MANIFEST, SAMPLES))
    found = compare(_run(base), _run(new), threshold_percent=threshold)
    for path, text in ((markdown, to_markdown), (junit, to_junit)):
        if path is not None:
            try:
                write_text(path, text(found))
            except OSError as error:
                raise Failure(f"{path}: cannot be written ({error.strerror})") from error
    if as_json:
        _print_json(found.to_json())
    else:
        _print(render(found))
    raise typer.Exit(found.exit_code)


@baseline_app.command("save")
def save_baseline(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run, or its name under results/.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the baseline is called from now on.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier baseline of that name.")] = False,
) -> None:
    """Keep a run as a baseline: copy its folder to results/baselines/NAME.

    The run must be complete and judged, and every file of it readable; the copy is read again before it gets its
    name. The logs of its processes stay behind: they name paths of this machine.

    \b
    Examples:
      workbench baseline save results/runs/20260102T030405Z-1a2b main
      workbench compare main NEW
    """
    from .report.baselines import save

    try:
        saved = save(_run(run), name, under=BASELINES, force=force)
    except ValueError as error:
        raise Failure(str(error)) from error
    _print(Text(f"{saved.path} (compare with it: workbench compare {name} NEW)"))


@baseline_app.command("list")
def list_baselines(as_json: AsJson = False) -> None:
    """List the baselines, newest first; damaged ones with what is wrong.

    --json prints a list as `workbench runs --json` does.
    """
    _show_summaries(BASELINES, "No baselines in {}. Keep a run: workbench baseline save RUN NAME", as_json)


# -- one machine -------------------------------------------------------------------------------------------------------


@app.command("doctor")
def examine_machine(
    seconds: Annotated[float, typer.Option("--seconds", metavar="SECONDS", help="Time for the A/A trial.")] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Is this machine fit to measure? One line for each thing that spoils measurements, with what to do.

    The last line is a trial: a small operation timed against an identical copy of itself.

    \b
    Exit codes:
      0  nothing is bad (there may be warnings)
      1  something is bad
      2  could not

    \b
    --json prints:
      {"fit": true|false, "checks": [{"name", "state": "ok"|"warn"|"bad", "found", "fix"}]}
    """
    from .doctor import aa_trial, examine, examine_aa, read_facts

    if not 0 < seconds < float("inf"):
        raise Failure(f"--seconds must be a number above 0, not {seconds:g}")
    checks = [*examine(read_facts()), examine_aa(aa_trial(seconds))]
    fit = all(check.state != "bad" for check in checks)
    if as_json:
        _print_json({"fit": fit, "checks": [check.to_json() for check in checks]})
    else:
        blocks: list[RenderableType] = []
        styles = {"ok": "green", "warn": "yellow", "bad": "bold red"}
        for check in checks:
            blocks.append(Text.assemble((f"{check.state:<4}", styles[check.state]), f"  {check.name}: {check.found}"))
            if check.fix:
                blocks.append(Padding(Text(check.fix, style="dim"), (0, 0, 0, 6)))
        blocks.append(Text("fit to measure" if fit else "not fit to measure", style="bold"))
        _print(Group(*blocks))
    raise typer.Exit(0 if fit else 1)


# -- one run, judged again ---------------------------------------------------------------------------------------------


@app.command("report")
def report_run(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run, or its name under results/.")],
    profiling: Annotated[
        bool, typer.Option("--profiling", help="The execution plan's own form: top consumers, bottlenecks, targets.")
    ] = False,
    decision: Annotated[
        bool, typer.Option("--decision", help="Which option each team's own rule picks, from this run's numbers.")
    ] = False,
    roofline: Annotated[
        bool, typer.Option("--roofline", help="What share of what this machine can do each variant reaches.")
    ] = False,
    claim: Annotated[
        str | None, typer.Option("--claim", metavar="ID", help="Export this claim's evidence, to the files named.")
    ] = None,
    part: Annotated[
        str | None, typer.Option("--part", metavar="PART", help="The claim's part, where it has several.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="All its evidence as one page that needs no network.")
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Its figure as SVG.")] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Its figure as PNG (needs the extra `export`).")
    ] = None,
) -> None:
    """Print a run's time shares, what the dispute's rules make of them, and its roofline; or export a claim's evidence.

    Needs a run with phases, or with a roofline: one that claims about shares of the time, or about the roofline, were
    measured in. Without an option, all that there is, as Markdown. With --claim nothing is printed: what one verdict
    rests on is written for a pull request or a paper.

    \b
    Examples:
      pytest --benchmark --claims mask-is-the-bottleneck,refactor-2x-3x
      workbench report results/runs/20260102T030405Z-1a2b --profiling
      workbench report results/baselines/reference --decision
      workbench report results/runs/20260102T030405Z-1a2b --roofline
      workbench report reference --claim qkv-61 --part "of a layer" --html qkv.html --svg qkv.svg
    """
    from .store.folder import JUDGED, MANIFEST, PHASES, VERDICTS

    files = {kind: path for kind, path in (("html", html), ("svg", svg), ("png", png)) if path is not None}
    if claim is not None or part is not None or files:
        if claim is None:
            raise Failure(f"--{next(iter(files), 'part')} is about one claim: name it with --claim ID")
        if not files:
            raise Failure(f"--claim {claim} needs a file to write: --html FILE, --svg FILE or --png FILE")
        if profiling or decision or roofline:
            raise Failure("--profiling, --decision and --roofline are about a whole run: leave them out with --claim")
        if len(set(files.values())) < len(files):
            raise Failure("--html, --svg and --png need a file each")
        export: Export | None = context.obj
        if export is None:
            raise Failure("this was installed before there were exports: install it again (make, or pip install .)")
        _tell_changed(_run(run), read=(MANIFEST, VERDICTS))
        export(_run(run).path, claim, part, files)
        for path in files.values():
            sys.stderr.write(f"{path}: written\n")
        return
    from .metrics.share.shares import top_consumers
    from .report.decision import (
        SHARES_OF,
        PhaseShare,
        decision_markdown,
        decisions_of,
        profiling_form,
        profiling_markdown,
    )

    folder = _run(run)
    _tell_changed(folder, read=JUDGED)
    everything = not (profiling or decision or roofline)
    roofs = folder.read_roofline() if roofline or everything else []
    if roofline and not roofs:
        raise Failure(
            f"{folder.path}: this run has no roofline; measure one: pytest --benchmark --claims ID, "
            "with a claim whose metric is roofline (workbench claims)"
        )
    table = folder.read_phases()
    if table.empty and (profiling or decision or not roofs):
        raise Failure(f"{folder.path}: this run has no phases; measure some: pytest --benchmark --claims qkv-61")
    verdicts, manifest = rejudge(folder)
    alpha = float(manifest.get("alpha") or 0.01)
    if roofs:
        from .metrics.roofline.roofline import all_reached
        from .report.text import roofline_markdown

        of_each = min((verdict["alpha"] for verdict in verdicts), default=alpha)  # as the run was judged at
        _write(roofline_markdown(*all_reached(roofs, alpha=of_each), alpha=of_each))
    pairs = list(table[["workload", "variant"]].astype(str).drop_duplicates().itertuples(index=False, name=None))
    if profiling or (everything and pairs):
        forms = []
        for workload, variant in pairs:
            with _of_file(folder.path / PHASES):
                consumers = top_consumers(table, workload, variant, alpha=alpha)
            shares = [
                PhaseShare(phase, *(100 * part for part in (share.value, share.low, share.high)))
                for phase, share in consumers.items()
            ]
            forms.append(profiling_form(variant, workload, shares))
        _write(profiling_markdown(forms))
    if decision or (everything and pairs):
        with _of_file(folder.path / PHASES):
            picked = decisions_of(table, verdicts, alpha)
        if not picked:
            raise Failure(f"{folder.path}: this run has no phases of {SHARES_OF}, whose shares the rules ask about")
        _write(decision_markdown(picked))


@app.command("judge")
def judge_again(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run, or its name under results/.")],
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table for the README.")] = False,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="README", help="Put the table between the markers of this file."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if the table in the README (--write) is out of date.")
    ] = False,
) -> None:
    """Judge a run again from its samples, also one that was killed, and rewrite its verdicts.json and standings.json.

    The table goes between the lines <!-- verdicts:begin --> and <!-- verdicts:end --> of the README.

    \b
    Exit codes:
      0  judged (whatever the verdicts), or the README is up to date
      1  with --check: the README is out of date
      2  could not

    --json prints the list that verdicts.json holds.

    \b
    Examples:
      workbench judge results/runs/20260102T030405Z-1a2b
      workbench judge results/baselines/main --write README.md
      workbench judge results/baselines/main --write README.md --check     in CI
    """
    from .report.standings import write_standings
    from .report.text import markdown_table, update_readme, verdict_report
    from .store.folder import JUDGED, STANDINGS, VERDICTS

    folder = _run(run)
    readme = write or (Path("README.md") if check else None)
    _tell_changed(folder, read=JUDGED, anew=() if check else (VERDICTS, STANDINGS))
    verdicts, manifest = rejudge(folder)
    if not check:
        folder.write_json(VERDICTS, verdicts)
        folder.renew(VERDICTS)
        if folder.finished_rounds():
            write_standings(folder)
    table = markdown_table(verdicts, manifest, command=_command(folder.path, readme or Path("README.md")))
    if markdown:
        _write(table)
    elif as_json:
        _print_json(verdicts)
    elif readme is None:
        _print(verdict_report(verdicts, manifest))
    if readme is None:
        return
    changed = update_readme(readme, table, check=check)
    if check and changed:
        sys.stderr.write(f"{readme}: the table is out of date; make it anew: {_command(folder.path, readme)}\n")
        raise typer.Exit(1)
    sys.stderr.write(f"{readme}: {'written' if changed else 'up to date'}\n")


def rejudge(run: RunFolder) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Verdicts and manifest (with its noise) of a run, from its samples and by the claims as they were then.

    Raises RunError where one of its files cannot be read, ClaimError where its claims are not claims.
    """
    from .claims.claims import check_claim
    from .run import counted, judge_run
    from .store.folder import CLAIMS

    manifest = run.read_manifest()
    claims = [check_claim(table, f"{run.path / CLAIMS}[{index}]") for index, table in enumerate(run.read_claims())]
    verdicts, noise = judge_run(manifest, claims, run)
    return [verdict.to_json() for verdict in verdicts], counted(manifest, run) | {"noise": noise}


# -- what the commands share -------------------------------------------------------------------------------------------


def _run(name: str) -> RunFolder:
    """A run by its folder, or by its name under results/baselines or results/runs."""
    from .store.folder import RunFolder

    places = [Path(name), BASELINES / name, RUNS / name]
    return RunFolder(next((place for place in places if place.is_dir()), places[0]))


@contextmanager
def _of_file(path: Path) -> Iterator[None]:
    """What cannot be computed from the numbers of a file is said of that file."""
    try:
        yield
    except ValueError as error:
        raise Failure(f"{path}: {error}") from error


def _tell_changed(run: RunFolder, *, read: Collection[str], anew: Collection[str] = ()) -> None:
    """Warn of files of a run that are not what it wrote.

    `read`: what the command reads anyway, which is an error then. `anew`: what it is about to write anew.
    """
    from .store.folder import RunWarning

    for error in run.changed(besides=read):
        told = f"{error.path}: {error.problem}. It is written anew." if error.path.name in anew else str(error)
        if error.path.name not in read:
            warnings.warn(told, RunWarning, stacklevel=2)


def _command(run: Path, readme: Path) -> str:
    """The command that makes the README's table, as it is typed in the README's folder."""
    place = Path(os.path.relpath(run.resolve(), readme.resolve().parent)).as_posix()
    return f"workbench judge {place} --write {readme.name}"


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=True, header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(Text(heading), overflow="fold", no_wrap=index == 0 and len(headings) > 2)
    return table


def _print(content: RenderableType) -> None:
    from .report.text import console, show

    with _output():
        show(content, console())


def _print_json(value: object) -> None:
    _write(json.dumps(value, indent=1, allow_nan=False) + "\n")


def _write(text: str) -> None:
    with _output():
        sys.stdout.write(text)


@contextmanager
def _output() -> Iterator[None]:
    """Whatever happens to stdout in here is OutputLost: typer takes a broken pipe for an exit code of 1."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        raise OutputLost(error.errno) from error


def _one_line(text: object) -> str:
    return " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", str(text)).split())


def main(arguments: Sequence[str] | None = None, *, export: Export | None = None) -> NoReturn:
    """The command line. `export` comes from a package above. Errors are one line on stderr and exit code 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = _show_warning
        sys.exit(_exit_code(lambda: app(args=arguments, obj=export, prog_name="workbench", standalone_mode=False)))


def _exit_code(run: Callable[[], Any]) -> int:
    try:
        code = run()
        return code if isinstance(code, int) else 0
    except OutputLost as lost:
        # What is left in the buffer must not be tried again on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if lost.errno == errno.EPIPE:  # whoever read our output has gone (`workbench claims | head`)
            return 141
        sys.stderr.write(f"workbench: cannot write the output ({os.strerror(lost.errno)})\n")
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        message = _message(error)
        if message is None:
            raise
        for line in message:
            sys.stderr.write(f"workbench: {line}\n")
        return 2


def _message(error: Exception) -> list[str] | None:
    """What to tell about an error that is the user's to mend; None for a fault of ours, which keeps its traceback."""
    if usage := getattr(error, "format_message", None):  # typer's own, whichever class of which version it is
        return [f"{_one_line(usage())} (see workbench --help)"]
    from llama_workbench.datasets.cache import CacheError
    from llama_workbench.datasets.shape import DataError

    from .claims.claims import ClaimError
    from .report.text import ReadmeError
    from .speedscope import SpeedscopeError
    from .store.folder import RunError

    if not isinstance(error, (Failure, CacheError, ClaimError, DataError, ReadmeError, RunError, SpeedscopeError)):
        return None
    return [_one_line(line) for line in str(error).splitlines()] or [type(error).__name__]


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    sys.stderr.write(f"workbench: warning: {_one_line(message)}\n")


if __name__ == "__main__":
    main()
