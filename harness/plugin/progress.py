"""Progress of a measurement: a bar on a terminal, lines in a log."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

REPORT_SECONDS = 15.0
"""A log gets a line of progress this often."""

ALMOST = 0.99
"""The largest share that is shown while seconds are left."""


class _Forwards:
    """What is shown of a phase, which never runs backwards: an estimate may take back what it said."""

    def __init__(self) -> None:
        self.done = 0.0
        self.seconds_left = math.inf

    def step(self, done: float, seconds_left: float) -> str:
        """Go on; gives the time that is left in words."""
        self.done = max(self.done, _share(done, seconds_left))
        self.seconds_left = min(self.seconds_left, seconds_left)
        return _left(self.seconds_left)


class LiveProgress:
    """A bar that is redrawn: phase, what is measured now, share, time left."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.fields[phase]}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.description}", style="dim"),
            console=console,
            transient=True,
            refresh_per_second=2,  # the other core belongs to whatever else runs here; drawing must not
        )
        self._task = self._progress.add_task("", total=1.0, phase="starting", left="")
        self._forwards = _Forwards()
        self._progress.start()

    def phase(self, text: str) -> None:
        self._forwards = _Forwards()
        self._progress.update(self._task, phase=text, description="", completed=0.0, left="")

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, emoji=False)

    def step(self, text: str, done: float, seconds_left: float) -> None:
        left = self._forwards.step(done, seconds_left)
        self._progress.update(self._task, description=text, completed=self._forwards.done, left=left)

    def close(self) -> None:
        self._progress.stop()


class LineProgress:
    """For logs: a line a phase, and one now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = 0.0
        self._forwards = _Forwards()

    def phase(self, text: str) -> None:
        self.note(text)
        self._forwards = _Forwards()

    def note(self, text: str) -> None:
        self._console.print(f"workbench: {text}", markup=False, emoji=False)
        self._said = time.monotonic()

    def step(self, text: str, done: float, seconds_left: float) -> None:
        left = self._forwards.step(done, seconds_left)
        if time.monotonic() - self._said >= REPORT_SECONDS:
            self.note(f"{100 * self._forwards.done:3.0f} %{', ' + left if left else ''}: {text}")

    def close(self) -> None:
        pass


def _share(done: float, seconds_left: float) -> float:
    """Nothing is done whole while there are seconds left: a run may get more of them than was planned."""
    return min(done, ALMOST) if seconds_left > 0 else done


def _left(seconds: float) -> str:
    if not math.isfinite(seconds):
        return ""
    return f"{seconds / 60:.0f} min left" if seconds >= 100 else f"{seconds:.0f} s left"


def progress_on(console: Console) -> LiveProgress | LineProgress:
    """A bar needs a terminal that can be redrawn."""
    return LiveProgress(console) if console.is_terminal else LineProgress(console)
