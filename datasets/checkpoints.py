"""Weights to measure with: drawn from a seed, or read from any Llama in a Hugging Face folder or a GGUF file.

Nothing here reads a pickle. Weights are memory-mapped: a process pays for a tensor when it first touches it, and
processes share the pages. config.json is not read by transformers: that takes seconds to import in each process, takes
a missing epsilon for its own default, and lets through what no variant computes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from llama_workbench.cache import cache_directory, keep
from llama_workbench.variants.config import LlamaConfig

from . import tokenizer
from .files import CONFIG_BYTES, TOKENIZER_BYTES, faults, open_regular, parse_json, read_bytes, short, shortened
from .geometries import CheckpointError, Geometry, Scaling, Shape, fail, parameter_count, stored_shapes
from .synthetic_files import CONFIG, SINGLE, SYNTHETIC, synthesize
from .tokenizer import reader_of, text_ids

__all__ = ["Checkpoint", "CheckpointError", "described", "load", "synthesize"]


# -- the tensors of a checkpoint's files, whatever their format, and whether they are those of a usable Llama ----------

AGAIN = "fetch the checkpoint again"
NO_VARIANT = "no variant computes this; take another checkpoint"

PASSED_OVER = (".bias", ".rotary_emb.inv_freq", "lm_head.weight")
"""Ends of the names of what may be there beside the weights: zero biases, an old buffer, a head that is tied."""


@dataclass(frozen=True)
class Stored:
    """One tensor of a file. `read` gives its values on the CPU: a view of the file, where type and order allow one."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], Tensor]


@dataclass(frozen=True)
class Source:
    """A checkpoint's files; no weight is read yet. `tensors` are by Hugging Face name. `identity` tells its files from
    others, together with the beginnings of the weights."""

    path: Path
    name: str
    config: LlamaConfig
    tensors: Mapping[str, Stored]
    identity: bytes
    has_tokenizer: bool
    synthetic: bool = False

    def biases(self) -> list[str]:
        return [name for name in self.tensors if name.endswith(".bias")]

    def check(self, cache: Path) -> None:
        """Raises `CheckpointError` for a weight that is missing, unknown, of another shape or not finite, and for a
        bias or a tied head that changes what is computed."""
        expected = stored_shapes(self.config)
        for name, shape in expected.items():
            if (stored := self.tensors.get(name)) is None:
                tied = 'if the embeddings are tied, set "tie_word_embeddings": true in config.json'
                fix = tied if name == "lm_head.weight" else AGAIN
                fail(self.path, f"missing tensor {name} of shape {list(shape)}", fix)
            if stored.shape != shape:
                problem = f"shape {short(list(stored.shape))}, expected {list(shape)} by the model's numbers"
                fail(f"{stored.file}: {name}", problem, "numbers and weights are of different models; fetch both again")
        for name in self.tensors.keys() - expected.keys():
            if not name.endswith(PASSED_OVER):
                problem = f"unexpected tensor for {self.config.num_hidden_layers} layers of plain weights"
                fail(f"{self.tensors[name].file}: {shortened(name)}", problem, NO_VARIANT)
        for file in {stored.file for stored in self.tensors.values()}:
            weights = ((name, self.tensors[name]) for name in expected if self.tensors[name].file == file)
            _check_finite(file, weights, cache)
        for name in self.biases():
            if self.tensors[name].read().any():
                problem = "a bias that is not zero, and no variant adds one"
                fix = "take a checkpoint without biases, or one in which all are zero"
                fail(f"{self.tensors[name].file}: {shortened(name)}", problem, fix)
        head, embeddings = self.tensors.get("lm_head.weight"), self.tensors["model.embed_tokens.weight"]
        if self.config.tie_word_embeddings and head and not torch.equal(head.read(), embeddings.read()):
            problem = "tie_word_embeddings = True, but lm_head.weight differs from model.embed_tokens.weight"
            fail(self.path, problem, "set it to false, or write the checkpoint anew without lm_head.weight")


def open_weights(path: Path) -> BinaryIO:
    """A file of weights, opened. Raises `CheckpointError` where it cannot be, or is no more than a pointer to one."""
    try:
        file = open_regular(path)
    except OSError as error:
        fail(path, f"cannot be read ({error.strerror})", AGAIN)
    if file.read(8) == b"version ":
        file.close()
        fail(path, "a Git LFS pointer, not the file", "run: git lfs pull")
    file.seek(0)
    return file


def is_finite(tensor: Tensor) -> bool:
    low, high = tensor.aminmax()  # NaN comes through; no temporary of the tensor's size as isfinite needs
    return math.isfinite(low.item()) and math.isfinite(high.item())


def _check_finite(path: Path, weights: Iterable[tuple[str, Stored]], cache: Path) -> None:
    """Every value of a file is finite; skipped for one that was found so and has the same path, size and time."""
    memory = cache / "finite.json"
    key, status = str(path.resolve()), path.stat()
    stamp = [status.st_size, status.st_mtime_ns]
    if _remembered(memory).get(key) == stamp:
        return
    for name, stored in weights:
        tensor = stored.read()
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


