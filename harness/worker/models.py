"""Models and parts of their layers as what is compared: built from a checkpoint, and called on its workload."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from time import perf_counter_ns, thread_time_ns  # bound before any foreign code is imported
from typing import Any

import torch
from torch import Tensor

from llama_workbench import variants
from llama_workbench.datasets import geometries
from llama_workbench.datasets.lengths import DECODE_ROOM, pieces
from llama_workbench.variants import LlamaConfig, Model, Variant, components
from llama_workbench.variants.generation import generate
from llama_workbench.variants.outside import described, with_private_source

from ..calls.called import maker
from ..calls.source import Source
from ..calls.world import World, WorldTurn, folders_of
from ..spec.comparison import EnteredName
from .cuda import Cuda
from .state import Bench, PlainRunner, Runner, Worker, WorkerError, hide


@dataclass(frozen=True)
class Built:
    """`build` of a variant from outside, whose modules are imported for it alone. Its model must run in the same world,
    which is entered before what may import more."""

    world: World
    function: Callable[..., Any]

    def __call__(self, config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int) -> Model:
        self.world.enter()
        model: Model = self.function(config, weights, max_length=max_length)
        return model


def variant_from(source: Source, turn: WorldTurn) -> Variant:
    """The variant, imported once more; the code of its file runs here. Raises OutsideVariantError."""
    world = World(turn, folders_of([source]))
    function = maker(source, world.function(source))()
    return described(Variant(source.name, Built(world, function), source.shown, f"outside: {source.shown}"), function)


def model_variant(worker: Worker, entered: str) -> Variant:
    """A variant by the name it was entered under. A control (`NAME@aa`, `NAME@copy`) is NAME once more."""
    name = EnteredName(entered).original
    if worker.is_outside(name):
        for weights in worker.weights():
            worker.watch.weights_changed(weights)  # as they are before it is imported
        hide(worker)
    if name in worker.added:
        return variant_from(Source(**worker.added[name]), worker.turn)  # anew each time
    variant = variants.get(name)
    if getattr(variant.build, "module", None) == ".library":  # the library's own model cannot be imported twice
        import_module(".library", variants.__name__)  # now: it takes seconds, and a process may begin beside another
        return variant
    return with_private_source(variant, EnteredName(entered).identifier)


def model_of(bench: Bench, variant: Variant) -> Model:
    """The variant's model with the bench's checkpoint, built anew."""
    with torch.inference_mode():
        return variant.build(bench.loaded.config, bench.loaded.weights, max_length=bench.max_length)


def component_of(worker: Worker, bench: Bench, variant: Variant) -> components.Component:
    """The part of a layer that the bench times, as the variant has it. Raises WorkerError where it has none."""
    work = bench.workload
    config = geometries.get(work.geometry).config
    seed, device = bench.seed, worker.device.kind
    if variant.component is not None and work.component is not None:
        return variant.component(work.component, config, tokens=work.tokens, seed=seed, device=device)
    if variant.settings is None or work.component is None:
        raise WorkerError(f"{variant.name} has no separate {work.component}: only variants of ours do")
    return components.build(work.component, variant.settings, config, tokens=work.tokens, seed=seed, device=device)


def model_runner(worker: Worker, bench: Bench, variant: Variant) -> Runner:
    """What a sample of a model calls, in the variant's own world."""
    worker.turn.end()
    model, work = model_of(bench, variant), bench.workload
    runner: Runner
    if work.kind == "generate" and isinstance(worker.device, Cuda):
        runner = QueuedGenerateRunner(model, bench, worker.device)
    elif work.kind == "generate":
        runner = GenerateRunner(model, bench)
    elif work.kind == "decode":
        runner = DecodeRunner(model, bench)
    else:
        runner = ChunkedPrefillRunner(model, bench) if work.chunk else PrefillRunner(model, bench)
    if isinstance(variant.build, Built):
        runner.enter = variant.build.world.enter
    return runner


class PrefillRunner(Runner):
    """A new sequence: `reset` and one forward, both timed (a new sequence may cost a new cache)."""

    def set_up(self, length: int, prompt: int, repeats: int) -> None:
        context = self.bench.workload.context
        super().set_up(context + length, prompt, repeats)
        if context:
            self.model.reset()
            self.model.forward(self.calls[0][:, :context], 0)
            self.calls = deque(tokens[:, context:] for tokens in self.calls)

    def call(self) -> Tensor:
        tokens = self.calls.popleft()
        if self.bench.workload.context:
            return self.model.forward(tokens, self.bench.workload.context)
        self.model.reset()
        return self.model.forward(tokens, 0)


