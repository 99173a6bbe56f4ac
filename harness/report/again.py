"""The command that measures a claim's part again, as the run did. Pure functions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from ..plan.options import every_option
from ..store.schema import Manifest
from ..store.verdict_schema import Verdict

LONG = "--workbench-"
"""What their long names begin with."""


def command_of(verdict: Verdict, manifest: Manifest) -> str:
    """The command for this verdict alone, with what its run chose."""
    command, words = manifest.command, ["pytest", "--benchmark"]
    effects = verdict.effects
    measured = list(dict.fromkeys(effect.workload for effect in effects))
    if (verdict.is_comparison or verdict.is_condition) and effects:
        functions = _functions(command)
        words += ["--compare", *(functions or (effects[0].baseline, effects[0].variant))]
        words += [] if functions else ["--workloads", ",".join(measured)]
        words += ["--fail-if", verdict.part] if verdict.is_condition else []
    else:
        words += ["--claims", verdict.claim]
        # Of a claim with several parts only what this one needs; what spans several workloads needs them all.
        if verdict.part and measured and {*measured} <= {each.workload.name for each in manifest.experiments}:
            words += ["--workloads", ",".join(measured)]
    words += _carried(command)
    return shlex.join(words)


def _functions(command: Sequence[str]) -> tuple[str, ...]:
    """Both sides as they were typed where they are any functions, whose names alone lead nowhere; else empty."""
    names = [_short(word.partition("=")[0]) for word in command]
    if "--call" not in names or "--compare" not in names:
        return ()
    place = names.index("--compare") + 1
    return tuple(command[place : place + 2])


def _short(name: str) -> str:
    return f"--{name.removeprefix(LONG)}" if name.startswith(LONG) else name


def _carried(command: Sequence[str]) -> Iterator[str]:
    """Options of a run without which the same claim would be another measurement."""
    carried = {f"--{each.name}": each.bare for each in every_option() if each.repeated}
    for word, after in zip(command, [*command[1:], ""], strict=False):
        name, separate, value = word.partition("=")
        short = _short(name)
        if (bare := carried.get(short)) is not None:
            value = value or ("" if after.startswith("-") else after) or bare
            yield f"{short}={value}"
        elif short in carried and (value if separate else after):
            yield from (short, value if separate else after)
