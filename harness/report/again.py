"""The command that measures a claim's part again, as the run did. Pure functions."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence

from ..plan.options import every_option
from ..store.verdict_schema import Verdict
from .text import Json

LONG = "--workbench-"
"""What their long names begin with."""


def command_again(verdict: Verdict, *, command: Sequence[str], seed: int | None, workloads: Collection[str]) -> str:
    """The command for this verdict alone. `command`, `seed`, `workloads`: of the run, whose choices it repeats."""
    words = ["pytest", "--benchmark"]
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
        if verdict.part and measured and set(measured) <= set(workloads):
            words += ["--workloads", ",".join(measured)]
    words += _carried(command)
    words += [] if seed is None else ["--seed", str(seed)]
    return shlex.join(words)


def command_of(verdict: Verdict, manifest: Json) -> str:
    """The same from run.json."""
    command, seed = manifest.get("command"), manifest.get("seed")
    experiments = manifest.get("experiments") or ()
    return command_again(
        verdict,
        command=[str(word) for word in command] if isinstance(command, list) else (),
        seed=seed if isinstance(seed, int) else None,
        workloads={experiment["workload"].get("name", "") for experiment in experiments},
    )


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
    carried = {f"--{each.name}" for each in every_option() if each.repeated}
    for word, after in zip(command, [*command[1:], ""], strict=False):
        name, separate, value = word.partition("=")
        short = _short(name)
        if short in carried and (value if separate else after):
            yield from (short, value if separate else after)
