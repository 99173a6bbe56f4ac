"""`workbench calibrate`"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from llama_workbench.commands.shared import MACHINE, AsJson, Failure, Listed, print_json, show, table

if TYPE_CHECKING:
    from llama_workbench.harness.slices.calibrate.rates import Trial
    from llama_workbench.harness.slices.calibrate.trials import Selection

FILE = Path("results/calibration.jsonl")
MINUTES = 5.0
BUDGETS = {"functions": 8.0, "allocations": 30.0, "models": 60.0}
"""Seconds of rounds where none were given: a verdict needs a dozen processes. Where each side has its own, and with
torch, they begin slowly."""

MOST_FAILURES = 3
"""Trials in a row that end the measuring if none of them could be made."""


Trials = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Continue until the file has N trials of what is selected. [default: stop by time]"
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.0, metavar="M", help=f"Start no trial after M minutes. [default: {MINUTES:g}, none with --trials]"
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        min=0.5,
        metavar="S",
        help="Measuring time of a trial, in seconds. [default: "
        f"{', '.join(f'{kind} {seconds:g}' for kind, seconds in BUDGETS.items())}]",
    ),
]
Kinds = Annotated[
    str,
    typer.Option(
        metavar="KIND,KIND",
        help="What is timed: functions, allocations (each function in its own processes), models. [default: all]",
    ),
]
Only = Annotated[
    str,
    typer.Option(
        metavar="WORK,WORK",
        help="identical, twins (equivalent rewrites), planted (injected slowdown) or planted-3. [default: all]",
    ),
]
Cases = Annotated[
    str, typer.Option(metavar="NAME,NAME", help="Only these cases, by their names in the output. [default: all]")
]
File = Annotated[Path, typer.Option(metavar="FILE", help="File in which trials are kept and continued.")]
Write = Annotated[
    list[Path] | None,
    typer.Option("--write", metavar="FILE", help="Write the error rates between the markers of this file; repeatable."),
]


LISTED = Listed(24, MACHINE, {"calibrate": "how often are verdicts wrong on it?"})


def command(
    trials: Trials = None,
    minutes: Minutes = None,
    budget: Budget = None,
    kinds: Kinds = "",
    only: Only = "",
    cases: Cases = "",
    file: File = FILE,
    into: Write = None,
    as_json: AsJson = False,
) -> None:
    """How often is a verdict wrong on this machine, and do repeat runs agree?

    This measures comparisons whose outcome is known, as you would: two files in a fresh folder, and `pytest --benchmark
    --compare OLD NEW --budget S` in a process of its own. Each comparison is measured twice, several trials apart, and
    half of the time under background load. Trials are kept in a file; after Ctrl-C the same command continues.

    \b
    identical   the same text in two files
    twins       equivalent rewrites: other names, order and docstrings, new ones each time
    planted     an injected slowdown: 1, 2, 3, 5 or 10 % more of the same work in one of the two

    --write fills the markers calibration (<!-- calibration:begin/end -->), calibration-short and calibration-tables.

    \b
    --json prints:
      {"format": 3, "file", "machines", "rows": [{"name", "trials", "given": {"count", "of"}, "wrong": {..},
       "missed": {..}, "found": {..}, "half_width", "wrong_at_most"}],
       "pairs": [{"name", "pairs", "apart": {..}, "contradicted": {..}}]}
      given: trials with a verdict; wrong: of these. missed: intervals without the true value. found: injected
      slowdowns that were found, the same work called the same within 1 %. wrong_at_most: with 95 % confidence.
      apart: repeat runs whose intervals do not overlap. contradicted: whose verdicts differ.

    \b
    Examples:
      workbench calibrate                       five minutes of trials
      workbench calibrate --minutes 240         unattended
      workbench calibrate --trials 20 --only planted-3 --kinds functions --budget 20 --file three.jsonl
    """
    from llama_workbench.harness.report.markdown import update_file
    from llama_workbench.harness.slices.calibrate.rates import begin, in_documents, read_trials

    asked, interrupted = _selection(kinds, only, cases), False
    try:
        if not file.exists():
            begin(file)
        every = read_trials(file)
        try:
            _measure(file, every, asked, budget, trials, minutes)
        except KeyboardInterrupt:
            sys.stderr.write(f"interrupted: {len(every)} trials are kept in {file}\n")
            interrupted = True
        selected = [trial for trial in every if trial in asked and budget in (None, trial.budget)]
        _show(file, selected, as_json)
    except OSError as error:
        raise Failure(
            f"{error.filename or file}: {error.strerror}; choose another file with --file, or free some space"
        ) from error
    if interrupted:
        raise typer.Exit(130)
    for path in into or ():
        update_file(path, in_documents(selected))


def _selection(kinds: str, only: str, cases: str) -> Selection:
    """What is asked for. Raises Failure for an unknown word."""
    from llama_workbench.harness.plan.options import words
    from llama_workbench.harness.slices.calibrate.known import CASES, KINDS
    from llama_workbench.harness.slices.calibrate.trials import WORKS, Selection

    named = {work: [piece for piece in WORKS if piece[0] == work] for work, _ in WORKS}
    named |= {f"{work}-{percent}": [(work, percent)] for work, percent in WORKS if percent}
    every = [case for kind in KINDS for case in CASES[kind]]
    given = {"--kinds": (words(kinds), KINDS), "--only": (words(only), (*named,)), "--cases": (words(cases), every)}
    for option, (asked, known) in given.items():
        if unknown := [word for word in asked if word not in known]:
            raise Failure(f"{option} {unknown[0]}: expected {', '.join(known)}")
    works = [piece for word in words(only) or named for piece in named[word]]
    asked_for = Selection(words(kinds) or KINDS, tuple(dict.fromkeys(works)), words(cases))
    if not any(map(asked_for.cases_of, asked_for.kinds)):
        raise Failure(f"--cases {cases}: none of them belongs to --kinds {kinds}")
    return asked_for


def _measure(
    file: Path, every: list[Trial], asked: Selection, budget: float | None, wanted: int | None, minutes: float | None
) -> None:
    """Add trials to the file and to `every`: until there are so many of what is asked, or for some minutes."""
    from llama_workbench.harness.slices.calibrate import trials
    from llama_workbench.harness.slices.calibrate.rates import CalibrationError, append

    draw, by, here, begun = random.Random(), trials.rule(), trials.machine(), time.monotonic()
    minutes = MINUTES if minutes is None and wanted is None else minutes
    failures = made = 0
    while True:
        mine = [trial for trial in every if trial in asked and trial.budget == (budget or BUDGETS[trial.kind])]
        spent, left = time.monotonic() - begun, None if wanted is None else wanted - len(mine)
        if (left is not None and left <= 0) or (minutes is not None and made and spent >= 60 * minutes):
            return
        mine = [trial for trial in mine if (trial.rule, trial.machine) == (by, here)]
        comparison = trials.following(mine, asked, draw, left)
        seconds, busy = budget or BUDGETS[comparison.kind], trials.is_busy(mine, comparison, draw)
        trial = trials.measured(comparison, budget=seconds, busy=busy, by=by, on=here)
        append(file, [trial.model_dump_json()])
        every.append(trial)
        made += 1
        spent = time.monotonic() - begun
        ends = [] if minutes is None else [60 * minutes - spent]
        ends += [] if left is None else [spent / made * (left - 1)]  # by the trials made so far
        _say(len(every), trial, max(min(ends), 0.0))
        failures = failures + 1 if trial.trouble else 0
        if failures == MOST_FAILURES:
            raise CalibrationError(f"{failures} trials in a row failed; the last: {trial.trouble}")


def _say(number: int, trial: Trial, left: float) -> None:
    from llama_workbench.harness.evidence.effect import duration
    from llama_workbench.harness.slices.calibrate.rates import work_text

    around = "background load" if trial.busy else "quiet"
    answer = f"{trial.answer} ({trial.trouble})" if trial.trouble else trial.answer
    sys.stderr.write(
        f"trial {number}: {trial.kind}, {trial.case}, {work_text(trial)}, {around}: {answer}, {trial.seconds:.0f} s; "
        f"about {duration(left)} left\n"
    )


def _show(file: Path, trials: Sequence[Trial], as_json: bool) -> None:
    from llama_workbench.harness.slices.calibrate import rates

    if as_json:
        summed = [asdict(each) | {"wrong_at_most": each.wrong.at_most} for each in rates.rows(trials)]
        pairs = [*map(asdict, rates.pair_rows(trials))]
        machines = [*dict.fromkeys(trial.machine for trial in trials)]
        print_json({"format": 3, "file": str(file), "machines": machines, "rows": summed, "pairs": pairs})
        return
    shown: list[Any] = []
    for headings, rows_of in rates.TABLES:
        lines = table(*headings)
        for row in rows_of(trials):
            lines.add_row(*map(Text, row.cells))
        shown += [lines] if lines.row_count else []
    notes = [rates.EXPLAINED, f"{file}; measured on {'; '.join(dict.fromkeys(trial.machine for trial in trials))}"]
    if (rules := len({trial.rule for trial in trials})) > 1:
        notes.insert(1, f"Measured by {rules} versions of the code that measures and judges.")
    if troubled := [trial for trial in trials if trial.trouble]:
        notes.insert(1, f"{len(troubled)} could not be measured; the last: {troubled[-1].trouble}")
    show(Group(*shown, *(Text(note, style="dim") for note in notes)))
