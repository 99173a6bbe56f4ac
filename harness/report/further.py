"""The command that goes on with a run until what is open is settled, as far as time can settle it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from ..calls.command import ANY_CODE, CONCLUDE, IGNORE, INPUT, PREPARE
from ..evidence.numbers import budget
from ..evidence.verdict import ToSettle, clock_seconds
from ..machine.places import as_typed
from ..plan.options import ADD, CALL, CHECK, COMPARE, SIDE_ENV
from ..store.schema import Manifest
from ..store.sitting_schema import CommandsRecord
from ..store.verdict_schema import Verdict
from .again import words_of

LEAST_SECONDS = 5
"""Of the command's budget."""


def goes_on(manifest: Manifest) -> bool:
    """Whether run.json says what a run that goes on must know."""
    return manifest.sources is not None and bool(manifest.sittings)


def further(run: Path, verdicts: Iterable[Verdict], manifest: Manifest) -> str:
    """The command; empty where more time would settle nothing, or the run cannot go on."""
    if manifest.sources is None or not goes_on(manifest):
        return ""
    open_ = [effect for verdict in verdicts if verdict.is_open for effect in verdict.effects]
    needs = ToSettle.of(open_)
    if not (seconds := clock_seconds((*needs.settles, *needs.begins))):
        return ""
    here, path = Path.cwd(), run.resolve()
    words = ["pytest", "--benchmark", "--continue", str(path.relative_to(here) if path.is_relative_to(here) else path)]
    words += ["--budget", str(budget(max(seconds, LEAST_SECONDS)))]
    words += [word for text in brought_models(manifest).values() for word in (ADD, text)]
    words += compared_again(manifest)
    own = [facts for facts in (manifest.checkpoints or {}).values() if facts.synthetic is False]
    return shlex.join(words) + " --checkpoint PATH" * bool(own)


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
    sides = [known[name].given or name for name in manifest.ad_hoc[0] if name in known]
    payloads = [each.payload.given for each in manifest.sources.calls.values()]
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
