"""Slices: features that can be taken away. Each is one folder here; no module outside this package imports one by name.

| face | module of the slice | what it defines | who finds it |
|---|---|---|---|
| what a claim may ask, its pass and its verdict | `metric.py` | `METRIC` (see `metrics.base`) | `metrics.registry` |
| what runs in a process that measures models | `worker.py` | `VERBS`: functions, the `Worker` first | `worker.main` |
| what looks at each variant after the rounds | `profiler.py` | `PROFILER` (a `Profiler`) | `measure.profiling` |
| what looks for where a difference is | `causes.py` | `look_for_causes()` | `measure.profiling` |
| another form of checkpoints | `checkpoint.py` | `takes()`, `opened()`, `tokenizer_of()` | `datasets.tokenizer` |
| what `metric = "check"` may try | `checks.py` | `CHECKS` | the slice `check` |
| what is counted beside times | `beside.py` | `WHAT`, `FILE`, `measures()`, `rows()` | `report`, `baselines` |
| a command of `workbench` | `command.py` | `command`, `LISTED`, `VERB` where it is no folder's name | `commands.app` |
| a page of the dashboard | `page.py` | `PAGE` (path in the URL, title, icon, help), `show()` | `dashboard/app.py` |
| a section of the view Trust | `section.py` | `PAGE` (trust), `show()` | `dashboard/sections/trust.py` |
| a part of Explore | `section.py` | `PAGE`, `KEY`, `TITLE`, `PLACE`, `is_there(run)`, `show(opened)` | that page |
| what Comparison shows of two sides | `section.py` | `heading()`, `show_sides(opened, effect, sides, of)` | that page |
| two sides' samples on each other | `section.py` | `show_aligned(explained)` | Comparison |
| the phases of lines | `lines.py` | `lines_in_sources(places, attention)` | `report.phases` |
| a part of `workbench report` | `report.py` | `markdown(folder, alpha)`, empty where a run has none | that command |
| runs of several machines | `machines.py` | `measured_on`, `verdicts_of`, `judge_fleet` | `session.judging` |
| the screen of a run, if not the usual | `screen.py` | `screen(folder)`, or None; `svg(folder)` | `tables`, `report` |

Options that only a slice reads are lines of `plan.options` all the same, such as `--on`. A run's file that a slice
writes keeps its form in `store`, where pages of the core show it. A claim of a metric that is gone says so. If
`measured_by` of the dispute has the `KEY` (or `MEASURED_BY`) of a part that a run lacks, Explore shows the command
that records it. `PAGE` is "explore" there, and parts stand in the order of `PLACE`.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


def faces(name: str) -> list[ModuleType]:
    """The modules of this name of all slices, in the alphabetical order of the slices. Only these are imported."""
    return [
        import_module(f"{__name__}.{slice_.name}.{name}")
        for slice_ in pkgutil.iter_modules(__path__)
        if any((Path(folder) / slice_.name / f"{name}.py").is_file() for folder in __path__)
    ]


def page_parts(what: str) -> list[ModuleType]:
    """The parts of the page Explore that define this, in their order."""
    return sorted((face for face in faces("section") if hasattr(face, what)), key=lambda face: face.PLACE)


def tables(folder: object) -> list[RenderableType]:
    """What slices show of a run, where its screens or verdicts would stand. folder: a `RunFolder`."""
    return [table for face in faces("screen") if (table := face.screen(folder)) is not None]
