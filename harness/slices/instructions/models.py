"""Calls of models, for a count: what of `counter` needs torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module

import torch

from llama_workbench import variants
from llama_workbench.datasets import geometries
from llama_workbench.datasets.lengths import call_lengths, warmup_length
from llama_workbench.variants import REFERENCE_BENCHMARK, Variant

from ...worker.correctness import small_weights
from ...worker.state import Bench, Worker
from .counter import SMALL_CALLS

WARM_CALLS = 1
"""Calls of the workload before the count: they fill caches. SMALL_CALLS of a tiny model before them, which cost next to
nothing, let Python specialise the variant's bytecode."""

WARM_BY = REFERENCE_BENCHMARK
"""Its call, before the forks, lets callgrind translate what all children execute: they share that."""


def import_variants(names: set[str]) -> None:
    """Import what builds these variants of ours, and the one that warms up."""
    for name in sorted(names | {WARM_BY}):
        if module := getattr(variants.get(name).build, "module", None):
            import_module(module, variants.__name__)


def nothing() -> None:
    """In place of a toggle: children would inherit what the parent collects."""


def call_model(worker: Worker, bench: Bench, entered: str, toggle: Callable[[], object], *, counted: int) -> None:
    """Build a variant anew, warm it up, and call it `counted` times between two toggles."""
    variant = bench.kind.variant(worker, bench, entered)
    with torch.inference_mode():
        _call_small(variant, bench)
        runner = bench.kind.runner(worker, bench, variant)
        lengths = call_lengths(bench.workload, round_index=0, count=counted, seed=bench.seed)
        for length, calls, counts in _blocks(bench, lengths):
            runner.prepare(length, bench.take(calls), calls)
            if counts:
                toggle()
            for _ in range(calls):
                runner.call()
            if counts:
                toggle()


def _call_small(variant: Variant, bench: Bench) -> None:
    """Calls of the variant's code on a model that is hardly there: prefills, and tokens after them."""
    config = geometries.get("tiny").config
    model = variant.build(config, small_weights(config, bench.dtype), max_length=SMALL_CALLS)
    tokens = torch.zeros(bench.workload.batch, SMALL_CALLS, dtype=torch.long)
    for step in range(1, SMALL_CALLS):
        model.reset()
        model.forward(tokens[:, :step], 0)
        model.forward(tokens[:, step : step + 1], step)


def _blocks(bench: Bench, lengths: Sequence[int]) -> Iterator[tuple[int, int, bool]]:
    """Calls that one `prepare` serves: (tokens of each, how many, whether they are counted)."""
    warm_length = warmup_length(bench.workload, lengths=lengths)
    if bench.once:
        yield from ((warm_length, 1, False) for _ in range(WARM_CALLS))
        yield from ((length, 1, True) for length in lengths)
    else:
        yield warm_length, WARM_CALLS, False
        yield lengths[0], len(lengths), True
