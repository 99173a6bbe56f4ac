"""Ctrl-C and SIGTERM during a run: both end it in order, and a second one does not disturb the ending."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import ExitStack
from types import FrameType
from typing import Self


class Interrupts(ExitStack):
    """Within it, SIGINT and SIGTERM raise KeyboardInterrupt, except while one is on its way out.

    Processes are being ended then, and files put in order; that is quick, and a second exception in the middle of it
    would leave some of them behind. `again` says that there was one. `name` is that of the first signal. A signal that
    this process ignores (what a shell starts with & ignores SIGINT) stays ignored.

    An exception that is raised in a destructor, or in a callback of the garbage collector, is lost there; who works in
    a loop calls `raise_lost`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.name = ""
        self.again = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # nobody else may say what a signal does
            for number in (signal.SIGINT, signal.SIGTERM):
                if (before := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                    self.callback(signal.signal, number, before)
                    signal.signal(number, self._heard)
        return self

    def raise_lost(self) -> None:
        """KeyboardInterrupt where a signal was heard and nothing came of it."""
        if self.name and not _on_its_way():
            raise KeyboardInterrupt(self.name)

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
