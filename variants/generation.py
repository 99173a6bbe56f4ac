"""Greedy generation with any `Model`, token by token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from .presets import Model


def generate(model: Model, prompt: Tensor, count: int) -> Iterator[Tensor]:
    """The `count` most likely tokens after `prompt` ([B, T] ids), one by one: each [B], given as soon as it is known.

    The first costs the prefill, every other one decode step; nothing is computed ahead. The model is reset first; it
    must have room for T + `count` - 1 positions. Equal logits go to the lowest id (as torch's argmax on a CPU). No
    token stops it."""
    model.reset()
    token = model.forward(prompt, 0).argmax(-1)  # [B]
    yield token
    length = prompt.shape[1]
    for position in range(length, length + count - 1):
        token = model.forward(token[:, None], position).argmax(-1)
        yield token
