"""What a variant keeps, and its peak of memory under memray: memory.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ..store.forms import Amount, JsonFile, OfVariant, Text, says
from .base import ProfiledVariant, Profiler


class Memory(OfVariant):
    """The memory of a variant on a workload."""

    peak_transient_bytes: Annotated[Amount | None, says("most bytes that a call had allocated at a time")] = None
    parameter_bytes: Annotated[Amount | None, says("bytes of weights")] = None
    cache_bytes: Annotated[Amount | None, says("bytes of caches, and of copies of weights")] = None
    kept_bytes: Annotated[
        Amount | None,
        says("of a function: bytes that importing it and a first call allocated and left: answer, caches, globals"),
    ] = None
    reason: Annotated[Text | None, says("why there are no values")] = None

    @property
    def held_bytes(self) -> float | None:
        """What a variant keeps beside the weights that it was given, once a call is over; None where nobody looked."""
        return self.cache_bytes if self.parameter_bytes else self.kept_bytes


MEMORY = JsonFile("memory.json", list[Memory])


TIMES_SLOWER = 20.0
"""A call of Python's own takes so many times as long under memray, about, which sees each of its objects."""


class PeakMemory(Profiler):
    """memray. What a function keeps is left out where its first call would take longer than there is to spare."""

    file = MEMORY

    def look(self, at: ProfiledVariant) -> Mapping[str, Any]:
        if at.is_function:
            keeps = TIMES_SLOWER * at.first_call_seconds <= at.spare_seconds
            return {**at.ask("peak", keeps=keeps), "parameter_bytes": 0, "cache_bytes": 0, "reason": None}
        return {**at.ask("memory"), "reason": None}


PROFILER = PeakMemory()
