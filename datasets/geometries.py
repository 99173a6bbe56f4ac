"""Model shapes: which are possible, those of `datasets/geometries.toml`, and how data files are read.

One model of a shape's numbers serves geometries.toml, config.json and GGUF; a typo is an error that says where.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from llama_workbench import ROOT
from llama_workbench.variants.config import LlamaConfig, RopeScaling

from .files import SMALL_BYTES, faults, impossible, nearest, parse_toml, read_bytes, short, shortened, shown

GEOMETRIES_FILE = ROOT / "datasets" / "geometries.toml"

Text = Annotated[str, Field(min_length=1)]

MOST_COUNT = 2**31 - 1
MOST_LAYERS = 1000
LARGEST_FACTOR = 1e9  # of RoPE scaling

Count = Annotated[int, Field(gt=0, le=MOST_COUNT)]
_Factor = Annotated[float, Field(gt=0, le=LARGEST_FACTOR)]


class DataError(ValueError):
    """A data file, or a name looked up in one, is wrong. Names file, table, key, value and what was expected."""


class CheckpointError(DataError):
    """A checkpoint cannot be used or written. The text names file and tensor or key, what is wrong, and the fix."""


def fail(where: Path | str, problem: str, fix: str) -> NoReturn:
    """Raises `CheckpointError`."""
    raise CheckpointError(f"{where}: {problem}; {fix}")


class Scaling(BaseModel):
    """Llama-3's RoPE scaling."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    factor: _Factor
    low_freq_factor: _Factor
    high_freq_factor: _Factor
    original_max_position_embeddings: Count

    @model_validator(mode="after")
    def _step_has_a_width(self) -> Scaling:
        if self.low_freq_factor >= self.high_freq_factor:
            expected = f"more than low_freq_factor = {self.low_freq_factor:g}"
            raise impossible("rope_scaling.high_freq_factor", self.high_freq_factor, expected)
        return self


class Shape(BaseModel):
    """A Llama's shape under the names of config.json."""

    model_config = ConfigDict(strict=True, frozen=True)

    vocab_size: Count
    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Annotated[int, Field(gt=0, le=MOST_LAYERS)]
    num_attention_heads: Count
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    max_position_embeddings: Count
    rms_norm_eps: Annotated[float, Field(gt=0, lt=1)]  # the squares that it is added to are about 1
    # With less than 1 the angles of later pairs would grow instead of shrink.
    rope_theta: Annotated[float, Field(ge=1, le=1e12)] = 10_000.0
    rope_scaling: Scaling | None = None
    tie_word_embeddings: bool = False

    @model_validator(mode="after")
    def _heads_fit(self) -> Shape:
        heads, key_value_heads = self.num_attention_heads, self.num_key_value_heads
        if self.hidden_size % heads and self.head_dim is None:
            raise impossible("num_attention_heads", heads, f"a divisor of hidden_size = {self.hidden_size}")
        if key_value_heads is not None and heads % key_value_heads:
            raise impossible("num_key_value_heads", key_value_heads, f"a divisor of num_attention_heads = {heads}")
        head_dim = self.head_dim or self.hidden_size // heads
        if head_dim % 2:
            raise impossible("head_dim", head_dim, "an even number (RoPE turns pairs)")
        return self

    def config(self) -> LlamaConfig:
        """The shape with what is left out filled in."""
        values = {name: getattr(self, name) for name in LlamaConfig.__dataclass_fields__}
        return LlamaConfig(**values | {
            "num_key_value_heads": self.num_key_value_heads or self.num_attention_heads,
            "head_dim": self.head_dim or self.hidden_size // self.num_attention_heads,
            "rope_scaling": RopeScaling(**self.rope_scaling.model_dump()) if self.rope_scaling else None,
        })  # fmt: skip


