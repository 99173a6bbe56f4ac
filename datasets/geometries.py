"""Model shapes from `datasets/geometries.toml`, and how the data files are read: a typo is an error that says where.

Importing this module does not import torch.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llama_workbench import ROOT
from llama_workbench.variants.config import LlamaConfig

from .files import SMALL_BYTES, nearest, parse_toml, read_bytes, short, shortened
from .shape import DataError, Shape, mistakes, stored_shapes

GEOMETRIES_FILE = ROOT / "datasets" / "geometries.toml"

Text = Annotated[str, Field(min_length=1)]


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
    geometries: dict[str, Geometry] = {}
    for name, table in tables.items():
        shape = checked(_Table, table, file=shown(path), table=f"[{name}]")
        geometries[name] = Geometry(name, shape.config(), shape.description, shape.source)
    return geometries


def get(name: str) -> Geometry:
    """One geometry. Raises `DataError` with the nearest name if there is none of that name."""
    by_name = geometries()
    if name not in by_name:
        raise DataError(f"{shown(GEOMETRIES_FILE)}: no geometry {name!r}; {nearest(name, by_name)}")
    return by_name[name]


def parameter_count(config: LlamaConfig) -> int:
    """Number of weights of a model of that shape; tied embeddings count once."""
    return sum(map(math.prod, stored_shapes(config).values()))


class _Table(Shape):
    """One table of geometries.toml."""

    model_config = ConfigDict(extra="forbid")

    description: Text
    source: Text
    rms_norm_eps: Annotated[float, Field(gt=0, lt=1)] = 1e-5


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
        lines = mistakes(error, keys=model.model_fields)[:MOST_MISTAKES]
        raise DataError("\n".join(f"{file}: {shortened(table)}: {mistake}" for mistake in lines)) from None


def shown(path: Path) -> str:
    """A path as errors show it: within the workbench relative to its root, so that the text is the same everywhere."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
