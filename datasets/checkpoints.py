"""Weights to measure with: drawn from a seed for a geometry, or read from any Hugging Face Llama folder or GGUF file.

The folders have config.json, model.safetensors (or shards) and tokenizer.json; nothing here reads or writes a pickle.
Weights are memory-mapped: a process pays for a tensor when it first touches it, and processes share the pages.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from llama_workbench.variants.config import LlamaConfig, RopeScaling

from . import tokenizer
from .cache import CacheError, cache_directory, partial_folder
from .files import CONFIG_BYTES, TOKENIZER_BYTES, open_regular, parse_json, read_bytes, short, shortened
from .geometries import (
    EPSILON,
    FACTOR,
    LARGEST_COUNT,
    MOST_LAYERS,
    THETA,
    DataError,
    Geometry,
    parameter_count,
)
from .gguf import files as gguf_files
from .gguf.metadata import GGUFError, is_gguf

RECIPE = 1
"""Counts up when the synthetic weights of the same seed change, so that older folders in a cache are not taken."""

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_NAMES = {torch.float64: "float64", torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_CONFIG = "config.json"
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SYNTHETIC = "llama_workbench"  # key in the safetensors metadata: which geometry, seed and recipe
_STALE_SECONDS = 3600.0


class CheckpointError(DataError):
    """A checkpoint cannot be used. The text names file and tensor, what was found and expected, and the fix."""


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


# --- synthetic checkpoints ---


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
    1 with a deviation of 0.05. So logits have a variance of about 1 and activations keep their size through the layers
    at every depth, and a variant that forgets a norm's weight or a residual is seen in the logits.
    Each tensor has a generator of its own, seeded by `seed` and its name, so order and threads play no part.

    `progress` is called with a tensor's name and the share done (0 to 1). `cache` defaults to `cache_directory()`.
    Whole or not at all: the folder is written under another name and renamed; of two processes at once one wins.
    Raises `CacheError` where the disk has no room.
    """
    parent = (cache or cache_directory()) / "checkpoints"
    shapes = _shapes(geometry.config)
    if geometry.config.tie_word_embeddings:
        del shapes["lm_head.weight"]
    label = {"geometry": geometry.name, "seed": seed, "recipe": RECIPE}
    header = _header(shapes, dtype, label)
    config_json = json.dumps(_hugging_face_config(geometry.config, dtype), indent=2) + "\n"
    tokenizer_json = tokenizer.train(geometry.config.vocab_size, cache=cache)
    identity = hashlib.sha256(header + config_json.encode() + tokenizer_json.encode()).hexdigest()
    name = f"{geometry.name}-{_NAMES[dtype]}-seed{seed}-{identity[:12]}"
    folder = parent / name
    size_bytes = len(header) + sum(math.prod(shape) for shape in shapes.values()) * dtype.itemsize
    if _is_whole(folder, size_bytes):
        return folder

    _remove_stale(parent)
    with partial_folder(parent, name, needed_bytes=size_bytes) as partial:
        written = partial / name
        written.mkdir()
        (written / _CONFIG).write_text(config_json, encoding="utf-8")
        (written / tokenizer.FILE).write_text(tokenizer_json, encoding="utf-8")
        with (written / _SINGLE).open("wb") as file:
            file.write(header)
            done_bytes = len(header)
            for tensor_name, shape in shapes.items():
                values = _drawn(tensor_name, shape, geometry.config, seed=seed).to(dtype)
                file.write(values.view(torch.uint8).numpy().data)
                done_bytes += values.nbytes
                if progress is not None:
                    progress(tensor_name, done_bytes / size_bytes)
                del values  # before the next one is made: one tensor in memory, not two
            file.flush()
            os.fsync(file.fileno())  # here, where it is expected, and not in the background of the first measurement
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
    """The start of a safetensors file: length of the JSON in 8 bytes, then the JSON, padded with spaces.

    Padded to 64 bytes so that mapped tensors start at a cache line as far as their sizes allow.
    """
    code = next(code for code, known in _DTYPES.items() if known == dtype)
    entries: dict[str, object] = {"__metadata__": {"format": "pt", _SYNTHETIC: json.dumps(label)}}
    start = 0
    for name, shape in shapes.items():
        end = start + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": code, "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return struct.pack("<Q", len(text)) + text


