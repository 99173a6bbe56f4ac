"""What a sample calls: a built variant on one workload, with what must happen before the clock and what inside it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llama_workbench.variants import Model, Variant, components
from llama_workbench.variants.generation import generate

from .checkpoints import Checkpoint
from .devices import Cuda
from .gates import Trace
from .roofs import Roof
from .workloads import DECODE_ROOM, Workload, pieces

PROMPTS = 8
"""Different prompts of a workload, used in turn."""

DECODED = 32
"""Tokens of a decode sample where an engine generates them in one request."""


@dataclass
class Subject:
    """One variant on one workload: how it is built here, and what the calibration found."""

    variant: Variant
    call_ns: float = math.nan
    growth_bytes: int = 0
    trace: Trace | None = None


@dataclass
class Bench:
    """One workload with its inputs, ready to be measured."""

    workload: Workload
    checkpoint: Checkpoint | None
    prompts: Tensor  # [PROMPTS, B, length]
    max_length: int
    seed: int
    dtype: torch.dtype
    subjects: dict[str, Subject] = field(default_factory=dict)
    expected: tuple[Tensor, Tensor] | None = None  # of `generate`: tokens and their lead (`greedy`) [PROMPTS, B, N]
    rebuild_ns: float = 0.0
    idle_bytes: float = math.inf  # least memory seen between rounds
    source: Path | None = None  # where the checkpoint was read from

    @property
    def once(self) -> bool:
        """Whether each call needs a `prepare` of its own.

        A second call of the same length would hit what the first one cached, and one after a context would come to lie
        behind the first where keys are appended.
        """
        return self.workload.lengths != "repeated" or (self.workload.kind == "prefill" and self.workload.context > 0)

    def step(self, prompt: int, start: int, length: int) -> Tensor:
        """Tokens [B, length] of one prompt from `start` on."""
        return self.prompts[prompt % PROMPTS, :, start : start + length]


class Runner:
    """What a sample calls, for one built variant. `prepare` and `first_ns` are outside the clock, `call` inside it.

    A call does the work of `counts_as` calls of others. Of the last call's wall time `uncounted_ns` do not count.
    """

    counts_as = 1
    uncounted_ns = 0

    def prepare(self, length: int, prompt: int, repeats: int) -> None:
        raise NotImplementedError

    def call(self) -> Tensor:
        raise NotImplementedError

    def first_ns(self) -> tuple[int, ...]:
        """CPU and wall time of the last call's first token; empty where a call has no such thing."""
        return ()

    def first_device_ns(self) -> int:
        """The device's time until that token, where models do not compute on the CPU; 0 where there is none."""
        return 0


class PrefillRunner(Runner):
    """A new sequence: `reset` and one forward, both timed (a new sequence may cost a new cache)."""

    def __init__(self, model: Model, bench: Bench) -> None:
        self.model = model
        self.bench = bench
        self.tokens = bench.step(0, 0, 1)

    def prepare(self, length: int, prompt: int, repeats: int) -> None:
        context = self.bench.workload.context
        self.tokens = self.bench.step(prompt, context, length)
        if context:
            self.model.reset()
            self.model.forward(self.bench.step(prompt, 0, context), 0)

    def call(self) -> Tensor:
        if self.bench.workload.context:
            return self.model.forward(self.tokens, self.bench.workload.context)
        self.model.reset()
        return self.model.forward(self.tokens, 0)


class ChunkedPrefillRunner(PrefillRunner):
    """The same prompt in chunks, all of them timed."""

    def prepare(self, length: int, prompt: int, repeats: int) -> None:
        super().prepare(length, prompt, repeats)
        position = self.bench.workload.context
        self.steps = []
        for tokens in self.tokens.split(pieces(self.bench.workload, length), dim=1):
            self.steps.append((tokens, position))
            position += tokens.shape[1]

    def call(self) -> Tensor:
        if not self.bench.workload.context:
            self.model.reset()
        for tokens, position in self.steps:
            logits = self.model.forward(tokens, position)
        return logits


class DecodeRunner(Runner):
    """One token after another, at rising positions; the context is filled once, before the clock."""

    def __init__(self, model: Model, bench: Bench) -> None:
        self.model = model
        self.bench = bench
        self.position = 0
        self.steps: list[Tensor] = []

    def start(self, prompt: int) -> None:
        """Fill the context and cut the tokens to come, so that slicing them is not timed."""
        context = self.bench.workload.context
        self.model.reset()
        if context:
            self.model.forward(self.bench.step(prompt, 0, context), 0)
        self.position = context
        self.steps = list(self.bench.step(prompt, context, DECODE_ROOM).split(1, dim=1))

    def prepare(self, length: int, prompt: int, repeats: int) -> None:
        if not self.steps or self.position + repeats > self.bench.workload.context + DECODE_ROOM:
            self.start(prompt)

    def call(self) -> Tensor:
        logits = self.model.forward(self.steps[self.position - self.bench.workload.context], self.position)
        self.position += 1
        return logits


