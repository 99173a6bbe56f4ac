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


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
