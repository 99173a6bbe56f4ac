"""The verb `block`: a pair of variants in two processes that take turns on one core, a few milliseconds each.

A machine's noise changes within milliseconds to seconds. Where one variant is sampled after the other, that gets into
their ratio. The scheduler switches between two busy processes on one core every few milliseconds, so that both meet
nearly the same noise. A control may be a third. For each block all are forked from this process, which has torch and
the checkpoint loaded, and build their variants anew, as a round does.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import random
import select
import signal
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from secrets import choice, randbelow, token_hex  # not the run's seed, which a variant could know
from time import perf_counter_ns, sleep  # bound before any foreign code is imported
from typing import Any, NamedTuple, NoReturn, Union

from llama_workbench.datasets.lengths import call_lengths, warmup_length

from ..machine.lifeline import end_with
from ..spec.sample import RoundAnswer, Sample
from .channel import INTRUDES, raised_by
from .rounds import OpenRound, RoundShape, rebuilt, shape_of_round
from .state import Worker

WAIT_SECONDS = 0.0005  # between two looks whether the others are ready
DROPPED_SHARE, MOST_DROPPED_NS = 0.1, 200_000_000  # of a block, at its beginning
JUDGED_BLOCKS = 4  # judging an output takes longer than computing it, and our own code passed its gates

PIPE_NUMBER = 300
"""The answer's pipe gets a number from here on, which code that counts through file numbers does not reach soon."""


class TimedSample(NamedTuple):
    """A sample, and the wall clock at its beginning and end (ns)."""

    begun: int
    ended: int
    sample: Sample


@dataclass(frozen=True)
class Side:
    """What one of the processes answers. prompts: how many it used. The rest as in the answer of a round."""

    samples: list[TimedSample]
    prompts: int
    drawn: list[dict[str, Any]]
    changed: dict[str, str]
    elsewhere: dict[str, str]
    by_wall: list[str]
    facts: dict[str, Any]


class Child(NamedTuple):
    """A process of a block, and the pipe by which it answers with one line that begins with its token."""

    name: str
    pid: int
    pipe: int
    token: str


@dataclass(frozen=True)
class Block:
    """A block before it begins. order: its variants at random; built_on: the core on which each is built and warmed up;
    core: the one on which all are sampled; ready: a byte for each, set once it is warm."""

    worker: Worker
    workload: str
    round_index: int
    order: Sequence[str]
    seconds: float
    built_on: Sequence[int]
    core: int
    outputs: str
    ready: mmap.mmap

    def begin(self, place: int) -> Child:
        """Fork the process of one side."""
        read, write = os.pipe()
        parent, token = os.getpid(), token_hex(16)
        if child := os.fork():
            os.close(write)
            return Child(self.order[place], child, read, token)
        end_with(parent)
        self._live(place, write, token)

    def _live(self, place: int, pipe: int, token: str) -> NoReturn:
        try:
            os.dup2(pipe, number := PIPE_NUMBER + place, inheritable=False)
            os.sched_setaffinity(0, {self.built_on[place]})
            answer: Any = self.side(place).__dict__
        except BaseException as error:
            answer = raised_by(error)
        rest = f"{token} {json.dumps(answer)}".encode()
        while rest:
            rest = rest[os.write(number, rest) :]
        os._exit(0)

    def side(self, place: int) -> Side:
        """Build the variant, wait for the others, and sample until the time is over."""
        worker, bench, name = self.worker, self.worker.benches[self.workload], self.order[place]
        worker.watch.accept()  # this process is another one, on one core
        worker.watch.beside_foreign = any(map(worker.is_outside, self.order))
        call_ns = {each: bench.subjects[each].call_ns for each in self.order}
        times: dict[str, Any] = {"sample_ns": worker.device.sample_ns, "rebuild_ns": 0.0, "make_ns": bench.make_ns}
        repeats = shape_of_round(bench.workload, call_ns, once=bench.once, **times).repeats
        [length] = call_lengths(bench.workload, round_index=self.round_index, count=1, seed=bench.seed)
        drawn, first_prompt = bench.kind.drawn(1), bench.take(0)
        warm = warmup_length(bench.workload, lengths=[length])
        this = OpenRound(worker, bench, [name], RoundShape(1, repeats, prime=False), drawn, warm)
        samples: list[TimedSample] = []
        with rebuilt(worker, random.Random(f"{name} {self.round_index}"), {name: -1}, this.build, bench) as built:
            if self.built_on[place] != self.core:
                os.sched_setaffinity(0, {self.core})
                worker.watch.accept()
            self.ready[place] = 1
            while not all(self.ready[:]):
                sleep(WAIT_SECONDS)
            end = perf_counter_ns() + int(self.seconds * 1e9)
            while (begun := perf_counter_ns()) < end and not this.changed:
                this.sample(len(samples), length, built)
                samples.append(TimedSample(begun, perf_counter_ns(), this.samples[-1]))
            this.places.clear()
            this.changed.update(bench.kind.wrong(bench, built.runners))
            gc.freeze()  # this process ends: nobody needs what collecting garbage would give back
        return Side(
            samples=samples,
            prompts=bench.take(0) - first_prompt,
            drawn=drawn.write(Path(f"{self.outputs}.{place}")) if self.outputs and drawn is not None else [],
            changed=this.changed,
            **worker.seen([name]),
        )


