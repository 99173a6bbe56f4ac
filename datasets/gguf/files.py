"""A Llama's weights to and from a GGUF file, llama.cpp's format."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llama_workbench.variants.config import LlamaConfig
from llama_workbench.variants.engines import gguf_file

from ..files import short
from ..geometries import WITHOUT_BIASES, fail, no_bias, stored_shapes
from ..texts import shortened
from . import metadata as gguf_metadata
from . import tokenizer as gguf_tokenizer
from .metadata import AGAIN

Format = Literal["F32", "F16", "Q8_0"]
"""How matrices are written; norms and RoPE factors are always F32."""

FORMATS: tuple[Format, ...] = get_args(Format)

_PLAIN = ("F64", "F32", "BF16", "F16")
# Read by the library; its IQ, ternary and four-bit float types are left out, for they are slow in numpy and rare.
_QUANTIZED = ("Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K", "Q5_1", "Q5_0", "Q4_1", "Q4_0")


def write(
    file: Path,
    config: LlamaConfig,
    weights: Mapping[str, Tensor],
    tokenizer_json: str,
    *,
    where: Path | str = "tokenizer.json",
    format: Format = "F32",
    bos: int | None = None,
    eos: int | None = None,
    name: str = "",
) -> Path:
    """A GGUF file of a model; `file` is replaced at once when all is written. Returns `file`.

    `weights` are under their Hugging Face names; with tied embeddings the head is left out. As llama.cpp's converter
    does, a matrix whose rows are no multiple of 32 long is F16 in a Q8_0 file, and ids without a word are padded.
    Raises `CheckpointError` if the tokenizer (of the file `where`) or a value cannot be written (see `gguf_tokenizer`;
    F16 ends at 65504), and OSError if the file cannot.
    """
    fields = gguf_tokenizer.tokenizer_fields(
        tokenizer_json, vocab_size=config.vocab_size, bos=bos, eos=eos, where=where
    )

    def describe(writer: gguf.GGUFWriter) -> None:
        writer.add_name(name or file.stem)
        writer.add_file_type(gguf.LlamaFileType["ALL_F32" if format == "F32" else f"MOSTLY_{format}"])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        gguf_tokenizer.add_tokenizer(writer, fields)

    def encode(values: NDArray[np.float32]) -> tuple[NDArray[Any], gguf.GGMLQuantizationType]:
        kind = gguf.GGMLQuantizationType[format if values.ndim > 1 else "F32"]
        if values.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
            kind = gguf.GGMLQuantizationType.F16
        with np.errstate(over="ignore"):
            encoded = gguf.quantize(values, kind)
        if kind == gguf.GGMLQuantizationType.F16 and not np.isfinite(encoded).all():
            fail(file, "weights beyond the range of F16", "write F32")
        return encoded, kind

    partial = file.with_name(f".{file.name}.partial-{os.getpid()}")
    try:
        gguf_file.write(partial, config, weights, describe, encode)
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)
    return file


@dataclass(frozen=True)
class GGUFModel:
    """A GGUF file with all tensors of a Llama; no weight is read yet. `entries` are its tensors by Hugging Face name,
    the head only where it is stored; `header` is all before them; `tokenizer` is the kind of its tokenizer, under
    llama.cpp's name, and empty where there is none."""

    path: Path
    config: LlamaConfig
    name: str
    entries: Mapping[str, gguf.ReaderTensor]
    header: bytes
    tokenizer: str
    zero_biases: int = 0
    synthetic: bool = False

    def tensor(self, name: str) -> Tensor:
        """One weight by its Hugging Face name, in Hugging Face's order of rows, on the CPU: a view of the file in the
        file's dtype where that is no quantization and RoPE does not turn its rows; else a copy, float32 where it was
        quantized."""
        entry = self.entries[name]
        if entry.tensor_type.name in _QUANTIZED:
            with np.errstate(all="ignore"):  # a scale that is none gives NaN, which is looked for in all tensors
                values = torch.from_numpy(gguf.dequantize(entry.data, entry.tensor_type))
        else:
            values = torch.from_numpy(entry.data)
            if entry.tensor_type == gguf.GGMLQuantizationType.BF16:  # unknown to numpy, so the reader gives bytes
                values = values.view(torch.bfloat16)
        turned = name.endswith(("q_proj.weight", "k_proj.weight"))
        return to_halves(values, self.config.head_dim) if turned else values

    def tensors(self) -> Iterator[tuple[Path, str, Tensor]]:
        """File, Hugging Face name and values of each weight."""
        return ((self.path, name, self.tensor(name)) for name in self.entries)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Type and bytes of each weight."""
        return ((entry.tensor_type.name, int(entry.n_bytes)) for entry in self.entries.values())

    def digest(self) -> str:
        """SHA-256 over the file's size, all before the tensors, and the first 4 KiB of every tensor."""
        digest = hashlib.sha256(f"{self.path.stat().st_size}\0".encode() + self.header)
        for entry in self.entries.values():
            digest.update(entry.data.reshape(-1).view("uint8")[:4096].tobytes())
        return digest.hexdigest()


def to_halves(rows: Tensor, head_dim: int) -> Tensor:
    """q_proj or k_proj [heads · D, hidden] with RoPE's partners D/2 apart, from llama.cpp's side by side."""
    return rows.reshape(-1, head_dim // 2, 2, rows.shape[-1]).transpose(1, 2).reshape(rows.shape)


def opened(path: Path) -> GGUFModel:
    """A GGUF file whose metadata and tensors are those of a Llama. Raises `CheckpointError` as `metadata.opened` and
    `llama_config` do, and for a tensor that is missing, unexpected, of another shape, or of an unsupported type."""
    reader = gguf_metadata.opened(path)
    config = gguf_metadata.llama_config(reader)
    expected = stored_shapes(config)
    unused = {tensor.name: tensor for tensor in reader.tensors}
    entries: dict[str, gguf.ReaderTensor] = {}
    for ours, theirs in gguf_file.tensor_names(config, expected).items():
        shape = expected[ours]
        entry = unused.pop(theirs, None)
        if entry is None:
            fail(path, f"missing tensor {theirs} of shape {list(shape)}", AGAIN)
        where = f"{path}: {shortened(entry.name)}"
        if entry.tensor_type.name not in (*_PLAIN, *_QUANTIZED):
            problem = f"quantization {entry.tensor_type.name}, expected one of {', '.join((*_PLAIN, *_QUANTIZED))}"
            fail(where, problem, "take another quantization of this model, or quantize it anew: llama-quantize")
        stored = tuple(reversed(entry.shape.tolist()))
        if stored != shape:
            fail(where, f"shape {short(list(stored))}, expected {list(shape)} by the metadata", AGAIN)
        entries[ours] = entry
    unused.pop(gguf_file.ROPE_FACTORS, None)
    biases = [name for name in unused if name.endswith(".bias")]
    if used := [name for name in biases if unused[name].data.any()]:
        fail(f"{path}: {shortened(min(used))}", no_bias(len(used)), WITHOUT_BIASES)
    if others := unused.keys() - {*biases}:
        problem = f"unexpected tensor for {config.num_hidden_layers} layers"
        fail(f"{path}: {shortened(min(others))}", problem, "take another model")
    name = reader.value("general.name", str, "")
    return GGUFModel(
        path=path,
        config=config,
        name=shortened(name, 100) if name.strip() else path.stem,
        zero_biases=len(biases),
        entries=entries,
        header=reader.data[: reader.data_offset].tobytes(),
        tokenizer=gguf_metadata.kind_of_tokenizer(reader),
    )