def stored_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Shape ([out, in]) of every weight that a file must have, by its Hugging Face name; a tied head is left out."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    layers = {
        f"model.layers.{index}.{name}.weight": shape
        for index in range(config.num_hidden_layers)
        for name, shape in layer.items()
    }
    vocabulary = (config.vocab_size, hidden)
    head = {} if config.tie_word_embeddings else {"lm_head.weight": vocabulary}
    return {"model.embed_tokens.weight": vocabulary, **layers, "model.norm.weight": (hidden,), **head}


def parameter_count(config: LlamaConfig) -> int:
    """Number of weights of a model of that shape; tied embeddings count once."""
    return sum(map(math.prod, stored_shapes(config).values()))


# --- geometries by name ---


@dataclass(frozen=True)
class Geometry:
    """A named model shape: `config` without weights, `description` in one line, `source` it was taken from, and the
    `dtype` in which weights of that shape are stored."""

    name: str
    config: LlamaConfig
    description: str
    source: str
    dtype: str = "float32"


def geometries(path: Path = GEOMETRIES_FILE) -> dict[str, Geometry]:
    """All geometries of a file by name, in the file's order. Raises `DataError` on a mistake in it."""
    tables = {
        name: checked(_Table, table, file=shown(path), table=f"[{name}]") for name, table in read_toml(path).items()
    }
    return {
        name: Geometry(name, table.config(), table.description, table.source, table.dtype)
        for name, table in tables.items()
    }


@cache
def _shipped() -> Mapping[str, Geometry]:
    return geometries()


def get(name: str) -> Geometry:
    """One geometry. Raises `DataError` with the nearest name if there is none of that name."""
    return named(_shipped(), name, f"{shown(GEOMETRIES_FILE)}: no geometry")


class _Table(Shape):
    """One table of geometries.toml."""

    model_config = ConfigDict(extra="forbid")

    description: Text
    source: Text
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    rms_norm_eps: Annotated[float, Field(gt=0, lt=1)] = 1e-5


# --- reading data files ---

Model = TypeVar("Model", bound=BaseModel)
Entry = TypeVar("Entry")


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises `DataError`, with line and column, if it cannot be read or is not TOML."""
    file, text = shown(path), ""
    try:
        raw = read_bytes(path, at_most=SMALL_BYTES)
        return parse_toml(text := raw.decode("utf-8"))
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        line, column = raw.count(b"\n", 0, error.start) + 1, error.start - raw.rfind(b"\n", 0, error.start)
        raise DataError(f"{file}:{line}:{column}: not UTF-8 text, which TOML has to be") from error
    except tomllib.TOMLDecodeError as error:
        place, problem = _place_in(text, str(error))
        raise DataError(f"{file}{place}: not valid TOML: {problem}") from error


def _place_in(text: str, message: str) -> tuple[str, str]:
    """Line and column of a fault, and what it is: tomllib tells the place in its message, of a text that ends too
    early not in numbers."""
    match = re.search(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    if match is None:
        return "", message
    lines = text.split("\n")
    line, column = (match[1], match[2]) if match[1] else (len(lines), len(lines[-1]) + 1)
    return f":{line}:{column}", message[: match.start()]


def checked(
    model: type[Model], values: object, *, file: str, table: str, context: Mapping[str, Any] | None = None
) -> Model:
    """`values` as a `model`. Raises `DataError`, a line a mistake: file, table, key, value, what was expected."""
    if not isinstance(values, Mapping):
        raise DataError(f"{file}: {shortened(table)} = {short(values)}, expected a table")
    try:
        return model.model_validate(dict(values), context=dict(context or {}))
    except ValidationError as error:
        lines = faults(error, values, model)
        raise DataError("\n".join(f"{file}: {shortened(table)}: {fault}" for fault in lines)) from None


def named(by_name: Mapping[str, Entry], name: str, missing: str) -> Entry:
    """The entry of that name; else `DataError`, whose text is `missing` with the name and the nearest one."""
    if name not in by_name:
        raise DataError(f"{missing} {name!r}; {nearest(name, by_name)}")
    return by_name[name]
