"""The verbs of the memory pass: peaks of a fresh process, bytes of live tensors by kind, and peaks of a call."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch

from llama_workbench.datasets.workloads import longest_call
from llama_workbench.variants.memory_policy import doublings, expected, kv_bytes, served_lengths

from ...worker import runners
from ...worker.devices import Device
from ...worker.runners import PrefillRunner, Runner, runner_of
from ...worker.state import Bench, Worker, WorkerError
from .live_tensors import bytes_by_kind, live_tensors, tensors_since


def memory(worker: Worker, workload: str, variant: str) -> dict[str, Any]:
    """Peak bytes that one warmed-up call allocates above what lives already, on the device (`peak_bytes` of it).

    Parameter bytes count the checkpoint's tensors. Cache bytes are what a rebuilt variant keeps after a call, beyond
    the weights that it was given.
    """
    bench = worker.benches[workload]
    before = live_tensors()
    with torch.inference_mode():
        runner = runner_of(worker, bench, bench.subjects[variant].variant)
        peak = _peak_of_call(runner, bench, bench.workload.tokens, worker.device)
        model = getattr(runner, "model", None)
        del runner  # what the harness keeps for itself, such as generated tokens, is not the variant's
        found = tensors_since(before) if model is not None else {}
    cache = sum(one.nbytes for one in found.values())
    return {"peak_transient_bytes": peak, "parameter_bytes": bench.parameter_bytes, "cache_bytes": cache}


def memory_peak(worker: Worker, workload: str, variant: str) -> dict[str, Any]:
    """Peak bytes of this process, which must be fresh: weights loaded and read, then lengths served.

    On a CPU this is resident memory; else what the device's allocator gave out. `peak_bytes` has one value for each
    number of different lengths, `served` the lengths of the last.
    """
    bench = worker.benches[workload]
    assert bench.checkpoint is not None
    for tensor in bench.checkpoint.weights.values():
        tensor.sum()  # weights are mapped: what nobody has read takes no memory yet
    loaded = worker.device.most_held_bytes()
    with torch.inference_mode():
        runner = runner_of(worker, bench, runners.variant_of(worker, variant))
        peaks = []
        served: list[int] = []
        for lengths in _serve(runner, bench, worker.device):
            served = lengths
            peaks.append(worker.device.most_held_bytes())
    sizes = {"weights_bytes": bench.parameter_bytes, "loaded_bytes": loaded, "peak_bytes": peaks}
    planned = doublings(longest_call(bench.workload))[-1]
    return {"device": worker.device.kind, "planned_lengths": planned, "served": served, **sizes}


def memory_held(worker: Worker, workload: str, variant: str) -> dict[str, Any]:
    """Bytes of tensors that a variant holds beyond the checkpoint, by kind, measured and expected.

    `steps` has one entry as built (no lengths), then one for each number of different lengths served: `held` with the
    longest served last, `kept` after a `reset`. Variants whose modules keep tensors need a fresh process.
    """
    bench = worker.benches[workload]
    checkpoint, work = bench.checkpoint, bench.workload
    assert checkpoint is not None
    positions = (work.context + longest_call(work), bench.max_length)
    before = live_tensors()
    found = runners.variant_of(worker, variant)
    if found.engine is not None:
        raise WorkerError("an engine's tensors are not torch's: of its memory only the resident part is known")
    policy = found.memory
    sizes = {"item_bytes": bench.dtype.itemsize, "batch": work.batch}

    def by_kind(built: frozenset[int]) -> dict[str, int]:
        return bytes_by_kind(tensors_since(before), checkpoint.config, lengths=positions, built=built)

    def step(lengths: list[int], held: dict[str, int], kept: dict[str, int]) -> dict[str, Any]:
        entry: dict[str, Any] = {"lengths": lengths, "held": held, "kept": kept, "computed": None}
        if policy is not None:
            room, context, chunk = bench.max_length, work.context, work.chunk
            computed = expected(
                policy, checkpoint.config, lengths, max_length=room, context=context, chunk=chunk, **sizes
            )
            entry["computed"] = asdict(computed)
        return entry

    with torch.inference_mode():
        runner = runner_of(worker, bench, found)
        if not isinstance(runner, PrefillRunner):
            raise WorkerError(f"memory is swept over lengths of prefill workloads; {workload} is {work.kind}")
        built = frozenset(tensors_since(before))
        as_built = by_kind(built)
        steps = [step([], as_built, as_built)]
        for lengths in _serve(runner, bench, worker.device):
            held = by_kind(built)
            runner.model.reset()
            steps.append(step(lengths, held, by_kind(built)))
    return {"kv_bytes": kv_bytes(checkpoint.config, positions=positions[0], **sizes), "steps": steps}


def memory_transients(worker: Worker, workload: str, variant: str) -> list[dict[str, int]]:
    """Peak bytes of one call above what lives, at the longest length, its half, quarter and eighth."""
    bench = worker.benches[workload]
    longest = longest_call(bench.workload)
    with torch.inference_mode():
        runner = runner_of(worker, bench, runners.variant_of(worker, variant))
        return [
            {"tokens": length, "peak_bytes": _peak_of_call(runner, bench, length, worker.device)}
            for length in dict.fromkeys(longest // part for part in (1, 2, 4, 8) if longest >= part)
        ]


def _serve(runner: Runner, bench: Bench, device: Device) -> Iterator[list[int]]:
    """Serve 1, 2, 4, ... different lengths, the longest last each time; ends early where memory gets short."""
    longest = longest_call(bench.workload)
    start = device.held_bytes()
    served: set[int] = set()
    for count in doublings(longest):
        # Twice as many lengths, none longer, hold at most twice as much, here and in the process beside this one.
        if 2 * (device.held_bytes() - start) > device.available_bytes():
            return
        lengths = served_lengths(longest, count)
        for length in [*(length for length in lengths[:-1] if length not in served), longest]:
            runner.prepare(length, bench.take(), 1)
            runner.call()
        served.update(lengths)
        yield lengths


def _peak_of_call(runner: Runner, bench: Bench, length: int, device: Device) -> int:
    """What one warmed-up call allocates above what lives, at its peak.

    A KV cache that grows by concatenation is made anew within the call, and counts.
    """
    # Warmed up twice, or the first variant pays for one-off buffers of the whole process.
    for _ in range(2):
        runner.prepare(length, bench.take(), 1)
        runner.call()
    gc.collect()
    runner.prepare(length, bench.take(), 1)
    return device.peak_bytes(runner.call)


VERBS = {verb.__name__: verb for verb in (memory, memory_peak, memory_held, memory_transients)}
