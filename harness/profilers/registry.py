"""Finds the profilers, and looks at every variant with each of them."""

from __future__ import annotations

from functools import cache
from typing import Any

from .. import profilers as package
from ..machine.modules import defined
from ..measure.measurement import Measurement
from ..measure.participants import ExperimentState, Progress
from ..measure.processes import WorkerFailed
from ..store.folder import RunFolder
from .base import ProfiledVariant, Profiler


@cache
def profilers() -> tuple[Profiler, ...]:
    """All profilers, by the names of their files: every module of this package that defines PROFILER."""
    return tuple(sorted(defined(package, "PROFILER"), key=lambda profiler: profiler.file))


def run_passes(measurement: Measurement, folder: RunFolder, progress: Progress, *, native: bool = False) -> None:
    """Look at every variant that is left, on every workload.

    Left out are controls, and cells of the grid that no claim compares by name: each differs from others in one axis,
    which other pairs of variants show as well, and there are 16 of them. What a tool refuses is the entry's `reason`.
    """
    given = (*measurement.setting.added.values(), *measurement.setting.functions.values())
    added = [source.file for source in given if source.file]
    work = [
        (group, book, name)
        for group in measurement.processes.groups
        for book in group.books
        for name in book.remaining().variants
        if name in _compared(book) or name not in book.experiment.grid
    ]
    entries: dict[Profiler, list[dict[str, Any]]] = {profiler: [] for profiler in profilers()}
    each_seconds = sum(profiler.seconds(native=native) for profiler in entries)
    for index, (group, book, name) in enumerate(work):
        workload = book.experiment.workload.name
        progress.step(f"profile {workload}: {name}", index / len(work), (len(work) - index) * each_seconds)
        for profiler, records in entries.items():
            at = ProfiledVariant(measurement.gates.standing(group), workload, name, folder.path, added, native)
            try:
                found = profiler.look(at)
            except WorkerFailed as failure:
                found = {"reason": failure.reason}
            records.append({"workload": workload, "variant": name, **found})
            folder.write_json(profiler.file, records)


def _compared(book: ExperimentState) -> set[str]:
    """The variants of an experiment that a claim compares by name."""
    return {name for target in book.experiment.targets for name in target.comparison.sides}
