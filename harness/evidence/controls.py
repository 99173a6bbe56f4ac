"""What a run knows about its own noise: controls, two sides that are the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ..spec.comparison import Comparison
from ..spec.entered import AA, EnteredName
from ..stats.confidence import running_interval
from ..stats.joint import EqualSides, chance_of_no_difference, typical_difference
from ..stats.samples import Differences
from ..store.schema import Control, Noise
from .design import Design
from .numbers import percent

SUBJECT = "Identical code"
"""What the line about noise begins with."""


def judge_controls(
    measured: Mapping[str, Sequence[str]],
    differences: Callable[[Comparison], Differences],
    alpha: float,
    design: Design,
    processes: Callable[[Comparison], Sequence[int]],
) -> Noise:
    """Judge every `NAME@aa` and `NAME@copy` against NAME, at alpha over the number of controls, and all together.

    measured: workload → participants. processes: the number of the process of each difference. A control fires where
    its interval leaves out 0, and where its values contradict each other (an empty interval misses 0 as well). A copy
    that took part in no process is none.
    """
    pairs = []
    for workload, variant in ((workload, variant) for workload, names in measured.items() for variant in names):
        entered = EnteredName(variant)
        if entered.is_control and entered.original in measured[workload]:
            pairs.append((Comparison(workload, variant, entered.original), entered.control))
    values = {pair: differences(pair).values for pair, _ in pairs}
    pairs = [(pair, kind) for pair, kind in pairs if kind == AA or len(values[pair])]
    controls = []
    for pair, kind in pairs:
        interval = running_interval(values[pair], design.plan(pair.workload, alpha / len(pairs)))
        fired = interval.unstable or not interval.low <= 0 <= interval.high
        ends = interval.centre, interval.low, interval.high, interval.n
        controls.append(Control(pair.workload, kind, pair.variant, *ends, fired))
    typical = _typical([EqualSides(processes(pair), values[pair]) for pair, _ in pairs], alpha)
    return Noise(tuple(controls), noise_line(controls, typical), typical=typical)


def _typical(series: Sequence[EqualSides], alpha: float) -> float:
    """By how much (log units) identical code differs typically, where the controls together show that it does."""
    return typical_difference(series) if chance_of_no_difference(series) <= alpha else 0.0


def noise_line(controls: Sequence[Control], typical: float) -> str:
    """What the controls showed, in one line. `typical`: by how much all together differ."""
    if not controls:
        return f"{SUBJECT}: not checked in this run"
    fired = [f"{control.variant} on {control.workload}" for control in controls if control.fired]
    bounded = [control for control in controls if math.isfinite(control.shift)]
    line = f"{SUBJECT}: {found_text(controls, fired)}"
    if typical and not fired:
        together = (
            f"{checks_text(_able(controls))} together show a difference, typically {percent(math.expm1(typical))}"
        )
        line = f"{SUBJECT}: {together}, too small for one alone to show"
    if bounded:
        shift = max(abs(control.interval.centre) for control in bounded)
        widest = max((control.interval.high - control.interval.low) / 2 for control in bounded)
        line += f"; all within {percent(math.expm1(shift))} of 1 (widest interval ±{percent(math.expm1(widest))})"
    short = len(controls) - _able(controls)
    return f"{line}; {short} more had too few rounds" if 0 < short < len(controls) else line


def _able(controls: Sequence[Control]) -> int:
    """How many of them had rounds enough to say something."""
    return sum(math.isfinite(control.shift) or control.fired for control in controls)


def found_text(controls: Sequence[Control], fired: Sequence[str], where: str = "") -> str:
    """What those of these controls found that can say something. `fired`: the names of what fired. `where`: what the
    checks were made on."""
    if not (able := _able(controls)):
        return f"{checks_text(len(controls))}{where} had too few rounds to say"
    looked = f"in {checks_text(able)}{where}"
    return f"{looked} a difference was found: {', '.join(fired)}" if fired else f"no difference found {looked}"


def checks_text(count: int) -> str:
    """How many controls there are, in words."""
    return f"{count} check{'s' * (count != 1)}"
