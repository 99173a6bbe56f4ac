"""How numbers are written in reasons."""

from __future__ import annotations

import math


def exp(log_ratio: float) -> float:
    try:
        return math.exp(log_ratio)
    except OverflowError:
        return math.inf


def percent(share: float) -> str:
    """0.0042 as "0.42 %", with two figures that count."""
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.0f} %"


def short_time(seconds: float) -> str:
    """3.1e-6 as "3.1 µs"."""
    size, unit = next((each for each in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= each[0]), (1e-9, "ns"))
    return f"{seconds / size:.3g} {unit}"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def budget(seconds: float) -> int:
    """Seconds that are asked for where these are needed: rounded up to two digits."""
    whole = max(math.ceil(seconds), 1)
    unit = 10 ** max(len(str(whole)) - 2, 0)
    return math.ceil(whole / unit) * unit
