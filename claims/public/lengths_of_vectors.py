"""The length of a vector: by numpy's function, and by the root of its product with itself."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def of_3(seed: int) -> Vector:
    return np.random.default_rng(seed).random(3)


def of_100(seed: int) -> Vector:
    return np.random.default_rng(seed).random(100)


def of_10000(seed: int) -> Vector:
    return np.random.default_rng(seed).random(10_000)


def by_norm(vector: Vector) -> float:
    return float(np.linalg.norm(vector))


def by_inner(vector: Vector) -> float:
    return float(np.sqrt(np.inner(vector, vector)))


def by_dot_and_math(vector: Vector) -> float:
    return math.sqrt(vector.dot(vector))
