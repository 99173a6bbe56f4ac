"""The verbs `round` and `block`: samples of all variants of a workload, with outputs for the examiner; and of a pair of
variants that take turns."""

from __future__ import annotations

import gc
import json
import math
import mmap
import os
import random
import resource
import select
import signal
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import choice, randbelow, token_hex  # not the run's seed, which a variant could know
from time import perf_counter_ns, sleep  # bound before any foreign code is imported
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar, Union

from llama_workbench.datasets.lengths import DECODE_ROOM, call_lengths, least_calls, warmup_length
from llama_workbench.variants import FUNCTION_REFERENCE

from ..calls.called import SELDOM, is_beside, refused
from ..calls.inputs import NEW
from ..machine.lifeline import end_with
from ..spec.comparison import EnteredName
from ..spec.sample import RoundAnswer, Sample
from .channel import INTRUDES, raised_by
from .devices import Spent
from .state import Bench, Runner, Worker
from .watch import THRESHOLDS

if TYPE_CHECKING:
    from torch import Tensor

    from llama_workbench.datasets.workloads import Workload

    from .model_gating import Drawn


# -- the loop of every round -------------------------------------------------------------------------------------------

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
        """One sub-round: position, side and runner of every side, in random order. Keeping compared variants adjacent
        would lower the spread of a difference by a third, but a variant with many partners would have other neighbours
        than its twin: A/A controls on µs operations showed that (0.4 %)."""
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
    bench: of any functions, which are called in other modes of torch than models (see `Worker.modes_of`)."""
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


LEAST_SAMPLING_NS, MOST_SAMPLING_NS = 10_000_000, 50_000_000
"""A round samples each variant for as long as its rebuilding took, within these bounds. What remains of the noise
within a round and between rounds then costs at most twice what the best split would."""

MOST_FOR_A_PROCESS_NS = 300_000_000
"""Of each variant, where its process took longer to begin: then a round samples for its part of that time."""

COMPONENT_FACTOR = 3
"""Parts of a layer, and any functions, are sampled so many times as long: their rounds spread no more than the mean of
so many samples does, and rebuilding one is dear."""

SHORT_SAMPLE_NS = 60_000_000
"""Samples shorter than this come at least three to a round. Their median leaves out what a busy neighbour does to one
(the spread of one pair was three times that of a round) and averages the effect of a sample's place in its pair."""

PART_SAMPLE_NS, CALL_SAMPLE_NS = 3_000_000, 8_000_000
"""Least time of a sample of a part of a layer, and of any function: beside it calls are made untimed, so that samples
of one short call would be a small part of the time."""

MOST_MAKING_NS = 20_000_000
"""Of the inputs of a sample's calls, for any function: where they are dear, a sample has fewer calls."""

FILLED_NS = 20_000_000  # decode calls longer than this are warm enough once the context is filled

MOST_SUB_ROUNDS = 51
PRIME_NS = 5_000_000
"""A call of any function that is shorter than this is made once untimed before its sample: see `is_primed`."""

CACHED_BYTES = 8 << 20  # so are all calls of a model with weights of no more than this

PART_WARM_NS = 5_000_000
"""One part of a layer is called for so long before its sample, as benchmarks of such a part do: it takes less time with
each call until the same blocks of memory come back to it, still in the cache."""

REFERENCE_SHARE = 0.4
"""A sample of the reference benchmark of functions takes so much of the time of theirs; it has one in SELDOM
sub-rounds."""

GROUP_FACTOR = 10  # variants that differ by more than this factor get different numbers of calls


