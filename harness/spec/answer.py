"""The answer of a measuring process to a round or a block, and how it lies in the line that the process sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .sample import Sample

_TUPLES = ("refused", "drawn", "by_wall")


@dataclass(frozen=True)
class RoundAnswer:
    """What a round measured and what it found wrong, the latter by variant."""

    samples: tuple[Sample, ...] = ()
    wrong: Mapping[str, str] = field(default_factory=dict)  # results that the process itself can see
    refused: Sequence[str] = ()  # whose results are no wrong ones: they change from call to call, or are none yet
    drawn: tuple[Mapping[str, Any], ...] = ()  # what the examiner must know of the outputs that were left in a file
    failed: Mapping[str, str] = field(default_factory=dict)  # how its process ended: killed, hanging, by an exception
    changed: Mapping[str, str] = field(default_factory=dict)  # what the variant changed for all
    elsewhere: Mapping[str, str] = field(default_factory=dict)  # how it computed where its clock does not look
    by_wall: Sequence[str] = ()  # who is timed by wall from here on: the calling thread's time is not all that it costs
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # how it ran, by the fields of `SideFacts`
    pooled: Mapping[str, int] = field(default_factory=dict)  # functions: how many inputs were given to several calls
    leaks: Mapping[str, int] = field(default_factory=dict)  # bytes

    def to_json(self) -> dict[str, Any]:
        """As it is sent: a sample is the list of its fields."""
        return vars(self)

    @classmethod
    def from_json(cls, sent: Mapping[str, Any]) -> RoundAnswer:
        """What `to_json` gave, on the other side of the pipe."""
        samples = tuple(Sample(*each) for each in sent["samples"])
        return cls(**{**sent, "samples": samples, **{name: tuple(sent[name]) for name in _TUPLES}})
