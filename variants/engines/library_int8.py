"""The library's own model with int8 weights, by PyTorch's own call for it (`quantize_dynamic`)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic

from ..config import LlamaConfig
from ..library import LibraryLlama


def build(config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int, attention: str) -> LibraryLlama:
    """A model over copies of `weights` (Hugging Face names): int8, with a scale a row. Activations are rounded to int8
    in each product, with a scale of their own. float32 alone; the embedding stays as it is."""
    model = LibraryLlama(config, weights, max_length=max_length, attention=attention)
    with warnings.catch_warnings(action="ignore"):  # each call says that torchao will have it one day
        model.model = quantize_dynamic(model.model, {torch.nn.Linear: per_channel_dynamic_qconfig})
    return model
