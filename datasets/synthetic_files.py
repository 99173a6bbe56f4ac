"""Checkpoints with weights drawn from a seed, written as an ordinary Hugging Face folder.

torch is imported only where weights must be written: its import takes longer than all else that a run does before its
first gate.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llama_workbench.cache import cache_directory, partial_folder
from llama_workbench.variants.config import LlamaConfig, config_json

from . import tokenizer
from .geometries import Geometry, stored_shapes

if TYPE_CHECKING:
    import torch

CONFIG, SINGLE = "config.json", "model.safetensors"

SYNTHETIC = "llama_workbench"
"""Key in the metadata of a safetensors file that was drawn here: its geometry, seed and recipe."""

RECIPE = 1
"""Counts up when the synthetic weights of the same seed change, so that older folders in a cache are not taken."""

_STALE_SECONDS = 3600.0

TYPES = {"float64": ("F64", 8), "float32": ("F32", 4), "bfloat16": ("BF16", 2), "float16": ("F16", 2)}
"""Types of weights: their names in safetensors files, and bytes of a number."""


@dataclass(frozen=True)
class SyntheticFiles:
    """A synthetic checkpoint, whether or not it is written yet."""

    folder: Path
    shapes: Mapping[str, tuple[int, ...]]
    header: bytes
    config: str
    tokenizer: str
    size_bytes: int

    def are_there(self) -> bool:
        """Whether all of them are written, the weights to their last byte."""
        try:
            sizes = [(self.folder / file).stat().st_size for file in (CONFIG, tokenizer.FILE, SINGLE)]
        except OSError:
            return False
        return all(sizes) and sizes[-1] == self.size_bytes


def synthetic_files(
    geometry: Geometry, *, seed: int = 0, dtype: str = "float32", cache: Path | None = None
) -> SyntheticFiles:
    """The files of a checkpoint with that shape and weights drawn from `seed`."""
    shapes = stored_shapes(geometry.config)
    header = _header(shapes, dtype, {"geometry": geometry.name, "seed": seed, "recipe": RECIPE})
    config = {**config_json(geometry.config, dtype), "bos_token_id": 0, "eos_token_id": 1}
    config_text = json.dumps(config, indent=2) + "\n"
    tokenizer_json = tokenizer.train(geometry.config.vocab_size, cache=cache)
    identity = hashlib.sha256(header + config_text.encode() + tokenizer_json.encode()).hexdigest()
    folder = (cache or cache_directory()) / "checkpoints" / f"{geometry.name}-{dtype}-seed{seed}-{identity[:12]}"
    size_bytes = len(header) + sum(math.prod(shape) for shape in shapes.values()) * TYPES[dtype][1]
    return SyntheticFiles(folder, shapes, header, config_text, tokenizer_json, size_bytes)


WEIGHTS_SEED = 0
"""Of the weights of all runs, and of whatever else must be the same in every run, such as tokens that are counted."""


def synthesize(
    geometry: Geometry,
    *,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    cache: Path | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Path:
    """The folder of a checkpoint with that shape and weights drawn from `seed`; written at the first call only. `dtype`
    is by default the geometry's own.

    Weights are normal with a standard deviation of 1/sqrt(fan-in), those that write into the residual stream
    (o_proj, down_proj) divided by sqrt(2 x layers) as in GPT-2, the embedding's 1/sqrt(hidden size); norm weights are
    1 with a deviation of 0.05. So logits have a variance of about 1, activations keep their size at every depth, and
    the logits show a forgotten norm weight or residual. Each tensor has its own generator, seeded by `seed` and its
    name.

    `progress` is called with a tensor's name and the share done (0 to 1). `cache` defaults to `cache_directory()`.
    Raises `CacheError` where the disk has no room. Two processes may write the same folder at once."""
    files = synthetic_files(geometry, seed=seed, dtype=str(dtype or geometry.dtype).removeprefix("torch."), cache=cache)
    folder, parent = files.folder, files.folder.parent
    if files.are_there():
        return folder
    import torch

    stored = dtype or getattr(torch, geometry.dtype)
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
                values = _drawn(tensor_name, shape, geometry.config, seed=seed).to(stored)
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


def _drawn(name: str, shape: tuple[int, ...], config: LlamaConfig, *, seed: int) -> torch.Tensor:
    """Weights of one tensor, float32 (see `synthesize`)."""
    import torch

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


def _header(shapes: Mapping[str, tuple[int, ...]], dtype: str, label: Mapping[str, object]) -> bytes:
    """The start of a safetensors file: length of the JSON in 8 bytes, then the JSON, padded with spaces to 64 bytes, so
    that mapped tensors start at a cache line as far as their sizes allow."""
    code, item_bytes = TYPES[dtype]
    entries: dict[str, object] = {"__metadata__": {"format": "pt", SYNTHETIC: json.dumps(label)}}
    start = 0
    for name, shape in shapes.items():
        end = start + math.prod(shape) * item_bytes
        entries[name] = {"dtype": code, "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return struct.pack("<Q", len(text)) + text
