"""The command that measures a claim's part again, as the run did."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile

from ..calls.source import is_command
from ..machine.places import as_typed
from ..plan.options import CALL, COMPARE, LONG, every_option
from ..store.schema import Manifest
from ..store.verdict_schema import Verdict

REPEATED = frozenset(f"--{each.name}" for each in every_option() if each.repeated)
"""Options of a run without which the same claim would be another measurement."""

SECOND_NAMES = {second: first for first, *more in (each.names() for each in every_option()) for second in more}
"""Second name of an option → its first."""


def command_of(verdict: Verdict, manifest: Manifest) -> str:
    """The command for this verdict alone, with what its run chose."""
    command, words = as_typed(manifest.command), ["pytest", "--benchmark"]
    if command[:1] == ["workbench"]:  # such as compare-revisions, which made the sides itself
        return shlex.join(command)
    effects = verdict.effects
    measured = list(dict.fromkeys(effect.workload for effect in effects))
    if (verdict.is_comparison or verdict.is_condition) and effects:
        functions = _functions(command, max(len(manifest.ad_hoc) + 1, 2))
        words += ["--compare", *(functions or (effects[0].baseline, effects[0].variant))]
        words += [] if functions else ["--workloads", ",".join(measured)]
        words += ["--fail-if", verdict.part] if verdict.is_condition else []
    else:
        words += ["--claims", verdict.claim]
        # Of a claim with several parts only what this one needs; what spans several workloads needs them all.
        if verdict.part and measured and {*measured} <= {each.workload.name for each in manifest.experiments}:
            words += ["--workloads", ",".join(measured)]
    words += words_of(command, REPEATED)
    return shlex.join(words)


def _functions(command: Sequence[str], count: int) -> tuple[str, ...]:
    """So many sides as they were typed where they are functions or commands, whose names lead nowhere; else empty."""
    names = [_short(word.partition("=")[0]) for word in command]
    if COMPARE not in names:
        return ()
    place = names.index(COMPARE) + 1
    sides = tuple(takewhile(lambda word: not word.startswith("-"), command[place : place + count]))
    return sides if CALL in names or any(map(is_command, sides)) else ()


def _short(name: str) -> str:
    short = f"--{name.removeprefix(LONG)}" if name.startswith(LONG) else name
    return SECOND_NAMES.get(short, short)


def words_of(command: Sequence[str], options: Collection[str]) -> Iterator[str]:
    """These options, by their short names, as a command has them: with something behind, or flags."""
    flags = {f"--{each.name}" for each in every_option() if each.typed is bool}
    bare = {f"--{each.name}": each.bare for each in every_option() if each.bare is not None}
    for word, after in zip(command, [*command[1:], ""], strict=False):
        name, separate, value = word.partition("=")
        short = _short(name)
        if short not in options:
            continue
        if short in flags:
            yield short
        elif short in bare:
            yield f"{short}={value or ('' if after.startswith('-') else after) or bare[short]}"
        elif value if separate else after:
            yield from (short, value if separate else after)
