"""The verb `round`: samples of all variants of a workload, with outputs for the examiner."""

from __future__ import annotations

import gc
import random
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns  # bound before any foreign code is imported
from typing import Any

import torch
from torch import Tensor

from llama_workbench.datasets.workloads import call_lengths, warmup_length

from ..spec.sample import Sample
from .bench import Bench
from .building import runner_of
from .devices import Cuda, Spent
from .drawn import Drawn
from .gates.component import TOLERANCE, component_error
from .leaks import leaks
from .round_loop import Rebuilt, rebuilt
from .runners import ComponentRunner, GenerateRunner, Runner
from .shape import FILLED_NS, Shape, shape_of_round
from .state import Worker


def measure_round(
    worker: Worker, workload: str, round_index: int, active: Sequence[str], outputs: str = ""
) -> dict[str, Any]:
    """One round: all of `active` rebuilt in random order, then sub-rounds, each with all of them in random order.

    The answer has `samples` (fields in the order of `Sample`), `drawn` (what the examiner must know of the outputs in
    the file `outputs`), and by variant: `wrong` results that this process can see, what it `changed` for all, how it
    computed `elsewhere` than its clock looks, and `leaks` in bytes.
    """
    bench = worker.benches[workload]
    rng = random.Random(f"round {bench.seed} {workload} {worker.process} {round_index}")
    shape = shape_of_round(
        bench.workload,
        {name: bench.subjects[name].call_ns for name in active},
        once=bench.once,
        sample_ns=worker.device.sample_ns,
        rebuild_ns=bench.rebuild_ns,
    )
    lengths = call_lengths(bench.workload, round_index=round_index, count=shape.sub_rounds, seed=bench.seed)
    worker.watch.beside_foreign = any(map(worker.is_outside, active))
    drawn = Drawn(2 if worker.watch.beside_foreign else 1)
    this = _Round(worker, bench, active, shape, drawn, warmup_length(bench.workload, lengths=lengths))
    with rebuilt(worker, rng, {name: index for index, name in enumerate(active)}, this.build) as built:
        this.note_rebuilding()
        for sub_round, length in enumerate(lengths):
            this.sample(sub_round, length, built)
        wrong = _wrong_components(bench, built.runners) if bench.checkpoint is None else {}
        this.places.clear()
    one_thread = worker.threads == 1 and not isinstance(worker.device, Cuda)
    return {
        "samples": this.samples,
        "wrong": wrong,
        "drawn": drawn.write(Path(outputs)) if bench.checkpoint is not None and outputs else [],
        "changed": this.changed,
        "elsewhere": worker.watch.elsewhere(frozenset(worker.wall_variants)) if one_thread else {},
        "leaks": leaks(worker, bench),
    }


