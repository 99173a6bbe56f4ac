"""Finds the metrics: every module `metrics/NAME.py` that defines METRIC, and those of slices."""

from __future__ import annotations

from functools import cache
from typing import Any

from .. import metrics as package
from ..machine.modules import defined
from ..slices import faces
from ..store.files import CLAIMS, JOURNAL, MANIFEST, SAMPLES
from .base import Metric


@cache
def metrics() -> tuple[Metric[Any], ...]:
    """All metrics, in alphabetical order of their first names. No torch is imported."""
    of_slices = [face.METRIC for face in faces("metric")]
    return tuple(sorted(defined(package, "METRIC") + of_slices, key=lambda metric: metric.names))


def names() -> tuple[str, ...]:
    """All words that a claim may use for `metric = ...`."""
    return tuple(name for metric in metrics() for name in metric.names)


def metric_of(name: str) -> Metric[Any]:
    """The metric of this name. Raises KeyError."""
    by_name = {each: metric for metric in metrics() for each in metric.names}
    if name not in by_name:
        raise KeyError(f"no metric {name!r}; there are {', '.join(by_name)}")
    return by_name[name]


def judged_files() -> tuple[str, ...]:
    """The files that verdicts are computed from."""
    return tuple(
        dict.fromkeys([MANIFEST, CLAIMS, SAMPLES, JOURNAL, *(file for each in metrics() for file in each.files)])
    )
