"""Round numbers for the axes of figures."""

from __future__ import annotations

import math
from decimal import Decimal


def ratio_ticks(left: float, right: float) -> dict[float, str]:
    """Up to eight round ratios between the ends with their labels: evenly stepped on a short axis, else 1-2-5."""
    air = 0.02 * math.log(right / left)  # plotly hides a label that does not fit in at the edge, but not its tick
    low, high = left * math.exp(air), right * math.exp(-air)
    if right / left > 4:
        digits = (1,) if right / left > 500 else (1, 2, 5) if right / left > 12 else (1, 1.5, 2, 3, 4, 5, 7)
        values = [digit * 10.0**power for power in range(-9, 10) for digit in digits]
        return {value: f"{value:.10g}×" for value in values if low <= value <= high}
    for step in (digit * 10.0**power for power in range(-4, 9) for digit in (1, 2, 5)):
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first < 6:
            places = max(0, -math.floor(math.log10(step) + 1e-9))
            return {round(step * k, 6): f"{step * k:,.{places}f}×" for k in range(first, last + 1)}
    return {1.0: "1×"}


def linear_ticks(left: float, right: float) -> dict[float, str]:
    """Two to five round values between the ends with their labels, evenly stepped."""
    step = round_step(right - left)
    places = max(0, -int(Decimal(f"{step:g}").as_tuple().exponent))
    first, last = math.ceil(left / step - 1e-9), math.floor(right / step + 1e-9)
    return {step * k: f"{step * k:,.{places}f}" for k in range(first, last + 1)}


def round_step(largest: float) -> float:
    """A round tick step with two to four ticks up to `largest`."""
    if largest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next(step * power for step in (0.25, 0.5, 1, 2.5, 5) if largest / (step * power) < 4.5)
