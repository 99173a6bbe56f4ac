"""The verb `roofline`: the two peak kernels of this machine and the variants, sampled side by side.

The kernels are the fastest of torch's own. Computing: a matrix product, square or in a shape of the workload itself.
Memory: reading a buffer as large as the weights that a forward reads, as a decode reads them (a matrix-vector product)
or as a plain sum. Which one is the fastest is decided before the rounds, so that no round can pick the luckiest.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter  # bound before any foreign code is imported
from timeit import repeat
from typing import Any

import torch
from torch import Tensor

from llama_workbench.datasets.lengths import DECODE_ROOM, call_lengths, warmup_length
from llama_workbench.datasets.workloads import Workload
from llama_workbench.variants import LlamaConfig
from llama_workbench.variants.memory_policy import kv_bytes

from ...machine.environment import last_level_cache_bytes
from ...metrics.roof import work_of_call, work_of_forward
from ...spec.sample import Sample
from ...worker.rounds import FILLED_NS, SHORT_SAMPLE_NS, is_primed, rebuilt
from ...worker.state import Bench, PlainRunner, Runner, Worker, WorkerError

SQUARES = (512, 768, 1024)
MOST_FLOPS, LEAST_ROWS = 2_000_000_000, 64
"""A product of the workload that takes more operations is timed with fewer rows, but no fewer than these."""

MOST_BYTES = 512 << 20
"""Size of the buffer, or four times the last-level cache: beyond, bandwidth no longer depends on the size."""

WIDTH = 4096
TRIES = 3


@dataclass(frozen=True)
class PeakKernel:
    """One kernel. `build` allocates its operands anew and gives the call, which does `amount` operations or bytes."""

    kernel: str
    amount: int
    build: Callable[[], Callable[[], Tensor]]
    call_ns: int = 0


def products(config: LlamaConfig, workload: Workload) -> list[tuple[int, int, int]]:
    """Shapes (rows, inner, columns) of the matrix products that the workload's longest forward has, each once."""
    longest = workload.chunk or workload.tokens
    rows, hidden, inner = workload.batch * longest, config.hidden_size, config.intermediate_size
    query = config.num_attention_heads * config.head_dim
    key = config.num_key_value_heads * config.head_dim
    shapes = [(rows, hidden, query), (rows, hidden, key), (rows, query, hidden), (rows, hidden, inner)]
    return list(dict.fromkeys([*shapes, (rows, inner, hidden), (workload.batch, hidden, config.vocab_size)]))


def weight_bytes(config: LlamaConfig, *, item_bytes: int) -> int:
    """Bytes of the weights that every forward reads: what `work_of_forward` counts beside keys and values."""
    forward = work_of_forward(config, tokens=1, positions=1, batch=1, item_bytes=item_bytes)
    return forward.nbytes - kv_bytes(config, positions=1, batch=1, item_bytes=item_bytes)


def fastest_product(shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype) -> PeakKernel:
    """The fastest matrix product of the squares and of `shapes` (rows, inner, columns), in operations a second."""
    squares = {(size, size, size): "square" for size in SQUARES}
    own = dict.fromkeys(map(_cut, shapes), "the workload's own")
    return _fastest([_matmul(*shape, dtype, whose) for shape, whose in (own | squares).items()])


