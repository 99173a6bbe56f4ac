"""Short arrays of numpy: many small calls into a library."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

LENGTH = 2000

DECAY = 0.9

STEPS = 3

Numbers = NDArray[np.float64]


def made(draw: random.Random, length: int) -> Numbers:
    """So many numbers."""
    return np.random.default_rng(draw.getrandbits(32)).random(length)


def smoothed(values: Numbers) -> Numbers:
    """Each with some of its neighbour."""
    return values[1:] * DECAY + values[:-1] * (1 - DECAY)


def once(values: Numbers) -> float:
    """How far they lie apart once they are smoothed."""
    for _ in range(STEPS):
        values = smoothed(values)
    return float(values.max() - values.min() + values.std())
