"""Verbs that look at one side, or at both in turns, beside the rounds: for profilers, how often lines run, memory, and
how fast a core is. They feed no time of a verdict."""

from __future__ import annotations

import gc
import math
import os
import random
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from time import (  # bound before any foreign code is imported
    perf_counter,
    perf_counter_ns,
    thread_time_ns,
)
from timeit import repeat
from typing import Any
from zipfile import BadZipFile

from llama_workbench.datasets.lengths import DECODE_ROOM, call_lengths, warmup_length

from ..calls import carried
from ..calls.called import refused
from ..spec.sample import RoundAnswer
from .channel import in_one_line
from .devices import Device
from .gating import Settings
from .rounds import MOST_MAKING_NS, OpenRound, Rebuilt, RoundShape, rebuilt, shape_of_round
from .state import Bench, Runner, Worker

# -- both sides in turns, for a profiler that watches from outside -----------------------------------------------------

TURN_NS = 20_000_000
"""About how long a turn is: long beside a sample of the profiler, short beside what the machine does meanwhile."""

MOST_CALLS = 10_000

MOST_WAIT = 3  # where inputs are dear, it ends after so many times the seconds


def alternate(worker: Worker, workload: str, baseline: str, variant: str, seconds: float) -> dict[str, int]:
    """Call both sides in turns, once the parent says that its profiler watches: for so long, without what makes their
    inputs. The calls of each. The inputs of a turn are made before it: what is called then lies below `baseline_turn`
    or `variant_turn`."""
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
                count = shape.repeats[name]
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
    this = OpenRound(worker, bench, sides, shape, None, warmup_length(bench.workload, lengths=[length]))
    rng = random.Random(f"alternate {bench.seed} {workload} {worker.process}")
    with rebuilt(worker, rng, {name: index for index, name in enumerate(sides)}, this.build, bench) as built:
        yield this, length, built


def baseline_turn(runner: Runner, count: int) -> None:
    """A turn of the one side. A profile tells the two apart by the names of these functions."""
    runner.many(count)


def variant_turn(runner: Runner, count: int) -> None:
    runner.many(count)


