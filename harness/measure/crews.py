"""Rounds in which each side computes in a process of its own, which is begun anew for every round.

Two environments need two processes, and so do sides of which one would change how the other runs. Two processes of the
very same code differ in time by up to some percent: their memory lies elsewhere, and so do the keys of their dicts.
That stays as long as they live, and no number of samples averages it out. So a round is a pair of fresh processes, and
the interval over rounds holds what processes differ by. Within a round they take turns of some milliseconds on one
core; the other waits idle.
"""

from __future__ import annotations

import math
import os
import random
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from llama_workbench.datasets.lengths import least_calls
from llama_workbench.variants import FUNCTION_YARDSTICK

from ..calls.called import SELDOM
from ..calls.inputs import AGAIN, CHEAP_SHARE, COPIED, NEW, InputCosts, pool_size
from ..spec.sample import RoundAnswer, Sample
from ..stats.means import student_quantile
from ..worker.channel import INTRUDES
from .participants import ExperimentState, Setting
from .processes import ASKING_SECONDS, WorkerFailed, WorkerProcess

LEAST_TURNS, MOST_TURNS = 5, 201

LONG_SECONDS = 4.0
"""Where the least turns would take longer, there are fewer, down to one."""

TURN_SECONDS = 30.0
"""A side that has not answered after this long, and 20 times what its calls should take, hangs."""

SEEDS = 1 << 32

LEAST_GAIN, GAIN_CHANCE, LEAST_LEFT = 0.03, 0.001, 0.001
"""A side remembers its inputs if an input given again saves it so much more of a call of the fastest side than it saves
the baseline, and by chance that much is seen no more often than the second. Less is the processor's: a mean of a
hundred floats takes some tens of nanoseconds more where it is the first that reads them. The third is the least part of
a call that is told to be left."""

Name = TypeVar("Name")


