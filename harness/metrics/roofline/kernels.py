"""The two roofs of this machine: what torch's own kernels reach here, called beside the variants in the same rounds.

Computing: a matrix product, square or in a shape that the workload has itself, whichever is the fastest. Memory:
reading a buffer as large as the weights that a forward reads, as a decode reads them (a matrix-vector product, or a
plain sum), whichever is faster. Which it is, is found out before the rounds: none may pick the luckiest of several.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...machine.environment import last_level_cache_bytes

SQUARES = (512, 768, 1024)
MOST_FLOPS, LEAST_ROWS = 2_000_000_000, 64
"""A product of the workload that takes more operations is timed with fewer rows, but no fewer than these."""

MOST_BYTES = 512 << 20
"""Of the buffer, or four times the last-level cache: beyond, its bandwidth no longer depends on its size."""

WIDTH = 4096
TRIES = 3


@dataclass(frozen=True)
class Roof:
    """One kernel: `build` allocates its operands anew and gives the call; a call does `amount` operations or bytes."""

    kernel: str
    amount: int
    build: Callable[[], Callable[[], Tensor]]
    call_ns: int = 0


def matmul_roof(shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype) -> Roof:
    """The fastest matrix product of the squares and of `shapes` (rows, inner, columns), in operations a second."""
    squares = {(size, size, size): "square" for size in SQUARES}
    own = dict.fromkeys(map(_cut, shapes), "the workload's own")
    return _fastest([_matmul(*shape, dtype, whose) for shape, whose in (own | squares).items()])


def memory_roof(weight_bytes: int) -> Roof:
    """The fastest way to read a buffer of that size (of float32; see MOST_BYTES), in bytes a second."""
    most = max(MOST_BYTES, 4 * (last_level_cache_bytes() or 0))
    count = max(1, min(weight_bytes, most) // 4)
    found = [Roof("sum", 4 * count, lambda: torch.ones(count).sum)]
    width = min(WIDTH, count)
    rows = count // width
    found.append(Roof("matrix-vector product", 4 * rows * width, lambda: _matrix_vector(rows, width)))
    return _fastest(found)


def _cut(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    rows, inner, columns = shape
    return min(rows, max(LEAST_ROWS, MOST_FLOPS // (2 * inner * columns))), inner, columns


def _matmul(rows: int, inner: int, columns: int, dtype: torch.dtype, whose: str) -> Roof:
    def build() -> Callable[[], Tensor]:
        x = torch.randn(rows, inner).to(dtype)
        weight = torch.randn(columns, inner).to(dtype)  # [out, in], as a model has them
        return lambda: torch.nn.functional.linear(x, weight)

    return Roof(f"{rows} x {inner} x {columns}, {whose}", 2 * rows * inner * columns, build)


def _matrix_vector(rows: int, width: int) -> Callable[[], Tensor]:
    matrix, vector = torch.ones(rows, width), torch.ones(width)
    return lambda: torch.mv(matrix, vector)


def _fastest(roofs: Sequence[Roof]) -> Roof:
    """The one with the most work a second, by the best of a few calls after one for warmth; with its time."""
    timed = []
    for roof in roofs:
        call = roof.build()
        call()
        taken = []
        for _ in range(TRIES):
            start = time.perf_counter_ns()
            call()
            taken.append(time.perf_counter_ns() - start)
        timed.append(Roof(roof.kernel, roof.amount, roof.build, max(1, min(taken))))
    return max(timed, key=lambda roof: roof.amount / roof.call_ns)