# -- a Llama in a Hugging Face folder ----------------------------------------------------------------------------------

_DEQUANTISE = (
    "take the unquantised checkpoint, or write one with transformers: "
    "AutoModelForCausalLM.from_pretrained(FOLDER), then .dequantize() and .save_pretrained(NEW_FOLDER)"
)
_DTYPES = ("F64", "F32", "BF16", "F16")
_INDEX = "model.safetensors.index.json"


def opened(folder: Path) -> Source:
    """The files of a folder. Raises `CheckpointError`."""
    raw = _read_json(folder / CONFIG, "name a folder with config.json and safetensors, or a .gguf file")
    config = _llama_config(folder / CONFIG, raw)
    name, synthetic = folder.resolve().name, False
    identity = json.dumps(raw, sort_keys=True).encode()
    tensors: dict[str, Stored] = {}
    for path in _weight_files(folder):
        with open_weights(path) as file:
            try:
                handle = safe_open(path, framework="pt", device="cpu")
            except SafetensorError as error:
                fail(path, f"truncated or damaged ({shortened(str(error))})", AGAIN)
            header = file.read(int.from_bytes(file.read(8), "little"))
        identity += f"\0{path.name} {path.stat().st_size}\0".encode() + header
        label = (handle.metadata() or {}).get(SYNTHETIC)
        if label is not None:
            try:
                name, synthetic = str(parse_json(label)["geometry"])[:100], True
            except (ValueError, TypeError, LookupError):
                problem = "no label of weights drawn here"
                fail(f"{path}: {SYNTHETIC} = {short(label)}", problem, "write the file anew without it")
        for key in handle.offset_keys():
            entry = handle.get_slice(key)
            if entry.get_dtype() not in _DTYPES:
                problem = f"dtype {entry.get_dtype()}, expected one of {', '.join(_DTYPES)}"
                fail(f"{path}: {shortened(key)}", problem, _DEQUANTISE)
            if key in tensors:
                problem = f"also in {tensors[key].file.name}, expected once"
                fail(f"{path}: {shortened(key)}", problem, "remove the files of another checkpoint")
            tensors[key] = Stored(path, entry.get_dtype(), tuple(entry.get_shape()), partial(handle.get_tensor, key))
    if (raw.get("attention_bias") or raw.get("mlp_bias")) and not any(key.endswith(".bias") for key in tensors):
        fail(folder, f"no bias, and {CONFIG} promises some", "fetch the checkpoint again")
    return Source(folder, name, config, tensors, identity, (folder / tokenizer.FILE).exists(), synthetic)


def _weight_files(folder: Path) -> list[Path]:
    if (folder / SINGLE).exists():
        return [folder / SINGLE]
    if (folder / _INDEX).exists():
        places = _read_json(folder / _INDEX, AGAIN).get("weight_map")
        names = list(places.values()) if isinstance(places, dict) else []
        if not names or not all(isinstance(name, str) and name.isprintable() and "/" not in name for name in names):
            fail(folder / _INDEX, "no weight_map from tensors to the files beside it", AGAIN)
        return [folder / name for name in sorted(set(names))]
    convert = "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"
    fail(folder, f"neither {SINGLE} nor {_INDEX}", f"fetch the weights too, or write pickles anew: {convert}")


def _read_json(path: Path, fix: str) -> dict[str, Any]:
    """The object in a JSON file; `fix` is what to do where it cannot be read."""
    try:
        content = parse_json(read_bytes(path, at_most=CONFIG_BYTES).decode("utf-8"))
    except OSError as error:
        fail(path, f"cannot be read ({error.strerror})", fix)
    except ValueError as error:
        fail(path, f"not JSON ({error})", AGAIN)
    if not isinstance(content, dict):
        fail(path, f"holds a {type(content).__name__}, expected an object", AGAIN)
    return content


