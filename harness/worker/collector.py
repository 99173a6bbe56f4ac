"""What a function does to the process that it runs in: what it leaves of the garbage collector's settings, how much of
its time collections take, which memory it has the system hand over, and what it keeps alive.

A program of the user's has a process to itself, with the collector and the allocator as Python and the system have
them. Two sides of a comparison can share one as long as neither changes what the other would find there.
"""

from __future__ import annotations

import gc
import mmap
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import perf_counter_ns  # bound before any foreign code is imported
from typing import Any, NamedTuple

from .runners import runner_of
from .state import Bench, Subject, Worker

OBSERVED_NS, BATCH_NS, LONG_CALL_NS = 100_000_000, 5_000_000, 500_000_000
"""Calls are observed for so long, in batches of so long; of a longer call than the last number, one."""

MOST_MAKING_NS = 20_000_000
"""Of the inputs of a batch."""

LEAST_SHARE = 0.02
"""A side of whose time collections take this share has a process of its own: where sides share one, what was left for
a later collection is collected before the next sample, and nobody's time."""

LEAST_FAULTS = 4
"""So has one with so many page faults a call: how the C library hands out large blocks is a state of the process. (Each
that is freed raises the size from which on the system is asked; the processes of gates hold it.) A block of 128 KiB has
32 of them, and one of many MiB few, where pages are huge."""

TOLD = ("collections_per_call", "collection_share", "fault_ns")
TRIED_BYTES = 1 << 21

LEAST_ALIVE = 20_000
"""So has one that keeps so many more objects alive: a collection would walk them in the other's time."""


class Settings(NamedTuple):
    """Of the collector, as code may leave them."""

    is_on: bool
    thresholds: tuple[int, ...]

    @classmethod
    def now(cls) -> Settings:
        return cls(gc.isenabled(), gc.get_threshold())

    def restore(self) -> None:
        gc.set_threshold(*self.thresholds)
        (gc.enable if self.is_on else gc.disable)()


@dataclass
class Collections:
    """How many collections there were, and what they took, while `seen`."""

    count: int = 0
    ns: int = 0
    _begun_ns: int = field(default=0, repr=False)

    @contextmanager
    def seen(self) -> Iterator[None]:
        """Collections in this block count."""
        gc.callbacks.append(self._note)
        try:
            yield
        finally:
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._begun_ns = perf_counter_ns()
        elif self._begun_ns:
            self.ns += perf_counter_ns() - self._begun_ns
            self.count += 1


@dataclass(frozen=True)
class Observed:
    """What calls of a function did. collections_per_call; collection_share: of its time; faults_per_call: where each
    block of 128 KiB or more is asked of the system. kept_alive: objects that it keeps from one call to the next.
    fault_ns: what a page fault takes in this process."""

    collections_per_call: float
    collection_share: float
    faults_per_call: float
    kept_alive: int
    fault_ns: float

    @property
    def disturbs(self) -> bool:
        """Whether another function that shares the process would be timed with what this one did."""
        return (
            self.collection_share >= LEAST_SHARE
            or self.faults_per_call >= LEAST_FAULTS
            or self.kept_alive >= LEAST_ALIVE
        )

    def facts(self) -> dict[str, Any]:
        """As in `SideFacts`."""
        return {name: value for name, value in asdict(self).items() if name in TOLD}


def observed(worker: Worker, bench: Bench, subject: Subject) -> Observed:
    """Call a function, with the collector on or off as it has it, and see what that does."""
    with worker.modes_of(bench):
        gc.collect()
        alive = len(gc.get_objects())
        runner = runner_of(worker, bench, subject.variant)
        length, call_ns = bench.workload.tokens, max(subject.call_ns, 1.0)
        batch = max(1, round(min(BATCH_NS / call_ns, MOST_MAKING_NS / max(bench.make_ns, 1))))
        warm = 0 if call_ns > LONG_CALL_NS else 1
        collections, calls, spent_ns, faults, begun = Collections(), 0, 0, 0, perf_counter_ns()
        while not calls or perf_counter_ns() - begun < OBSERVED_NS:
            runner.prepare(length, bench.take(batch), batch)
            if warm:
                warm -= 1
                runner.many(batch)
                continue
            faults -= _faults()
            with collections.seen():
                begun_ns = perf_counter_ns()
                runner.many(batch)
                spent_ns += perf_counter_ns() - begun_ns
            faults += _faults()
            calls += batch
        runner.finish()
        gc.collect()
        alive = len(gc.get_objects()) - alive
    share = min(collections.ns / max(spent_ns, 1), 1.0)
    return Observed(collections.count / calls, share, max(faults, 0) / calls, max(alive, 0), fault_ns())


def fault_ns() -> float:
    """What it takes here to be given a page of memory by the system, when it is first written to."""
    with mmap.mmap(-1, TRIED_BYTES) as memory:
        faults, begun_ns = -_faults(), perf_counter_ns()
        for place in range(0, TRIED_BYTES, mmap.PAGESIZE):
            memory[place] = 1
        spent_ns = perf_counter_ns() - begun_ns
        return spent_ns / max(faults + _faults(), 1)


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
