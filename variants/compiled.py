"""A variant of the dispute, its forward through torch.compile as a whole: what is then left of the architecture."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from torch import Tensor

from . import single_file
from .compiling import compiled
from .config import LlamaConfig
from .modular import model as modular
from .settings import Settings


class CompiledLlama:
    """Tokens [B, T] that start at `position` → logits [B, V] of the last one. `reset` is left as it is."""

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Tensor], max_length: int, settings: Settings) -> None:
        build = modular.build if settings.layout == "modular" else single_file.build
        model = build(config, weights, max_length=max_length, settings=settings)
        self.reset = model.reset
        self.forward = partial(compiled(type(model).forward, (config, max_length, settings)), model)


def build(config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int, settings: Settings) -> CompiledLlama:
    """A model over `weights` (Hugging Face names)."""
    return CompiledLlama(config, weights, max_length, settings)