def _hugging_face_config(config: LlamaConfig, dtype: torch.dtype) -> dict[str, object]:
    """config.json that transformers 4 and 5 both read: RoPE and dtype are spelled the old and the new way."""
    rope: dict[str, object] = {"rope_type": "default"}
    if config.rope_scaling is not None:
        rope = {"rope_type": "llama3", **vars(config.rope_scaling)}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": None if config.rope_scaling is None else rope,
        "rope_parameters": {**rope, "rope_theta": config.rope_theta},
        "tie_word_embeddings": config.tie_word_embeddings,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "torch_dtype": _NAMES[dtype],
        "dtype": _NAMES[dtype],
    }


def _is_whole(folder: Path, size_bytes: int) -> bool:
    try:
        sizes = [(folder / file).stat().st_size for file in (_CONFIG, tokenizer.FILE, _SINGLE)]
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


# --- loading ---


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
    path = Path(source)
    if is_gguf(path):
        return _load_gguf(path, dtype, torch.device(device), cache)
    raw, config, files, entries = _checked_folder(path, cache)
    label = _synthetic_label(files)
    weights: dict[str, Tensor] = {}
    for file in files:
        for name, tensor in _tensors(file, [name for name in file.entries if entries.get(name) is file]):
            weights[name] = _converted(tensor, dtype, torch.device(device), file.path, name)
    return Checkpoint(
        name=str(label["geometry"]) if label else path.resolve().name,
        config=config,
        weights=_with_head(weights, config),
        digest=_digest(raw, files, with_values=label is None),
        parameters=parameter_count(config),
        synthetic=label is not None,
    )


def check(source: Path | str, *, cache: Path | None = None) -> LlamaConfig:
    """Everything that `load` checks, without loading: the shape of a usable checkpoint, or a `CheckpointError`."""
    return facts(source, cache=cache).config


def facts(source: Path | str, *, cache: Path | None = None) -> Facts:
    """What a usable checkpoint says of itself; checks what `load` checks, without loading, and raises as it does."""
    path = Path(source)
    if is_gguf(path):
        model = _checked_gguf(path, cache)
        sizes = [(entry.tensor_type.name, int(entry.n_bytes)) for entry in model.entries.values()]
        return Facts(model.config, _by_size(sizes), model.tokenizer)
    _, config, files, entries = _checked_folder(path, cache)
    _synthetic_label(files)
    stored = [file.entries[name] for name, file in entries.items()]
    return Facts(config, _by_size([(each.dtype, each.end - each.start) for each in stored]), _tokenizer_kind(path))