@dataclass(frozen=True)
class RoundShape:
    """sub_rounds: samples of each variant. repeats: calls in a sample, by variant. prime: an untimed call before it,
    and more of them until warm_ns have passed. seldom: who is sampled in one of SELDOM sub-rounds only."""

    sub_rounds: int
    repeats: Mapping[str, int]
    prime: bool
    warm_ns: float = 0.0
    seldom: frozenset[str] = frozenset()

    def takes_part(self, name: str, sub_round: int) -> bool:
        """Whether a variant has a sample in a sub-round. Those of a control are the first: beside them its original has
        used its inputs as often, and the caches of both are alike."""
        if name not in self.seldom:
            return True
        if EnteredName(name).is_control:
            return sub_round < max(self.sub_rounds // SELDOM, 1)
        return (sub_round - self.sub_rounds // 2) % SELDOM == 0

    @property
    def most_calls(self) -> int:
        """Calls in the longest sample, without the untimed one."""
        return max(self.repeats.values())


def is_primed(work: Workload, *, once: bool, slowest_ns: float, parameter_bytes: int) -> bool:
    """Whether a call is made untimed before each sample. Otherwise the sample measures how cold the others left the
    caches, which no program that runs one model sees.

    A model or a part of one is primed in every run or in none: if the slowest side decided, a short kernel would be
    primed in one run and not in another in which a slow engine takes part. For functions the time decides (slowest_ns:
    of a call of any of them). A forward of many tokens through large weights is not primed: it finds little in the
    caches anyway."""
    if once:
        return False
    if work.kind == "call":
        return slowest_ns < PRIME_NS
    return work.kind in ("component", "decode") or 0 < parameter_bytes <= CACHED_BYTES


def shape_of_round(
    work: Workload,
    call_ns: Mapping[str, float],
    *,
    once: bool,
    sample_ns: float,
    rebuild_ns: float,
    make_ns: float = 0.0,
    parameter_bytes: int = 0,
    least_ns: float = 0.0,
) -> RoundShape:
    """call_ns: time of a call by variant. once: each call is a sample of its own. sample_ns: least time of a sample.
    rebuild_ns: time to rebuild one variant; 0 where it is not known yet. make_ns: time to make the input of a call.
    parameter_bytes: of the weights; 0 where there are none. least_ns: of samples of a variant, all together."""
    # The reference benchmark of functions takes a time that has nothing to do with theirs: it has samples by its own
    # count.
    reference_benchmark = {name: call_ns[name] for name in call_ns if name == FUNCTION_REFERENCE}
    call_ns = {name: call_ns[name] for name in call_ns if name not in reference_benchmark} or reference_benchmark
    sample_ns = max(sample_ns, {"component": PART_SAMPLE_NS, "call": CALL_SAMPLE_NS}.get(work.kind, 0))
    repeats = _repeats(work, call_ns, sample_ns)
    if make_ns:
        most = max(1, round(MOST_MAKING_NS / make_ns))
        repeats = {name: min(count, most) for name, count in repeats.items()}
    single_calls = least_calls(work.statistic)
    if once or single_calls or work.kind == "generate":  # a generation has a first token, and is timed on its own
        repeats = dict.fromkeys(call_ns, 1)
    prime = is_primed(work, once=once, slowest_ns=max(call_ns.values()), parameter_bytes=parameter_bytes)
    warm_ns = PART_WARM_NS if prime and work.kind == "component" else 0
    typical_ns = statistics.median(
        (call_ns[name] + make_ns) * repeats[name] + max((call_ns[name] + make_ns) * prime, warm_ns) for name in call_ns
    )
    sampling_ns = min(max(rebuild_ns, LEAST_SAMPLING_NS), MOST_SAMPLING_NS)
    sampling_ns *= COMPONENT_FACTOR if work.kind in ("component", "call") else 1
    pairs = round(max(sampling_ns, min(least_ns, MOST_FOR_A_PROCESS_NS)) / typical_ns)
    if typical_ns < SHORT_SAMPLE_NS:
        pairs = max(pairs, 3)
    if work.kind == "decode":
        pairs = min(pairs, (DECODE_ROOM - 2) // (max(repeats.values()) + 1))
    pairs = max(1, min(MOST_SUB_ROUNDS, pairs))
    share_ns = 2 * REFERENCE_SHARE * typical_ns
    of_reference = (
        dict.fromkeys(reference_benchmark, 1) if single_calls else _repeats(work, reference_benchmark, share_ns)
    )
    is_paired = work.kind == "call" and not single_calls
    seldom = frozenset(filter(is_beside, (*call_ns, *reference_benchmark)) if is_paired else ())
    return RoundShape(max(pairs - (pairs % 2 == 0), single_calls), repeats | of_reference, prime, warm_ns, seldom)


def _repeats(work: Workload, call_ns: Mapping[str, float], sample_ns: float) -> dict[str, int]:
    """Calls in a sample: the same number on all sides, so that the loop costs all the same. Variants that are more than
    GROUP_FACTOR slower get fewer, because one of their samples would last for seconds."""
    repeats: dict[str, int] = {}
    fastest_ns = math.inf
    for name in sorted(call_ns, key=call_ns.__getitem__):
        if not repeats or call_ns[name] > GROUP_FACTOR * fastest_ns:  # the first of a group sets the count for all
            fastest_ns = call_ns[name]
            count = math.ceil(sample_ns / fastest_ns)
            if work.kind == "decode":
                count = min(count, DECODE_ROOM // 2)  # there are no more positions
        repeats[name] = count
    return repeats


LEAK_LIMIT_BYTES, LEAK_LIMIT_WEIGHTS = 2 << 30, 2
"""Growth between rounds beyond this and so many times the weights is a leak. What the allocator keeps for reuse stays
below: with its thresholds pinned it returns nothing to the system, and a variant may pack all weights."""


def leaks(worker: Worker, bench: Bench) -> dict[str, int]:
    """Variant → bytes by which the process has grown too far with everything freed: the one that it grew most under."""
    idle_bytes = worker.device.held_bytes()
    bench.idle_bytes = min(bench.idle_bytes, idle_bytes)
    grown = int(idle_bytes - bench.idle_bytes)
    if grown <= LEAK_LIMIT_BYTES + LEAK_LIMIT_WEIGHTS * bench.parameter_bytes:
        return {}
    blamed = max(bench.subjects, key=lambda name: bench.subjects[name].growth_bytes)
    bench.idle_bytes = idle_bytes
    return {blamed: grown}


def measure_round(
    worker: Worker,
    workload: str,
    round_index: int,
    active: Sequence[str],
    outputs: str = "",
    least_ns: float = 0.0,
    way: str = NEW,
    pool_size: int = 0,
) -> RoundAnswer:
    """One round: all of `active` rebuilt in random order, then sub-rounds, each with all of them in random order.
    outputs: the file for what the examiner judges. least_ns: see `shape_of_round`. way, pool_size: see
    `calls.inputs`."""
    bench = worker.benches[workload]
    bench.give_inputs(way, pool_size)
    rng = random.Random(f"round {bench.seed} {workload} {worker.process} {round_index}")
    call_ns = {name: bench.subjects[name].call_ns for name in active}
    sample_ns, rebuild_ns = worker.device.sample_ns, bench.rebuild_ns
    times: dict[str, Any] = {"sample_ns": sample_ns, "rebuild_ns": rebuild_ns, "make_ns": bench.make_ns}
    times |= {"parameter_bytes": bench.parameter_bytes, "least_ns": least_ns}
    shape = shape_of_round(bench.workload, call_ns, once=bench.once, **times)
    lengths = call_lengths(bench.workload, round_index=round_index, count=shape.sub_rounds, seed=bench.seed)
    worker.watch.beside_foreign = any(map(worker.is_outside, active))
    drawn = bench.kind.drawn(2 if worker.watch.beside_foreign else 1)
    this = OpenRound(worker, bench, active, shape, drawn, warmup_length(bench.workload, lengths=lengths))
    with rebuilt(worker, rng, {name: index for index, name in enumerate(active)}, this.build, bench) as built:
        worker.device.synchronise()  # what building all took decides how long later rounds sample
        each_ns = (perf_counter_ns() - this.begun_ns) / len(active)
        bench.rebuild_ns = min(bench.rebuild_ns or each_ns, each_ns)
        for sub_round, length in enumerate(lengths):
            this.sample(sub_round, length, built)
        wrong = bench.kind.wrong(bench, built.runners)
        this.places.clear()
    return RoundAnswer(
        samples=tuple(this.samples),
        wrong=wrong,
        refused=refused(bench.called, wrong),
        drawn=tuple(drawn.write(Path(outputs))) if drawn is not None and outputs else (),
        changed=this.changed,
        **worker.seen(active),
        pooled=this.pooled(),
        leaks=leaks(worker, bench),
    )


@dataclass
class OpenRound:
    """What a round has collected so far. places: see `output_places`."""

    worker: Worker
    bench: Bench
    active: Sequence[str]
    shape: RoundShape
    drawn: Drawn | None
    warm_length: int
    samples: list[Sample] = field(default_factory=list)
    changed: dict[str, str] = field(default_factory=dict)
    places: dict[tuple[Any, ...], list[Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The same for all, or some would be a position behind the others and give other logits.
        fastest_ns = min(self.bench.subjects[name].call_ns for name in self.active)
        self.warm_by_call = self.bench.workload.kind != "decode" or fastest_ns <= FILLED_NS
        # One that has the process to itself is left to Python, as in a program of its own.
        self.shares = len(self.active) > 1
        if not (self.worker.calm or self.shares):
            self.worker.watch.leave_out(THRESHOLDS)
            if self.worker.notes is not None:
                self.worker.notes.leave_collector()
        self.fills_pools = self.bench.way != NEW
        self.begun_ns = perf_counter_ns()
        self.prompt_of = self.prompts(self.shape.most_calls)

    def prompts(self, count: int) -> dict[str, int]:
        """The first of `count` fresh prompts for each variant.

        All of ours have the same, so that one answer of the reference serves them. Foreign models have their own, or
        they could take an answer from whoever gave it before. Functions have the same, each made anew: inputs may
        differ by more than the functions do, and whoever comes second in a sub-round is drawn."""
        common, models = self.bench.take(count), self.bench.call is None
        return {
            name: self.bench.take(count) if models and self.worker.is_outside(name) else common for name in self.active
        }

    def build(self, name: str) -> Runner:
        """A variant built anew and warm."""
        subject, device = self.bench.subjects[name], self.worker.device
        before = device.held_bytes()
        runner = self.bench.kind.runner(self.worker, self.bench, subject.variant)
        runner.prepare(self.warm_length, self.prompt_of[name], self.shape.repeats[name])
        if self.warm_by_call and not runner.is_fresh:
            runner.call()
        runner.finish()
        subject.growth_bytes += device.held_bytes() - before
        if change := self.worker.changed(name, files=False):
            self.changed.setdefault(name, change)
        return runner

    def pooled(self) -> dict[str, int]:
        """Of each function that is given inputs again, or copies of them: how many different ones."""
        called = {name: self.bench.called[name] for name in self.active if name in self.bench.called}
        return {name: len(each.pool) for name, each in called.items() if each.pool is not None}

    def _freeze_pools(self) -> None:
        """Once all inputs are made that will be: the collection before each sample need not walk them again."""
        names = {*self.active} - self.shape.seldom  # a control may never have so many calls
        pools = [called.pool for name, called in self.bench.called.items() if name in names]
        if all(pool is None or pool.is_full for pool in pools):
            self.fills_pools = False
            if self.shares and not self.worker.calm:
                gc.collect()
                gc.freeze()

    def sample(self, sub_round: int, length: int, built: Rebuilt[str]) -> None:
        """One sample of every variant."""
        if self.fills_pools:
            self._freeze_pools()
        prime = self.shape.prime
        prompt_of = self.prompts(self.shape.most_calls + prime)
        for position, name, runner in built.turns():
            if name in self.changed or not self.shape.takes_part(name, sub_round):  # changed: it is excluded afterwards
                continue
            subject = self.bench.subjects[name]
            count = self.shape.repeats[name]
            kept = output_places(self.places, subject.output, count)
            subject.last = None  # an answer that lives on takes memory that the next would be given
            runner.prepare(length, prompt_of[name], count + prime)
            if self.shares and not self.worker.calm:
                gc.collect()  # what others left is not collected in this one's time
            if prime:
                _call_for(runner, self.shape.warm_ns)
            if notes := self.worker.noted(name):
                notes.start()
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            spent = self.worker.device.sample(runner, count, kept)
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
            subject.growth_bytes += max(0, faults) * resource.getpagesize()
            counted_ns = runner.counted_ns() or (spent.cpu_ns, spent.wall_ns - runner.uncounted_ns)
            times = (count, *counted_ns, faults)
            first_cpu_ns, first_wall_ns, first_device_ns = runner.first_ns()
            first = (first_cpu_ns, first_wall_ns, spent.device_ns, first_device_ns)
            self.samples.append(Sample(name, sub_round, position, length, *times, *first))
            self._look(name, runner, spent, kept, count)
            runner.finish()
        if self.drawn is not None:
            self.drawn.end_sub_round()

    def _look(self, name: str, runner: Runner, spent: Spent, kept: list[Tensor], count: int) -> None:
        """After a sample of so many calls: keep an output for the examiner, and see what the variant left behind."""
        asked = runner.asked[-count:]
        if kept and self.drawn is not None:
            self.drawn.keep(name, asked, kept).update(runner.left_behind())
        elif self.bench.checkpoint is None:
            self.bench.subjects[name].last = spent.out
            self.bench.subjects[name].asked = asked[-1][0] if asked else 0
        self.worker.sampled(name, count, len(kept), spent)
        change = self.worker.changed(name)
        if self.shares and not self.worker.calm and (notes := self.worker.noted(name)):
            notes.found_setting_collector(name)
        if spent.wall_ns <= 0 or spent.cpu_ns < 0:
            change = change or "takes no time by the clocks of its process: it must have replaced them"
        wanted = not self.worker.calm
        if gc.isenabled() != wanted and (self.shares or self.worker.calm):
            (gc.enable if wanted else gc.disable)()
            change = change or f"turns garbage collection {'off' if wanted else 'on'} while it is timed"
        if change:
            self.changed.setdefault(name, change)


def _call_for(runner: Runner, warm_ns: float) -> None:
    """Once, and again until the time is over."""
    begun_ns = perf_counter_ns()
    runner.call()
    while perf_counter_ns() - begun_ns < warm_ns:
        runner.call()


def output_places(places: dict[tuple[Any, ...], list[Tensor]], like: Tensor | None, count: int) -> list[Tensor]:
    """`count` tensors to which outputs are copied; none for None. Variants with outputs of one shape and type share
    them: `places` holds those that there are, by shape and type."""
    if like is None:
        return []
    shared = places.setdefault((like.shape, like.dtype, like.device), [])
    shared.extend(like.new_zeros(like.shape) for _ in range(count - len(shared)))
    return shared[:count]


# The verb `block`: a pair of variants in two processes that take turns on one core, a few milliseconds each.
# A machine's noise changes within milliseconds to seconds. Where one variant is sampled after the other, that gets
# into their ratio. The scheduler switches between two busy processes on one core every few milliseconds, so that both
# meet nearly the same noise. A control may be a third. For each block all are forked from this process, which has
# torch and the checkpoint loaded, and build their variants anew, as a round does.


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
class BlockSide:
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

    def side(self, place: int) -> BlockSide:
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
        return BlockSide(
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
    right = {name: each for name, each in answers.items() if isinstance(each, BlockSide)}
    failures = {name: each for name, each in answers.items() if isinstance(each, Failure)}
    intruding = {name: each.reason for name, each in failures.items() if each.intrudes}
    judged = bool(outputs) and bench.checkpoint is not None
    bench.take(max((side.prompts for side in right.values()), default=0))
    kept = [side.drawn if isinstance(side := answers[name], BlockSide) else [] for name in order]
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


Answer = Union[BlockSide, Failure, None]
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
    return BlockSide(samples=samples, **answer)


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