def measure_block(
    worker: Worker, workload: str, round_index: int, sides: Sequence[str], seconds: float, limit: float, outputs: str
) -> RoundAnswer:
    """Run variants against each other for so many seconds. The answer has one sample of each: what it did in the time
    in which all computed. A side whose process dies, or has not answered after `limit` seconds, is named under
    "changed"."""
    bench = worker.benches[workload]
    rng = random.Random(f"block {bench.seed} {workload} {worker.process} {round_index}")
    order, cores = rng.sample(list(sides), len(sides)), sorted(os.sched_getaffinity(0))
    rng.shuffle(cores)
    built_on = cores_to_build_on(cores, len(order), foreign=any(map(worker.is_outside, sides)))
    with mmap.mmap(-1, len(order)) as ready:
        block = Block(worker, workload, round_index, order, seconds, built_on, cores[0], outputs, ready)
        answers = _answers([block.begin(place) for place in range(len(order))], ready, seconds + limit)
    right = {name: each for name, each in answers.items() if isinstance(each, Side)}
    failures = {name: each for name, each in answers.items() if isinstance(each, Failure)}
    intruding = {name: each.reason for name, each in failures.items() if each.intrudes}
    judged = bool(outputs) and bench.checkpoint is not None
    bench.take(max((side.prompts for side in right.values()), default=0))
    kept = [side.drawn if isinstance(side := answers[name], Side) else [] for name in order]
    # Of all foreign code, and in one of JUDGED_BLOCKS blocks of one side of any kind.
    looked_at = {name for name in right if worker.is_outside(name)}
    looked_at |= {choice(sorted(right))} if right and not randbelow(JUDGED_BLOCKS) else set()
    drawn = bench.kind.joined(outputs, kept, looked_at) if judged else []
    return RoundAnswer(
        samples=tuple(in_common([side.samples for side in right.values()])) if len(right) == len(order) else (),
        drawn=tuple(drawn),
        failed={name: each.reason for name, each in failures.items() if not each.intrudes},
        changed=intruding | _merged(side.changed for side in right.values()),
        elsewhere=_merged(side.elsewhere for side in right.values()),
        by_wall=[name for side in right.values() for name in side.by_wall],
        facts={name: seen for side in right.values() for name, seen in side.facts.items()},
    )


def cores_to_build_on(cores: Sequence[int], sides: int, *, foreign: bool) -> list[int]:
    """The core for each side while it is built and warmed up; the first of `cores` is the one on which all sample.
    Sides of ours are built at the same time. Foreign code might leave threads behind on another core."""
    spread = cores[:1] if foreign else cores
    return [spread[place % len(spread)] for place in range(sides)]


class Failure(NamedTuple):
    """Why a process found nothing. intrudes: it wrote into the pipe, and did not only end, hang or raise."""

    reason: str
    intrudes: bool = False


Answer = Union[Side, Failure, None]
"""What a process found, or why it found nothing; None where that is the other's fault."""