def _llama_config(path: Path, raw: Mapping[str, Any]) -> LlamaConfig:
    """The shape that a config.json asks for, as transformers 4 and 5 spell it."""
    if raw.get("quantization_config") is not None:
        fail(path, f"quantised weights ({short(raw['quantization_config'])}), expected plain ones", _DEQUANTISE)
    rope_key = "rope_parameters" if raw.get("rope_parameters") else "rope_scaling"
    rope = raw.get(rope_key) or {}
    if not isinstance(rope, dict):
        fail(path, f"{rope_key} = {short(rope)}, expected an object or null", AGAIN)
    kind = rope.get("rope_type", rope.get("type", "default"))
    for key, value, allowed in (
        ("model_type", raw.get("model_type"), ("llama",)),
        ("hidden_act", raw.get("hidden_act"), ("silu", None)),
        ("partial_rotary_factor", rope.get("partial_rotary_factor", raw.get("partial_rotary_factor")), (1.0, None)),
        (f"{rope_key}.rope_type", kind, ("llama3", "default")),
    ):
        if value not in allowed:
            fail(path, f"{key} = {short(value)}, expected {allowed[0]!r}", NO_VARIANT)
    scaling = {name: rope[name] for name in Scaling.model_fields if rope.get(name) is not None}
    values = {key: value for key, value in raw.items() if value is not None}
    values |= {"rope_scaling": scaling if kind == "llama3" else None}
    values |= {"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {}
    try:
        return Shape.model_validate(values).config()
    except ValidationError as error:
        fail(path, faults(error, values, Shape, names={"rope_scaling": rope_key})[0], AGAIN)


# -- a checkpoint that is used -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint:
    """A loaded Llama: `weights` under their Hugging Face names, `lm_head.weight` always among them.

    `digest` tells checkpoints apart without reading them whole: SHA-256 over config.json, the name, size and header of
    every safetensors file (of a GGUF file its size and metadata), and the first 4 KiB of every weight; not over
    tokenizer.json. Of synthetic weights geometry, seed and recipe take the place of bytes: the last bit of a weight may
    differ between CPUs, and the digest must not."""

    name: str
    config: LlamaConfig
    weights: dict[str, Tensor]
    digest: str
    parameters: int
    synthetic: bool


def load(
    source: Path | str,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    cache: Path | None = None,
) -> Checkpoint:
    """A Llama from a Hugging Face folder or a .gguf file, its weights in `dtype` on `device`.

    Takes one safetensors file or shards, tied embeddings, head_dim given or derived, Llama-3 RoPE scaling as
    transformers 4 or 5 spells it, and float64, float32, bfloat16 or float16 tensors. Tensors that have `dtype` already
    and stay on the CPU are views of the file; others are converted once. Of a GGUF file only float32 tensors are views,
    and not q_proj and k_proj (their rows are in another order); quantized ones are dequantized.

    Files whose values are all finite are remembered in `cache` (default: `cache_directory()`) by path, size and time of
    change. Raises `CheckpointError` for a missing, truncated or damaged file, another architecture, a missing key, a
    missing, unexpected or wrongly shaped tensor, NaN or infinity, a bias that is not zero, and an
    unsupported quantization."""
    files = _checked(source, cache)
    digest = hashlib.sha256(files.identity)
    weights: dict[str, Tensor] = {}
    for name, stored in files.tensors.items():
        if name in stored_shapes(files.config):
            tensor = stored.read()
            if not files.synthetic:
                digest.update(tensor.reshape(-1)[:4096].view(torch.uint8)[:4096].numpy().tobytes())
            weights[name] = tensor.to(device=device, dtype=dtype)
            if dtype == torch.float16 and tensor.dtype != torch.float16 and not is_finite(weights[name]):
                problem = f"has values beyond the range of float16 ({tensor.dtype} in the file)"
                fail(f"{stored.file}: {name}", problem, "take bfloat16 or float32")
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"])  # a tied head is not stored
    return Checkpoint(
        name=files.name,
        config=files.config,
        weights={name: weights[name] for name in (*stored_shapes(files.config), "lm_head.weight")},
        digest=digest.hexdigest(),
        parameters=parameter_count(files.config),
        synthetic=files.synthetic,
    )


def _checked(source: Path | str, cache: Path | None) -> Source:
    path = Path(source)
    reader = reader_of(path)
    files: Source = reader.opened(path) if reader else opened(path)
    files.check(cache or cache_directory())
    return files


def described(source: Path | str, *, cache: Path | None = None) -> tuple[LlamaConfig, str]:
    """The shape of a usable checkpoint, and what was read from its files in one line, for the user to check: a wrong
    number there is still a possible one. Types of weights come with most values first. Checks and raises as `load`."""
    files = _checked(source, cache)
    config, total = files.config, Counter[str]()
    for name in stored_shapes(config):
        total[files.tensors[name].dtype] += math.prod(files.tensors[name].shape)
    prompts = "with a tokenizer" if files.has_tokenizer else "no tokenizer: prompts are token ids drawn at random"
    scaling = "" if config.rope_scaling is None else f" (llama3 scaling by {config.rope_scaling.factor:g})"
    tied = ", tied head" if config.tie_word_embeddings else ""
    biases = ", biases all zero and left out" if files.biases() else ""
    return config, (
        f"{config.num_hidden_layers} layers, width {config.hidden_size} (feed-forward {config.intermediate_size}), "
        f"{config.num_attention_heads} heads of {config.head_dim}, {config.num_key_value_heads} KV heads, "
        f"context {config.max_position_embeddings}, epsilon {config.rms_norm_eps:g}, "
        f"rope theta {config.rope_theta:g}{scaling}, vocabulary {config.vocab_size}{tied}{biases}, "
        f"{' and '.join(dtype for dtype, _ in total.most_common())}, {prompts}"
    )


def geometry_of(source: Path, origin: str) -> Geometry:
    """The geometry of a usable checkpoint, named after its folder or file. origin: where it comes from, in words.
    Checks and raises as `load`, and `TokenizerError` for a tokenizer that cannot be used."""
    config, description = described(source)
    text_ids(source, vocab_size=config.vocab_size)
    file = source.resolve().name.lower()
    name = "".join(letter if letter.isalnum() else "-" for letter in file).strip("-") or "checkpoint"
    return Geometry(name, config, description, origin)
