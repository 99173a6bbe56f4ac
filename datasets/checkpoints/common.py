"""What checkpoints of all formats share: their weights' names and shapes, and the checks of their values."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from llama_workbench.variants.config import LlamaConfig

from ..cache import CacheError, partial_folder
from ..files import TOKENIZER_BYTES, parse_json, read_bytes
from ..shape import DataError

DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""Types of weights under their names in safetensors and GGUF files."""

CONFIG, SINGLE = "config.json", "model.safetensors"

SYNTHETIC = "llama_workbench"
"""Key in the metadata of a safetensors file that was drawn here: its geometry, seed and recipe."""


class CheckpointError(DataError):
    """A checkpoint cannot be used. The text names file and tensor, what it holds, what was expected, and the fix."""


def fail(where: Path | str, problem: str, fix: str) -> NoReturn:
    """Raises `CheckpointError`."""
    raise CheckpointError(f"{where}: {problem}; {fix}")


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


def shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Every weight of the model with its shape ([out, in]), under its Hugging Face name."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    layers = {
        f"model.layers.{index}.{name}.weight": shape
        for index in range(config.num_hidden_layers)
        for name, shape in layer.items()
    }
    vocabulary = (config.vocab_size, hidden)
    ends = {"model.norm.weight": (hidden,), "lm_head.weight": vocabulary}
    return {"model.embed_tokens.weight": vocabulary, **layers, **ends}


def stored_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """The same of what a file must have: a tied head is the embedding."""
    return {
        name: shape
        for name, shape in shapes(config).items()
        if not (config.tie_word_embeddings and name == "lm_head.weight")
    }


def with_head(weights: Mapping[str, Tensor], config: LlamaConfig) -> dict[str, Tensor]:
    """All weights in the order of the model; a head that is not stored is the embeddings."""
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return {name: weights.get(name, head) for name in shapes(config)}


def by_size(sizes: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """Names with the sum of their bytes largest first."""
    total: dict[str, int] = {}
    for name, size in sizes:
        total[name] = total.get(name, 0) + size
    return tuple(sorted(total, key=lambda name: -total[name]))


def converted(tensor: Tensor, dtype: torch.dtype, device: torch.device, path: Path, name: str) -> Tensor:
    converted = tensor.to(device=device, dtype=dtype)
    if dtype == torch.float16 and tensor.dtype != torch.float16 and not _is_finite(converted):
        fail(
            f"{path}: {name}",
            f"has values beyond the range of float16 ({tensor.dtype} in the file)",
            "take bfloat16 or float32",
        )
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
            count = int((~torch.isfinite(tensor)).sum())
            where = (~torch.isfinite(tensor)).nonzero()[0].tolist()
            said = f"{count} of {tensor.numel()} values are NaN or infinite, the first at {where}; expected finite ones"
            fail(f"{path}: {name}", said, "fetch or train the checkpoint again")
    # A cache that cannot be written costs a second check next time, nothing else.
    with contextlib.suppress(CacheError), partial_folder(cache, memory.name, needed_bytes=0) as partial:
        kept = _remembered(memory) | {key: stamp}
        (partial / memory.name).write_text(json.dumps(kept, indent=0), encoding="utf-8")
        os.replace(partial / memory.name, memory)


def _remembered(memory: Path) -> dict[str, Any]:
    try:
        known = parse_json(read_bytes(memory, at_most=TOKENIZER_BYTES).decode("utf-8"))
    except (OSError, ValueError):  # none yet, or damaged: check again
        return {}
    return known if isinstance(known, dict) else {}
