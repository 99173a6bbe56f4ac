"""What `workbench compare` takes for a regression: `[tool.llama-workbench.compare]` of a project's pyproject.toml.

[tool.llama-workbench.compare]
gate = ["time", "instructions"]   # what decides the exit code
time = 2.5                        # percent: more time than this is a regression
instructions = 0.5
memory = 2
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from llama_workbench.datasets.files import faults, nearest, short
from llama_workbench.datasets.geometries import DataError, read_toml

from ..spec.hypotheses import no_repeats

What = Literal["time", "instructions", "memory"]
WHATS: tuple[What, ...] = get_args(What)
"""What of a variant is compared."""

FILE, TABLE = "pyproject.toml", "tool.llama-workbench"

Percent = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False, description="a number of percent above 0")]
GATES = Field(min_length=1, description=f"a list of one or more of {', '.join(WHATS)}, without repeats")


class ConfigError(ValueError):
    """Settings that cannot be used. One line for each fault: the file, the key, its value, what is expected."""


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Thresholds(_Table):
    """More percent than this is a regression. `gate`: what decides the exit code. The rest is shown."""

    gate: Annotated[tuple[What, ...], GATES, AfterValidator(no_repeats)] = ("time",)
    time: Percent = 2.5
    instructions: Percent = 0.5
    memory: Percent = 2.0


DEFAULTS = Thresholds()


class _Settings(_Table):
    compare: Thresholds = Field(default=DEFAULTS, description="a table")


def read_thresholds(start: Path) -> Thresholds:
    """The thresholds of the nearest pyproject.toml with our table in `start` or above; else the defaults.

    Raises ConfigError where a file cannot be used.
    """
    for path in (folder / FILE for folder in (start, *start.parents)):
        try:
            tools = read_toml(path).get("tool") if path.is_file() else None
        except DataError as error:
            raise ConfigError(str(error)) from error
        if isinstance(tools, Mapping) and "llama-workbench" in tools:
            return _checked(tools["llama-workbench"], path)
    return DEFAULTS


def gate_of(text: str) -> tuple[What, ...]:
    """A gate from "time,instructions". Raises ConfigError."""
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        if word not in WHATS:
            raise ConfigError(f"--gate {text}: expected one or more of {', '.join(WHATS)}; {nearest(word, WHATS)}")
    return tuple(what for what in WHATS if what in words)


def _checked(table: Any, path: Path) -> Thresholds:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path}: {TABLE} = {short(table)}, expected a table")
    try:
        return _Settings.model_validate(table).compare
    except ValidationError as error:
        lines = (f"{path}: {TABLE}: {fault}" for fault in faults(error, table, _Settings))
        raise ConfigError("\n".join(lines)) from error
