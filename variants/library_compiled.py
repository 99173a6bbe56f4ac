"""The library's own model, its forward through torch.compile as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from torch import Tensor
from transformers import LlamaForCausalLM

from .compiling import compiled as through_compiler
from .config import LlamaConfig
from .library import LibraryLlama


def build(
    config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int, attention: str, static: bool
) -> LibraryLlama:
    """A model over `weights` (Hugging Face names), with the options of LibraryLlama."""
    model = LibraryLlama(config, weights, max_length=max_length, attention=attention, static=static)
    run = through_compiler(LlamaForCausalLM.forward, (config, max_length, attention, static))
    model.model.forward = partial(run, model.model)
    return model
