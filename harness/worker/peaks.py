"""The verb `peak`: the most memory that a call of a function has allocated at a time, and what is left of it."""

from __future__ import annotations

import gc
from typing import Any

from .collector import Settings
from .devices import Device
from .runners import Runner, runner_of
from .state import Bench, Worker


def peak(worker: Worker, workload: str, variant: str, keeps: bool) -> dict[str, int | None]:
    """Most bytes that one warmed-up call allocates at a time above what lives already, on the device; and, where asked
    (`keeps`), how many importing the function anew and calling it once leaves. What it sets of the collector is undone
    for the next one."""
    bench, settings = worker.benches[workload], Settings.now()
    try:
        return _peak(worker, bench, variant, keeps)
    finally:
        settings.restore()


def _peak(worker: Worker, bench: Bench, variant: str, keeps: bool) -> dict[str, int | None]:
    with worker.modes_of(bench):
        runner = runner_of(worker, bench, bench.subjects[variant].variant)
        most = peak_of_call(runner, bench, bench.workload.tokens, worker.device)
        return {"peak_transient_bytes": most, "kept_bytes": kept(worker, bench, variant) if keeps else None}


def kept(worker: Worker, bench: Bench, variant: str) -> int:
    """Bytes that a function keeps: those that importing its modules and a first call of it allocated, and that are
    still there once the call has returned. Its answer, caches that it fills and globals are among them.

    Calls before have filled only caches of the modules that were imported before, and loaded what libraries load.
    """
    before, number = bench.called[variant], bench.take()

    def first_call() -> Any:
        bench.kind.variant(worker, bench, variant)
        called = bench.called[variant]
        called.learn(before.learnt())
        [arguments], _ = called.inputs(number, 1)
        return called.make()(*arguments)

    try:
        # Imported twice, or the first function would pay for what that, and watching it, leave in the process once.
        # Called once: a first call that builds a table takes many times as long while it is watched.
        worker.device.kept_bytes(lambda: bench.kind.variant(worker, bench, variant))
        return worker.device.kept_bytes(first_call)
    finally:
        bench.called[variant] = before


def peak_of_call(runner: Runner, bench: Bench, length: int, device: Device) -> int:
    """The same of a runner, at a length. A KV cache that grows by concatenation is made within the call, and counts."""
    # Warmed up twice, or the first variant pays for one-off buffers of the whole process.
    for _ in range(2):
        runner.prepare(length, bench.take(), 1)
        runner.call()
    gc.collect()
    runner.prepare(length, bench.take(), 1)
    return device.peak_bytes(runner.call, objects=bench.workload.kind == "call")
