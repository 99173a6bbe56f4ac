"""Finds what the modules of a package define, so that one more of a kind is one more file."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def defined(package: ModuleType, name: str, inner: str = "") -> list[Any]:
    """What the modules of a package have under a name; of its packages, what their module `inner` has."""
    values = []
    for entry in pkgutil.iter_modules(package.__path__):
        if not entry.ispkg or inner:
            module = import_module(f"{package.__name__}.{entry.name}" + f".{inner}" * entry.ispkg)
            values += [getattr(module, name)] if hasattr(module, name) else []
    return values


def mentioning(package: ModuleType, name: str, inner: str) -> Iterator[str]:
    """The full names of those modules whose source assigns `name` at its top; no other is imported to find out."""
    line = re.compile(rf"^{name}\b.*=", re.MULTILINE)
    for folder in map(Path, package.__path__):
        for entry in pkgutil.iter_modules([str(folder)]):
            path = folder / entry.name / f"{inner}.py" if entry.ispkg else folder / f"{entry.name}.py"
            if path.is_file() and line.search(path.read_text(encoding="utf-8")):
                yield f"{package.__name__}.{entry.name}" + f".{inner}" * entry.ispkg
