"""What a run knows about its own noise: controls, two sides that are the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ..spec.comparison import Comparison
from ..stats.confidence import running_interval
from ..stats.samples import Differences
from ..store.schema import Control, Noise
from .numbers import percent

SUBJECT = "Identical code"
"""What the line about noise begins with."""


def judge_controls(
    measured: Mapping[str, Sequence[str]],
    rounds: Callable[[Comparison], Differences],
    alpha: float,
) -> Noise:
    """Judge every `NAME@aa` and `NAME@copy` against NAME, at alpha over the number of controls.

    measured: workload → participants. rounds: the rounds of a comparison. A control fires where its interval leaves
    out 0, and where its rounds contradict each other (an empty interval misses 0 as well). A copy that took part in no
    round is none.
    """
    pairs = []
    for workload, variant in ((workload, variant) for workload, names in measured.items() for variant in names):
        name, _, kind = variant.partition("@")
        if kind in ("aa", "copy") and name in measured[workload]:
            pairs.append((Comparison(workload, variant, name), kind))
    values = {pair: rounds(pair).values for pair, _ in pairs}
    pairs = [(pair, kind) for pair, kind in pairs if kind == "aa" or len(values[pair])]
    controls = []
    for pair, kind in pairs:
        interval = running_interval(values[pair], alpha / len(pairs))
        fired = interval.unstable or not interval.low <= 0 <= interval.high
        ends = interval.centre, interval.low, interval.high, interval.n
        controls.append(Control(pair.workload, kind, pair.variant, *ends, fired))
    return Noise(tuple(controls), _noise_line(controls))


def _noise_line(controls: Sequence[Control]) -> str:
    if not controls:
        return f"{SUBJECT}: not checked in this run"
    fired = [f"{control.variant} on {control.workload}" for control in controls if control.fired]
    bounded = [control for control in controls if math.isfinite(control.shift)]
    able = len(bounded) or len(controls)
    parts = [f"{checks_text(able)}, {found_text(fired)}"]
    if bounded:
        widest = max((control.interval.high - control.interval.low) / 2 for control in bounded)
        shift = max(abs(control.interval.centre) for control in bounded)
        parts.append(f"at most {percent(math.expm1(shift))} off, widest interval ±{percent(math.expm1(widest))}")
    if len(bounded) < len(controls):
        parts.append(f"{len(controls) - len(bounded)}{' more' * bool(bounded)} had too few rounds to say")
    return f"{SUBJECT}: {'; '.join(parts)}"


def checks_text(count: int) -> str:
    """How many controls there are, in words."""
    return f"{count} check{'s' * (count != 1)}"


def found_text(fired: Sequence[str]) -> str:
    """What they found: where those are that fired."""
    return f"a difference found: {', '.join(fired)}" if fired else "no difference found"