def _calls(bench: Bench, name: str) -> int:
    """Calls of a side in a turn: each side has about the same time, and so as many samples as the other."""
    if bench.once or bench.workload.kind == "generate":
        return 1
    most = DECODE_ROOM // 2 if bench.workload.kind == "decode" else MOST_CALLS
    if bench.make_ns:
        most = max(1, min(most, MOST_MAKING_NS // bench.make_ns))
    return max(1, min(most, round(TURN_NS / bench.subjects[name].call_ns)))


# -- how often each line runs: whether one takes the time because it runs often or takes long each time ----------------

MOST_EVENTS = 3_000_000  # lines that are watched in a call, some seconds: where there are more, none are told

OURS = str(Path(__file__).resolve().parents[1])


def line_runs(worker: Worker, workload: str, baseline: str, variant: str) -> dict[str, list[tuple[str, int, int]]]:
    """By side: (file, line, how often it ran in one call). Both get the same input; none of a side whose call has more
    than MOST_EVENTS."""
    roles = {baseline: "baseline", variant: "variant"}
    counts: dict[str, list[tuple[str, int, int]]] = {}
    shape = RoundShape(1, dict.fromkeys(roles, 1), prime=False)
    with built_sides(worker, workload, shape) as (this, length, built):
        prompts = this.prompts(shape.most_calls)
        for _, name, runner in built.turns():
            runner.prepare(length, prompts[name], 1)
            runs = counted(partial(runner.many, 1))
            counts[roles[name]] = [(file, line, count) for (file, line), count in runs.items()]
    return counts


def counted(call: Callable[[], Any]) -> dict[tuple[str, int], int]:
    """How often each line (file, number) ran, in the thread that calls; empty where there were too many."""
    runs: Counter[tuple[str, int]] = Counter()
    events = 0

    def on_line(frame: Any, event: str, argument: Any) -> Any:
        nonlocal events
        if event == "line":
            runs[frame.f_code.co_filename, frame.f_lineno] += 1
            events += 1
            if events > MOST_EVENTS:
                sys.settrace(None)
        return on_line

    def on_call(frame: Any, event: str, argument: Any) -> Any:
        return on_line if is_watched(frame.f_code.co_filename) else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        call()
    finally:
        sys.settrace(before)
    return {} if events > MOST_EVENTS else dict(runs)


@cache
def is_watched(file: str) -> bool:
    """Whether a file is neither Python's own nor ours, and a package only where it is not torch's or numpy's."""
    import sysconfig  # here, for every process of a run imports this module, and few count lines

    paths = sysconfig.get_paths()
    packages = paths["purelib"], paths["platlib"]
    if file.startswith(packages):  # which may lie within the library
        return not any(file.startswith((f"{folder}/torch/", f"{folder}/numpy/")) for folder in packages)
    return not file.startswith((paths["stdlib"], paths["platstdlib"], OURS, "<"))


# -- calls that a profiler watches from outside ------------------------------------------------------------------------


def loop(worker: Worker, workload: str, variant: str, seconds: float) -> dict[str, Any]:
    """Run a variant for a while. A profiler attaches while this waits, before the calls through `_profiled_call`: the
    parent counts samples below that alone."""
    bench = worker.benches[workload]
    tokens = bench.workload.tokens
    calls_ns: list[int] = []
    with worker.modes_of(bench):
        runner = bench.kind.runner(worker, bench, bench.subjects[variant].variant)

        for _ in range(2):
            runner.prepare(tokens, bench.take(), 1)
            runner.call()
        worker.wait()
        end = perf_counter() + seconds
        while perf_counter() < end or not calls_ns:
            _profiled_call(runner, tokens, bench.take(), calls_ns, worker.device.synchronise)
    return {"calls": len(calls_ns), "median_ns": statistics.median(calls_ns), "median_error_ns": median_error(calls_ns)}


def _profiled_call(
    runner: Runner, length: int, prompt: int, calls_ns: list[int], synchronise: Callable[[], None]
) -> None:
    """One call of the profiled loop; a function of its own so that a profile shows where calls begin."""
    runner.prepare(length, prompt, 1)
    start = perf_counter_ns()
    runner.call()
    synchronise()
    calls_ns.append(perf_counter_ns() - start)


def median_error(values: Sequence[int]) -> float | None:
    """Standard error of a median; None below five values. It is half the distance between the values sqrt(n) / 2 ranks
    below and above the middle. Calls that follow each other are not quite independent, so it is rather too small."""
    count = len(values)
    if count < 5:
        return None
    ordered, reach = sorted(values), math.sqrt(count) / 2
    low, high = (min(max(round((count - 1) / 2 + sign * reach), 0), count - 1) for sign in (-1, 1))
    return (ordered[high] - ordered[low]) / 2


# -- memory ------------------------------------------------------------------------------------------------------------


def peak(worker: Worker, workload: str, variant: str, keeps: bool) -> dict[str, int | None]:
    """Most bytes that one warmed-up call allocates at a time above what lives already, on the device; and, where asked
    (`keeps`), how many importing the function anew and calling it once leaves. What it sets of the collector is undone
    for the next one."""
    bench, settings = worker.benches[workload], Settings.now()
    try:
        with worker.modes_of(bench):
            runner = bench.kind.runner(worker, bench, bench.subjects[variant].variant)
            most = peak_of_call(runner, bench, bench.workload.tokens, worker.device)
            return {"peak_transient_bytes": most, "kept_bytes": kept(worker, bench, variant) if keeps else None}
    finally:
        settings.restore()


def kept(worker: Worker, bench: Bench, variant: str) -> int:
    """Bytes that a function keeps: those that importing its modules and a first call of it allocated, and that are
    still there once the call has returned. Its answer, caches that it fills and globals are among them. Calls before
    have filled only caches of the modules that were imported before, and loaded what libraries load."""
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


# -- how fast one core multiplies and reads: by numpy, which is as fast as torch, in a process without foreign code ----

SQUARE, BUFFER_BYTES, TRIES = 768, 128 << 20, 9


def roof(worker: Worker) -> dict[str, float]:
    """Operations and bytes a second: the best of a few calls, by the CPU time of this thread."""
    import numpy as np  # not there in every environment that a side may have

    matrix = np.ones((SQUARE, SQUARE), np.float32)
    buffer = np.ones((BUFFER_BYTES // (4 * SQUARE), SQUARE), np.float32)

    def rate(amount: int, *factors: Any) -> float:
        times = repeat(lambda: np.dot(*factors), timer=thread_time_ns, number=1, repeat=TRIES)
        return amount * 1e9 / max(min(times), 1)

    return {"flops": rate(2 * SQUARE**3, matrix, matrix), "bytes": rate(buffer.nbytes, buffer, matrix[0])}


# Verbs of a process that runs one side of a comparison: the other side has another process.
# `turns` makes the samples of a round, each when the parent says so. `answers` leaves answers in a file, and
# `differences_of_answers` compares those of two processes.


LEAST_SAMPLE_NS = 5_000_000
"""Of a turn: the scheduler gives a side about so long in a block, too. Waking up a process costs a fiftieth of it."""


def measure_in_turns(
    worker: Worker,
    workload: str,
    variant: str,
    round_index: int,
    call_ns: Mapping[str, float],
    make_ns: int,
    core: int | None,
    way: str,
    pool_size: int,
) -> RoundAnswer:
    """The samples of one side in a round: one each time that the parent lets it go, until it says `stop`. call_ns: of a
    call of each side, and make_ns: of making an input. They decide how many calls a sample has, the same number for
    both sides. core: on which all sides compute; None: on any. way and pool_size: see `calls.inputs`."""
    assert worker.channel is not None
    bench = worker.benches[workload]
    bench.give_inputs(way, pool_size)
    if core is not None:
        os.sched_setaffinity(0, {core})
        worker.watch.accept()
    worker.watch.beside_foreign = True
    times: dict[str, Any] = {"sample_ns": LEAST_SAMPLE_NS, "rebuild_ns": 0.0, "make_ns": make_ns}
    whole = shape_of_round(bench.workload, call_ns, once=bench.once, **times)
    [length] = call_lengths(bench.workload, round_index=round_index, count=1, seed=bench.seed)
    shape = RoundShape(1, {variant: whole.repeats[variant]}, whole.prime, whole.warm_ns)
    this = OpenRound(worker, bench, [variant], shape, None, warmup_length(bench.workload, lengths=[length]))
    rng = random.Random(f"turns {bench.seed} {workload} {worker.process}")
    with rebuilt(worker, rng, {variant: 0}, this.build, bench) as built:
        sub_round = 0
        while True:
            worker.channel.answer({"ready": True})
            said = worker.channel.receive()
            if said is None or said.get("stop"):
                break
            this.sample(sub_round, length, built)
            sub_round += 1
        wrong = bench.kind.wrong(bench, built.runners)
        this.places.clear()
    more = {"changed": this.changed, "pooled": this.pooled(), **worker.seen([variant])}
    return RoundAnswer(tuple(this.samples), wrong, refused(bench.called, wrong), **more)


def answers(worker: Worker, workload: str, variant: str, seeds: Sequence[int], file: str) -> dict[str, Any]:
    """Leave the variant's answers to the inputs of these seeds in a file. `inputs`: a digest of each; `refused`: why
    the answers cannot be written, else empty."""
    bench = worker.benches[workload]
    with worker.modes_of(bench):
        returned, inputs = bench.called[variant].answers(seeds)
        digests = [carried.digest(arguments) for arguments in inputs]
        refused = ""
        try:
            carried.write(Path(file), returned)
        except carried.NotCarried as error:
            refused = str(error)
    return {"inputs": digests, "refused": refused}


def differences_of_answers(worker: Worker, workload: str, variant: str, file: str, expected: str) -> list[str]:
    """Where each answer in `file` differs from the one in `expected`, which are this variant's; empty where none
    does."""
    bench = worker.benches[workload]
    try:
        theirs, ours = carried.read(Path(file)), carried.read(Path(expected))
    except (ValueError, KeyError, OSError, BadZipFile, TypeError, AttributeError) as error:
        return [f"its answers cannot be read: {in_one_line(error)}"]
    if len(theirs) != len(ours):
        return [f"{len(theirs)} answers for {len(ours)} inputs"]
    with worker.modes_of(bench):
        return [bench.called[variant].differs(got, right) for got, right in zip(theirs, ours)]
