"""Memory that does not come back between rounds."""

from __future__ import annotations

from .bench import Bench
from .state import Worker

LEAK_LIMIT_BYTES, LEAK_LIMIT_WEIGHTS = 2 << 30, 2
"""Growth between rounds beyond this and so many times the weights is a leak. What the allocator keeps for reuse stays
below: with its thresholds pinned it returns nothing to the system, and a variant may pack all weights."""


def leaks(worker: Worker, bench: Bench) -> dict[str, int]:
    """Where the process has grown too far with everything freed: the growth in bytes, under the variant during whose
    building and calls it grew most."""
    idle_bytes = worker.device.held_bytes()
    bench.idle_bytes = min(bench.idle_bytes, idle_bytes)
    grown = int(idle_bytes - bench.idle_bytes)
    if grown <= LEAK_LIMIT_BYTES + LEAK_LIMIT_WEIGHTS * bench.parameter_bytes:
        return {}
    blamed = max(bench.subjects, key=lambda name: bench.subjects[name].growth_bytes)
    bench.idle_bytes = idle_bytes
    return {blamed: grown}
