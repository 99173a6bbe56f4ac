"""The verb `roofline`: this machine's peak kernels and the variants, sampled side by side."""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Mapping, Sequence
from time import perf_counter  # bound before any foreign code is imported
from typing import Any

import torch

from llama_workbench.datasets.workloads import DECODE_ROOM, call_lengths, warmup_length

from ...spec.sample import Sample
from ...worker.round_loop import rebuilt
from ...worker.rounds import FILLED_NS, PRIME_NS, SHORT_SAMPLE_NS
from ...worker.runners import Runner, runner_of
from ...worker.state import Bench, Worker, WorkerError
from .kernels import PeakKernel, fastest_product, fastest_read
from .work import products, weight_bytes, work_of_call

SAMPLE_NS, LEAST_ROUNDS, MOST_ROUNDS = 5_000_000, 6, 40
"""A sample lasts at least this long. There are so few or many rounds, whatever the time."""

MATMUL, MEMORY = "@matmul", "@memory"
"""No variant can have these names: a function's name has no @."""


class KernelRunner(Runner):
    """A kernel that shows what this machine can do, with operands of its own."""

    def __init__(self, kernel: PeakKernel) -> None:
        self.asked = []
        self.call = kernel.build()  # type: ignore[method-assign]

    def prepare(self, length: int, prompt: int, repeats: int) -> None:
        pass


def roofline(worker: Worker, workload: str, variants: list[str], seconds: float) -> dict[str, Any]:
    """Samples of both peak kernels and of all variants, in the form of `roofline.Record`; about `seconds`."""
    bench = worker.benches[workload]
    assert bench.checkpoint is not None
    if bench.gate_prompt.device.type != "cpu":
        raise WorkerError("the roofline is measured on the CPU only")
    config, work, item_bytes = bench.checkpoint.config, bench.workload, bench.dtype.itemsize
    weights = weight_bytes(config, item_bytes=item_bytes)
    worker.mark(-1)
    with torch.inference_mode():
        kernels = {MATMUL: fastest_product(products(config, work), bench.dtype), MEMORY: fastest_read(weights)}
    begun = perf_counter()
    _round(worker, bench, variants, kernels, 0)
    fitting = seconds / (perf_counter() - begun)
    # From a round that does not count, so that the measured times cannot decide how long they are measured.
    rounds = round(min(max(fitting, LEAST_ROUNDS), MOST_ROUNDS))
    of_kernels: list[list[Any]] = []
    of_variants: list[list[Any]] = []
    for number in range(1, rounds + 1):
        for one in _round(worker, bench, variants, kernels, number):
            times = [one.repeats, one.cpu_ns, one.wall_ns]
            if one.variant in kernels:
                of_kernels.append([one.variant[1:], number, one.sub_round, *times])
            else:
                of_variants.append([one.variant, number, one.sub_round, one.tokens, *times])
    return {
        "rounds": rounds,
        "roofs": {name[1:]: {"kernel": kernel.kernel, "amount": kernel.amount} for name, kernel in kernels.items()},
        "weight_bytes": weights,
        "work": {
            length: [
                [one.flops, one.nbytes] for one in work_of_call(config, work, tokens=length, item_bytes=item_bytes)
            ]
            for length in sorted({row[3] for row in of_variants})
        },
        "roof_samples": of_kernels,
        "samples": of_variants,
    }


def _round(
    worker: Worker, bench: Bench, variants: Sequence[str], kernels: Mapping[str, PeakKernel], number: int
) -> list[Sample]:
    work = bench.workload
    rng = random.Random(f"roofline {bench.seed} {work.name} {worker.process} {number}")
    call_ns = {name: bench.subjects[name].call_ns for name in variants}
    call_ns |= {name: float(kernel.call_ns) for name, kernel in kernels.items()}
    repeats = _repeats(bench, call_ns, variants)
    slowest_ns = max(repeats[name] * call_ns[name] for name in call_ns)
    count = 1 if slowest_ns >= SHORT_SAMPLE_NS else 3 if slowest_ns >= FILLED_NS else 5
    lengths = call_lengths(work, round_index=number, count=count, seed=bench.seed)
    warm_length = warmup_length(work, lengths=lengths)

    def build(name: str) -> Runner:
        is_kernel = name in kernels
        runner = KernelRunner(kernels[name]) if is_kernel else runner_of(worker, bench, bench.subjects[name].variant)
        runner.prepare(warm_length, bench.take(), 1)
        runner.call()
        return runner

    samples: list[Sample] = []
    places = {name: index for index, name in enumerate(variants)} | dict.fromkeys(kernels, -1)
    with rebuilt(worker, rng, places, build) as built:
        gc.collect()
        for sub_round, length in enumerate(lengths):
            for position, name, runner in built.turns():
                calls = repeats[name] if runner.counts_as == 1 else 1
                # A peak is that of a warm kernel, whatever came before it.
                prime = name in kernels or (call_ns[name] < PRIME_NS and not bench.once and runner.counts_as == 1)
                runner.prepare(length, bench.take(calls + prime), calls + prime)
                if prime:
                    runner.call()
                spent = worker.device.sample(runner, calls)
                wall_ns = spent.wall_ns - runner.uncounted_ns
                repeated = calls * runner.counts_as
                samples.append(Sample(name, sub_round, position, length, repeated, spent.cpu_ns, wall_ns, 0))
    return samples


def _repeats(bench: Bench, call_ns: Mapping[str, float], variants: Sequence[str]) -> dict[str, int]:
    """Calls in a sample."""
    repeats = {name: math.ceil(SAMPLE_NS / each_ns) for name, each_ns in call_ns.items()}
    if bench.once or bench.workload.kind == "generate":
        repeats |= dict.fromkeys(variants, 1)
    if bench.workload.kind == "decode":
        repeats |= {name: min(repeats[name], DECODE_ROOM - 2) for name in variants}
    return repeats


VERBS = {"roofline": roofline}
