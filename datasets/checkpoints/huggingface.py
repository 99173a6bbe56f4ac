"""A Llama in a Hugging Face folder: config.json, model.safetensors or shards, tokenizer.json.

Nothing here reads a pickle. Weights are memory-mapped: a process pays for a tensor when it first touches it, and
processes share the pages. config.json is not read by transformers: that takes seconds to import in each process, takes
a missing epsilon for its own default, and lets through what no variant computes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from llama_workbench.variants.config import LlamaConfig

from .. import tokenizer
from ..faults import faults
from ..files import CONFIG_BYTES, parse_json, read_bytes, short
from ..geometries import Scaling, Shape, fail
from ..synthetic_files import CONFIG, SINGLE, SYNTHETIC
from ..texts import shortened
from .source import AGAIN, NO_VARIANT, Source, Stored, open_weights

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
            name, synthetic = _drawn_as(path, label), True
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


def _drawn_as(path: Path, label: str) -> str:
    """The geometry that weights were drawn for here, from the label in their file."""
    try:
        return str(parse_json(label)["geometry"])[:100]
    except (ValueError, TypeError, LookupError):
        fail(
            f"{path}: {SYNTHETIC} = {short(label)}", "no label of weights drawn here", "write the file anew without it"
        )


def _weight_files(folder: Path) -> list[Path]:
    if (folder / SINGLE).exists():
        return [folder / SINGLE]
    if (folder / _INDEX).exists():
        places = _read_json(folder / _INDEX, AGAIN).get("weight_map")
        names = list(places.values()) if isinstance(places, dict) else []
        if not names or not all(isinstance(name, str) and name.isprintable() and "/" not in name for name in names):
            fail(folder / _INDEX, "no weight_map from tensors to the files beside it", AGAIN)
        return [folder / name for name in sorted(set(names))]
    if pickles := sorted(path.name for path in folder.glob("*.bin")):
        convert = "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"
        fail(folder, f"has {pickles[0]}, a pickle, and no safetensors", f"write them with transformers: {convert}")
    fail(folder, f"neither {SINGLE} nor {_INDEX}", "fetch the weights too")


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
