"""Short arrays of numpy: many small calls into a library."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

REPEATS = 20

DECAY = 0.9

STEPS = 3

Numbers = NDArray[np.float64]


def fixed(seed: int) -> Numbers:
    """Two thousand numbers."""
    return np.random.default_rng(seed).random(2000)


def mixed(seed: int) -> Numbers:
    """One to three thousand numbers."""
    return np.random.default_rng(seed).random(random.Random(seed).randint(1000, 3000))


def smoothed(values: Numbers) -> Numbers:
    """Each with some of its neighbour."""
    return values[1:] * DECAY + values[:-1] * (1 - DECAY)


def spread(values: Numbers) -> float:
    """How far they lie apart."""
    return float(values.max() - values.min() + values.std())


def work(values: Numbers) -> float:
    """The spread of what is smoothed."""
    for _ in range(REPEATS):
        smooth = values
        for _ in range(STEPS):
            smooth = smoothed(smooth)
        answer = spread(smooth)
    return answer
