"""The record of a timed sample, the same from the measuring process to the Parquet file, and of a round of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Sample(NamedTuple):
    """One timed sample of one variant: `repeats` calls, one after another.

    sub_round: samples of the same one are compared with each other. position: its place in the random order of the
    sub-round. tokens: length of a call. *_ns: totals over the calls, by thread CPU time, wall time and the clock of a
    device that is not the CPU (0 without one). first_*_ns: the part until the first token of a generation was there
    (0 where nothing is generated). faults: minor page faults of the process meanwhile.
    """

    variant: str
    sub_round: int
    position: int
    tokens: int
    repeats: int
    cpu_ns: int
    wall_ns: int
    faults: int
    first_cpu_ns: int = 0
    first_wall_ns: int = 0
    device_ns: int = 0
    first_device_ns: int = 0


class Round(NamedTuple):
    """One finished round of one workload in one measuring process; `number` counts from 0 in a run."""

    workload: str
    process: int
    number: int
    samples: tuple[Sample, ...]

    def to_json(self) -> dict[str, Any]:
        """As a line of the journal, and as the measuring process sends it."""
        return {
            "workload": self.workload,
            "process": self.process,
            "round": self.number,
            "samples": [list(sample) for sample in self.samples],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Round:
        """What `to_json` gave; rows of older runs may be shorter. Raises TypeError for others."""
        rows: Iterable[Iterable[Any]] = record["samples"]
        return cls(record["workload"], record["process"], record["round"], tuple(Sample(*row) for row in rows))
