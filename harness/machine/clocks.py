"""Clocks of other processes."""

from __future__ import annotations

from time import clock_gettime_ns  # bound before any code from outside is imported


def cpu_ns_of(process: int) -> int:
    """CPU time of a process so far, all its threads, by the kernel's count. Raises OSError where there is none."""
    return clock_gettime_ns((~process << 3) | 2)  # the clock of another process: clock_getcpuclockid(3)
