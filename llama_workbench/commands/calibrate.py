"""`workbench calibrate`"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from .shared import AsJson, Failure, print_json, show, table

if TYPE_CHECKING:
    from llama_workbench.harness.calibrate.rates import RateRow
    from llama_workbench.harness.calibrate.record import Trial

FILE = Path("results/calibration.jsonl")
SECONDS_IN_ALL = 60.0


class _Progress:
    """Phases and notes on standard error; a trial has no progress of its own."""

    def phase(self, text: str) -> None:
        """Not shown."""

    def note(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")

    def step(self, text: str, done: float, seconds_left: float) -> None:
        """Not shown."""


def command(
    trials: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Go on until the file has so many; without it, for a minute.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.5, metavar="S", help="Most seconds that a trial measures.")] = 8.0,
    file: Annotated[Path, typer.Option(metavar="FILE", help="Where trials are kept and continued.")] = FILE,
    into: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Put a sentence between the markers of this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How often is a verdict wrong on this machine, and how soon does one come?

    Measures comparisons whose outcome is known: a model against itself, and against itself with 1, 2, 3, 5 or 10 % more
    calls of the same forward. Each goes through gates, measuring, stopping and judging as in a run. Half of them run
    beside busy neighbours, one process for each core. Trials are kept in a file, and the next call continues it.
    --write fills the lines between <!-- calibration:begin --> and <!-- calibration:end -->.

    \b
    --json prints:
      {"format": 1, "file", "machine", "rows": [{"name", "trials", "false": {"count", "of"}, "covered": {..},
       "decided": {..}, "seconds"}]}
      false: wrong verdicts. covered: intervals that hold the truth. seconds: the median time to a verdict.

    \b
    Examples:
      workbench calibrate                   a minute of trials
      workbench calibrate --trials 1000     some two hours; may be stopped (Ctrl-C) and continued
    """
    from llama_workbench.cache import CacheError
    from llama_workbench.harness.calibrate.rates import in_a_sentence, rows
    from llama_workbench.harness.calibrate.record import CalibrationError
    from llama_workbench.harness.measure.participants import MeasureError
    from llama_workbench.harness.report.markdown import ReadmeError, update_file

    try:
        facts, known = _continued(file)
        interrupted = False
        try:
            _measure(file, known, trials, seconds)
        except KeyboardInterrupt:
            interrupted = True
            sys.stderr.write(f"interrupted: {len(known)} trials are kept in {file}\n")
    except (CalibrationError, CacheError, MeasureError) as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{error.filename or file}: {error.strerror}; name another --file, or make room") from error
    summed = rows(known)
    if as_json:
        print_json({"format": 1, "file": str(file), "machine": facts, "rows": [asdict(each) for each in summed]})
    else:
        show(Group(*_shown(file, facts, summed)))
    if interrupted:
        raise typer.Exit(130)
    if into is not None:
        try:
            update_file(into, {"calibration": in_a_sentence(known)})
        except ReadmeError as error:
            raise Failure(str(error)) from error


def _continued(file: Path) -> tuple[dict[str, Any], list[Trial]]:
    """The machine, and the trials that the file has already; a new file gets its first line."""
    from llama_workbench.harness.calibrate.record import CalibrationError, append, read_trials
    from llama_workbench.harness.calibrate.trials import machine

    here = machine()
    if not file.exists():
        append(file, [json.dumps({"machine": here})])
        return here, []
    there, known = read_trials(file)
    if differ := [name for name in here if here[name] != there.get(name)]:
        what = ", ".join(f"{name} {there.get(name)} there, {here[name]} here" for name in differ)
        raise CalibrationError(f"{file}: made on another machine ({what}); name another --file")
    return here, known


def _measure(file: Path, known: list[Trial], wanted: int | None, seconds: float) -> None:
    """Add trials to the file and to `known`: until there are so many, or for a minute."""
    from llama_workbench.harness.calibrate.record import append
    from llama_workbench.harness.calibrate.trials import Trials
    from llama_workbench.harness.evidence.numbers import duration

    if wanted is not None and len(known) >= wanted:
        return
    begun, before = time.monotonic(), len(known)
    with Trials.prepared(_Progress()) as prepared:
        while True:
            spent, made = time.monotonic() - begun, len(known) - before
            if (made and spent > SECONDS_IN_ALL) if wanted is None else len(known) >= wanted:
                return
            trial = prepared.one(known[-1].number + 1 if known else 0, seconds)
            append(file, [trial.model_dump_json()])
            known.append(trial)
            spent, made = time.monotonic() - begun, made + 1
            left = SECONDS_IN_ALL - spent if wanted is None else spent / made * (wanted - len(known))
            about = f"about {duration(max(left, 0.0))} left"
            sys.stderr.write(f"trial {len(known)}: {_what(trial)}: {trial.answer}, {trial.seconds:.1f} s; {about}\n")


def _what(trial: Trial) -> str:
    planted = f"{trial.percent} % more work" if trial.percent else "identical code"
    return f"{planted}, {trial.method}, {'busy neighbours' if trial.busy else 'no neighbours of ours'}"


def _shown(file: Path, facts: dict[str, Any], summed: Sequence[RateRow]) -> list[Any]:
    lines = table("trials of", "n", "wrong verdicts", "intervals with the truth", "decided", "seconds")
    for row in summed:
        seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
        lines.add_row(
            *map(Text, (row.name, str(row.trials), *map(str, (row.false, row.covered, row.decided)), seconds))
        )
    about = f"{file}; {facts.get('cpu_model')}, {facts.get('cores')} cores, torch {facts.get('torch')}"
    said = "[ ]: 95 % interval of the rate. Seconds: how long half of the verdicts took at most."
    return [lines, Text(said, style="dim"), Text(about, style="dim")]
