"""Finds what the modules of a package define, so that one more of a kind is one more file."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def defined(package: ModuleType, name: str) -> list[Any]:
    """What the modules of a package have under a name."""
    modules = [import_module(f"{package.__name__}.{entry.name}") for entry in pkgutil.iter_modules(package.__path__)]
    return [getattr(module, name) for module in modules if hasattr(module, name)]


def mentioning(package: ModuleType, name: str) -> Iterator[str]:
    """The full names of those modules whose source assigns `name` at its top; no other is imported to find out."""
    line = re.compile(rf"^{name}\b.*=", re.MULTILINE)
    for folder in map(Path, package.__path__):
        for entry in pkgutil.iter_modules([str(folder)]):
            if line.search((folder / f"{entry.name}.py").read_text(encoding="utf-8")):
                yield f"{package.__name__}.{entry.name}"