@dataclass(frozen=True)
class Crew:
    """The processes of a round, of this number; `members` by the side that each runs. folder: for their answers.
    opened: what ends them."""

    setting: Setting
    book: ExperimentState
    index: int
    names: Sequence[str]
    members: Mapping[str, WorkerProcess]
    folder: Path
    opened: ExitStack

    def take_turns(self, seconds: float) -> RoundAnswer:
        """Samples of all sides, one after the other, for so many seconds."""
        workload, call_ns = self.book.experiment.workload, {name: self.book.call_ns[name] for name in self.names}
        single_calls = least_calls(workload.statistic)
        least = single_calls or max(min(LEAST_TURNS, int(LONG_SECONDS * 1e9 / sum(call_ns.values()))), 1)
        limit = TURN_SECONDS + 20 * 60 * sum(call_ns.values()) / 1e9
        what = {"workload": workload.name, "round_index": self.book.begun, "call_ns": call_ns}
        make_ns = max(beside_ns(self.book, name) for name in self.names)
        what |= {"make_ns": make_ns, "core": self._core(), **inputs_told(self.book, seconds / len(self.names))}
        seldom = set() if single_calls else {FUNCTION_YARDSTICK}
        go: dict[str, Any] = {}
        order: list[list[str]] = []
        for name in self.names:
            with blamed(self.names, name):
                go[name] = self.members[name].ask_in_two("turns", limit, variant=name, **what)
        end = time.monotonic() + seconds
        while len(order) < least or (len(order) < MOST_TURNS and time.monotonic() < end):
            names = [name for name in self.names if not (name in seldom and len(order) % SELDOM)]
            order.append(shuffled(self.setting.seed, names, self.index, len(order)))
            for name in order[-1]:
                with blamed(self.names, name):
                    go[name]()
        whole = RoundAnswer()
        for name in self.names:
            with blamed(self.names, name):
                answer = RoundAnswer.from_json(go[name](stop=True))
            turns = [turn for turn, names in enumerate(order) if name in names]
            placed = [
                row._replace(sub_round=turns[row.sub_round], position=order[turns[row.sub_round]].index(name))
                for row in answer.samples
            ]
            if placed and not (workload.calm or single_calls):
                placed = [joined(placed, self.names.index(name))]
            whole = RoundAnswer(
                samples=(*whole.samples, *placed),
                wrong={**whole.wrong, **answer.wrong},
                refused=(*whole.refused, *answer.refused),
                changed={**whole.changed, **answer.changed} | ({name: INTRUDES} if self.members[name].noise() else {}),
                elsewhere={**whole.elsewhere, **answer.elsewhere},
                by_wall=(*whole.by_wall, *answer.by_wall),
                facts={**whole.facts, **answer.facts},
                pooled={**whole.pooled, **answer.pooled},
            )
        return whole

    def _core(self) -> int | None:
        """The core on which the sides of a round compute, another one for each; None where they may need several."""
        if not hasattr(os, "sched_getaffinity") or self.book.experiment.workload.threads > 1 or self.book.wall_variants:
            return None
        return random.Random(f"core {self.setting.seed} {self.index}").choice(sorted(os.sched_getaffinity(0)))

    def compared(self, count: int) -> dict[str, str]:
        """Let all sides answer so many inputs, and compare inputs and answers with the baseline's: side → why it is
        excluded."""
        what = {"workload": self.book.experiment.workload.name}
        seeds = [secrets.randbelow(SEEDS) for _ in range(count)]
        files = {name: str(self.folder / f"{place}.zip") for place, name in enumerate(self.names)}
        limit = ASKING_SECONDS + 20 * count * sum(self.book.call_ns.get(name, 0.0) for name in self.names) / 1e9
        said = {}
        for name in self.names:
            with blamed(self.names, name):
                said[name] = self.members[name].ask(
                    "answers", limit, variant=name, seeds=seeds, file=files[name], **what
                )
        wrong = {name: self._refused(each["refused"]) for name, each in said.items() if each["refused"]}
        baseline = self.book.experiment.baseline
        if baseline in wrong or baseline not in self.names:
            return wrong
        for name in self.names:
            if name == baseline or name in wrong:
                continue
            if said[name]["inputs"] != said[baseline]["inputs"]:
                wrong[name] = self._other_inputs()
                continue
            with blamed(self.names, baseline):
                sides = {"file": files[name], "expected": files[baseline], "variant": baseline}
                texts = self.members[baseline].ask("differences_of_answers", limit, **what, **sides)
            if differing := [(text, seed) for text, seed in zip(texts, seeds, strict=False) if text]:
                text, seed = differing[0]
                wrong[name] = f"{text} (input {self._payload()}, seed {seed})"
        return wrong

    def _payload(self) -> str:
        return self.setting.calls[self.book.experiment.workload.name].payload.shown

    def _refused(self, what: str) -> str:
        return (
            f"its answer cannot go from one process to another ({what}): give --check FILE:FUNCTION with a function of "
            "one answer, which returns what counts of it as plain data, arrays or tensors"
        )

    def _other_inputs(self) -> str:
        baseline = self.book.experiment.baseline
        return (
            f"{self._payload()} makes other inputs there than in the environment of {baseline}, for the same seed: "
            "another version of what draws them? Make them with Python's random, or read them from a file"
        )


def joined(samples: Sequence[Sample], position: int) -> Sample:
    """All samples of a side as one: what happens in one call of many, as a full collection of garbage does, counts for
    what it takes. A median over samples would leave it out."""
    sums = {name: sum(getattr(each, name) for each in samples) for name in ("repeats", "cpu_ns", "wall_ns", "faults")}
    return samples[0]._replace(sub_round=0, position=position, **sums)


@contextmanager
def blamed(names: Sequence[str], name: str) -> Iterator[None]:
    """Where a process fails in this block, that is the side `name`."""
    try:
        yield
    except WorkerFailed as failure:
        raise WorkerFailed(failure.reason, list(names).index(name)) from failure