def _by_size(sizes: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """Names with the sum of their bytes largest first."""
    total: dict[str, int] = {}
    for name, size in sizes:
        total[name] = total.get(name, 0) + size
    return tuple(sorted(total, key=lambda name: -total[name]))


def _tokenizer_kind(folder: Path) -> str:
    """Model type of a folder's tokenizer.json; whether it can be used is asked when prompts are cut."""
    try:
        return shortened(str(parse_json(read_bytes(folder / tokenizer.FILE, at_most=TOKENIZER_BYTES))["model"]["type"]))
    except OSError:
        return "missing"
    except (ValueError, TypeError, KeyError):
        return "unreadable"


def _with_head(weights: Mapping[str, Tensor], config: LlamaConfig) -> dict[str, Tensor]:
    """All weights in the order of the model; a head that is not stored is the embeddings."""
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return {name: weights.get(name, head) for name in _shapes(config)}


# GGUF


def write_gguf(folder: Path, file: Path, *, format: gguf_files.Format = "F32", cache: Path | None = None) -> Path:
    """The GGUF file of a Hugging Face folder, tokenizer and all. Returns `file`.

    Raises `CheckpointError` if the folder cannot be used (see `load`) or the tokenizer cannot be said in GGUF.
    """
    checkpoint, raw = load(folder, cache=cache), _read_json(folder / _CONFIG)

    def end(key: str) -> int | None:
        found = raw.get(key)
        found = found[0] if isinstance(found, list) and found else found  # of several, the first is the one to write
        if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
            _fail(folder / _CONFIG, f"{key} = {short(found)}, expected an id", _COPY_CONFIG)
        return found

    try:
        content = read_bytes(folder / tokenizer.FILE, at_most=TOKENIZER_BYTES).decode("utf-8")
    except OSError as error:
        _fail(folder / tokenizer.FILE, f"cannot be read ({error.strerror})", "copy it from the checkpoint's source")
    except UnicodeDecodeError as error:
        _fail(folder / tokenizer.FILE, f"not UTF-8 ({error})", "copy it from the checkpoint's source again")
    with _as_checkpoint_error(folder):
        return gguf_files.write(
            file,
            checkpoint.config,
            checkpoint.weights,
            content,
            format=format,
            bos=end("bos_token_id"),
            eos=end("eos_token_id"),
            name=checkpoint.name,
        )


def _load_gguf(path: Path, dtype: torch.dtype, device: torch.device, cache: Path | None) -> Checkpoint:
    model = _checked_gguf(path, cache)
    weights = {name: _converted(model.tensor(name), dtype, device, path, name) for name in model.entries}
    digest = hashlib.sha256(f"{path.stat().st_size}\0".encode() + model.header)
    for entry in model.entries.values():
        digest.update(entry.data.reshape(-1).view("uint8")[:4096].tobytes())
    return Checkpoint(
        name=model.name,
        config=model.config,
        weights=_with_head(weights, model.config),
        digest=digest.hexdigest(),
        parameters=parameter_count(model.config),
        synthetic=False,
    )


def open_gguf(path: Path) -> gguf_files.GGUFModel:
    """A GGUF file of a Llama, none of its weights read or checked yet. Raises `CheckpointError` as `load` does."""
    with _as_checkpoint_error():
        return gguf_files.opened(path, _shapes)


def _checked_gguf(path: Path, cache: Path | None) -> gguf_files.GGUFModel:
    model = open_gguf(path)
    tensors = ((name, model.tensor(name)) for name in model.entries)
    _check_finite(path, tensors, cache=cache or cache_directory())
    return model


@contextlib.contextmanager
def _as_checkpoint_error(folder: Path | None = None) -> Iterator[None]:
    try:
        yield
    except GGUFError as error:
        raise CheckpointError(f"{folder / str(error)}" if folder else str(error)) from error


# Hugging Face folders


def _checked_folder(
    folder: Path, cache: Path | None
) -> tuple[dict[str, Any], LlamaConfig, list[_File], dict[str, _File]]:
    if problem := _no_folder(folder):
        _fail(shortened(str(folder)), problem, "name a folder with config.json and safetensors, or a .gguf file")
    raw = _read_json(folder / _CONFIG)
    config = _llama_config(folder / _CONFIG, raw)
    files = [_read_header(file) for file in _weight_files(folder)]
    entries = _checked_entries(folder, config, files)
    for file in files:
        floating = [name for name, entry in file.entries.items() if entry.dtype in _DTYPES and entry.end > entry.start]
        _check_finite(file.path, _tensors(file, floating), cache=cache or cache_directory())

    if config.tie_word_embeddings:
        _check_tied(files)
    return raw, config, files, entries


def _no_folder(path: Path) -> str:
    """What is in the way of reading a folder; empty where nothing is."""
    try:
        return "" if stat.S_ISDIR(path.stat().st_mode) else "is a file"
    except FileNotFoundError:
        return "no such folder"
    except (OSError, ValueError) as error:
        return f"cannot be read ({getattr(error, 'strerror', None) or error})"


@dataclass(frozen=True)
class _Entry:
    """One tensor in a safetensors header; `start` and `end` are bytes from where the tensors begin."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class _File:
    """One safetensors file: `entries` is its header by tensor name, `data_start` where the tensors' bytes begin."""

    path: Path
    size_bytes: int
    header: bytes
    data_start: int
    entries: dict[str, _Entry]
    metadata: dict[str, str]


def _fail(where: Path | str, problem: str, fix: str) -> NoReturn:
    raise CheckpointError(f"{where}: {problem}; {fix}")


def _shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Every weight of the model with its shape ([out, in]), under its Hugging Face name."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for layer in range(config.num_hidden_layers):
        shapes |= {
            f"model.layers.{layer}.input_layernorm.weight": (hidden,),
            f"model.layers.{layer}.self_attn.q_proj.weight": (queries, hidden),
            f"model.layers.{layer}.self_attn.k_proj.weight": (keys, hidden),
            f"model.layers.{layer}.self_attn.v_proj.weight": (keys, hidden),
            f"model.layers.{layer}.self_attn.o_proj.weight": (hidden, queries),
            f"model.layers.{layer}.post_attention_layernorm.weight": (hidden,),
            f"model.layers.{layer}.mlp.gate_proj.weight": (inner, hidden),
            f"model.layers.{layer}.mlp.up_proj.weight": (inner, hidden),
            f"model.layers.{layer}.mlp.down_proj.weight": (hidden, inner),
        }
    return shapes | {"model.norm.weight": (hidden,), "lm_head.weight": (config.vocab_size, hidden)}


# config.json


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_bytes(path, at_most=CONFIG_BYTES).decode("utf-8"))
    except OSError as error:
        _fail(path, f"cannot be read ({error.strerror})", "copy it from the checkpoint's source")
    except ValueError as error:
        _fail(path, f"not JSON ({error})", "copy it from the checkpoint's source again")
    if not isinstance(content, dict):
        _fail(
            path, f"holds a {type(content).__name__}, expected an object", "copy it from the checkpoint's source again"
        )
    return content


