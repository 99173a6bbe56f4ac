"""`workbench judge`"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llama_workbench.harness.spec.words import VerbExit

from ..results import find_run
from .shared import ON_RUNS, AsJson, Listed, RunArgument, ends, print_json, show, warn_changed, write

if TYPE_CHECKING:
    from llama_workbench.harness.report.sessions import BothSessions, SessionAnswers
    from llama_workbench.harness.session.judging import Rejudged
    from llama_workbench.harness.spec.dispute import Dispute
    from llama_workbench.harness.store.folder import RunFolder
    from llama_workbench.harness.store.verdict_schema import Verdict


LISTED = Listed(9, ON_RUNS, {"judge results/runs/ID": "compute its verdicts again, even if it was killed"})


@ends(
    {
        VerbExit.DONE: "verdicts were computed, whatever they are; or the files are up to date",
        VerbExit.AGAINST: "with --check: a file is out of date",
        VerbExit.COULD_NOT: "an error: the reason is printed",
    }
)
def command(
    run: RunArgument,
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print all verdicts as a table in Markdown.")] = False,
    files: Annotated[
        list[Path] | None,
        typer.Option("--write", metavar="FILE", help="Write the results between the markers of this file; repeatable."),
    ] = None,
    claims_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Take questions, rules and the words of claims from this folder, and store them in the run.",
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Repeat run, of the same command: with --write or --markdown both must give a verdict.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Write nothing; exit with 1 if a file of --write is out of date. [default file: README.md]"
        ),
    ] = False,
) -> None:
    """Compute the verdicts of a run again from its samples, even of a run that was killed. This rewrites its
    verdicts.json, its standings.json and the result of its A/A checks.

    Claims, questions and rules are as they were when the run was made. With --claims-dir questions and rules are taken
    from a folder's dispute.toml, and the words of claims from its files; what claims ask, and their limits, stay. A run
    of several machines (workbench combine) is judged over all of them. A run at a URL is not rewritten.

    --write fills each pair of lines <!-- NAME:begin --> and <!-- NAME:end --> in the file: "answer" (the headline, and
    a line for each main claim), "answer-short" (the headline and the first lines), "headlines" (a row for each),
    "rules" (what each team's own rule picks), "advice" (what to change), "ladder" (optimisation steps), "verdicts"
    (every verdict), "session" (how far --session agrees), "gallery" (a section for each claim). With --session a
    verdict is shown only if both runs give it, an interval covers both runs, and a column has the verdicts of each run.

    \b
    Exit codes:

    --json prints the list that verdicts.json holds.

    \b
    Examples:
      workbench judge results/runs/20260102T030405Z-1a2b
      workbench judge results/baselines/main --write README.md --write docs/verdicts.md
      workbench judge results/baselines/main --write README.md --check     in CI
      workbench judge results/baselines/main --session the-day-after --write docs/verdicts.md
    """
    from llama_workbench.harness.metrics.registry import judged_files
    from llama_workbench.harness.report.markdown import markdown_table
    from llama_workbench.harness.session.judging import keep, rejudge
    from llama_workbench.harness.store.files import JUDGED_ANEW
    from llama_workbench.harness.store.remote import is_url

    folder, stays = find_run(run), check or is_url(run)
    targets = files or ([Path("README.md")] if check else [])
    warn_changed(folder, read=judged_files(), rewritten=() if stays else JUDGED_ANEW)
    judged = rejudge(folder, claims_dir)
    sessions = _both_sessions(folder, judged, find_run(session)) if session else None
    if not stays:
        keep(folder, judged, claims_dir)
    if markdown:
        again = _again(folder.path, [Path("README.md")], session)
        shown = sessions.verdicts if sessions else judged.verdicts
        write(markdown_table(shown, judged.manifest, command=again, sessions=sessions))
    elif as_json:
        print_json(judged.verdicts)
    elif not targets:
        _show(folder, judged)
    if targets:
        _update(targets, judged, folder, claims_dir, sessions, check)


def _both_sessions(run: RunFolder, judged: Rejudged, there: RunFolder) -> BothSessions:
    """The run, and the one that --session names. Raises as `read`."""
    from llama_workbench.harness.report.sessions import BothSessions, changed_code, unlike_runs
    from llama_workbench.harness.store.files import MANIFEST, VERDICTS

    warn_changed(there, read=(MANIFEST, VERDICTS))
    ours, theirs = judged.manifest, there.manifest()
    differences = [*unlike_runs(ours, theirs), *changed_code(ours.sources, theirs.sources)]
    first = _session(run, judged.verdicts, ours.dispute, ours.alpha)
    second = _session(there, there.read(VERDICTS), ours.dispute, theirs.alpha)
    return BothSessions(first, second, tuple(dict.fromkeys(differences)))


def _session(run: RunFolder, verdicts: Sequence[Verdict], dispute: Dispute, alpha: float) -> SessionAnswers:
    from llama_workbench.harness.report.answer import decisions_of
    from llama_workbench.harness.report.sessions import SessionAnswers
    from llama_workbench.harness.store.passes import PHASES

    return SessionAnswers(run.path.name, verdicts, decisions_of(dispute, run.read_table(PHASES), verdicts, alpha))


def _show(folder: RunFolder, judged: Rejudged) -> None:
    """The report; of a fleet also each effect over its machines, and the command that settles what is open."""
    from llama_workbench.harness.report.causes import explanations_in
    from llama_workbench.harness.report.machines import machine_lines
    from llama_workbench.harness.report.outcome import further
    from llama_workbench.harness.report.terminal import verdict_report
    from llama_workbench.harness.store.files import MACHINES

    show(verdict_report(*judged, causes=explanations_in(folder)))
    if lines := machine_lines(folder.read(MACHINES) if judged.manifest.machines else []):
        write("".join(f"{line}\n" for line in ("", *lines)))
    if command := further(folder.path, judged.verdicts, judged.manifest):
        write(f"to continue: {command}\n")


def _update(
    targets: list[Path],
    judged: Rejudged,
    run: RunFolder,
    claims_dir: Path | None,
    sessions: BothSessions | None,
    check: bool,
) -> None:
    """Write or check the files. Exit code 1 where one is out of date."""
    from llama_workbench.harness.report.answer import IN_SHORT, answer_markdown, headlines, picks_markdown, picks_of
    from llama_workbench.harness.report.ladder import advice_markdown, ladder_markdown, ladder_of
    from llama_workbench.harness.report.markdown import markdown_table, sessions_markdown, update_file

    manifest, stale = judged.manifest, False
    dispute = manifest.dispute
    shown = sessions or _session(run, judged.verdicts, dispute, manifest.alpha)
    ladder = ladder_of(shown.verdicts, dispute, manifest)
    not_measured = "This run has not measured it.\n"
    name = sessions.second.name if sessions else None
    for file in targets:
        blocks = {
            "answer": answer_markdown(shown.verdicts, dispute),
            "answer-short": answer_markdown(shown.verdicts, dispute, most=IN_SHORT),
            "headlines": headlines(shown.verdicts, dispute),
            "advice": advice_markdown(ladder) if ladder else not_measured,
            "ladder": ladder_markdown(ladder) if ladder else not_measured,
            "rules": picks_markdown(picks_of(shown.decisions)),
            **_gallery(file, judged, shown.verdicts, run, claims_dir),
            **({"session": sessions_markdown(sessions, whole=False)} if sessions else {}),
            "verdicts": markdown_table(
                shown.verdicts, manifest, command=_again(run.path, [file], name), sessions=sessions
            ),
        }
        changed = update_file(file, blocks, check=check)
        stale |= check and changed
        if check and changed:
            sys.stderr.write(f"{file}: out of date; to update it: {_again(run.path, targets, name)}\n")
        else:
            sys.stderr.write(f"{file}: {'written' if changed else 'up to date'}\n")
    if stale:
        raise typer.Exit(1)


def _gallery(
    file: Path, judged: Rejudged, verdicts: Sequence[Verdict], run: RunFolder, claims_dir: Path | None
) -> dict[str, str]:
    """The block of a page of claims, where the file has its markers: it takes the run's samples for times of a call.
    verdicts: those of the run, or over both sessions."""
    from llama_workbench.harness.claims.reading import stored_claims
    from llama_workbench.harness.report.comparison import screens
    from llama_workbench.harness.report.markdown import gallery_markdown
    from llama_workbench.harness.report.standings import evidence_of

    if not file.is_file() or "<!-- gallery:begin -->" not in file.read_text(encoding="utf-8"):
        return {}
    times = {
        (screen.effect.workload, screen.effect.variant, screen.effect.baseline): screen.call_ns
        for screen in screens(run, judged.verdicts, evidence_of(run, judged.manifest))
    }
    folder = claims_dir.as_posix() if claims_dir else "claims"
    return {"gallery": gallery_markdown(stored_claims(run), verdicts, times, folder)}


def _again(run: Path, files: list[Path], session: str | None) -> str:
    """The command that fills the files again, as it is typed in the folder that all of them are in."""
    folder = os.path.commonpath([each.resolve().parent for each in (run, *files)])
    place, *written = (each.resolve().relative_to(folder).as_posix() for each in (run, *files))
    other = f" --session {session}" if session else ""
    return f"workbench judge {place}{other}" + "".join(f" --write {file}" for file in written)
