"""Finds the metrics: every module `metrics/NAME.py` and every package `metrics/NAME/metric.py` that defines METRIC."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

from .. import metrics as package
from .base import Metric


@cache
def metrics() -> tuple[Metric[Any], ...]:
    """All metrics, in alphabetical order of their first names. No torch is imported."""
    names = (f"{entry.name}.metric" if entry.ispkg else entry.name for entry in pkgutil.iter_modules(package.__path__))
    modules = [import_module(f"{package.__name__}.{name}") for name in names]
    return tuple(sorted((one.METRIC for one in modules if hasattr(one, "METRIC")), key=lambda metric: metric.names))


def names() -> tuple[str, ...]:
    """All words that a claim may use for `metric = ...`."""
    return tuple(name for metric in metrics() for name in metric.names)


def metric_of(name: str) -> Metric[Any]:
    """The metric of this name. Raises KeyError."""
    by_name = {each: metric for metric in metrics() for each in metric.names}
    if name not in by_name:
        raise KeyError(f"no metric {name!r}; there are {', '.join(by_name)}")
    return by_name[name]
