"""What goes into models on Candle's kernels and comes out: weights, RoPE's angles, logits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import candle
import torch
from candle import utils
from torch import Tensor

from ..config import LlamaConfig
from ..modular.rope import angle_tables
from . import files

NAMES = {torch.float64: candle.f64, torch.float32: candle.f32, torch.bfloat16: candle.bf16, torch.float16: candle.f16}
"""Candle's type of a torch dtype."""

QKV = ("q_proj.weight", "k_proj.weight", "v_proj.weight")


def load(config: LlamaConfig, weights: Mapping[str, Tensor], *, worker: bool) -> dict[str, Any]:
    """The weights by their names, all as [out, in]; `worker`: but Q, K and V as [in, out], as the worker kept them.
    What is alike is one tensor for all models of a process, as torch's models have it; Candle's tensors do not change.
    Raises EngineError where the threads are not those of the run."""
    files.check_threads()
    loaded = dict(read(_file("safetensors-1", config, weights)))
    if worker:
        turned = {name: weight.t() for name, weight in weights.items() if name.endswith(QKV)}
        loaded |= read(_file("worker-2", config, turned))
    if config.tie_word_embeddings:
        loaded["lm_head.weight"] = loaded["model.embed_tokens.weight"]
    return loaded


def _file(kind: str, config: LlamaConfig, weights: Mapping[str, Tensor]) -> Path:
    def write(folder: Path) -> None:
        files.write_safetensors(folder / "model.safetensors", config, weights)

    return files.folder(kind, config, weights, write) / "model.safetensors"


@lru_cache(maxsize=2)  # both files of the model that a process measures
def read(path: Path) -> Mapping[str, Any]:
    """Candle's tensors of a file, by name: the same ones for all models."""
    loaded: dict[str, Any] = utils.load_safetensors(str(path))
    return loaded


def type_of(weights: Mapping[str, Tensor]) -> Any:
    """Candle's type of the weights."""
    return NAMES[weights["model.norm.weight"].dtype]


def angles(config: LlamaConfig, length: int, dtype: Any) -> tuple[Any, Any]:
    """cos and sin, [length, D/2] each."""
    cos, sin = (candle.Tensor(table.tolist()).to_dtype(dtype) for table in angle_tables(config, length, torch.float32))
    return cos, sin


class Reader:
    """Takes float tensors out of Candle, by a file in memory. The bindings else give nothing but a Python list, which
    takes more than a millisecond for 32000 logits where this takes 80 µs."""

    def __init__(self) -> None:
        self.file = open(os.memfd_create("candle"), "r+b", buffering=0)  # noqa: SIM115
        self.path = f"/proc/self/fd/{self.file.fileno()}"

    def __call__(self, tensor: Any) -> Tensor:
        """The same shape, float64 or float32."""
        double = str(tensor.dtype) == "F64"
        utils.save_safetensors(self.path, {"out": tensor if double else tensor.to_dtype(candle.f32)})
        raw = bytearray(os.fstat(self.file.fileno()).st_size)
        self.file.seek(0)
        self.file.readinto(raw)
        begin = 8 + int.from_bytes(raw[:8], "little")  # behind the header's length and the header
        out = torch.frombuffer(raw, dtype=torch.float64 if double else torch.float32, offset=begin)
        return out.view(tuple(tensor.shape))
