"""A workload with its inputs, and the variants that are measured on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from llama_workbench.datasets.checkpoints import Checkpoint
from llama_workbench.datasets.tokenizer import Prompts
from llama_workbench.datasets.workloads import Workload
from llama_workbench.variants import Variant

from .gates.op_trace import Trace

GATE_PROMPT = -1
"""Number of the prompt that gates use: the same in every run of a seed, so that the reference's logits can be kept."""


@dataclass
class Subject:
    """One variant on one workload: how it is built, and what its gate measured.

    output: an empty tensor of the shape and type that a call gives. Of a component, `expected` is the right result and
    `last` the result of its last timed call.
    """

    variant: Variant
    call_ns: float = math.nan
    growth_bytes: int = 0
    trace: Trace | None = None
    output: Tensor | None = None
    expected: Tensor | None = None
    last: Tensor | None = None


@dataclass
class Bench:
    """One workload with its inputs, ready to be measured.

    gate_prompt: [B, max_length]. generated: of a `generate` workload, the reference's tokens after the gate prompt and
    their lead, [B, N] each. idle_bytes: least memory seen between rounds. source: the checkpoint's folder.
    """

    workload: Workload
    checkpoint: Checkpoint | None
    gate_prompt: Tensor
    max_length: int
    seed: int
    dtype: torch.dtype
    prompts: Prompts | None = None
    subjects: dict[str, Subject] = field(default_factory=dict)
    generated: tuple[Tensor, Tensor] | None = None
    rebuild_ns: float = 0.0
    idle_bytes: float = math.inf
    source: Path | None = None

    @property
    def once(self) -> bool:
        """Whether each call needs a `prepare` of its own.

        A second call of the same length would find what the first one cached. After a context, it would come behind the
        first in a cache to which keys are appended.
        """
        return self.workload.lengths != "repeated" or (self.workload.kind == "prefill" and self.workload.context > 0)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the checkpoint's tensors; a tied head counts once."""
        tensors = self.checkpoint.weights.values() if self.checkpoint else ()
        return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())

    def take(self, count: int = 1) -> int:
        """The first of `count` numbers of prompts that no call was given yet."""
        return 0 if self.prompts is None else self.prompts.take(count)

    def tokens(self, prompt: int, length: int) -> Tensor:
        """The first `length` tokens of a prompt, [B, length]: a copy, because a model may write into its input."""
        if prompt == GATE_PROMPT:
            return self.gate_prompt[:, :length].clone()
        assert self.prompts is not None
        return torch.from_numpy(self.prompts.tokens(prompt, length)).to(self.gate_prompt.device)
