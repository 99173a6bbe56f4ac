"""A Llama in a GGUF file, llama.cpp's format: the library reads and dequantizes, names and shape are put right here.

Keys and values follow llama.cpp's converter (convert_hf_to_gguf.py, class LlamaModel).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGUFReader, GGUFValueType, Keys, ReaderTensor
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from llama_workbench.datasets.checkpoints import AGAIN, NO_VARIANT, Source, Stored, open_weights
from llama_workbench.datasets.files import faults, short, shortened
from llama_workbench.datasets.geometries import Shape, fail, stored_shapes
from llama_workbench.variants.config import LlamaConfig, RopeScaling
from llama_workbench.variants.gguf_file import ARCHITECTURE, NAMES, ROPE_FACTORS, rope_factors, tensor_names

META_CONTEXT = 8192
"""Of Meta's models before their RoPE was scaled; llama.cpp's converter does not write it."""

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    Keys.General.ARCHITECTURE: (ARCHITECTURE,),
    Keys.LLM.EXPERT_COUNT: (0,),
    Keys.Attention.SLIDING_WINDOW: (0,),
    Keys.Rope.SCALING_TYPE: ("none",),
    "{arch}.rope.scale_linear": (1.0,),
}
"""Keys that change what is computed, with the values that change nothing."""


class _BoundedReader(GGUFReader):
    """The library's reader, which alone reads on beyond the end of a file, without end where a length is damaged, and
    takes ten seconds for the words of a tokenizer: here a list's entries are passed over."""

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> NDArray[Any]:
        end = int(offset) + int(count) * np.dtype(dtype).itemsize
        if not 0 <= offset <= end <= len(self.data):
            raise EOFError(f"{len(self.data)} bytes, expected at least {end}")
        return super()._get(offset, dtype, count, override_order)

    def _get_field_parts(
        self, orig_offs: int, raw_type: int
    ) -> tuple[int, list[NDArray[Any]], list[int], list[GGUFValueType]]:
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind, count = GGUFValueType(self._get(orig_offs, np.uint32)[0]), int(self._get(orig_offs + 4, np.uint64)[0])
        content, end = self.data.data, orig_offs + 12
        if kind == GGUFValueType.STRING:
            for _ in range(count):
                if end > len(content):
                    break  # which the next line tells
                end += 8 + int.from_bytes(content[end : end + 8], sys.byteorder)
        else:
            end += count * np.dtype(self.gguf_scalar_to_np[kind]).itemsize
        return end - orig_offs, [self._get(orig_offs, np.uint8, end - orig_offs)], [], [GGUFValueType.ARRAY, kind]


def takes(path: Path) -> bool:
    """Whether a checkpoint's path is meant as a GGUF file (and not as a folder)."""
    return path.suffix.lower() == ".gguf"


def opened(path: Path) -> Source:
    """A GGUF file's tensors. Raises `CheckpointError`."""
    reader, values = _read(path)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = _llama_config(path, values, tensors)
    names = tensor_names(config, [*stored_shapes(config), "lm_head.weight"])
    ours = {theirs: name for name, theirs in names.items()}
    name = str(values.get("general.name", ""))
    return Source(
        path=path,
        name=shortened(name, 100) if name.strip() else path.stem,
        config=config,
        tensors={
            ours.get(tensor.name, tensor.name): Stored(
                path,
                tensor.tensor_type.name,
                tuple(reversed(tensor.shape.tolist())),
                partial(_values, path, tensor, config.head_dim),
            )
            for tensor in reader.tensors
            if tensor.name != ROPE_FACTORS
        },
        identity=f"{path.stat().st_size}\0".encode() + reader.data[: reader.data_offset].tobytes(),
        has_tokenizer=_has_tokenizer(values),
    )


def _read(path: Path) -> tuple[_BoundedReader, dict[str, Any]]:
    """The file, and its metadata by key, its lists left out. Nothing is written: the pages are this process's own."""
    open_weights(path).close()
    try:
        with np.errstate(over="raise"):  # of a place beyond 2^64
            reader = _BoundedReader(path, "c")
        return reader, {
            key: "a list" if field.types[0] == GGUFValueType.ARRAY else field.contents()
            for key, field in reader.fields.items()
        }
    except (OSError, EOFError, ValueError, LookupError, TypeError, ArithmeticError) as error:
        fail(path, f"truncated, damaged or not GGUF ({shortened(str(error))})", AGAIN)


