"""The gate of one part of a layer: its result is the one that its formula gives."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .logits import TOLERANCES, Gate

TOLERANCE = TOLERANCES[torch.float32]


def judge_component(got: Tensor, expected: Tensor) -> Gate:
    """Compare a result with the right one, both float64."""
    if got.shape != expected.shape:
        return Gate.failed(f"{list(got.shape)} for {list(expected.shape)}", cases=1, tolerance=TOLERANCE)
    error = component_error(got, expected)
    if not error <= TOLERANCE:
        return Gate.failed(f"off by {error:.1e} of the largest value", cases=1, error=error, tolerance=TOLERANCE)
    return Gate(True, 1, error, TOLERANCE, "1 case")


def component_error(got: Tensor, expected: Tensor) -> float:
    """Largest error as a share of the largest finite value; infinite where infinite values are not the same."""
    if got.shape != expected.shape:
        return math.inf
    finite = torch.isfinite(expected)
    if not bool((got[~finite] == expected[~finite]).all()):
        return math.inf
    return float((got[finite] - expected[finite]).abs().max() / expected[finite].abs().max().clamp_min(1e-30))