def _answers(children: Sequence[Child], ready: mmap.mmap, limit: float) -> dict[str, Answer]:
    """By variant, the answer of its process. All processes have ended then."""
    content = dict.fromkeys(children, b"")
    end = perf_counter_ns() + int(limit * 1e9)
    with ExitStack() as pipes:
        for child in children:
            pipes.callback(os.close, child.pipe)
        open_ = {child.pipe: child for child in children}
        while open_ and (left := (end - perf_counter_ns()) / 1e9) > 0:
            for pipe in select.select(list(open_), [], [], left)[0]:
                if chunk := os.read(pipe, 1 << 20):
                    content[open_[pipe]] += chunk
                else:
                    ready[children.index(open_.pop(pipe))] = 1  # the other must not wait for one that died
        hanging = [place for place, child in enumerate(children) if child.pipe in open_]
        # One that waits for the other to get ready does not hang.
        guilty = [place for place in hanging if not ready[place]] or hanging
        for place in hanging:
            os.kill(children[place].pid, signal.SIGKILL)
    answers = {child.name: _answer(child, content[child]) for child in children}
    stopped = {place: Failure(f"hangs: no answer in {limit:.0f} s") if place in guilty else None for place in hanging}
    return answers | {children[place].name: reason for place, reason in stopped.items()}


def _answer(child: Child, content: bytes) -> Answer:
    """What the process found, or why it did not; waits until it has ended."""
    _, status = os.waitpid(child.pid, 0)
    if not content:
        code = os.waitstatus_to_exitcode(status)
        killed = f"kills its process ({signal.Signals(-code).name})" if code < 0 else ""
        return Failure(killed or f"ends its process (exit code {code})")
    token, _, text = content.partition(b" ")
    if token != child.token.encode():
        return Failure(INTRUDES, intrudes=True)
    answer = json.loads(text)
    if isinstance(answer, str):
        return Failure(answer)
    samples = [TimedSample(begun, ended, Sample(*sample)) for begun, ended, sample in answer.pop("samples")]
    return Side(samples=samples, **answer)


def in_common(sides: Sequence[Sequence[TimedSample]], dropped: float = DROPPED_SHARE) -> list[Sample]:
    """What each side did in the time in which all sides sampled, as one sample; none where one did less than a call.

    The first part of that time is `dropped`: there the sides have only begun to take turns.

    A sample that lies in it in part counts for that part, so that all sides cover the same time: where whole calls
    alone count, what disturbs the machine at either end meets one side and not the other. The times are scaled down to
    a whole number of calls. Calls are summed, and not their median taken, so that a slow stretch counts for all as long
    as it lasted. The wall time is without what the others computed meanwhile."""
    if not all(sides):
        return []
    begun, ended = max(side[0].begun for side in sides), min(side[-1].ended for side in sides)
    begun += min(int(dropped * (ended - begun)), MOST_DROPPED_NS)
    parts = [[(_part(each, begun, ended), each.sample) for each in side] for side in sides]
    calls = [sum(part * sample.repeats for part, sample in side) for side in parts]
    if min(calls) < 1:
        return []
    cpu_ns = [sum(part * sample.cpu_ns for part, sample in side) for side in parts]
    sums = []
    for position, side in enumerate(parts):
        whole = int(calls[position] + 1e-9)
        scale = whole / calls[position]
        cpu = cpu_ns[position]
        wall = max(sum(part * sample.wall_ns for part, sample in side) - (sum(cpu_ns) - cpu), cpu)
        faults = sum(part * sample.faults for part, sample in side)
        totals = (round(scale * each) for each in (cpu, wall, faults))
        sums.append(Sample(side[0][1].variant, 0, position, side[0][1].tokens, whole, *totals))
    return sums


def _part(timed: TimedSample, begun: int, ended: int) -> float:
    """How much of a sample lies between the two times, from 0 to 1."""
    return max(0, min(ended, timed.ended) - max(begun, timed.begun)) / (timed.ended - timed.begun)


def _merged(reasons: Iterable[dict[str, str]]) -> dict[str, str]:
    return {name: reason for each in reasons for name, reason in each.items()}