class ChunkedPrefillRunner(PrefillRunner):
    """The same prompt in chunks, all of them timed."""

    def set_up(self, length: int, prompt: int, repeats: int) -> None:
        super().set_up(length, prompt, repeats)
        sizes = pieces(self.bench.workload, length)
        starts = [self.bench.workload.context + start for start in itertools.accumulate(sizes[:-1], initial=0)]
        self.steps = deque(list(zip(tokens.split(sizes, dim=1), starts, strict=True)) for tokens in self.calls)
        self.calls.clear()

    def call(self) -> Tensor:
        if not self.bench.workload.context:
            self.model.reset()
        for tokens, position in self.steps.popleft():
            logits = self.model.forward(tokens, position)
        return logits


class DecodeRunner(Runner):
    """One token after another, at rising positions. The context is filled once and not timed."""

    def __init__(self, model: Model, bench: Bench) -> None:
        super().__init__(model, bench)
        self.position = 0
        self.prompt = 0
        self.steps: list[Tensor] = []

    def set_up(self, length: int, prompt: int, repeats: int) -> None:
        """Continue the last sequence. A new one starts, from `prompt`, only where it has no room for so many tokens."""
        context = self.bench.workload.context
        if not self.steps or self.position + repeats > context + DECODE_ROOM:
            sequence = self.bench.tokens(prompt, min(context + DECODE_ROOM, self.bench.max_length))
            self.model.reset()
            if context:
                self.model.forward(sequence[:, :context], 0)
            self.prompt, self.position = prompt, context
            self.steps = list(sequence[:, context:].split(1, dim=1))  # here, so that slicing them is not timed
        self.asked = [(self.prompt, self.position + call + 1) for call in range(repeats)]

    def call(self) -> Tensor:
        logits = self.model.forward(self.steps[self.position - self.bench.workload.context], self.position)
        self.position += 1
        return logits


class GenerateRunner(Runner):
    """A new sequence from its prompt to its last token, [B, N]. The clocks are read at the first token as well. marks:
    at the start of the last call, and at its first token."""

    marks: tuple[Any, Any]

    def __init__(self, model: Model, bench: Bench) -> None:
        super().__init__(model, bench)
        self.count = bench.workload.new_tokens or 0
        self.tokens = self.generated = bench.gate_prompt[:, :1]
        self.first_token = torch.empty(bench.workload.batch, dtype=torch.long, device=self.tokens.device)

    def mark(self) -> Any:
        """CPU and wall time now."""
        return thread_time_ns(), perf_counter_ns()

    def call(self) -> Tensor:
        begun = self.mark()
        self.tokens = self.calls.popleft()
        stream = generate(self.model, self.tokens, self.count)
        first = next(stream)
        self.first_token.copy_(first)  # it is there when it has been read
        self.marks = begun, self.mark()
        self.generated = torch.stack([first, *stream], dim=1)
        return self.generated

    def first_ns(self) -> tuple[int, int, int]:
        (begun_cpu, begun_wall), (cpu, wall) = self.marks
        return cpu - begun_cpu, wall - begun_wall, 0

    def left_behind(self) -> dict[str, Tensor]:
        """Logits [B, V] after the last token: what the timed call left in the caches shows in them."""
        logits = self.model.forward(self.generated[:, -1:], self.tokens.shape[1] + self.count - 1)
        return {"logits": logits.clone()}


class QueuedGenerateRunner(GenerateRunner):
    """The same on a device with a queue: only an event in the queue can tell when a token is there."""

    def __init__(self, model: Model, bench: Bench, device: Cuda) -> None:
        super().__init__(model, bench)
        self.device = device

    def mark(self) -> torch.cuda.Event:
        return self.device.mark()

    def first_ns(self) -> tuple[int, int, int]:
        return 0, 0, self.device.between_ns(*self.marks)


class ComponentRunner(PlainRunner):
    """One part of a layer, without a model."""

    def __init__(self, component: components.Component) -> None:
        super().__init__(component.run)
        self.component = component
