"""How the sides of a comparison of functions ran, in words: what a reader must know beside the number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from ..evidence.numbers import short_time
from ..store.gate_schema import SideFacts

LONG_FIRST_CALL, LONG_FIRST_CALL_NS = 5, 50_000_000
"""A first call that takes so many times as long as the others, and so long, is told: code was compiled or loaded."""

LEAST_WAITING = 0.05
"""A wait is told from this part of a call on."""

LEAVES_FILES = 0.05
"""An answer may hold one, which is kept until the next."""

LITTLE = 0.01


LEAST_SHARE = 0.05
"""Collections and page faults are told where they take this share of a call."""

CALM = (
    "Measured calm: freed memory was kept for reuse and no garbage was collected in samples, which is not how Python "
    "and the system have it."
)


def side_facts_text(facts: Mapping[str, SideFacts], sides: Iterable[str]) -> str:
    """What is worth saying of these sides; empty where nothing is. facts: of all sides, by name."""
    seen = {side: facts[side] for side in sides if side in facts}
    lines = [line for side, each in seen.items() for line in _lines(side, each)]
    if inputs := [each.inputs for each in seen.values() if each.inputs]:
        lines.append(f"Each process generated {min(inputs):,} inputs and gave each of them to several calls.")
    return " ".join(lines)


def faults_text(facts: Mapping[str, SideFacts], call_ns: Mapping[str, float], faults: Mapping[str, float]) -> str:
    """Of which sides page faults are a part that matters; empty where of none. call_ns: of each side; faults: how many
    a call has."""
    shares = {
        name: min(faults[name] * (facts[name].fault_ns or 0.0) / whole_ns, 1.0)
        for name, whole_ns in call_ns.items()
        if name in facts
    }
    return " ".join(
        f"Getting memory from the system takes about {100 * share:.0f} % of a call of {name} ({faults[name]:,.0f} "
        "page faults a call)."
        for name, share in shares.items()
        if share >= LEAST_SHARE
    )


def import_text(facts: Iterable[SideFacts]) -> str:
    """What the time of an import, or of a part of a call, is; empty where whole calls are timed."""
    seen = [*facts]
    lines = ["Only the import is timed: its Python was started before."] * any(each.is_import for each in seen)
    lines += ["Only a part of each call is timed."] * any(each.is_apart for each in seen)
    return " ".join(lines)


def _lines(name: str, seen: SideFacts) -> Iterator[str]:
    if (share := seen.collection_share or 0.0) >= LEAST_SHARE:
        times = f"{seen.collections_per_call or 0.0:.3g}"
        yield f"Collecting garbage takes about {100 * share:.0f} % of a call of {name} ({times} collections a call)."
    first_ns, waited_ns, wall_ns = seen.first_call_ns or 0.0, seen.waited_ns or 0.0, seen.wall_ns or 0.0
    if wall_ns and first_ns >= max(LONG_FIRST_CALL * wall_ns, LONG_FIRST_CALL_NS):
        yield f"The first call of {name} took {short_time(first_ns / 1e9)}; it is not included."
    if waited_ns and waited_ns >= LEAST_WAITING * wall_ns:
        waited, wall, rest = (short_time(ns / 1e9) for ns in (waited_ns, wall_ns, wall_ns - waited_ns))
        what = f"{100 * waited_ns / wall_ns:.0f} % of a call of {name} is waiting ({waited} of {wall})"
        if seen.children_share is not None or seen.threads_share is not None:
            yield f"{what}, for what it starts or for something else."
        else:
            yield (
                f"{what}, such as for a timer, a lock, a socket or another process. If you cannot shorten the wait, "
                f"only the other {rest} can change: compare that part alone."
            )
    if seen.copies_inputs:
        yield (
            f"A call of {name} changes its input, and the input generator returns the same object each time. So every "
            "call was given a copy of its own."
        )

    if seen.gains_again:
        share = 100 * (1 - math.exp(-abs(seen.gains_again)))
        who = f"{name} gains {share:.0f} % more than the baseline" if seen.gains_again > 0 else ""
        who = who or f"The baseline gains {share:.0f} % more than {name}"
        yield f"{who} when an input is repeated, as code with a cache does. So each call was given a new input."
    if seen.children_share is not None:
        yield f"{name} starts child processes: its time is wall time, {_share(seen.children_share)} theirs."
    if seen.threads_share is not None:
        yield f"{name} computes in threads of its own: its time is wall time, {_share(seen.threads_share)} theirs."
    if seen.sets_collector:
        yield f"{name} sets the garbage collector of its whole process: other functions do not run with that setting."
    if (seen.files_left or 0) > LEAVES_FILES:
        yield f"{name} leaves files open: {seen.files_left:.2g} a call."
    for felt in (False, True):
        if changed := [each.what for each in seen.changes if each.felt is felt]:
            then = "this affects the other functions" if felt else "this is undone after each of its turns"
            yield f"{name} changes {', '.join(changed)} for its whole process: {then}."


def _share(share: float) -> str:
    if share > 1:
        return f"and {share:.1f} times as much CPU time is"
    return f"of which {100 * share:.0f} % is" if share >= LITTLE else "of which less than 1 % is"
