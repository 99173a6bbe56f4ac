"""The command that goes on with a run until what is open is settled, as far as time can settle it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from ..calls.command import ANY_CODE, CONCLUDE, IGNORE, INPUT, PREPARE
from ..evidence.numbers import budget
from ..evidence.verdict import ToSettle, clock_seconds
from ..machine.places import as_typed, with_folders
from ..plan.options import ADD, CALL, CHECK, CHECKPOINT, CLAIMS, COMPARE, SIDE_ENV, Options
from ..spec.comparison import sides_of
from ..store.schema import Manifest
from ..store.sitting_schema import CommandsRecord
from ..store.verdict_schema import Verdict
from .again import command_of, words_of

BUDGET = "--budget"

LEAST_SECONDS = 5
"""Of the command's budget."""

SLACK = 1.5
"""For a first interval the command gives so much more than was estimated: the machine may be busier then."""


def goes_on(manifest: Manifest) -> bool:
    """Whether run.json says what a run that goes on must know, and no side was in an environment of its own."""
    own = any(side.python is not None for side in manifest.environments.values())
    return manifest.sources is not None and bool(manifest.sittings) and not own


def further(run: Path, verdicts: Iterable[Verdict], manifest: Manifest, options: Options | None = None) -> str:
    """The command; empty where more time would settle nothing, or the run cannot go on. options: of the session that
    measured, which knows where things lie. A run keeps no paths: without them a comment in the command says what is to
    be put in."""
    if manifest.sources is None or not goes_on(manifest):
        return ""
    if not (seconds := seconds_to_settle(verdicts)):
        return ""
    words = ["pytest", "--benchmark", "--continue", _from_here(run.resolve())]
    words += ["--budget", str(budget(max(seconds, LEAST_SECONDS)))]
    given = [word for text in brought_models(manifest).values() for word in (ADD, text)] + compared_again(manifest)
    words += (given := with_folders(given, sys.argv[1:]))
    files = dict.fromkeys(re.findall(r"(?m)(?:^|=)([^=:\n]+\.py):[^@\n]*$", "\n".join(given)))
    places = _named_places(manifest) if options is None else options.places
    words += [word for option, path in places.items() for word in (option, _from_here(path))]
    unknown = [f"{path}: its place today" for path in (*files, *places.values()) if not Path(path).exists()]
    return shlex.join(words) + f"  # {'; '.join(unknown)}" * bool(unknown)


def _named_places(manifest: Manifest) -> dict[str, Path]:
    """The options of a run that say where something lies, as far as it keeps that: a name without folders, or a word
    in its place."""
    own = any(facts.synthetic is False for facts in (manifest.checkpoints or {}).values())
    places = {CHECKPOINT: Path("PATH")} if own else {}
    for word in words_of(manifest.command, [CLAIMS]):
        places[CLAIMS] = Path(word)  # of its name and what stands behind it, the last
    return places


def seconds_to_settle(verdicts: Iterable[Verdict]) -> float:
    """Seconds of the clock with which what is open is settled, or gets its first interval; 0 where none would do."""
    needs = ToSettle.of(effect for verdict in verdicts if verdict.is_open for effect in verdict.effects)
    begins = [replace(effect, seconds_more=SLACK * effect.seconds_more) for effect in needs.begins]
    return clock_seconds((*needs.settles, *begins))


def settling(verdict: Verdict, manifest: Manifest) -> str:
    """The command that measures a verdict anew for long enough to settle it: for as long as its run had, and what it
    lacks. Where no time is known to settle it, without a budget of its own."""
    command = command_of(verdict, manifest)
    if not (more := seconds_to_settle([verdict])):
        return command
    had = sum(sitting.budget_seconds for sitting in manifest.sittings)
    had = had or sum(each.wall_seconds or each.seconds or 0.0 for each in manifest.experiments)
    words = shlex.split(command)  # of compare-revisions with the budget that it was given
    words = [each for before, each in pairwise(["", *words]) if BUDGET not in (before, each.partition("=")[0])]
    return shlex.join([*words, BUDGET, str(budget(had + more))])


def _from_here(path: Path) -> str:
    """A path as it is typed in the current folder."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def brought_models(manifest: Manifest) -> dict[str, str]:
    """Name of a variant that the user brought → how it is given again."""
    called = {name for each in manifest.experiments if each.workload.kind == "call" for name in each.variants}
    sources = manifest.sources.variants if manifest.sources is not None else {}
    return {
        name: source.given or f"{source.file}:{name}"
        for name, source in sources.items()
        if (source.given or source.file) and name not in called
    }


def compared_again(manifest: Manifest) -> list[str]:
    """The options that give the functions of a comparison again; none where the run compares none, or claims do."""
    if manifest.sources is None or not manifest.sources.calls or manifest.mode != "compare" or not manifest.ad_hoc:
        return []
    known = manifest.sources.variants
    sides = [known[name].given or name for name in sides_of(manifest.ad_hoc) if name in known]
    payloads = dict.fromkeys(each.payload.given for each in manifest.sources.calls.values())  # of several sizes one
    calls = [word for given in payloads if given for word in (CALL, given)]
    checks = dict.fromkeys(each.check.given or "" for each in manifest.sources.calls.values() if each.check)
    commands = next(iter(manifest.sources.calls.values())).commands
    own = words_of(as_typed(manifest.command), [SIDE_ENV])
    given = [*sides, *calls, *(word for each in checks for word in (CHECK, each))]
    return [COMPARE, *given, *_run_again(commands), *own]


def _run_again(commands: CommandsRecord | None) -> list[str]:
    """The options that say how commands are run."""
    if commands is None:
        return []
    codes = ",".join(map(str, commands.ignore_failure)) if commands.ignore_failure != ANY_CODE else ANY_CODE
    words = {PREPARE: commands.prepare, CONCLUDE: commands.conclude, INPUT: commands.input}
    return [f"{IGNORE}={codes}"] * bool(codes) + [word for pair in words.items() if pair[1] for word in pair]
