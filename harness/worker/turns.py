"""Verbs of a process that runs one side of a comparison: the other side has another process.

`turns` makes the samples of a round, each when the parent says so. `answers` leaves answers in a file, and
`differences_of_answers` compares those of two processes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from llama_workbench.datasets.lengths import call_lengths, warmup_length

from ..calls import carried
from ..calls.called import refused
from ..spec.answer import RoundAnswer
from .channel import in_one_line
from .rounds import OpenRound, RoundShape, rebuilt, shape_of_round
from .state import Worker

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
    """The samples of one side in a round: one each time that the parent lets it go, until it says `stop`.

    call_ns: of a call of each side, and make_ns: of making an input. They decide how many calls a sample has, the same
    number for both sides. core: on which all sides compute; None: on any. way and pool_size: see `calls.pool`.
    """
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
    this = OpenRound(
        worker, bench, [variant], shape, bench.kind.drawn(1), warmup_length(bench.workload, lengths=[length])
    )
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
    odd = refused(bench.called, wrong)
    seen = worker.seen([variant])
    return RoundAnswer(tuple(this.samples), wrong, odd, changed=this.changed, pooled=this.pooled(), **seen)


def answers(worker: Worker, workload: str, variant: str, seeds: Sequence[int], file: str) -> dict[str, Any]:
    """Leave the variant's answers to the inputs of these seeds in a file.

    `inputs`: a digest of each; `refused`: why the answers cannot be written, else empty.
    """
    bench = worker.benches[workload]
    with worker.modes_of(bench):
        returned, inputs = bench.called[variant].answers(seeds)
        digests = [carried.digest(each) for each in inputs]
        refused = ""
        try:
            carried.write(Path(file), returned)
        except carried.NotCarried as error:
            refused = str(error)
    return {
        "inputs": digests,
        "refused": refused,
    }


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
