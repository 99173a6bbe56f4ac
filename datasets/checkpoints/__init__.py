"""Weights to measure with: drawn from a seed, or read from any Llama in a Hugging Face folder or a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from llama_workbench.variants.config import LlamaConfig

from .. import tokenizer
from ..cache import cache_directory
from ..files import TOKENIZER_BYTES, read_bytes, short
from ..geometries import parameter_count
from ..gguf import files as gguf_files
from ..gguf.metadata import is_gguf
from ..shape import CheckpointError, fail, stored_shapes
from . import huggingface
from .common import CONFIG, Checkpoint, Facts, Source, check_finite, converted, facts_of
from .config_json import AGAIN, COPY, read_json
from .synthetic import synthesize

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Facts",
    "check",
    "described",
    "facts",
    "load",
    "synthesize",
    "write_gguf",
]


def load(
    source: Path | str,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    cache: Path | None = None,
) -> Checkpoint:
    """A Llama from a Hugging Face folder or a .gguf file, its weights in `dtype` on `device`.

    Takes one safetensors file or shards, tied embeddings, head_dim given or derived, Llama-3 RoPE scaling in the
    spelling of transformers 4 or 5, and float64, float32, bfloat16 or float16 tensors. Tensors that have `dtype`
    already and stay on the CPU are views of the file; others are converted once. Of a GGUF file, q_proj and k_proj are
    always copies (their rows are in another order), and quantized tensors are dequantized.

    That all values are finite is checked the first time a file is seen and then remembered in `cache` (default:
    `cache_directory()`) by path, size and time of change.

    Raises `CheckpointError` for: no such folder or file, a config without a key that is needed or of another
    architecture (other model type, activation, biases, RoPE type, quantised), a missing, unexpected or wrongly shaped
    tensor, NaN or infinity, a missing, truncated or damaged file; of a GGUF file also for a quantization that is not
    supported.
    """
    files = _checked(source, cache)
    place = torch.device(device)
    weights = {name: converted(tensor, dtype, place, file, name) for file, name, tensor in files.tensors()}
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])  # a tied head is not stored
    return Checkpoint(
        name=files.name,
        config=files.config,
        weights={name: weights[name] for name in (*stored_shapes(files.config), "lm_head.weight")},
        digest=files.digest(),
        parameters=parameter_count(files.config),
        synthetic=files.synthetic,
    )


def facts(source: Path | str, *, cache: Path | None = None) -> Facts:
    """What a usable checkpoint says of itself; checks what `load` checks, without loading, and raises as it does."""
    return facts_of(_checked(source, cache))


def check(source: Path | str, *, cache: Path | None = None) -> LlamaConfig:
    """Everything that `load` checks, without loading: the shape of a usable checkpoint, or a `CheckpointError`."""
    return _checked(source, cache).config


def _checked(source: Path | str, cache: Path | None) -> Source:
    path, cache = Path(source), cache or cache_directory()
    if not is_gguf(path):
        return huggingface.opened(path, cache)
    model = gguf_files.opened(path)
    check_finite(path, ((name, tensor) for _, name, tensor in model.tensors()), cache=cache)
    return model


def described(facts: Facts) -> str:
    """A checkpoint's facts in one line."""
    config = facts.config
    scaling = "" if config.rope_scaling is None else f" (llama3 scaling by {config.rope_scaling.factor:g})"
    tied = ", tied head" if config.tie_word_embeddings else ""
    return (
        f"{config.num_hidden_layers} layers, width {config.hidden_size} (feed-forward {config.intermediate_size}), "
        f"{config.num_attention_heads} heads of {config.head_dim}, {config.num_key_value_heads} KV heads, "
        f"context {config.max_position_embeddings}, epsilon {config.rms_norm_eps:g}, "
        f"rope theta {config.rope_theta:g}{scaling}, vocabulary {config.vocab_size}{tied}, "
        f"{' and '.join(facts.dtypes)}, tokenizer {facts.tokenizer}"
    )


def write_gguf(folder: Path, file: Path, *, format: gguf_files.Format = "F32", cache: Path | None = None) -> Path:
    """The GGUF file of a Hugging Face folder, tokenizer and all. Returns `file`.

    Raises `CheckpointError` if the folder cannot be used (see `load`) or the tokenizer cannot be said in GGUF.
    """
    checkpoint, raw = load(folder, cache=cache), read_json(folder / CONFIG)
    ends: dict[str, int | None] = {}
    for name in ("bos", "eos"):
        value: Any = raw.get(f"{name}_token_id")
        value = value[0] if isinstance(value, list) and value else value  # of several, the first is the one to write
        if type(value) not in (int, type(None)):
            fail(folder / CONFIG, f"{name}_token_id = {short(value)}, expected an id", COPY)
        ends[name] = value
    text = folder / tokenizer.FILE
    try:
        content = read_bytes(text, at_most=TOKENIZER_BYTES).decode("utf-8")
    except OSError as error:
        fail(text, f"cannot be read ({error.strerror})", AGAIN)
    except UnicodeDecodeError as error:
        fail(text, f"not UTF-8 ({error})", AGAIN)
    return gguf_files.write(
        file, checkpoint.config, checkpoint.weights, content, where=text, format=format, name=checkpoint.name, **ends
    )
