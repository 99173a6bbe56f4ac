"""The verb `peak`: the most memory that a call has allocated at a time."""

from __future__ import annotations

import gc

from .devices import Device
from .runners import Runner, runner_of
from .state import Bench, Worker


def peak(worker: Worker, workload: str, variant: str) -> int:
    """Most bytes that one warmed-up call allocates at a time above what lives already, on the device."""
    bench = worker.benches[workload]
    with worker.modes_of(bench):
        runner = runner_of(worker, bench, bench.subjects[variant].variant)
        return peak_of_call(runner, bench, bench.workload.tokens, worker.device)


def peak_of_call(runner: Runner, bench: Bench, length: int, device: Device) -> int:
    """The same of a runner, at a length. A KV cache that grows by concatenation is made within the call, and counts."""
    # Warmed up twice, or the first variant pays for one-off buffers of the whole process.
    for _ in range(2):
        runner.prepare(length, bench.take(), 1)
        runner.call()
    gc.collect()
    runner.prepare(length, bench.take(), 1)
    return device.peak_bytes(runner.call, objects=bench.workload.kind == "call")
