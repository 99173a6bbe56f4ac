"""The verb `alternate`: both sides of a comparison called in turns, for a profiler that watches from outside."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter  # bound before any foreign code is imported

from llama_workbench.datasets.lengths import DECODE_ROOM, call_lengths, warmup_length

from .round_loop import Rebuilt, rebuilt
from .rounds import MOST_MAKING_NS, OpenRound, RoundShape
from .runners import Runner
from .state import Bench, Worker

TURN_NS = 20_000_000
"""About how long a turn is: long beside a sample of the profiler, short beside what the machine does meanwhile."""

MOST_CALLS = 10_000

MOST_WAIT = 3
"""Where inputs are dear, it ends after so many times the seconds."""


def alternate(worker: Worker, workload: str, baseline: str, variant: str, seconds: float) -> dict[str, int]:
    """Call both sides in turns, once the parent says that its profiler watches: for so long, without what makes their
    inputs. The calls of each.

    The inputs of a turn are made before it: what is called then lies below `baseline_turn` or `variant_turn`.
    """
    bench, sides = worker.benches[workload], (baseline, variant)
    shape = RoundShape(1, {name: _calls(bench, name) for name in sides}, prime=False)
    turns: Mapping[str, Callable[[Runner, int], None]] = {baseline: baseline_turn, variant: variant_turn}
    calls = dict.fromkeys(sides, 0)
    with built_sides(worker, workload, shape) as (this, length, built):
        worker.wait()
        taken, begun = 0.0, perf_counter()
        while not all(calls.values()) or (taken < seconds and perf_counter() - begun < MOST_WAIT * seconds):
            prompts = this.prompts(shape.most_calls)
            for _, name, runner in built.turns():
                count = shape.repeats[name] if runner.counts_as == 1 else 1
                runner.prepare(length, prompts[name], count)
                begin = perf_counter()
                turns[name](runner, count)
                taken += perf_counter() - begin
                calls[name] += count
    return calls


@contextmanager
def built_sides(worker: Worker, workload: str, shape: RoundShape) -> Iterator[tuple[OpenRound, int, Rebuilt[str]]]:
    """The sides that a shape names, built and warm: with the round that has their inputs, and the tokens of a call."""
    bench, sides = worker.benches[workload], [*shape.repeats]
    [length] = call_lengths(bench.workload, round_index=0, count=1, seed=bench.seed)
    this = OpenRound(worker, bench, sides, shape, bench.kind.drawn(1), warmup_length(bench.workload, lengths=[length]))
    rng = random.Random(f"alternate {bench.seed} {workload} {worker.process}")
    with rebuilt(worker, rng, {name: index for index, name in enumerate(sides)}, this.build, bench) as built:
        yield this, length, built


def baseline_turn(runner: Runner, count: int) -> None:
    """A turn of the one side. A profile tells the two apart by the names of these functions."""
    runner.many(count)


def variant_turn(runner: Runner, count: int) -> None:
    """A turn of the other."""
    runner.many(count)


def _calls(bench: Bench, name: str) -> int:
    """Calls of a side in a turn: each side has about the same time, and so as many samples as the other."""
    if bench.once or bench.workload.kind == "generate":
        return 1
    most = DECODE_ROOM // 2 if bench.workload.kind == "decode" else MOST_CALLS
    if bench.make_ns:
        most = max(1, min(most, MOST_MAKING_NS // bench.make_ns))
    return max(1, min(most, round(TURN_NS / bench.subjects[name].call_ns)))
