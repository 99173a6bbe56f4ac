"""What checkpoints of all formats share: what is known of one, and the checks of its values."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from llama_workbench.variants.config import LlamaConfig

from ..cache import keep
from ..files import TOKENIZER_BYTES, parse_json, read_bytes
from ..shape import fail

DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""Types of weights under their names in safetensors and GGUF files."""

CONFIG, SINGLE = "config.json", "model.safetensors"

SYNTHETIC = "llama_workbench"
"""Key in the metadata of a safetensors file that was drawn here: its geometry, seed and recipe."""


@dataclass(frozen=True)
class Checkpoint:
    """A loaded Llama: `weights` under their Hugging Face names, `lm_head.weight` always among them.

    `digest` says whether two checkpoints are the same without reading them whole: SHA-256 over config.json, the name,
    size and header of every safetensors file (names, shapes and dtypes of all tensors), and the first 4 KiB of every
    tensor. It does not cover the other bytes of a tensor, nor tokenizer.json. Of a GGUF file it covers all before the
    tensors (metadata, tokenizer, names, shapes and types), the size, and the first 4 KiB of every tensor. Of synthetic
    weights it covers geometry, seed and recipe instead of bytes, so that it is the same on every machine, although the
    last bit of a weight may differ between CPUs.
    """

    name: str
    config: LlamaConfig
    weights: dict[str, Tensor]
    digest: str
    parameters: int
    synthetic: bool


@dataclass(frozen=True)
class Facts:
    """What was taken from a checkpoint's files: of a changed number nobody can tell that it is wrong but who knows it.

    `dtypes` are those of the weights in the files, most bytes first; `tokenizer` is its kind under its format's name.
    """

    config: LlamaConfig
    dtypes: tuple[str, ...]
    tokenizer: str


class Source(Protocol):
    """A checkpoint's files, whose names, shapes and dtypes are those of a Llama. No weight is read yet."""

    @property
    def config(self) -> LlamaConfig: ...

    @property
    def name(self) -> str: ...

    @property
    def tokenizer(self) -> str:
        """As in `Facts`."""

    @property
    def synthetic(self) -> bool: ...

    def sizes(self) -> Iterable[tuple[str, int]]:
        """Dtype and bytes of each weight."""

    def tensors(self) -> Iterator[tuple[Path, str, Tensor]]:
        """File, Hugging Face name and values of each weight, views of the file where that is possible."""

    def digest(self) -> str:
        """See `Checkpoint`."""


def facts_of(source: Source) -> Facts:
    total: Counter[str] = Counter()
    for dtype, size_bytes in source.sizes():
        total[dtype] += size_bytes
    return Facts(source.config, tuple(dtype for dtype, _ in total.most_common()), source.tokenizer)


def converted(tensor: Tensor, dtype: torch.dtype, device: torch.device, path: Path, name: str) -> Tensor:
    converted = tensor.to(device=device, dtype=dtype)
    if dtype == torch.float16 and tensor.dtype != torch.float16 and not _is_finite(converted):
        problem = f"has values beyond the range of float16 ({tensor.dtype} in the file)"
        fail(f"{path}: {name}", problem, "take bfloat16 or float32")
    return converted


def _is_finite(tensor: Tensor) -> bool:
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
        if not _is_finite(tensor):
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
