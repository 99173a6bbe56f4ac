"""What a variant keeps, and its peak of memory under memray: memory.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...measure.profiling import ProfiledVariant, Profiler
from ...store.passes import MEMORY

TIMES_SLOWER = 20.0
"""A call of Python's own takes so many times as long under memray, about, which sees each of its objects."""


class PeakMemory(Profiler):
    """memray. What a function keeps is left out where its first call would take longer than there is to spare."""

    file = MEMORY
    is_unasked = True

    def look(self, at: ProfiledVariant) -> Mapping[str, Any]:
        if at.is_function:
            keeps = TIMES_SLOWER * at.first_call_seconds <= at.spare_seconds
            return {**at.ask("peak", keeps=keeps), "parameter_bytes": 0, "cache_bytes": 0, "reason": None}
        return {**at.ask("memory"), "reason": None}


PROFILER = PeakMemory()