@dataclass
class _Round:
    """What a round has collected so far. places: see `output_places`."""

    worker: Worker
    bench: Bench
    active: Sequence[str]
    shape: Shape
    drawn: Drawn
    warm_length: int
    samples: list[Sample] = field(default_factory=list)
    changed: dict[str, str] = field(default_factory=dict)
    places: dict[tuple[Any, ...], list[Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The same for all, or some would be a position behind the others and give other logits.
        fastest_ns = min(self.bench.subjects[name].call_ns for name in self.active)
        self.warm_by_call = self.bench.workload.kind != "decode" or fastest_ns <= FILLED_NS
        self.begun_ns = perf_counter_ns()
        self.prompt_of = self.prompts(self.shape.most_calls)

    def prompts(self, count: int) -> dict[str, int]:
        """The first of `count` fresh prompts for each variant.

        All of ours have the same, so that one answer of the reference serves them. Foreign ones have their own, or
        they could take an answer from whoever gave it before.
        """
        common = self.bench.take(count)
        return {name: self.bench.take(count) if self.worker.is_outside(name) else common for name in self.active}

    def build(self, name: str) -> Runner:
        """A variant built anew and warm."""
        subject, device = self.bench.subjects[name], self.worker.device
        before = device.held_bytes()
        runner = runner_of(self.worker, self.bench, subject.variant)
        runner.prepare(self.warm_length, self.prompt_of[name], self.shape.repeats[name])
        if self.warm_by_call:
            runner.call()
        subject.growth_bytes += device.held_bytes() - before
        if change := self.worker.changed(name, files=False):
            self.changed.setdefault(name, change)
        return runner

    def note_rebuilding(self) -> None:
        """All are built: what that took decides how long later rounds sample."""
        self.worker.device.synchronise()
        each_ns = (perf_counter_ns() - self.begun_ns) / len(self.active)
        self.bench.rebuild_ns = min(self.bench.rebuild_ns or each_ns, each_ns)

    def sample(self, sub_round: int, length: int, built: Rebuilt[str]) -> None:
        """One sample of every variant."""
        prime = self.shape.prime
        prompt_of = self.prompts(self.shape.most_calls + prime)
        for position, name, runner in built.turns():
            if name in self.changed:  # it is excluded after this round
                continue
            subject = self.bench.subjects[name]
            count = self.shape.repeats[name] if runner.counts_as == 1 else 1
            kept = output_places(self.places, subject.output, count)
            runner.prepare(length, prompt_of[name], count + prime)
            primed = prime and runner.counts_as == 1
            if primed:
                runner.call()
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            spent = self.worker.device.sample(runner, count, kept)
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
            subject.growth_bytes += max(0, faults) * resource.getpagesize()
            self.samples.append(
                Sample(
                    name,
                    sub_round,
                    position,
                    length,
                    count * runner.counts_as,
                    spent.cpu_ns,
                    spent.wall_ns - runner.uncounted_ns,
                    faults,
                    *runner.first_ns(),
                    spent.device_ns,
                    runner.first_device_ns(),
                )
            )
            self._look(name, runner, spent, kept, runner.asked[primed:])
        self.drawn.end_sub_round()

    def _look(self, name: str, runner: Runner, spent: Spent, kept: list[Tensor], asked: list[tuple[int, int]]) -> None:
        """After a sample: keep an output for the examiner, and see what the variant left behind."""
        if kept:
            tensors = self.drawn.keep(name, asked, kept)
            if isinstance(runner, GenerateRunner):
                tensors["logits"] = runner.next_logits().clone()
        elif self.bench.checkpoint is None:
            self.bench.subjects[name].last = spent.out
        self.worker.watch.spent(
            name,
            calls=max(len(kept), 1),
            process_ns=spent.process_ns,
            others_ns=spent.others_ns,
            wall_ns=spent.around_ns,
            waits=spent.waits,
        )
        change = self.worker.changed(name)
        if gc.isenabled():
            gc.disable()
            change = change or "turns garbage collection on while it is timed"
        if change:
            self.changed.setdefault(name, change)


def output_places(places: dict[tuple[Any, ...], list[Tensor]], like: Tensor | None, count: int) -> list[Tensor]:
    """`count` tensors to which outputs are copied; none for None. Variants with outputs of one shape and type share
    them: `places` holds those that there are, by shape and type."""
    if like is None:
        return []
    shared = places.setdefault((like.shape, like.dtype, like.device), [])
    shared.extend(torch.zeros_like(like) for _ in range(count - len(shared)))
    return shared[:count]


def _wrong_components(bench: Bench, runners: Mapping[str, Runner]) -> dict[str, str]:
    """Parts of a layer whose last timed call gave another result than at the gate; their inputs never change."""
    wrong: dict[str, str] = {}
    for name, runner in runners.items():
        subject = bench.subjects[name]
        assert isinstance(runner, ComponentRunner)
        if subject.expected is not None and subject.last is not None:
            error = component_error(runner.component.read(subject.last).double(), subject.expected)
            if not error <= 2 * TOLERANCE:
                wrong[name] = f"a timed call is off by {error:.1e} of the largest value"
        subject.last = None
    return wrong
