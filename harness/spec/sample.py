"""The record of a timed sample, the same from the measuring process to the Parquet file, and of a round of them.

The fields here are the only place that says what a sample holds: the columns of samples.parquet and phases.parquet, and
the check of the journal's lines, are made from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, get_type_hints


class Column(NamedTuple):
    """How a field lies in a Parquet file. kind: "name" (text from a short list) or a type of Arrow."""

    kind: str
    says: str


class Sample(NamedTuple):
    """One timed sample of one variant: `repeats` calls, one after another."""

    variant: Annotated[str, Column("name", "what was timed; `NAME@aa` and `NAME@copy` are controls")]
    sub_round: Annotated[int, Column("int16", "samples of the same sub-round are compared with each other")]
    position: Annotated[int, Column("int16", "place in the random order of the sub-round, from 0")]
    tokens: Annotated[int, Column("int32", "length of a call")]
    repeats: Annotated[int, Column("int32", "number of calls; the times are totals over them")]
    cpu_ns: Annotated[int, Column("int64", "CPU time of the thread, nanoseconds")]
    wall_ns: Annotated[int, Column("int64", "wall time, nanoseconds")]
    faults: Annotated[int, Column("int32", "minor page faults of the process meanwhile")]
    first_cpu_ns: Annotated[int, Column("int64", "CPU time until the first token of a generation; 0 without one")] = 0
    first_wall_ns: Annotated[int, Column("int64", "wall time until the first token of a generation; 0 without one")] = 0
    device_ns: Annotated[int, Column("int64", "time by the clock of a device that is not the CPU; 0 without one")] = 0
    first_device_ns: Annotated[int, Column("int64", "the same until the first token of a generation")] = 0


class Round(NamedTuple):
    """One finished round of one workload in one measuring process."""

    workload: Annotated[str, Column("name", "what the variants compute")]
    process: Annotated[int, Column("int32", "which measuring process, from 1")]
    number: Annotated[int, Column("int32", "which round of the workload, from 0")]
    samples: tuple[Sample, ...]


class PhaseTime(NamedTuple):
    """The time of one phase of one call; the phases of a call sum to the call."""

    workload: Annotated[str, Column("name", "what the variant computes")]
    variant: Annotated[str, Column("name", "whose phases these are")]
    process: Annotated[int, Column("int32", "which measuring process, from 1")]
    round: Annotated[int, Column("int32", "which round of the pass, from 0")]
    call: Annotated[int, Column("int32", "which call of the round, from 0")]
    tokens: Annotated[int, Column("int32", "length of the call")]
    phase: Annotated[str, Column("name", "part of the forward")]
    ns: Annotated[int, Column("int64", "time of the phase in this call, nanoseconds")]
    plain_ns: Annotated[int, Column("int64", "time of a whole call without timestamps, in the same round, nanoseconds")]


def columns(record: type[NamedTuple]) -> dict[str, Column]:
    """The columns that the fields of a record are, by field."""
    hints = get_type_hints(record, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}


def sample_columns() -> dict[str, Column]:
    """The columns of samples.parquet in their order: a sample, and the round it is of."""
    here, sample = columns(Round), columns(Sample)
    of_round = {"workload": here["workload"], "variant": sample["variant"], "process": here["process"]}
    return of_round | {"round": here["number"]} | sample


# The answer of a measuring process to a round or a block, and how it lies in the line that the process sends.


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
