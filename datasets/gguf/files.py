"""A Llama's weights to and from a GGUF file, llama.cpp's format.

Two things differ from a Hugging Face folder besides names. llama.cpp turns neighbours (2i, 2i + 1) by RoPE where
Hugging Face turns halves (i, i + D/2), so the rows of q_proj and k_proj are in another order within each head. And
Llama-3 scaling is a tensor of factors instead of four numbers (see gguf_metadata).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from gguf import (
    GGML_QUANT_SIZES,
    GGML_QUANT_VERSION,
    MODEL_ARCH,
    GGMLQuantizationType,
    GGUFReader,
    GGUFWriter,
    Keys,
    LlamaFileType,
    ReaderTensor,
    dequantize,
    get_tensor_name_map,
    quant_shape_to_byte_shape,
    quantize,
)
from numpy.typing import NDArray
from torch import Tensor

from llama_workbench.variants.config import LlamaConfig
from llama_workbench.variants.engines.gguf_shape import ROPE_FACTORS, add_shape, rope_factors

from ..files import short, shortened
from . import metadata as gguf_metadata
from . import tokenizer as gguf_tokenizer
from .metadata import ARCHITECTURE, GGUFError

Format = Literal["F32", "F16", "Q8_0"]
"""How matrices are written; norms and RoPE factors are always F32."""

FORMATS: tuple[Format, ...] = get_args(Format)

_FILE_TYPES = {"F32": LlamaFileType.ALL_F32, "F16": LlamaFileType.MOSTLY_F16, "Q8_0": LlamaFileType.MOSTLY_Q8_0}
_PLAIN = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
# Read by the library; its IQ, ternary and four-bit float types are left out, for they are slow in numpy and rare.
_QUANTIZED = ("Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K", "Q5_1", "Q5_0", "Q4_1", "Q4_0")


def tensor_names(config: LlamaConfig) -> dict[str, str]:
    """The name in a GGUF file of each weight, by its Hugging Face name; `lm_head.weight` among them."""
    table = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    names = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
    for layer in range(config.num_hidden_layers):
        parts = ["input_layernorm", "post_attention_layernorm"]
        parts += [f"self_attn.{part}_proj" for part in "qkvo"] + [f"mlp.{part}_proj" for part in ("gate", "up", "down")]
        names += [f"model.layers.{layer}.{part}.weight" for part in parts]
    return {name: str(table.get_name(name, try_suffixes=(".weight",))) for name in names}


def to_neighbours(rows: Tensor, heads: int) -> Tensor:
    """q_proj or k_proj [heads · D, hidden] with RoPE's partners side by side, as llama.cpp wants them."""
    return rows.reshape(heads, 2, -1, rows.shape[-1]).transpose(1, 2).reshape(rows.shape)


def to_halves(rows: Tensor, heads: int) -> Tensor:
    """q_proj or k_proj [heads · D, hidden] with RoPE's partners D/2 apart, as Hugging Face wants them."""
    return rows.reshape(heads, -1, 2, rows.shape[-1]).transpose(1, 2).reshape(rows.shape)


def _heads(name: str, config: LlamaConfig) -> int | None:
    """How many heads a matrix has whose rows RoPE turns; None for the others."""
    if name.endswith("q_proj.weight"):
        return config.num_attention_heads
    return config.num_key_value_heads if name.endswith("k_proj.weight") else None


# --- writing ---


