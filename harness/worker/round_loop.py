"""The loop of every round: all sides rebuilt in random order, then sampled in turns, each time in a new random order.

A side is whatever takes turns: a variant, its instrumented twin, or a kernel. What is built and what a sample is, the
caller decides. `rebuilt` opens a round, and `Rebuilt.turns` gives one sub-round.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from .runners import Runner
from .state import Bench, Worker

Side = TypeVar("Side")

MOST_PADDING_BYTES = 1 << 18


@dataclass(frozen=True)
class Rebuilt(Generic[Side]):
    """All sides of a round, built. places: as in `rebuilt`."""

    worker: Worker
    rng: random.Random
    places: Mapping[Side, int]
    runners: dict[Side, Runner]

    def turns(self) -> Iterator[tuple[int, Side, Runner]]:
        """One sub-round: position, side and runner of every side, in random order.

        Keeping compared variants adjacent would lower the spread of a difference by a third, but a variant with many
        partners would have other neighbours than its twin: A/A controls on µs operations showed that (0.4 %).
        """
        for position, side in enumerate(self.rng.sample(list(self.places), len(self.places))):
            self.worker.mark(self.places[side])
            yield position, side, self.runners[side]


@contextmanager
def rebuilt(
    worker: Worker,
    rng: random.Random,
    places: Mapping[Side, int],
    build: Callable[[Side], Runner],
    bench: Bench | None = None,
) -> Iterator[Rebuilt[Side]]:
    """Build all sides anew in random order; within the block they live, and in a calm process automatic garbage
    collection is off.

    places: side → place of its variant in the parent's command (see `Worker.mark`), -1 for none. `build` also warms.
    bench: of any functions, which are called in other modes of torch than models (see `Worker.modes_of`).
    """
    runners: dict[Side, Runner] = {}
    padding: list[object] = []
    with worker.modes_of(bench):
        for side in rng.sample(list(places), len(places)):
            worker.mark(places[side])
            # Memory placement of one build biases a ratio by 0.2-0.3 % for as long as the build lives: move it.
            size = rng.randrange(1, MOST_PADDING_BYTES)
            padding.append(worker.device.padding(size))
            runners[side] = build(side)
        if worker.calm:
            gc.disable()
        try:
            yield Rebuilt(worker, rng, places, runners)
        finally:
            if worker.calm:
                gc.enable()
            worker.mark(-1)
    runners.clear()
    padding.clear()
    gc.collect()
