"""What checkpoints of all formats share: names, types of weights, and the check that all values are finite."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llama_workbench.cache import keep

from ..files import TOKENIZER_BYTES, parse_json, read_bytes
from ..geometries import fail

DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""Types of weights under their names in safetensors and GGUF files."""

CONFIG, SINGLE = "config.json", "model.safetensors"

SYNTHETIC = "llama_workbench"
"""Key in the metadata of a safetensors file that was drawn here: its geometry, seed and recipe."""


def is_finite(tensor: Tensor) -> bool:
    low, high = tensor.aminmax()  # NaN comes through; no temporary of the tensor's size as isfinite needs
    return math.isfinite(low.item()) and math.isfinite(high.item())


def check_finite(path: Path, tensors: Iterable[tuple[str, Tensor]], *, cache: Path) -> None:
    """Every value of a file is finite; skipped for one that was found so and has the same path, size and time."""
    memory = cache / "finite.json"
    key, status = str(path.resolve()), path.stat()
    stamp = [status.st_size, status.st_mtime_ns]
    if _remembered(memory).get(key) == stamp:
        return
    for name, tensor in tensors:
        if not is_finite(tensor):
            places = (~torch.isfinite(tensor)).nonzero()
            count = f"{len(places)} of {tensor.numel()} values are NaN or infinite"
            problem = f"{count}, the first at {places[0].tolist()}; expected finite ones"
            fail(f"{path}: {name}", problem, "fetch or train the checkpoint again")
    keep(memory, json.dumps(_remembered(memory) | {key: stamp}, indent=0).encode())


def _remembered(memory: Path) -> dict[str, Any]:
    try:
        stamps = parse_json(read_bytes(memory, at_most=TOKENIZER_BYTES).decode("utf-8"))
    except (OSError, ValueError):  # none yet, or damaged: check again
        return {}
    return stamps if isinstance(stamps, dict) else {}