def write(
    file: Path,
    config: LlamaConfig,
    weights: Mapping[str, Tensor],
    tokenizer_json: str,
    *,
    format: Format = "F32",
    bos: int | None = None,
    eos: int | None = None,
    name: str = "",
) -> Path:
    """A GGUF file of a model; `file` is replaced at once when all is written. Returns `file`.

    `weights` are under their Hugging Face names; with tied embeddings the head is left out. As llama.cpp's converter
    does, a matrix whose rows are no multiple of 32 long is F16 in a Q8_0 file, and ids without a word are padded.

    Raises `GGUFError` if the tokenizer or a value cannot be written (see `gguf_tokenizer`; F16 ends at 65504), and
    OSError if the file cannot.
    """
    fields = gguf_tokenizer.tokenizer_fields(tokenizer_json, vocab_size=config.vocab_size, bos=bos, eos=eos)
    partial = file.with_name(f".{file.name}.partial-{os.getpid()}")
    writer = GGUFWriter(partial, ARCHITECTURE)
    writer.add_name(name or file.stem)
    writer.add_file_type(_FILE_TYPES[format])
    writer.add_quantization_version(GGML_QUANT_VERSION)
    add_shape(writer, config)
    _add_tokenizer(writer, fields)

    # Values are made one tensor at a time, after the header with all their sizes.
    values: list[tuple[GGMLQuantizationType, Callable[[], NDArray[Any]]]] = []

    def add(label: str, shape: tuple[int, ...], kind: GGMLQuantizationType, made: Callable[[], NDArray[Any]]) -> None:
        is_plain = kind.name in _PLAIN
        stored = shape if is_plain else quant_shape_to_byte_shape(shape, kind)
        dtype = np.dtype({"F32": np.float32, "F16": np.float16}[kind.name] if is_plain else np.uint8)
        writer.add_tensor_info(label, stored, dtype, int(np.prod(stored)) * dtype.itemsize, raw_dtype=kind)
        values.append((kind, made))

    if config.rope_scaling is not None:
        factors = rope_factors(config.rope_scaling, config.rope_theta, config.head_dim)
        add(ROPE_FACTORS, factors.shape, GGMLQuantizationType.F32, lambda: factors)
    for ours, theirs in tensor_names(config).items():
        if ours == "lm_head.weight" and config.tie_word_embeddings:
            continue
        kind = _kind(weights[ours], format)
        add(theirs, tuple(weights[ours].shape), kind, lambda ours=ours: _rows(ours, weights[ours], config))  # type: ignore[misc]

    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for kind, made in values:
            with np.errstate(over="ignore"):
                written = quantize(made(), kind)
            if kind == GGMLQuantizationType.F16 and not np.isfinite(written).all():
                raise GGUFError(f"{file}: weights beyond the range of F16; write F32")
            writer.write_tensor_data(written)
        writer.flush()
        writer.close()
        os.replace(partial, file)
    finally:
        writer.close()
        partial.unlink(missing_ok=True)
    return file


def _kind(weight: Tensor, format: Format) -> GGMLQuantizationType:
    if weight.ndim == 1:
        return GGMLQuantizationType.F32
    kind = GGMLQuantizationType[format]
    return kind if weight.shape[-1] % GGML_QUANT_SIZES[kind][0] == 0 else GGMLQuantizationType.F16


def _rows(name: str, weight: Tensor, config: LlamaConfig) -> NDArray[Any]:
    heads = _heads(name, config)
    ordered = weight if heads is None else to_neighbours(weight, heads)
    values: NDArray[Any] = ordered.to(torch.float32).contiguous().cpu().numpy()
    return values


def _add_tokenizer(writer: GGUFWriter, fields: gguf_tokenizer.TokenizerFields) -> None:
    writer.add_tokenizer_model(fields.model)
    writer.add_tokenizer_pre(fields.split)
    writer.add_token_list(fields.tokens)
    writer.add_token_types(fields.types)
    writer.add_token_merges(fields.merges)
    if fields.model == gguf_tokenizer.SENTENCEPIECE:
        writer.add_token_scores(fields.scores)
        writer.add_add_space_prefix(fields.space_prefix)
        if fields.unknown is not None:
            writer.add_unk_token_id(fields.unknown)
    if fields.bos is not None:
        writer.add_bos_token_id(fields.bos)
    if fields.eos is not None:
        writer.add_eos_token_id(fields.eos)
    writer.add_add_bos_token(fields.add_bos)
    writer.add_add_eos_token(fields.add_eos)


