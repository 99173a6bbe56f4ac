"""How busy other programs keep this machine."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass

import psutil

IDLE = ("idle", "iowait", "guest", "guest_nice")
"""Kinds of time in which nobody computes, or which are counted among others."""


@dataclass(frozen=True)
class Since:
    """A moment: seconds by the clock, and processor seconds of all programs but ours until then."""

    clock: float
    others: float

    @classmethod
    def now(cls) -> Since:
        """This moment."""
        return cls(time.monotonic(), _of_all() - _of_ours())

    def busy(self) -> float:
        """Which share of the machine others have used since, from 0 to 1."""
        now = Since.now()
        spent = (now.clock - self.clock) * (psutil.cpu_count() or 1)
        return min(1.0, max(0.0, (now.others - self.others) / spent)) if spent > 0 else 0.0


def _of_all() -> float:
    return sum(seconds for kind, seconds in psutil.cpu_times()._asdict().items() if kind not in IDLE)


def _of_ours() -> float:
    """Processor seconds of this process and of all that it began, whether they have ended or not."""
    ended = os.times()
    seconds = ended.user + ended.system + ended.children_user + ended.children_system
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds
