"""Model shapes from `datasets/geometries.toml`, and how the data files are read: a typo is an error that says where.

Importing this module does not import torch.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from llama_workbench import ROOT
from llama_workbench.variants.config import LlamaConfig, RopeScaling

from .files import SMALL_BYTES, parse_toml, read_bytes, short, shortened

GEOMETRIES_FILE = ROOT / "datasets" / "geometries.toml"

Text = Annotated[str, Field(min_length=1)]

LARGEST_COUNT = 2**31 - 1
MOST_LAYERS = 1000
EPSILON = (0.0, 1.0)
"""Of a norm: above and below; the squares that it is added to are about 1."""

THETA = (1.0, 1e12)
"""Of RoPE: at least and at most; with less than 1 the angles of later pairs would grow instead of shrink."""

FACTOR = (0.0, 1e9)
"""Of RoPE scaling: above and at most."""

Count = Annotated[int, Field(gt=0, le=LARGEST_COUNT)]
_Factor = Annotated[float, Field(gt=FACTOR[0], le=FACTOR[1])]


class DataError(ValueError):
    """A data file, or a name looked up in one, is wrong. Names file, table, key, value and what was expected."""


@dataclass(frozen=True)
class Geometry:
    """A named model shape: `config` without weights, `description` in one line, `source` it was taken from."""

    name: str
    config: LlamaConfig
    description: str
    source: str


def geometries(path: Path = GEOMETRIES_FILE) -> dict[str, Geometry]:
    """All geometries of a file by name, in the file's order. Raises `DataError` on a mistake in it."""
    tables = read_toml(path)
    return {name: _geometry(name, table, file=shown(path)) for name, table in tables.items()}


def get(name: str, *, path: Path = GEOMETRIES_FILE) -> Geometry:
    """One geometry. Raises `DataError` with the nearest name if there is none of that name."""
    known = geometries(path)
    if name not in known:
        raise DataError(f"{shown(path)}: no geometry {name!r}; {nearest(name, known)}")
    return known[name]


def parameter_count(config: LlamaConfig) -> int:
    """Number of weights of a model of that shape; tied embeddings count once."""
    query = config.hidden_size * config.num_attention_heads * config.head_dim
    key = config.hidden_size * config.num_key_value_heads * config.head_dim
    attention = 2 * query + 2 * key  # q and o, k and v
    feed_forward = 3 * config.hidden_size * config.intermediate_size
    norms = 2 * config.hidden_size
    embedding = config.vocab_size * config.hidden_size
    layers = config.num_hidden_layers * (attention + feed_forward + norms)
    return layers + embedding * (1 if config.tie_word_embeddings else 2) + config.hidden_size


class _RopeScaling(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    factor: _Factor
    low_freq_factor: _Factor
    high_freq_factor: _Factor
    original_max_position_embeddings: Count

    @model_validator(mode="after")
    def _step_has_a_width(self) -> _RopeScaling:
        if self.low_freq_factor >= self.high_freq_factor:
            expected = f"more than low_freq_factor = {self.low_freq_factor:g}"
            raise impossible("rope_scaling.high_freq_factor", self.high_freq_factor, expected)
        return self


class _Shape(BaseModel):
    """One table of geometries.toml."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    description: Text
    source: Text
    vocab_size: Count
    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Annotated[int, Field(gt=0, le=MOST_LAYERS)]
    num_attention_heads: Count
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    max_position_embeddings: Count
    rms_norm_eps: Annotated[float, Field(gt=EPSILON[0], lt=EPSILON[1])] = 1e-5
    rope_theta: Annotated[float, Field(ge=THETA[0], le=THETA[1])] = 10_000.0
    rope_scaling: _RopeScaling | None = None
    tie_word_embeddings: bool = False

    @model_validator(mode="after")
    def _heads_fit(self) -> _Shape:
        heads, key_value_heads = self.num_attention_heads, self.num_key_value_heads
        if self.hidden_size % heads and self.head_dim is None:
            raise impossible("num_attention_heads", heads, f"a divisor of hidden_size = {self.hidden_size}")
        if key_value_heads is not None and heads % key_value_heads:
            raise impossible("num_key_value_heads", key_value_heads, f"a divisor of num_attention_heads = {heads}")
        head_dim = self.head_dim or self.hidden_size // heads
        if head_dim % 2:
            raise impossible("head_dim", head_dim, "an even number (RoPE turns pairs)")
        return self


def _geometry(name: str, table: object, *, file: str) -> Geometry:
    shape = checked(_Shape, table, file=file, table=f"[{name}]")
    scaling = shape.rope_scaling
    config = LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_hidden_layers,
        num_attention_heads=shape.num_attention_heads,
        num_key_value_heads=shape.num_key_value_heads or shape.num_attention_heads,
        head_dim=shape.head_dim or shape.hidden_size // shape.num_attention_heads,
        max_position_embeddings=shape.max_position_embeddings,
        rms_norm_eps=shape.rms_norm_eps,
        rope_theta=shape.rope_theta,
        rope_scaling=RopeScaling(**scaling.model_dump()) if scaling else None,
        tie_word_embeddings=shape.tie_word_embeddings,
    )
    return Geometry(name=name, config=config, description=shape.description, source=shape.source)


# --- reading data files ---

Model = TypeVar("Model", bound=BaseModel)

MOST_MISTAKES = 20
"""Of one table are told."""


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises `DataError` if there is no such file or it is not TOML."""
    try:
        return parse_toml(read_bytes(path, at_most=SMALL_BYTES).decode("utf-8"))
    except OSError as error:
        raise DataError(f"{shown(path)}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{shown(path)}: not TOML: {error}") from error


def checked(
    model: type[Model], values: object, *, file: str, table: str, context: Mapping[str, Any] | None = None
) -> Model:
    """`values` as a `model`. Raises `DataError`, a line a mistake: file, table, key, value, what was expected."""
    if not isinstance(values, Mapping):
        raise DataError(f"{file}: {shortened(table)} = {short(values)}, expected a table")
    try:
        return model.model_validate(dict(values), context=dict(context or {}))
    except ValidationError as error:
        mistakes = [shortened(_mistake(model, dict(details)), 800) for details in error.errors()[:MOST_MISTAKES]]
        raise DataError("\n".join(f"{file}: {shortened(table)}: {mistake}" for mistake in mistakes)) from None


def impossible(key: str, value: object, expected: str) -> PydanticCustomError:
    """The error a validator raises for a value that does not fit the others of its table."""
    return PydanticCustomError("impossible", "{key}", {"key": key, "value": value, "expected": expected})


def nearest(name: str, known: Iterable[str]) -> str:
    """ "did you mean 'x'?", or all known names where none is near."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else "there are " + ", ".join(map(repr, names))


def shown(path: Path) -> str:
    """A path as errors show it: within the workbench relative to its root, so that the text is the same everywhere."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def _mistake(model: type[BaseModel], error: dict[str, Any]) -> str:
    key = ".".join(str(part) for part in error["loc"])
    value = error["input"]
    details = error.get("ctx", {})
    match error["type"]:
        case "impossible":
            return f"{details['key']} = {short(details['value'])}, expected {details['expected']}"
        case "missing":
            return f"{key} is missing"
        case "extra_forbidden":
            known = model.model_fields if len(error["loc"]) == 1 else _RopeScaling.model_fields
            return f"{key} = {short(value)}: no such key; {nearest(str(error['loc'][-1]), known)}"
        case "literal_error":
            names = details["expected"].replace(" or ", ", ").replace("'", "").split(", ")
            hint = f"; {nearest(value, names)}" if isinstance(value, str) else ""
            return f"{key} = {short(value)}, expected {details['expected']}{hint}"
        case _:
            return f"{key} = {short(value)}, expected {error['msg'].removeprefix('Input should be ')}"