def _llama_config(path: Path, raw: Mapping[str, Any]) -> LlamaConfig:
    if raw.get("model_type") != "llama":
        _fail(
            path,
            f"model_type = {short(raw.get('model_type'))}, expected 'llama'",
            "only Llama checkpoints can be measured",
        )
    if raw.get("quantization_config") is not None:
        method = raw["quantization_config"].get("quant_method") if isinstance(raw["quantization_config"], dict) else "?"
        _fail(path, f"quantised weights (quant_method = {short(method)}), expected plain ones", _DEQUANTISE)
    for key, expected in _FIXED.items():
        if raw.get(key) not in (None, expected):
            _fail(
                path,
                f"{key} = {short(raw[key])}, expected {expected!r}",
                _NO_VARIANT,
            )

    heads = _number(path, raw, "num_attention_heads")
    hidden_size = _number(path, raw, "hidden_size")
    if raw.get("head_dim") is None and hidden_size % heads:
        _fail(path, f"num_attention_heads = {heads}, expected a divisor of hidden_size = {hidden_size}", _ADD_HEAD_DIM)
    key_value_heads = _number(path, raw, "num_key_value_heads", heads)
    if heads % key_value_heads:
        _fail(path, f"num_key_value_heads = {key_value_heads}, expected a divisor of {heads} heads", _COPY_CONFIG)
    theta, scaling = _rope(path, raw)
    tied = raw.get("tie_word_embeddings")
    if tied is not None and not isinstance(tied, bool):
        _fail(path, f"tie_word_embeddings = {short(tied)}, expected true or false", _COPY_CONFIG)
    config = LlamaConfig(
        vocab_size=_number(path, raw, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=_number(path, raw, "intermediate_size"),
        num_hidden_layers=_number(path, raw, "num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=_number(path, raw, "head_dim", hidden_size // heads),
        max_position_embeddings=_number(path, raw, "max_position_embeddings"),
        rms_norm_eps=_real(path, raw, "rms_norm_eps", EPSILON),
        rope_theta=theta,
        rope_scaling=scaling,
        tie_word_embeddings=tied is True,
    )
    if config.head_dim % 2:
        _fail(path, f"head_dim = {config.head_dim}, expected an even number (RoPE turns pairs)", _COPY_CONFIG)
    return config


_COPY_CONFIG = "copy config.json from the checkpoint's source again"
_NO_VARIANT = "no variant computes this; take another checkpoint"
_ADD_HEAD_DIM = "add head_dim to config.json"
_DEQUANTISE = (
    "take the unquantised checkpoint, or write one with transformers: "
    "AutoModelForCausalLM.from_pretrained(FOLDER), then .dequantize() and .save_pretrained(NEW_FOLDER)"
)
_FIXED = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "partial_rotary_factor": 1.0}


def _rope(path: Path, raw: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """theta and scaling from `rope_theta` and `rope_scaling` (transformers 4) or `rope_parameters` (transformers 5)."""
    spellings: list[tuple[str, Mapping[str, Any]]] = []
    for key in ("rope_scaling", "rope_parameters"):
        if raw.get(key) is not None and not isinstance(raw[key], dict):
            _fail(path, f"{key} = {short(raw[key])}, expected an object or null", _COPY_CONFIG)
        for inner, value in (raw.get(key) or {}).items():
            if isinstance(value, dict) or (inner == "partial_rotary_factor" and value not in (None, 1.0)):
                said = f"{key}.{shortened(inner)} = {short(value)}, expected one RoPE over all dimensions and layers"
                _fail(path, said, _NO_VARIANT)
        if raw.get(key):
            spellings.append((key, raw[key]))
    thetas = {
        f"{key}.rope_theta": _real(path, values, "rope_theta", THETA)
        for key, values in spellings
        if "rope_theta" in values
    }
    if raw.get("rope_theta") is not None:
        thetas["rope_theta"] = _real(path, raw, "rope_theta", THETA)
    scalings = {key: _scaling(path, key, values) for key, values in spellings}
    for found in (thetas, scalings):
        if len(set(found.values())) > 1:
            said = ", ".join(f"{key} = {value}" for key, value in found.items())
            _fail(path, f"contradicts itself ({said}), expected one value", "correct the wrong one")
    return next(iter(thetas.values()), 10_000.0), next(iter(scalings.values()), None)


def _scaling(path: Path, key: str, values: Mapping[str, Any]) -> RopeScaling | None:
    kind = values.get("rope_type", values.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        _fail(path, f"{key}.rope_type = {short(kind)}, expected 'llama3' or 'default'", _NO_VARIANT)
    low, high = (_real(path, values, name, FACTOR) for name in ("low_freq_factor", "high_freq_factor"))
    if low >= high:
        _fail(path, f"{key}.high_freq_factor = {high:g}, expected more than low_freq_factor = {low:g}", _COPY_CONFIG)
    return RopeScaling(
        factor=_real(path, values, "factor", FACTOR),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=_number(path, values, "original_max_position_embeddings"),
    )


def _number(path: Path, raw: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = raw.get(key)
    if value is None and default is not None:
        return default
    if value is None:
        _fail(path, f"{key} is missing", _COPY_CONFIG)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        _fail(path, f"{key} = {short(value)}, expected a positive integer", _COPY_CONFIG)
    if value > LARGEST_COUNT:
        _fail(path, f"{key} = {short(value)}, expected at most {LARGEST_COUNT}", _COPY_CONFIG)
    return value


def _real(path: Path, raw: Mapping[str, Any], key: str, bounds: tuple[float, float]) -> float:
    """A number within `bounds`, the ends among them, and above 0."""
    value, (low, high) = raw.get(key), bounds
    if value is None:
        _fail(path, f"{key} is missing", _COPY_CONFIG)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        _fail(path, f"{key} = {short(value)}, expected a positive number", _COPY_CONFIG)
    if not low <= value <= high:
        _fail(path, f"{key} = {short(value)}, expected {low:g} to {high:g}", _COPY_CONFIG)
    return float(value)


# safetensors files


def _weight_files(folder: Path) -> list[Path]:
    if (folder / _SINGLE).exists():
        return [folder / _SINGLE]
    if (folder / _INDEX).exists():
        places = _read_json(folder / _INDEX).get("weight_map")
        places = places if isinstance(places, dict) else {}
        again = "copy it from the checkpoint's source again"
        if not places:
            _fail(folder / _INDEX, "no weight_map from tensors to files", again)
        for tensor, name in places.items():
            if not _is_file_name(name):
                said = f"weight_map puts {shortened(tensor)} into {short(name)}, expected the name of a file beside it"
                _fail(folder / _INDEX, said, again)
        names = sorted(set(places.values()))
        for name in names:
            if not (folder / name).exists():
                count = sum(place == name for place in places.values())
                _fail(folder / name, f"missing shard, {_INDEX} puts {count} tensors there", "fetch the missing file")
        return [folder / name for name in names]
    if pickles := sorted(path.name for path in folder.glob("*.bin")):
        convert = "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"
        _fail(folder, f"has {pickles[0]}, a pickle, and no safetensors", f"write them with transformers: {convert}")
    _fail(folder, f"neither {_SINGLE} nor {_INDEX}", "fetch the weights too")


def _is_file_name(name: object) -> bool:
    """Whether it can name a file in the folder: no path, and no longer than file systems take."""
    if not isinstance(name, str) or not name.isprintable() or name in ("", ".."):
        return False
    return Path(name).name == name and len(name.encode()) <= 255


def _read_header(path: Path) -> _File:
    """Header of a safetensors file; the file's size must be what its header says."""
    again = "fetch the file again"
    try:
        with open_regular(path) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            start = file.read(8)
            if start == b"version ":
                _fail(path, "a Git LFS pointer, not the file", "run: git lfs pull")
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else size_bytes
            if 8 + length > size_bytes:
                _fail(path, f"truncated: {size_bytes} bytes, not even the header is whole", again)
            if length > CONFIG_BYTES:
                _fail(path, f"has a header of {length:,} bytes, expected at most {CONFIG_BYTES:,}", again)
            header = file.read(length)
        content = parse_json(header)
        metadata = content.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
            raise ValueError(f"__metadata__ = {short(metadata)}, expected texts by name")
        entries = {name: _entry(name, entry) for name, entry in content.items()}
        promised = 8 + length + max((entry.end for entry in entries.values()), default=0)
    except OSError as error:
        _fail(path, f"cannot be read ({error.strerror})", again)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        _fail(path, f"not a safetensors file ({error})", again)
    if size_bytes != promised:
        problem = "truncated" if size_bytes < promised else "damaged"
        _fail(path, f"{problem}: {size_bytes} bytes, expected {promised} by its header", again)
    return _File(path, size_bytes, header, 8 + length, entries, metadata)


def _entry(name: str, raw: Any) -> _Entry:
    """One tensor of a header. Raises ValueError for anything else."""
    match raw:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [start, end]}:
            if all(type(number) is int and 0 <= number < 2**63 for number in (*shape, start, end)):
                return _Entry(dtype, tuple(shape), start, end)
    raise ValueError(f"{shortened(name)} = {short(raw)}, expected a tensor's dtype, shape and data_offsets")


def _checked_entries(folder: Path, config: LlamaConfig, files: list[_File]) -> dict[str, _File]:
    """Which file each weight comes from; every name, dtype and shape is as `config` says."""
    tensors = sum(len(file.entries) for file in files)
    if config.num_hidden_layers > (most := min(tensors, MOST_LAYERS)):  # or listing them might take for ever
        said = f"num_hidden_layers = {config.num_hidden_layers}, expected at most {most} with {tensors} tensors there"
        _fail(folder / _CONFIG, said, _COPY_CONFIG)
    shapes = _shapes(config)
    if config.tie_word_embeddings:
        del shapes["lm_head.weight"]  # may be there all the same, see _check_tied
    found: dict[str, _File] = {}
    for file in files:
        for name, entry in file.entries.items():
            where = f"{file.path}: {shortened(name)}"
            if name in shapes:
                if entry.dtype not in _DTYPES:
                    _fail(where, f"dtype {shortened(entry.dtype)}, expected one of {', '.join(_DTYPES)}", _DEQUANTISE)
                if entry.shape != shapes[name]:
                    said = f"shape {short(list(entry.shape))}, expected {list(shapes[name])} by {_CONFIG}"
                    _fail(where, said, "config.json and weights are of different models; fetch both again")
                if name in found:
                    _fail(
                        where,
                        f"also in {found[name].path.name}, expected once",
                        "remove the files of another checkpoint",
                    )
                found[name] = file
            elif name.endswith((".qweight", ".qzeros", ".scales", ".g_idx", ".absmax", "weight_scale", ".SCB")):
                _fail(where, "part of quantised weights, expected plain ones", _DEQUANTISE)
            elif name.endswith(".bias"):
                _fail(where, "unexpected bias, Llama has none", _NO_VARIANT)
            elif f"model.{name}" in shapes:
                _fail(where, "named without the prefix model.", "save the checkpoint from LlamaForCausalLM")
            elif name != "lm_head.weight" and not name.endswith("rotary_emb.inv_freq"):
                _fail(
                    where,
                    f"unexpected tensor for {config.num_hidden_layers} layers",
                    "config.json and weights disagree",
                )
    for name in shapes:
        if name not in found:
            fix = "fetch the checkpoint again"
            if name == "lm_head.weight":
                fix = 'if the embeddings are tied, set "tie_word_embeddings": true in config.json'
            names = ", ".join(file.path.name for file in files)
            _fail(folder, f"missing tensor {name} of shape {list(shapes[name])} (looked in {names})", fix)
    return found


def _tensors(file: _File, names: list[str]) -> Iterator[tuple[str, Tensor]]:
    """Tensors of a file as views of it."""
    try:
        with safe_open(file.path, framework="pt", device="cpu") as opened:
            for name in names:
                yield name, opened.get_tensor(name)
    except SafetensorError as error:
        _fail(file.path, f"damaged ({shortened(str(error))})", "fetch the file again")


def _check_tied(files: list[_File]) -> None:
    """A head stored beside tied embeddings is equal to them: where it is not, transformers 4 ties and 5 does not."""
    pair: dict[str, Tensor] = {}
    for file in files:
        pair |= _tensors(
            file, [name for name in ("model.embed_tokens.weight", "lm_head.weight") if name in file.entries]
        )
    if len(pair) == 2 and not torch.equal(pair["model.embed_tokens.weight"], pair["lm_head.weight"]):
        _fail(
            f"{files[0].path.parent / _CONFIG}: tie_word_embeddings = True",
            "but lm_head.weight differs from model.embed_tokens.weight, expected equal ones",
            "set it to false, or write the checkpoint anew without lm_head.weight",
        )


def _converted(tensor: Tensor, dtype: torch.dtype, device: torch.device, path: Path, name: str) -> Tensor:
    converted = tensor.to(device=device, dtype=dtype)
    if dtype == torch.float16 and tensor.dtype != torch.float16 and not _is_finite(converted):
        _fail(
            f"{path}: {name}",
            f"has values beyond the range of float16 ({tensor.dtype} in the file)",
            "take bfloat16 or float32",
        )
    return converted


def _is_finite(tensor: Tensor) -> bool:
    low, high = tensor.aminmax()  # NaN comes through; no temporary of the tensor's size as isfinite needs
    return math.isfinite(low.item()) and math.isfinite(high.item())


def _check_finite(path: Path, tensors: Iterable[tuple[str, Tensor]], *, cache: Path) -> None:
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
            _fail(f"{path}: {name}", said, "fetch or train the checkpoint again")
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


def _synthetic_label(files: list[_File]) -> dict[str, Any] | None:
    text = files[0].metadata.get(_SYNTHETIC)
    if text is None:
        return None
    with contextlib.suppress(ValueError):
        match label := parse_json(text):
            case {"geometry": str(name)} if name.isprintable() and 0 < len(name) <= 100:
                return dict(label)
    where = f"{files[0].path}: __metadata__.{_SYNTHETIC} = {short(text)}"
    _fail(where, "no label of weights drawn here", "write the file anew without it")


def _digest(raw: Mapping[str, Any], files: list[_File], *, with_values: bool) -> str:
    """See `Checkpoint`."""
    digest = hashlib.sha256(json.dumps(raw, sort_keys=True).encode())
    for file in files:
        digest.update(f"\0{file.path.name} {file.size_bytes}\0".encode())
        digest.update(file.header)
        if with_values:
            with file.path.open("rb") as opened:
                for entry in file.entries.values():
                    opened.seek(file.data_start + entry.start)
                    digest.update(opened.read(min(4096, entry.end - entry.start)))
    return digest.hexdigest()
