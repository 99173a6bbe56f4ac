"""The two peak kernels of this machine: the fastest of torch's own, called beside the variants in the same rounds.

Computing: a matrix product, square or in a shape of the workload itself. Memory: reading a buffer as large as the
weights that a forward reads, as a decode reads them (a matrix-vector product) or as a plain sum. Which kernel is the
fastest is decided before the rounds, so that no round can pick the luckiest of several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns  # bound before any foreign code is imported

import torch
from torch import Tensor

from ...machine.environment import last_level_cache_bytes

SQUARES = (512, 768, 1024)
MOST_FLOPS, LEAST_ROWS = 2_000_000_000, 64
"""A product of the workload that takes more operations is timed with fewer rows, but no fewer than these."""

MOST_BYTES = 512 << 20
"""Size of the buffer, or four times the last-level cache: beyond, bandwidth no longer depends on the size."""

WIDTH = 4096
TRIES = 3


@dataclass(frozen=True)
class PeakKernel:
    """One kernel. `build` allocates its operands anew and gives the call, which does `amount` operations or bytes."""

    kernel: str
    amount: int
    build: Callable[[], Callable[[], Tensor]]
    call_ns: int = 0


def fastest_product(shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype) -> PeakKernel:
    """The fastest matrix product of the squares and of `shapes` (rows, inner, columns), in operations a second."""
    squares = {(size, size, size): "square" for size in SQUARES}
    own = dict.fromkeys(map(_cut, shapes), "the workload's own")
    return _fastest([_matmul(*shape, dtype, whose) for shape, whose in (own | squares).items()])


def fastest_read(weight_bytes: int) -> PeakKernel:
    """The fastest way to read a buffer of that size (of float32; see MOST_BYTES), in bytes a second."""
    most = max(MOST_BYTES, 4 * (last_level_cache_bytes() or 0))
    count = max(1, min(weight_bytes, most) // 4)
    found = [PeakKernel("sum", 4 * count, lambda: torch.ones(count).sum)]
    width = min(WIDTH, count)
    rows = count // width
    found.append(PeakKernel("matrix-vector product", 4 * rows * width, lambda: _matrix_vector(rows, width)))
    return _fastest(found)


def _cut(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    rows, inner, columns = shape
    return min(rows, max(LEAST_ROWS, MOST_FLOPS // (2 * inner * columns))), inner, columns


def _matmul(rows: int, inner: int, columns: int, dtype: torch.dtype, whose: str) -> PeakKernel:
    def build() -> Callable[[], Tensor]:
        x = torch.randn(rows, inner).to(dtype)
        weight = torch.randn(columns, inner).to(dtype)  # [out, in], as a model has them
        return lambda: torch.nn.functional.linear(x, weight)

    return PeakKernel(f"{rows} x {inner} x {columns}, {whose}", 2 * rows * inner * columns, build)


def _matrix_vector(rows: int, width: int) -> Callable[[], Tensor]:
    matrix, vector = torch.ones(rows, width), torch.ones(width)
    return lambda: torch.mv(matrix, vector)


def _fastest(kernels: Sequence[PeakKernel]) -> PeakKernel:
    """The kernel with the most work a second, by the best of a few calls after an untimed one; with its time."""
    timed = []
    for kernel in kernels:
        call = kernel.build()
        call()
        taken = []
        for _ in range(TRIES):
            start = perf_counter_ns()
            call()
            taken.append(perf_counter_ns() - start)
        timed.append(replace(kernel, call_ns=max(1, min(taken))))
    return max(timed, key=lambda kernel: kernel.amount / kernel.call_ns)
