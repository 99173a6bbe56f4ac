"""Checkpoints with weights drawn from a seed, written as an ordinary Hugging Face folder."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from llama_workbench.cache import partial_folder
from llama_workbench.variants.config import LlamaConfig

from .. import tokenizer
from ..geometries import Geometry
from ..synthetic_files import CONFIG, RECIPE, SINGLE, synthetic_files

_STALE_SECONDS = 3600.0


def synthesize(
    geometry: Geometry,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    cache: Path | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Path:
    """The folder of a checkpoint with that shape and weights drawn from `seed`; written at the first call only.

    Weights are normal with a standard deviation of 1/sqrt(fan-in), those that write into the residual stream
    (o_proj, down_proj) divided by sqrt(2 x layers) as in GPT-2, the embedding's 1/sqrt(hidden size); norm weights are
    1 with a deviation of 0.05. So logits have a variance of about 1, activations keep their size at every depth, and
    the logits show a forgotten norm weight or residual. Each tensor has its own generator, seeded by `seed` and its
    name.

    `progress` is called with a tensor's name and the share done (0 to 1). `cache` defaults to `cache_directory()`.
    Raises `CacheError` where the disk has no room. Two processes may write the same folder at once.
    """
    files = synthetic_files(geometry, seed=seed, dtype=str(dtype).removeprefix("torch."), cache=cache)
    folder, parent = files.folder, files.folder.parent
    if files.are_there():
        return folder
    _remove_stale(parent)
    with partial_folder(parent, folder.name, needed_bytes=files.size_bytes) as partial:
        written = partial / folder.name
        written.mkdir()
        (written / CONFIG).write_text(files.config, encoding="utf-8")
        (written / tokenizer.FILE).write_text(files.tokenizer, encoding="utf-8")
        with (written / SINGLE).open("wb") as file:
            file.write(files.header)
            done_bytes = len(files.header)
            for tensor_name, shape in files.shapes.items():
                values = _drawn(tensor_name, shape, geometry.config, seed=seed).to(dtype)
                file.write(values.view(torch.uint8).numpy().data)
                done_bytes += values.nbytes
                if progress is not None:
                    progress(tensor_name, done_bytes / files.size_bytes)
                del values  # before the next one is made: one tensor in memory, not two
            file.flush()
            os.fsync(file.fileno())  # now, and not in the background of the first measurement
        if folder.exists() and not files.are_there():  # a power cut, or somebody's editing
            folder.rename(partial / "damaged")
        try:
            written.rename(folder)
        except OSError:
            if not files.are_there():  # another process was first otherwise
                raise
    return folder


def _drawn(name: str, shape: tuple[int, ...], config: LlamaConfig, *, seed: int) -> Tensor:
    """Weights of one tensor, float32 (see `synthesize`)."""
    digest = hashlib.sha256(f"{RECIPE} {seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    values = torch.empty(shape, dtype=torch.float32)
    if len(shape) == 1:
        return values.normal_(1.0, 0.05, generator=generator)
    deviation = 1 / math.sqrt(shape[1])  # [out, in]; the embedding is [vocabulary, hidden]
    if name.endswith(("o_proj.weight", "down_proj.weight")):
        deviation /= math.sqrt(2 * config.num_hidden_layers)
    return values.normal_(0.0, deviation, generator=generator)


def _remove_stale(parent: Path) -> None:
    """Remove what killed processes left half-written (nothing was added to it for an hour)."""
    for partial in parent.glob(".partial-*"):
        try:
            touched = max(path.stat().st_mtime for path in [partial, *partial.rglob("*")])
        except OSError:  # its process is just removing it
            continue
        if time.time() - touched > _STALE_SECONDS:
            shutil.rmtree(partial, ignore_errors=True)
