"""Variants whose difference is known: `calls_N` computes the same forward N times in a row and gives the last result.

So `calls_21` does 5 % more work than `calls_20`, all of it real. A forward at the same position writes the same into
the caches, which makes repeating it harmless. This file is loaded as code from outside is (FILE:FUNCTION).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from llama_workbench import variants

if TYPE_CHECKING:
    from torch import Tensor

Builder = Callable[..., "Repeated"]


class Repeated:
    """A model that computes each forward so many times."""

    def __init__(self, model: Any, calls: int) -> None:
        self.model, self.calls = model, calls
        self.reset = model.reset

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        """Logits of the last of them."""
        for _ in range(self.calls):
            logits: Tensor = self.model.forward(tokens, position)
        return logits


def _repeated(calls: int) -> Builder:
    def build(config: Any, weights: Mapping[str, Tensor], *, max_length: int) -> Repeated:
        return Repeated(variants.get("fast").build(config, weights, max_length=max_length), calls)

    return build


calls_20, calls_21 = map(_repeated, (20, 21))
