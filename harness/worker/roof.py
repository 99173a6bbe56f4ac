"""The verb `roof`: how fast one core of this machine multiplies and reads, in a process without foreign code.

By numpy, so that it needs no torch: its products are as fast as torch's (`metrics.roofline` measures those, in rounds).
"""

from __future__ import annotations

from time import thread_time_ns
from timeit import repeat
from typing import Any

from .state import Worker

SQUARE, BUFFER_BYTES, TRIES = 768, 128 << 20, 9


def roof(worker: Worker) -> dict[str, float]:
    """Operations and bytes a second: the best of a few calls, by the CPU time of this thread."""
    import numpy as np  # not there in every environment that a side may have

    matrix = np.ones((SQUARE, SQUARE), np.float32)
    buffer = np.ones((BUFFER_BYTES // (4 * SQUARE), SQUARE), np.float32)

    def rate(amount: int, *factors: Any) -> float:
        return (
            amount * 1e9 / max(min(repeat(lambda: np.dot(*factors), timer=thread_time_ns, number=1, repeat=TRIES)), 1)
        )

    return {"flops": rate(2 * SQUARE**3, matrix, matrix), "bytes": rate(buffer.nbytes, buffer, matrix[0])}
