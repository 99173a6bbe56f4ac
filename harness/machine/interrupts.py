"""Ctrl-C and SIGTERM during a run: both end it in order, and a second one does not disturb the ending."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """Within it, SIGINT and SIGTERM raise KeyboardInterrupt, except while one is on its way out.

    Processes are being ended then, and files put in order; that is quick, and a second exception in the middle of it
    would leave some of them behind. `again` says that there was one. `name` is that of the first signal. A signal that
    this process ignores (what a shell starts with & ignores SIGINT) stays ignored.
    """

    def __init__(self) -> None:
        self.name = ""
        self.again = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # nobody else may say what a signal does
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                if before not in (signal.SIG_IGN, None):
                    self._before[number] = before
                    signal.signal(number, self._heard)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if _on_its_way():
            self.again = True
            return
        self.name = self.name or signal.Signals(number).name
        raise KeyboardInterrupt(self.name)


def _on_its_way() -> bool:
    """Whether what runs now is the clean-up after a KeyboardInterrupt (one that got lost does not count)."""
    error = sys.exception()
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
