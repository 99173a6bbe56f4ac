"""Finds what the modules of a package define, so that one more of a kind is one more file."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType
from typing import Any


def defined(package: ModuleType, name: str) -> list[Any]:
    """What the modules of a package have under a name."""
    modules = [import_module(f"{package.__name__}.{entry.name}") for entry in pkgutil.iter_modules(package.__path__)]
    return [getattr(module, name) for module in modules if hasattr(module, name)]