# --- reading ---


@dataclass(frozen=True)
class GGUFModel:
    """A GGUF file that was found to be a whole Llama; nothing of its weights is read yet.

    `entries` are its tensors by Hugging Face name, the head only where it is stored; `header` is all before them;
    `tokenizer` is the kind of its tokenizer, under llama.cpp's name.
    """

    path: Path
    config: LlamaConfig
    name: str
    entries: Mapping[str, ReaderTensor]
    header: bytes
    tokenizer: str

    def tensor(self, name: str) -> Tensor:
        """One weight under its Hugging Face name, in Hugging Face's order of rows, on the CPU.

        A view of the file in the file's dtype, where that is no quantization and RoPE does not turn its rows; else a
        copy, float32 where it was quantized.
        """
        entry = self.entries[name]
        if entry.tensor_type.name in _QUANTIZED:
            with np.errstate(all="ignore"):  # a scale that is none gives NaN, which is looked for in all tensors
                values = torch.from_numpy(dequantize(entry.data, entry.tensor_type))
        elif entry.tensor_type == GGMLQuantizationType.BF16:  # unknown to numpy, so the reader gives bytes
            values = torch.from_numpy(entry.data).view(torch.bfloat16)
        else:
            values = torch.from_numpy(entry.data)
        heads = _heads(name, self.config)
        return values if heads is None else to_halves(values, heads)


def opened(path: Path, shapes: Callable[[LlamaConfig], Mapping[str, tuple[int, ...]]]) -> GGUFModel:
    """A GGUF file whose metadata and tensors (names, shapes, types) are those of a Llama.

    `shapes` gives the shape of every weight by Hugging Face name. Raises `GGUFError` as `gguf_metadata.opened` and
    `llama_config` do, and for a tensor that is missing, unexpected, of another shape, or of an unsupported type.
    """
    reader = gguf_metadata.opened(path)
    config = gguf_metadata.llama_config(path, reader)
    expected = dict(shapes(config))
    if config.tie_word_embeddings:
        del expected["lm_head.weight"]
    names = tensor_names(config)
    found = {tensor.name: tensor for tensor in reader.tensors}
    entries: dict[str, ReaderTensor] = {}
    for ours, shape in expected.items():
        entry = found.pop(names[ours], None)
        if entry is None:
            raise GGUFError(f"{path}: missing tensor {names[ours]} of shape {list(shape)}; fetch the file again")
        where = f"{path}: {shortened(entry.name)}"
        if entry.tensor_type.name not in (*_PLAIN, *_QUANTIZED):
            known = ", ".join((*_PLAIN, *_QUANTIZED))
            raise GGUFError(
                f"{where}: quantization {entry.tensor_type.name}, expected one of {known}; take another quantization "
                "of this model, or quantize it anew: llama-quantize"
            )
        stored = tuple(reversed(entry.shape.tolist()))
        if stored != shape:
            raise GGUFError(
                f"{where}: shape {short(list(stored))}, expected {list(shape)} by the metadata; fetch the file again"
            )
        entries[ours] = entry
    found.pop(ROPE_FACTORS, None)
    if found:
        name = min(found)
        problem = "unexpected bias, Llama has none" if name.endswith(".bias") else "unexpected tensor"
        raise GGUFError(
            f"{path}: {shortened(name)}: {problem} for {config.num_hidden_layers} layers; take another model"
        )
    header = reader.data[: reader.data_offset].tobytes()
    kind = gguf_metadata.value(path, reader, Keys.Tokenizer.MODEL, str, "missing")
    return GGUFModel(path, config, _name(path, reader), entries, header, shortened(kind))


def _name(path: Path, reader: GGUFReader) -> str:
    """What the file calls itself; its own name where that says nothing."""
    told = gguf_metadata.value(path, reader, "general.name", str, "")
    return shortened(told, 100) if told.strip() else path.stem
