"""The one import name of the workbench: `llama_workbench.variants`, `.datasets`, `.harness`, `.dashboard`.

In the repository the packages are folders beside `pyproject.toml`, in a wheel inside this package. Either way they are
imported under this name, so that a user's own `variants/` folder neither hides ours nor is hidden by it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .notebook import OpenRun

_PACKAGE = Path(__file__).resolve().parent

ROOT = _PACKAGE if (_PACKAGE / "harness").is_dir() else _PACKAGE.parent
"""Folder that holds `claims/` and `datasets/` (data that ships with the workbench)."""

if ROOT != _PACKAGE:  # a checkout, not a wheel: the packages are siblings of this folder
    __path__.append(str(ROOT))

__version__ = "0.1.0"


def open(run: str | Path) -> OpenRun:
    """A run as data frames (`verdicts`, `effects`, `samples`), by its folder or by its name under results/.

    Raises RunError where it is none. A table whose file is damaged or was changed raises it when asked for.
    """
    from .notebook import open_run  # pandas is loaded only here

    return open_run(run)