def shuffled(seed: int, names: Sequence[Name], *what: object) -> list[Name]:
    """The names in an order that the run's seed and `what` decide."""
    return random.Random(f"turns {seed} {what}").sample(list(names), len(names))


# -- how the calls of functions are given their inputs, by what the gates of all sides learnt (see `calls.inputs`) ---


def inputs_told(book: ExperimentState, side_seconds: float) -> dict[str, Any]:
    """What a process that samples each side for so long is told. All sides of a round have as many inputs: more of them
    lie less in the processor's caches."""
    make_ns = max((learnt.get("make_ns", 0) for learnt in book.learnt.values()), default=0)
    return {"way": _way(book), "pool_size": pool_size(make_ns, side_seconds * 1e9)}


def beside_ns(book: ExperimentState, name: str) -> int:
    """What a call of a function takes beside it: to make its input, or a copy of one, 0 where it is given one again,
    and of a command what runs before and after it."""
    learnt, way = book.learnt[name], _way(book)
    made: int = learnt["copy_ns"] if way == COPIED else learnt["make_ns"]
    is_given_again = way == AGAIN or (learnt["one_input"] and not learnt["changes_inputs"])
    return made * (not is_given_again) + int(learnt["beside_ns"])


def note_remembering(book: ExperimentState) -> None:
    """Keep of each function by how much more it gains than the baseline where an input is given again."""
    costs = _costs(book)
    call_ns = min((book.call_ns[name] for name in costs), default=0.0)
    for name, side in costs.items():
        if more := gains_over(side, costs.get(book.experiment.baseline, side), call_ns):
            book.note_facts({name: {"gains_again": more}})


def gains_over(side: InputCosts, baseline: InputCosts, call_ns: float) -> float:
    """How much more (log units) a side gains than the baseline where an input is given again; 0 where that may be
    chance or the processor's doing, or nobody knows. call_ns: of the fastest side."""
    mine, other = side.again, baseline.again
    if mine is None or other is None:
        return 0.0
    squares = [(each.error_ns**2, each.freedom) for each in (mine, other)]
    whole = sum(square for square, _ in squares)
    freedom = whole**2 / sum(square**2 / free for square, free in squares) if whole else math.inf  # Welch's
    more = mine.gain_ns - other.gain_ns
    if abs(more) <= max(LEAST_GAIN * call_ns, student_quantile(freedom, 1 - GAIN_CHANCE / 2) * math.sqrt(whole)):
        return 0.0
    first_ns = mine.first_ns if more > 0 else other.first_ns
    return math.copysign(-math.log(max(1 - abs(more) / first_ns, LEAST_LEFT)), more)


def way_of(sides: Sequence[InputCosts], call_ns: float) -> str:
    """How calls are given their inputs, the same on all sides, of which the first is the baseline and the fastest takes
    `call_ns`."""
    if all(each.make_ns <= CHEAP_SHARE * call_ns for each in sides):
        return NEW
    if any(each.again is None or gains_over(each, sides[0], call_ns) for each in sides):
        return NEW
    if any(each.is_copied(call_ns) for each in sides):
        return COPIED if all(0 < each.copy_ns < each.make_ns for each in sides) else NEW
    return AGAIN


def _way(book: ExperimentState) -> str:
    costs = _costs(book)
    if not costs:
        return NEW
    baseline = book.experiment.baseline
    in_order = [costs[name] for name in sorted(costs, key=lambda name: name != baseline)]
    return way_of(in_order, min(book.call_ns[name] for name in costs))


def _costs(book: ExperimentState) -> dict[str, InputCosts]:
    """By function; none where models are measured."""
    names = book.remaining().variants if book.experiment.workload.kind == "call" else ()
    return {name: InputCosts.of(book.learnt[name]) for name in names if name in book.learnt}
