"""What a run knows about its own noise: controls, two sides that are the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..spec.comparison import Comparison
from ..stats.confidence import Interval, Method, running_interval
from ..stats.samples import Differences
from .numbers import exp, listing, or_null, percent


@dataclass(frozen=True)
class Control:
    """Two sides that are the same, measured like any other pair. `kind`: "aa", the same variant entered twice;
    "copy", the same source imported a second time. Fired: the interval says that they differ."""

    workload: str
    kind: str
    variant: str
    baseline: str
    interval: Interval
    fired: bool

    @property
    def shift(self) -> float:
        """Largest log ratio, either way, that the interval allows."""
        return max(abs(self.interval.low), abs(self.interval.high))

    def to_json(self) -> dict[str, Any]:
        """As under "noise" in run.json."""
        return {
            "workload": self.workload,
            "kind": self.kind,
            "variant": self.variant,
            "ratio": or_null(exp(self.interval.centre)),
            "low": or_null(exp(self.interval.low)),
            "high": or_null(exp(self.interval.high)),
            "rounds": self.interval.n,
            "fired": self.fired,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Control:
        """One record under "noise" in run.json. Raises ValueError for what cannot be one."""
        try:
            variant = str(record["variant"])
            ends = (record["ratio"], math.nan), (record["low"], -math.inf), (record["high"], math.inf)
            centre, low, high = (unknown if ratio is None else math.log(ratio) for ratio, unknown in ends)
            return cls(
                workload=str(record["workload"]),
                kind=str(record["kind"]),
                variant=variant,
                baseline=variant.partition("@")[0],
                interval=Interval(centre, low, high, int(record["rounds"])),
                fired=record["fired"] is True,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a control: {error!r}") from error


@dataclass(frozen=True)
class Noise:
    """A session's own controls, and what they showed in one line."""

    controls: tuple[Control, ...]
    line: str

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Noise:
        """What `to_json` gave. Raises ValueError."""
        return cls(tuple(map(Control.from_json, record.get("controls", ()))), str(record.get("line", "")))

    def to_json(self) -> dict[str, Any]:
        """As "noise" in run.json."""
        return {"controls": [control.to_json() for control in self.controls], "line": self.line}


def judge_controls(
    measured: Mapping[str, Sequence[str]],
    rounds: Callable[[Comparison], Differences],
    alpha: float,
    method: Method = "both",
) -> Noise:
    """Judge every `NAME@aa` and `NAME@copy` against NAME, at alpha over the number of controls.

    measured: workload → participants. rounds: the rounds of a comparison. A control fires where its interval leaves
    out 0, and where its rounds contradict each other (an empty interval misses 0 as well).
    """
    pairs = [
        (Comparison(workload, variant, name), kind)
        for workload, variants in measured.items()
        for variant in variants
        for name, _, kind in [variant.partition("@")]
        if kind in ("aa", "copy") and name in variants
    ]
    controls = []
    for pair, kind in pairs:
        interval = running_interval(rounds(pair).values, alpha / len(pairs), method)
        fired = interval.unstable or not interval.low <= 0 <= interval.high
        controls.append(Control(pair.workload, kind, pair.variant, pair.baseline, interval, fired))
    return Noise(tuple(controls), _noise_line(controls))


def _noise_line(controls: Sequence[Control]) -> str:
    if not controls:
        return "A/A noise: no controls in this run"
    bounded = [control for control in controls if math.isfinite(control.shift)]
    parts = [f"{len(controls)} control{'s' * (len(controls) > 1)}"]
    if bounded:
        widest = max((control.interval.high - control.interval.low) / 2 for control in bounded)
        shift = max(abs(control.interval.centre) for control in bounded)
        parts += [f"widest interval ±{percent(math.expm1(widest))}", f"largest shift {percent(math.expm1(shift))}"]
    if len(bounded) < len(controls):
        parts.append(f"{len(controls) - len(bounded)} with too few rounds")
    fired = [f"{control.variant} on {control.workload}" for control in controls if control.fired]
    return f"A/A noise: {', '.join(parts)}; " + (f"fired: {listing(fired)}" if fired else "none fired")