def _has_tokenizer(values: Mapping[str, Any]) -> bool:
    return values.get(Keys.Tokenizer.MODEL, "none") not in ("no_vocab", "none")


def tokenizer_of(path: Path) -> Any:
    """The tokenizer in a file's metadata, as transformers makes it; None where there is none."""
    if not _has_tokenizer(_read(path)[1]):
        return None
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True).backend_tokenizer


def _values(path: Path, tensor: ReaderTensor, head_dim: int) -> Tensor:
    """A tensor's values in Hugging Face's order of rows: RoPE's partners are D/2 apart, not side by side."""
    try:
        with np.errstate(all="ignore"):  # a scale that is none gives NaN, which is looked for in all tensors
            rows = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type))
    except NotImplementedError:
        problem = f"quantization {tensor.tensor_type.name}, which the library gguf cannot read"
        fail(f"{path}: {shortened(tensor.name)}", problem, "take another quantization of this model")
    if not tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
        return rows
    return rows.reshape(-1, head_dim // 2, 2, rows.shape[-1]).transpose(1, 2).reshape(rows.shape)


def _llama_config(path: Path, values: Mapping[str, Any], tensors: Mapping[str, ReaderTensor]) -> LlamaConfig:
    """The model's shape; float32 numbers as their shortest decimal."""
    if (parts := values.get(Keys.Split.LLM_KV_SPLIT_COUNT, 1)) not in (0, 1):
        fail(path, f"one of {parts} parts, expected a whole model", "join them: llama-gguf-split --merge FIRST OUT")
    for template, neutral in _NEUTRAL.items():
        key = template.format(arch=ARCHITECTURE)
        if (value := values.get(key, neutral[0])) not in neutral:
            fail(path, f"{key} = {short(value)}, expected {neutral[-1]!r}", NO_VARIANT)
    if "token_embd.weight" not in tensors:
        fail(path, "missing tensor token_embd.weight", AGAIN)
    names = {name: template.format(arch=ARCHITECTURE) for name, template in NAMES.items()}
    shape = {name: _decimal(values[key]) for name, key in names.items() if key in values} | {
        "vocab_size": int(tensors["token_embd.weight"].shape[-1]),
        "tie_word_embeddings": "output.weight" not in tensors,
    }
    try:
        config = Shape.model_validate(shape).config()
    except ValidationError as error:
        fail(path, faults(error, shape, Shape, names=names)[0], AGAIN)
    for template in (Keys.Attention.VALUE_LENGTH, Keys.Rope.DIMENSION_COUNT):
        key = template.format(arch=ARCHITECTURE)
        if (value := values.get(key, config.head_dim)) != config.head_dim:
            fail(path, f"{key} = {short(value)}, expected {config.head_dim} as in the keys", NO_VARIANT)
    if ROPE_FACTORS not in tensors:
        return config
    original = values.get(Keys.Rope.SCALING_ORIG_CTX_LEN.format(arch=ARCHITECTURE), META_CONTEXT)
    return replace(config, rope_scaling=_rope_scaling(path, tensors[ROPE_FACTORS].data, original, config))


def _decimal(value: Any) -> Any:
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _rope_scaling(path: Path, factors: NDArray[Any], original: int, config: LlamaConfig) -> RopeScaling | None:
    """Llama-3 scaling that gives these factors, its step where all of Meta's models have it. transformers leaves the
    tensor out, and computes another model."""
    if (factors == 1).all():
        return None
    scaling = RopeScaling(float(factors.max()), 1.0, 4.0, original)
    with np.errstate(all="ignore"):  # of a factor that is none
        wanted = rope_factors(scaling, config.rope_theta, config.head_dim)
    if factors.shape != wanted.shape or not np.allclose(factors, wanted, rtol=1e-5, atol=0):
        fail(f"{path}: {ROPE_FACTORS}", f"not Llama-3 scaling from a context of {original}", NO_VARIANT)
    return scaling
