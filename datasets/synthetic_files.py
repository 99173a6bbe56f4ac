"""Where a synthetic checkpoint lies, and what stands in its files beside the weights.

Without torch, whose import takes longer than all else that a run does before its first gate: weights that are there
already need none.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from llama_workbench.cache import cache_directory
from llama_workbench.variants.config import config_json

from . import tokenizer
from .geometries import Geometry, stored_shapes

CONFIG, SINGLE = "config.json", "model.safetensors"

SYNTHETIC = "llama_workbench"
"""Key in the metadata of a safetensors file that was drawn here: its geometry, seed and recipe."""

RECIPE = 1
"""Counts up when the synthetic weights of the same seed change, so that older folders in a cache are not taken."""

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


def synthetic_folder(
    geometry: Geometry,
    *,
    seed: int = 0,
    cache: Path | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Path:
    """As `checkpoints.synthesize` in the geometry's type; imports torch only where weights must be written first."""
    files = synthetic_files(geometry, seed=seed, dtype=geometry.dtype, cache=cache)
    if files.are_there():
        return files.folder
    import torch

    from .checkpoints import synthesize

    return synthesize(geometry, seed=seed, dtype=getattr(torch, geometry.dtype), cache=cache, progress=progress)


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