class GenerateRunner(Runner):
    """A new sequence from its prompt to its last token; the clock is also read when the first token is there."""

    def __init__(self, model: Model, bench: Bench) -> None:
        self.model = model
        self.bench = bench
        self.count = bench.workload.new_tokens or 0
        self.prompt = 0
        self.tokens = bench.step(0, 0, 1)
        self.generated: list[Tensor] = []
        self.first = (0, 0)

    def prepare(self, length: int, prompt: int, repeats: int) -> None:
        self.prompt = prompt % PROMPTS
        self.tokens = self.bench.step(prompt, 0, length)

    def call(self) -> Tensor:
        wall = time.perf_counter_ns()
        cpu = time.thread_time_ns()
        stream = generate(self.model, self.tokens, self.count)
        generated = [next(stream)]
        self.first = (time.thread_time_ns() - cpu, time.perf_counter_ns() - wall)
        generated.extend(stream)
        self.generated = generated
        return generated[-1]

    def first_ns(self) -> tuple[int, ...]:
        return self.first

    def next_logits(self) -> Tensor:
        """Logits [B, V] after the last token: what the timed call left in the caches shows in them."""
        return self.model.forward(self.generated[-1][:, None], self.tokens.shape[1] + self.count - 1)


class QueuedGenerateRunner(GenerateRunner):
    """The same on a device that works through a queue: when a token is there, only an event in the queue can tell."""

    def __init__(self, model: Model, bench: Bench, device: Cuda) -> None:
        super().__init__(model, bench)
        self.device = device

    def call(self) -> Tensor:
        self.start = self.device.mark()
        stream = generate(self.model, self.tokens, self.count)
        generated = [next(stream)]
        self.first_event = self.device.mark()
        generated.extend(stream)
        self.generated = generated
        return generated[-1]

    def first_device_ns(self) -> int:
        return self.device.between_ns(self.start, self.first_event)


class RequestRunner(Runner):
    """An engine that takes a whole prompt and gives tokens: one of them for a prefill, many for decode.

    What comes before the decoded tokens is timed as a request of its own, directly before, and does not count; nor does
    the request of one token that says when a generation's first token is there.
    """

    def __init__(self, model: Any, bench: Bench) -> None:
        self.model = model
        self.bench = bench
        self.work = bench.workload
        if self.work.kind == "decode":
            self.counts_as = DECODED
        self.prompt = 0
        self.tokens = bench.step(0, 0, 1)
        self.generated: list[Tensor] = []
        self.first: tuple[int, ...] = ()

    def prepare(self, length: int, prompt: int, repeats: int) -> None:
        self.prompt = prompt % PROMPTS
        self.tokens = self.bench.step(prompt, 0, max(1, self.work.context) if self.work.kind == "decode" else length)

    def call(self) -> Tensor:
        if self.work.kind == "prefill":
            return self.model.generate(self.tokens, 1)
        wall = time.perf_counter_ns()
        cpu = time.thread_time_ns()
        self.model.generate(self.tokens, 1)
        cpu = time.thread_time_ns() - cpu
        self.uncounted_ns = time.perf_counter_ns() - wall
        if self.work.kind == "decode":
            return self.model.generate(self.tokens, 1 + DECODED)
        self.first = (cpu, self.uncounted_ns)
        tokens = self.model.generate(self.tokens, self.work.new_tokens)
        self.generated = list(tokens.unbind(1))
        return tokens

    def first_ns(self) -> tuple[int, ...]:
        return self.first


class RoofRunner(Runner):
    """A kernel that shows what this machine can do, with operands of its own."""

    def __init__(self, roof: Roof) -> None:
        self.call = roof.build()  # type: ignore[method-assign]

    def prepare(self, length: int, prompt: int, repeats: int) -> None:
        pass


class ComponentRunner(Runner):
    """One part of a layer, without a model."""

    def __init__(self, component: components.Component) -> None:
        self.call = component.run  # type: ignore[method-assign]

    def prepare(self, length: int, prompt: int, repeats: int) -> None:
        pass
