"""Checkpoints with weights drawn from a seed, written as an ordinary Hugging Face folder."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from llama_workbench.cache import cache_directory, partial_folder
from llama_workbench.variants.config import LlamaConfig, config_json

from .. import tokenizer
from ..geometries import Geometry, stored_shapes
from .huggingface import CONFIG, DTYPES, SINGLE, SYNTHETIC

RECIPE = 1
"""Counts up when the synthetic weights of the same seed change, so that older folders in a cache are not taken."""

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
    parent = (cache or cache_directory()) / "checkpoints"
    expected = stored_shapes(geometry.config)
    label = {"geometry": geometry.name, "seed": seed, "recipe": RECIPE}
    header = _header(expected, dtype, label)
    dtype_name = str(dtype).removeprefix("torch.")
    config = {**config_json(geometry.config, dtype_name), "bos_token_id": 0, "eos_token_id": 1}
    config_text = json.dumps(config, indent=2) + "\n"
    tokenizer_json = tokenizer.train(geometry.config.vocab_size, cache=cache)
    identity = hashlib.sha256(header + config_text.encode() + tokenizer_json.encode()).hexdigest()
    name = f"{geometry.name}-{dtype_name}-seed{seed}-{identity[:12]}"
    folder = parent / name
    size_bytes = len(header) + sum(math.prod(shape) for shape in expected.values()) * dtype.itemsize
    if _is_whole(folder, size_bytes):
        return folder
    _remove_stale(parent)
    with partial_folder(parent, name, needed_bytes=size_bytes) as partial:
        written = partial / name
        written.mkdir()
        (written / CONFIG).write_text(config_text, encoding="utf-8")
        (written / tokenizer.FILE).write_text(tokenizer_json, encoding="utf-8")
        with (written / SINGLE).open("wb") as file:
            file.write(header)
            done_bytes = len(header)
            for tensor_name, shape in expected.items():
                values = _drawn(tensor_name, shape, geometry.config, seed=seed).to(dtype)
                file.write(values.view(torch.uint8).numpy().data)
                done_bytes += values.nbytes
                if progress is not None:
                    progress(tensor_name, done_bytes / size_bytes)
                del values  # before the next one is made: one tensor in memory, not two
            file.flush()
            os.fsync(file.fileno())  # now, and not in the background of the first measurement
        if folder.exists() and not _is_whole(folder, size_bytes):  # a power cut, or somebody's editing
            folder.rename(partial / "damaged")
        try:
            written.rename(folder)
        except OSError:
            if not _is_whole(folder, size_bytes):  # another process was first otherwise
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


def _header(shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, label: Mapping[str, object]) -> bytes:
    """The start of a safetensors file: length of the JSON in 8 bytes, then the JSON, padded with spaces to 64 bytes, so
    that mapped tensors start at a cache line as far as their sizes allow."""
    code = next(code for code, known in DTYPES.items() if known == dtype)
    entries: dict[str, object] = {"__metadata__": {"format": "pt", SYNTHETIC: json.dumps(label)}}
    start = 0
    for name, shape in shapes.items():
        end = start + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": code, "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return struct.pack("<Q", len(text)) + text


def _is_whole(folder: Path, size_bytes: int) -> bool:
    try:
        sizes = [(folder / file).stat().st_size for file in (CONFIG, tokenizer.FILE, SINGLE)]
    except OSError:
        return False
    return all(sizes) and sizes[-1] == size_bytes


def _remove_stale(parent: Path) -> None:
    """Remove what killed processes left half-written (nothing was added to it for an hour)."""
    for partial in parent.glob(".partial-*"):
        try:
            touched = max(path.stat().st_mtime for path in [partial, *partial.rglob("*")])
        except OSError:  # its process is just removing it
            continue
        if time.time() - touched > _STALE_SECONDS:
            shutil.rmtree(partial, ignore_errors=True)
