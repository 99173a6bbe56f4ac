"""Progress of a run on a terminal: a bar that is redrawn, or lines for a log."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

REPORT_SECONDS = 15.0
"""A log gets a line of progress this often."""


def progress_on(console: Console) -> LiveProgress | LineProgress:
    """A bar where the terminal can be redrawn, lines elsewhere."""
    return LiveProgress(console) if console.is_terminal else LineProgress(console)


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
        self._progress.start()

    def phase(self, text: str) -> None:
        self._progress.update(self._task, phase=text, description="", completed=0.0, left="")

    def note(self, text: str) -> None:
        from rich.text import Text

        self._progress.console.print(Text(text, style="yellow"))

    def step(self, text: str, done: float, seconds_left: float) -> None:
        self._progress.update(self._task, description=text, completed=done, left=_left(seconds_left))

    def close(self) -> None:
        self._progress.stop()


class LineProgress:
    """For logs: a line a phase, and one now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = 0.0

    def _line(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text))
        self._said = time.monotonic()

    def phase(self, text: str) -> None:
        self._line(f"workbench: {text}")

    note = phase

    def step(self, text: str, done: float, seconds_left: float) -> None:
        if time.monotonic() - self._said >= REPORT_SECONDS:
            left = _left(seconds_left)
            self._line(f"workbench: {100 * done:3.0f} %{', ' + left if left else ''}: {text}")

    def close(self) -> None:
        pass


def _left(seconds: float) -> str:
    if not math.isfinite(seconds):
        return ""
    return f"{seconds / 60:.0f} min left" if seconds >= 100 else f"{seconds:.0f} s left"
