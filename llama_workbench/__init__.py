"""The one import name of the workbench: `llama_workbench.variants`, `.datasets`, `.harness`, `.dashboard`.

In the repository the packages are folders beside `pyproject.toml`, in a wheel inside this package. Either way they are
imported under this name, so that a user's own `variants/` folder neither hides ours nor is hidden by it.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .notebook import Compared, OpenRun

_PACKAGE = Path(__file__).resolve().parent

ROOT = _PACKAGE if (_PACKAGE / "harness").is_dir() else _PACKAGE.parent
"""Folder that holds `claims/` and `datasets/` (data that ships with the workbench)."""

if ROOT != _PACKAGE:  # a checkout, not a wheel: the packages are siblings of this folder
    __path__.append(str(ROOT))

__version__ = "0.2.0"

MEASURES = False  # `machine.bootstrap` says so of a process that measures
BARE_OBJECTS = 0  # and how many objects it held before it imported this


class timed:
    """Part of a call: `with wb.timed():` in a function that is compared, and nothing outside of it counts.

    Several blocks of a call are added up, and an `await` in one counts. A block takes about a microsecond itself. Where
    nothing measures, it changes nothing."""

    blocks = wall_ns = cpu_ns = 0  # of all that ended in this process
    _open, _begun = 0, (0, 0)

    def __enter__(self) -> None:
        timed._open += 1
        if timed._open == 1:  # tasks of an event loop may be in theirs at the same time
            timed._begun = perf_counter_ns(), thread_time_ns()

    def __exit__(self, *_: object) -> None:
        cpu_ns, wall_ns = thread_time_ns(), perf_counter_ns()
        timed._open -= 1
        if not timed._open:
            timed.blocks += 1
            timed.wall_ns += wall_ns - timed._begun[0]
            timed.cpu_ns += cpu_ns - timed._begun[1]


def open(run: str | Path) -> OpenRun:
    """A run as data frames (`verdicts`, `effects`, `samples`), by its folder or by its name under results/.

    Raises RunError where it is none. A table whose file is damaged or was changed raises it when asked for."""
    from .notebook import open_run  # pandas is loaded only here

    return open_run(run)


def compare(
    baseline: Callable[..., Any] | str,
    variant: Callable[..., Any] | str,
    *,
    payload: Callable[..., Any] | str,
    check: Callable[..., Any] | str | None = None,
    budget: float = 30.0,
    threads: int = 1,
) -> Compared:
    """Which of two functions is faster: measured in fresh processes for at most `budget` seconds of rounds.

    payload: makes the arguments of a call (a tuple: one each), other ones each time; it may take a seed. Functions are
    given as they are, from a file, a package or a notebook's cells, or as FILE:FUNCTION, with "()" behind it for a
    factory. Their answers must agree: tensors and arrays within rounding errors, all else by ==, or as check(got,
    expected) says. The result shows itself in a notebook.

    Raises ValueError where a function cannot be found or nothing can be measured, AssertionError where the answers
    differ, RuntimeError in a process that measures, which imports the script; the texts say what to do."""
    if MEASURES:
        fix = 'put the call below `if __name__ == "__main__":`'
        raise RuntimeError(f"llama_workbench.compare is called where the file is imported to be measured: {fix}")
    from .notebook import compare_functions

    return compare_functions(baseline, variant, payload=payload, check=check, budget=budget, threads=threads)
