"""A folder for engines that read their weights from files: written once and kept in the cache under its content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from llama_workbench.cache import FIX, CacheError, cache_directory, partial_folder

from ..config import LlamaConfig

SAMPLED = 4096  # values of each tensor that go into its name in the cache


class EngineError(ValueError):
    """An engine cannot serve this model here; the text says what was asked for and what it needs."""


def identity(config: LlamaConfig, weights: Mapping[str, Tensor]) -> str:
    """Short name of a model: SHA-256 over its config, and of each tensor name, shape, dtype and `SAMPLED` values. The
    values are spread evenly over the tensor. Not every byte: hashing a gigabyte at each build would take longer than
    loading it, and the logits gate notices a wrong folder."""
    digest = hashlib.sha256(repr(config).encode())
    for name, tensor in weights.items():
        flat = tensor.detach().reshape(-1)
        places = torch.linspace(0, flat.numel() - 1, min(SAMPLED, flat.numel()), dtype=torch.float64).long()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(flat[places].contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:24]


def folder(kind: str, config: LlamaConfig, weights: Mapping[str, Tensor], write: Callable[[Path], None]) -> Path:
    """The folder of this model for engines of one `kind`; `write(folder)` fills it the first time. It is written under
    another name and then renamed. Change `kind` whenever what is written changes. Raises EngineError where it cannot be
    written."""
    parent = cache_directory() / "engines"
    target = parent / f"{kind}-{identity(config, weights)}"
    if target.is_dir():
        return target
    try:
        with partial_folder(parent, kind, needed_bytes=0) as partial:
            write(partial)
            partial.rename(target)
    except (CacheError, SafetensorError) as error:
        if not target.is_dir():  # else another process was first
            why = getattr(error.__cause__, "strerror", None) or error
            raise EngineError(f"{parent}: the engine's weights cannot be written ({why}); {FIX}") from error
    return target


def write_safetensors(path: Path, config: LlamaConfig, weights: Mapping[str, Tensor]) -> None:
    """All weights in one file under their names; a tied head is left out, as Hugging Face does."""
    kept = {name: tensor.contiguous() for name, tensor in weights.items()}
    if config.tie_word_embeddings:
        kept.pop("lm_head.weight", None)
    save_file(kept, path, metadata={"format": "pt"})


def check_threads() -> None:
    """Raises EngineError where RAYON_NUM_THREADS, by which a Rust engine makes its threads, is not torch's number."""
    threads, found = torch.get_num_threads(), os.environ.get("RAYON_NUM_THREADS")
    if found != str(threads):
        fix = f"start the process with RAYON_NUM_THREADS={threads}"
        raise EngineError(f"RAYON_NUM_THREADS is {found or 'not set'}, but torch runs on {threads} threads: {fix}")
