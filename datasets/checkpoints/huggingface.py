"""Checkpoints in Hugging Face folders: config.json, model.safetensors (or shards), tokenizer.json.

Nothing here reads a pickle. Weights are memory-mapped: a process pays for a tensor when it first touches it, and
processes share the pages.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from llama_workbench.cache import keep
from llama_workbench.variants.config import LlamaConfig

from .. import tokenizer
from ..files import CONFIG_BYTES, TOKENIZER_BYTES, open_regular, parse_json, read_bytes, short
from ..geometries import WITHOUT_BIASES, CheckpointError, fail, no_bias, stored_shapes
from ..synthetic_files import CONFIG, SINGLE, SYNTHETIC
from ..texts import shortened
from .config_json import AGAIN, BIASED, COPY, DEQUANTISE, llama_config, read_json

DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""Types of weights under their names in safetensors and GGUF files."""

_INDEX = "model.safetensors.index.json"


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

    def tensors(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Tensors as views of the file."""
        try:
            with safe_open(self.path, framework="pt", device="cpu") as opened:
                for name in names:
                    yield name, opened.get_tensor(name)
        except SafetensorError as error:
            fail(self.path, f"damaged ({shortened(str(error))})", "fetch the file again")


@dataclass(frozen=True)
class Folder:
    """A folder that can be used."""

    path: Path
    raw: Mapping[str, Any]
    config: LlamaConfig
    files: list[_File]
    entries: dict[str, _File]  # which file each weight comes from
    zero_biases: int
    label: dict[str, Any] | None  # of weights drawn here

    @property
    def name(self) -> str:
        return str(self.label["geometry"]) if self.label else self.path.resolve().name

    @property
    def synthetic(self) -> bool:
        return self.label is not None

    @property
    def tokenizer(self) -> str:
        """Model type of tokenizer.json, empty without one; whether it can be used is asked when prompts are cut."""
        try:
            content = parse_json(read_bytes(self.path / tokenizer.FILE, at_most=TOKENIZER_BYTES))
            return shortened(str(content["model"]["type"]))
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, TypeError, KeyError):
            return "unreadable"

    def sizes(self) -> Iterator[tuple[str, int]]:
        for name, file in self.entries.items():
            entry = file.entries[name]
            yield entry.dtype, entry.end - entry.start

    def tensors(self) -> Iterator[tuple[Path, str, Tensor]]:
        for file in self.files:
            for name, tensor in file.tensors(name for name in file.entries if self.entries.get(name) is file):
                yield file.path, name, tensor

    def digest(self) -> str:
        digest = hashlib.sha256(json.dumps(self.raw, sort_keys=True).encode())
        for file in self.files:
            digest.update(f"\0{file.path.name} {file.size_bytes}\0".encode())
            digest.update(file.header)
            if self.label is None:
                with file.path.open("rb") as opened:
                    for entry in file.entries.values():
                        opened.seek(file.data_start + entry.start)
                        digest.update(opened.read(min(4096, entry.end - entry.start)))
        return digest.hexdigest()


def opened(folder: Path, cache: Path) -> Folder:
    """A folder with a whole Llama of finite values. Raises `CheckpointError`."""
    try:
        problem = "" if stat.S_ISDIR(folder.stat().st_mode) else "is a file"
    except FileNotFoundError:
        problem = "no such folder"
    except (OSError, ValueError) as error:
        problem = f"cannot be read ({getattr(error, 'strerror', None) or error})"
    if problem:
        fail(shortened(str(folder)), problem, "name a folder with config.json and safetensors, or a .gguf file")
    raw = read_json(folder / CONFIG)
    config = llama_config(folder / CONFIG, raw)
    files = [_read_header(file) for file in _weight_files(folder)]
    entries = _checked_entries(folder, config, files)
    for file in files:
        floating = [name for name, entry in file.entries.items() if entry.dtype in DTYPES and entry.end > entry.start]
        check_finite(file.path, file.tensors(floating), cache=cache)
    if config.tie_word_embeddings:
        _check_tied(files)
    biases = _check_biases(folder, raw, config, files)
    return Folder(folder, raw, config, files, entries, biases, _synthetic_label(files))


def _weight_files(folder: Path) -> list[Path]:
    if (folder / SINGLE).exists():
        return [folder / SINGLE]
    if (folder / _INDEX).exists():
        places = read_json(folder / _INDEX).get("weight_map")
        places = places if isinstance(places, dict) else {}
        if not places:
            fail(folder / _INDEX, "no weight_map from tensors to files", AGAIN)
        for tensor, name in places.items():
            if not _is_file_name(name):
                place = f"weight_map puts {shortened(tensor)} into {short(name)}"
                fail(folder / _INDEX, f"{place}, expected the name of a file beside it", AGAIN)
        names = sorted(set(places.values()))
        for name in names:
            if not (folder / name).exists():
                count = sum(place == name for place in places.values())
                fail(folder / name, f"missing shard, {_INDEX} puts {count} tensors there", "fetch the missing file")
        return [folder / name for name in names]
    if pickles := sorted(path.name for path in folder.glob("*.bin")):
        convert = "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"
        fail(folder, f"has {pickles[0]}, a pickle, and no safetensors", f"write them with transformers: {convert}")
    fail(folder, f"neither {SINGLE} nor {_INDEX}", "fetch the weights too")


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
                fail(path, "a Git LFS pointer, not the file", "run: git lfs pull")
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else size_bytes
            if 8 + length > size_bytes:
                fail(path, f"truncated: {size_bytes} bytes, not even the header is whole", again)
            if length > CONFIG_BYTES:
                fail(path, f"has a header of {length:,} bytes, expected at most {CONFIG_BYTES:,}", again)
            header = file.read(length)
        content = parse_json(header)
        metadata = content.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
            raise ValueError(f"__metadata__ = {short(metadata)}, expected texts by name")
        entries = {name: _entry(name, entry) for name, entry in content.items()}
        promised = 8 + length + max((entry.end for entry in entries.values()), default=0)
    except OSError as error:
        fail(path, f"cannot be read ({error.strerror})", again)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        fail(path, f"not a safetensors file ({error})", again)
    if size_bytes != promised:
        problem = "truncated" if size_bytes < promised else "damaged"
        fail(path, f"{problem}: {size_bytes} bytes, expected {promised} by its header", again)
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
    if config.num_hidden_layers > tensors:  # listing what is missing might take for ever
        problem = f"num_hidden_layers = {config.num_hidden_layers}, expected at most {tensors}"
        fail(folder / CONFIG, f"{problem} with {tensors} tensors there", COPY)
    expected = stored_shapes(config)  # a head may be there beside tied embeddings all the same, see _check_tied
    file_of: dict[str, _File] = {}
    for file in files:
        for name, entry in file.entries.items():
            where = f"{file.path}: {shortened(name)}"
            if name not in expected:
                _check_unknown(where, name, expected, config)
                continue
            if entry.dtype not in DTYPES:
                fail(where, f"dtype {shortened(entry.dtype)}, expected one of {', '.join(DTYPES)}", DEQUANTISE)
            if entry.shape != expected[name]:
                problem = f"shape {short(list(entry.shape))}, expected {list(expected[name])} by {CONFIG}"
                fail(where, problem, "config.json and weights are of different models; fetch both again")
            if name in file_of:
                problem = f"also in {file_of[name].path.name}, expected once"
                fail(where, problem, "remove the files of another checkpoint")
            file_of[name] = file
    if name := next((name for name in expected if name not in file_of), ""):
        tied = 'if the embeddings are tied, set "tie_word_embeddings": true in config.json'
        fix = tied if name == "lm_head.weight" else "fetch the checkpoint again"
        names = ", ".join(file.path.name for file in files)
        fail(folder, f"missing tensor {name} of shape {list(expected[name])} (looked in {names})", fix)
    return file_of


def _check_unknown(where: str, name: str, expected: Mapping[str, Any], config: LlamaConfig) -> None:
    """Refuses a tensor that no Llama of this shape has, unless it changes nothing."""
    if name.endswith((".qweight", ".qzeros", ".scales", ".g_idx", ".absmax", "weight_scale", ".SCB")):
        fail(where, "part of quantised weights, expected plain ones", DEQUANTISE)
    if name.endswith(".bias"):  # see _check_biases
        return
    if f"model.{name}" in expected:
        fail(where, "named without the prefix model.", "save the checkpoint from LlamaForCausalLM")
    if name != "lm_head.weight" and not name.endswith("rotary_emb.inv_freq"):
        fail(where, f"unexpected tensor for {config.num_hidden_layers} layers", "config.json and weights disagree")


def _check_biases(folder: Path, raw: Mapping[str, Any], config: LlamaConfig, files: list[_File]) -> int:
    """How many biases there are, which are left out: all must be zero. Those that config.json promises are there."""
    biases = {name: file for file in files for name in file.entries if name.endswith(".bias")}
    for flag, part in BIASED.items():
        promised = [
            name.removesuffix("weight") + "bias" for name in stored_shapes(config) if raw.get(flag) and part in name
        ]
        if name := next((name for name in promised if name not in biases), ""):
            problem = f"missing tensor {name}, which {flag} = true in {CONFIG} promises"
            fail(folder, problem, "fetch the checkpoint again, or set it to false if there are no biases")
    used = [
        name for file in files for name, tensor in file.tensors(biases.keys() & file.entries.keys()) if tensor.any()
    ]
    if used:
        fail(f"{biases[min(used)].path}: {shortened(min(used))}", no_bias(len(used)), WITHOUT_BIASES)
    return len(biases)


def _check_tied(files: list[_File]) -> None:
    """A head stored beside tied embeddings is equal to them: where it is not, transformers 4 ties and 5 does not."""
    pair: dict[str, Tensor] = {}
    for file in files:
        pair |= file.tensors(file.entries.keys() & {"model.embed_tokens.weight", "lm_head.weight"})
    if len(pair) == 2 and not torch.equal(pair["model.embed_tokens.weight"], pair["lm_head.weight"]):
        problem = "but lm_head.weight differs from model.embed_tokens.weight, expected equal ones"
        fix = "set it to false, or write the checkpoint anew without lm_head.weight"
        fail(f"{files[0].path.parent / CONFIG}: tie_word_embeddings = True", problem, fix)


def _synthetic_label(files: list[_File]) -> dict[str, Any] | None:
    """Geometry, seed and recipe of weights that were drawn here."""
    text = files[0].metadata.get(SYNTHETIC)
    if text is None:
        return None
    with contextlib.suppress(ValueError):
        match label := parse_json(text):
            case {"geometry": str(name)} if name.isprintable() and 0 < len(name) <= 100:
                return dict(label)
    where = f"{files[0].path}: __metadata__.{SYNTHETIC} = {short(text)}"
    fail(where, "no label of weights drawn here", "write the file anew without it")


# --- for checkpoints of all formats ---


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
