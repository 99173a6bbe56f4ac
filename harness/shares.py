"""Placeholder until merged."""

from typing import Any


def share(*args: Any, **more: Any) -> Any:
    return None
