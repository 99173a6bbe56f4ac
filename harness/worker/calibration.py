"""How long a call of a variant takes, and whether it computes in threads of its own."""

from __future__ import annotations

from time import perf_counter_ns, process_time_ns, thread_time_ns  # bound before any foreign code is imported
from typing import Any

import torch

from .bench import Bench, Subject
from .building import runner_of, takes_requests
from .devices import Cuda
from .runners import Runner
from .state import Worker
from .watch import OWN_THREADS_SHARE

CALIBRATION_NS, LONG_CALL_NS = 50_000_000, 500_000_000
"""Calls are timed for so long after a first one. Where the first takes longer than the second number, it is enough."""

MOST_CALLS = 20
OWN_THREADS_NS = 5_000_000
"""Below this much CPU time nothing is said about other threads."""


def calibrate(worker: Worker, bench: Bench, subject: Subject, entered: str) -> dict[str, Any]:
    """Fill in the subject's `call_ns` and `output`; the answer is what the parent must know of them."""
    with torch.inference_mode():
        runner = runner_of(worker, bench, subject.variant)
        length = bench.workload.tokens
        calls_ns: list[int] = []

        def take() -> None:
            runner.prepare(length, bench.take(), 1)
            calls_ns.append((worker.device.call_ns(runner) - runner.uncounted_ns) // runner.counts_as)

        wall, thread, process = perf_counter_ns(), thread_time_ns(), process_time_ns()
        take()
        if calls_ns[0] < LONG_CALL_NS:  # the first of short calls says how long it takes to make caches, not more
            calls_ns.clear()
            wall, thread, process = perf_counter_ns(), thread_time_ns(), process_time_ns()
            while not calls_ns or (len(calls_ns) < MOST_CALLS and perf_counter_ns() - wall < CALIBRATION_NS):
                take()
        process = process_time_ns() - process
        thread = thread_time_ns() - thread  # read around the process's, as in `Cpu.sample`
        subject.call_ns = max(min(calls_ns), 1)
        if bench.checkpoint is not None:
            runner.prepare(length, bench.take(), 1)
            out = runner.call()
            subject.output = torch.empty(out.shape, dtype=out.dtype, device=out.device)
        if isinstance(worker.device, Cuda) and bench.checkpoint is None:
            subject.call_ns = _call_ns_of_many(worker, runner)
    own_threads = takes_requests(subject.variant) or (
        not isinstance(worker.device, Cuda)
        and worker.threads == 1
        and process - thread > OWN_THREADS_SHARE * process
        and process > OWN_THREADS_NS
    )
    if own_threads:
        worker.wall_variants.add(entered)
    return {"call_ns": subject.call_ns, "own_threads": own_threads}


def _call_ns_of_many(worker: Worker, runner: Runner) -> float:
    """Time of one of so many calls that they fill a sample: the events around one short call cost more than it."""
    count = 1
    while (spent := worker.device.sample(runner, count).device_ns) < worker.device.sample_ns and count < 1 << 16:
        count *= 4
    return max(spent, 1) / count
