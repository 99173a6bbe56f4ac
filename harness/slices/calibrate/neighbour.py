"""A busy neighbour: computes in bursts of random length on memory that does not fit into a cache, until it is ended."""

from __future__ import annotations

import random
import time

import numpy as np

MOST_SECONDS = 0.3
"""Of a burst, and of the rest after it."""


def main() -> None:
    """Never returns."""
    values = np.ones(4_000_000)
    while True:
        end = time.perf_counter() + random.uniform(0, MOST_SECONDS)
        while time.perf_counter() < end:
            values *= 1.0
        time.sleep(random.uniform(0, MOST_SECONDS))


if __name__ == "__main__":
    main()