def fastest_read(weight_bytes: int) -> PeakKernel:
    """The fastest way to read a buffer of that size (of float32; see MOST_BYTES), in bytes a second."""
    most = max(MOST_BYTES, 4 * (last_level_cache_bytes() or 0))
    count = max(1, min(weight_bytes, most) // 4)
    width = min(WIDTH, count)
    rows = count // width
    plain_sum = PeakKernel("sum", 4 * count, lambda: torch.ones(count).sum)
    product = PeakKernel(
        "matrix-vector product", 4 * rows * width, lambda: partial(torch.mv, torch.ones(rows, width), torch.ones(width))
    )
    return _fastest([plain_sum, product])


def _cut(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    rows, inner, columns = shape
    return min(rows, max(LEAST_ROWS, MOST_FLOPS // (2 * inner * columns))), inner, columns


def _matmul(rows: int, inner: int, columns: int, dtype: torch.dtype, whose: str) -> PeakKernel:
    def build() -> Callable[[], Tensor]:
        x, weight = torch.randn(rows, inner), torch.randn(columns, inner)  # [out, in], as a model has them
        return partial(torch.nn.functional.linear, x.to(dtype), weight.to(dtype))

    return PeakKernel(f"{rows} x {inner} x {columns}, {whose}", 2 * rows * inner * columns, build)


def _fastest(kernels: Sequence[PeakKernel]) -> PeakKernel:
    """The kernel with the most work a second, by the best of a few calls after an untimed one; with its time."""
    timed = []
    for kernel in kernels:
        call = kernel.build()
        call()
        best_ns = min(repeat(call, number=1, repeat=TRIES)) * 1e9
        timed.append(replace(kernel, call_ns=max(1, round(best_ns))))
    return max(timed, key=lambda kernel: kernel.amount / kernel.call_ns)


SAMPLE_NS, LEAST_ROUNDS, MOST_ROUNDS = 5_000_000, 6, 40
"""A sample lasts at least this long. There are so few or many rounds, whatever the time."""

MATMUL, MEMORY = "@matmul", "@memory"
"""No variant can have these names: a function's name has no @."""


def roofline(worker: Worker, workload: str, variants: list[str], seconds: float) -> dict[str, Any]:
    """Samples of both peak kernels and of all variants, in the form of `metric.Roofline`; about `seconds`."""
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
        for sample in _round(worker, bench, variants, kernels, number):
            times = [sample.repeats, sample.cpu_ns, sample.wall_ns]
            if sample.variant in kernels:
                of_kernels.append([sample.variant[1:], number, sample.sub_round, *times])
            else:
                of_variants.append([sample.variant, number, sample.sub_round, sample.tokens, *times])
    return {
        "rounds": rounds,
        "roofs": {name[1:]: {"kernel": kernel.kernel, "amount": kernel.amount} for name, kernel in kernels.items()},
        "weight_bytes": weights,
        "work": {
            length: work_of_call(config, work, tokens=length, item_bytes=item_bytes)
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
    repeats = {name: math.ceil(SAMPLE_NS / each_ns) for name, each_ns in call_ns.items()}
    if bench.once or work.kind == "generate":
        repeats |= dict.fromkeys(variants, 1)
    if work.kind == "decode":
        repeats |= {name: min(repeats[name], DECODE_ROOM - 2) for name in variants}
    slowest_ns = max(repeats[name] * call_ns[name] for name in call_ns)
    count = 1 if slowest_ns >= SHORT_SAMPLE_NS else 3 if slowest_ns >= FILLED_NS else 5
    warmed = is_primed(work, once=bench.once, slowest_ns=slowest_ns, parameter_bytes=bench.parameter_bytes)
    lengths = call_lengths(work, round_index=number, count=count, seed=bench.seed)
    warm_length = warmup_length(work, lengths=lengths)

    def build(name: str) -> Runner:
        if name in kernels:
            runner: Runner = PlainRunner(kernels[name].build())
        else:
            runner = bench.kind.runner(worker, bench, bench.subjects[name].variant)
        runner.prepare(warm_length, bench.take(), 1)
        runner.call()
        return runner

    samples: list[Sample] = []
    places = {name: index for index, name in enumerate(variants)} | dict.fromkeys(kernels, -1)
    with rebuilt(worker, rng, places, build) as built:
        gc.collect()
        for sub_round, length in enumerate(lengths):
            for position, name, runner in built.turns():
                calls = repeats[name]
                # A peak is that of a warm kernel, whatever came before it.
                prime = name in kernels or warmed
                runner.prepare(length, bench.take(calls + prime), calls + prime)
                if prime:
                    runner.call()
                spent = worker.device.sample(runner, calls)
                times = (spent.cpu_ns, spent.wall_ns - runner.uncounted_ns)
                samples.append(Sample(name, sub_round, position, length, calls, *times, 0))
    return samples


VERBS = {"roofline": roofline}
