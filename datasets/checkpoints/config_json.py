"""config.json, as transformers 4 and 5 spell it.

Read here and not by transformers' `LlamaConfig`: that takes seconds to import, takes a missing epsilon or context for
its own default, and lets through what no variant computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from llama_workbench.variants.config import LlamaConfig

from ..faults import faults
from ..files import CONFIG_BYTES, parse_json, read_bytes, short
from ..geometries import Scaling, Shape, fail
from ..texts import shortened

AGAIN = "copy it from the checkpoint's source again"
COPY = "copy config.json from the checkpoint's source again"
DEQUANTISE = (
    "take the unquantised checkpoint, or write one with transformers: "
    "AutoModelForCausalLM.from_pretrained(FOLDER), then .dequantize() and .save_pretrained(NEW_FOLDER)"
)
NO_VARIANT = "no variant computes this; take another checkpoint"

_FIXED = {"hidden_act": "silu", "partial_rotary_factor": 1.0}

BIASED = {"attention_bias": ".self_attn.", "mlp_bias": ".mlp."}
"""Keys that promise biases, and what the names of the layers that have them contain."""


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises `CheckpointError`."""
    try:
        content = parse_json(read_bytes(path, at_most=CONFIG_BYTES).decode("utf-8"))
    except OSError as error:
        fail(path, f"cannot be read ({error.strerror})", AGAIN)
    except ValueError as error:
        fail(path, f"not JSON ({error})", AGAIN)
    if not isinstance(content, dict):
        fail(path, f"holds a {type(content).__name__}, expected an object", AGAIN)
    return content


def llama_config(path: Path, raw: Mapping[str, Any]) -> LlamaConfig:
    """The shape that a config.json asks for. Raises `CheckpointError`, also for what no variant computes."""
    if raw.get("model_type") != "llama":
        problem = f"model_type = {short(raw.get('model_type'))}, expected 'llama'"
        fail(path, problem, "only Llama checkpoints can be measured")
    if (quantised := raw.get("quantization_config")) is not None:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else "?"
        fail(path, f"quantised weights (quant_method = {short(method)}), expected plain ones", DEQUANTISE)
    for key in BIASED:
        if raw.get(key) not in (None, True, False):
            fail(path, f"{key} = {short(raw[key])}, expected true or false", COPY)
    for key, expected in _FIXED.items():
        if raw.get(key) not in (None, expected):
            fail(path, f"{key} = {short(raw[key])}, expected {expected!r}", NO_VARIANT)
    rope, names = _rope(path, raw)
    values = {key: value for key, value in raw.items() if value is not None} | {"rope_scaling": None} | rope
    try:
        return Shape.model_validate(values).config()
    except ValidationError as error:
        fail(path, faults(error, values, Shape, names=names)[0], COPY)


def _rope(path: Path, raw: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """`rope_theta` and `rope_scaling` in either spelling, and the key that each was found under."""
    thetas: dict[str, Any] = {}
    scalings: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        values = raw.get(key)
        if not isinstance(values, dict | None):
            fail(path, f"{key} = {short(values)}, expected an object or null", COPY)
        if not values:
            continue
        for inner, value in values.items():
            if isinstance(value, dict) or (inner == "partial_rotary_factor" and value not in (None, 1.0)):
                problem = f"{key}.{shortened(inner)} = {short(value)}, expected one RoPE over all dimensions and layers"
                fail(path, problem, NO_VARIANT)
        kind = values.get("rope_type", values.get("type", "default"))
        if kind not in ("default", "llama3"):
            fail(path, f"{key}.rope_type = {short(kind)}, expected 'llama3' or 'default'", NO_VARIANT)
        given = {name: values[name] for name in Scaling.model_fields if values.get(name) is not None}
        scalings[key] = given if kind == "llama3" else None
        if "rope_theta" in values:
            thetas[f"{key}.rope_theta"] = values["rope_theta"]
    if raw.get("rope_theta") is not None:
        thetas["rope_theta"] = raw["rope_theta"]
    values, names = {}, {}
    for name, by_key in (("rope_theta", thetas), ("rope_scaling", scalings)):
        if not by_key:
            continue
        names[name], values[name] = next(iter(by_key.items()))
        if any(value != values[name] for value in by_key.values()):
            contradiction = ", ".join(f"{key} = {short(value)}" for key, value in by_key.items())
            fail(path, f"contradicts itself ({contradiction}), expected one value", "correct the wrong one")
    return values, names
