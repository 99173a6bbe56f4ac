"""Slices: features that can be taken away. Each is one folder here; no module outside this package names one.

| face | module of the slice | what it defines | who finds it |
|---|---|---|---|
| a command of `workbench` | `command.py` | `command`, `LISTED` (see `commands.app`) | `commands.app` |
| a section of a page of the dashboard | `section.py` | `PAGE` (the page's file), `show()` | the page |
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path
from types import ModuleType


def faces(name: str) -> list[ModuleType]:
    """The modules of this name of all slices, in the alphabetical order of the slices. Only these are imported."""
    return [
        import_module(f"{__name__}.{slice_.name}.{name}")
        for slice_ in pkgutil.iter_modules(__path__)
        if any((Path(folder) / slice_.name / f"{name}.py").is_file() for folder in __path__)
    ]
