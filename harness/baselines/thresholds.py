"""What `workbench compare` takes for a regression: `[tool.llama-workbench.compare]` of a project's pyproject.toml.

[tool.llama-workbench.compare]
gate = ["time", "instructions"]   # what decides the exit code
time = 2.5                        # percent: more time than this is a regression
instructions = 0.5
memory = 2
[[tool.llama-workbench.compare.for]]
variant = "fast"                  # a pattern with * and ?, as for files
workload = "decode-*"
time = 10
[[tool.llama-workbench.compare.sessions]]
variant = "fast"                  # measured: workbench compare RUN RUN RUN ...
kind = "decode"
code = "same"                     # that measured
sessions = 20
between = 0.05
at_most = 0.2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from llama_workbench.datasets.files import faults, nearest, short
from llama_workbench.datasets.geometries import DataError, read_toml

from ..spec.hypotheses import no_repeats

What = Literal["time", "instructions", "memory"]
WHATS: tuple[What, ...] = get_args(What)
"""What of a variant is compared."""

FILE, TABLE = "pyproject.toml", "tool.llama-workbench"

Percent = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False, description="a number of percent above 0")]
NotNegative = Annotated[float, Field(strict=True, ge=0, le=100, description="a number of percent from 0 to 100")]
Text = Annotated[str, Field(strict=True, min_length=1)]
Pattern = Annotated[str, Field(strict=True, min_length=1, description="a name, or a pattern with * and ?")]
GATES = Field(min_length=1, description=f"a list of one or more of {', '.join(WHATS)}, without repeats")


class ConfigError(ValueError):
    """Settings that cannot be used. One line for each fault: the file, the key, its value, what is expected."""


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ForSome(_Table):
    """Other thresholds, for the subjects that both patterns fit."""

    variant: Pattern | None = None
    workload: Pattern | None = None
    time: Percent | None = None
    instructions: Percent | None = None
    memory: Percent | None = None

    @model_validator(mode="after")
    def _says_something(self) -> ForSome:
        if self.variant is None and self.workload is None:
            raise ValueError("names no variant and no workload; put thresholds for all above it")
        if self.time is self.instructions is self.memory is None:
            raise ValueError("has no threshold: expected time, instructions or memory")
        return self

    def fits(self, workload: str, variant: str) -> bool:
        """Whether it is about this subject."""
        pairs = ((self.variant, variant), (self.workload, workload))
        return all(pattern is None or fnmatchcase(name, pattern) for pattern, name in pairs)

    def __str__(self) -> str:
        named = (("variant", self.variant), ("workload", self.workload))
        return ", ".join(f'{key} = "{value}"' for key, value in named if value is not None)


class Shift(_Table):
    """By how much the ratio of a variant to the reference benchmark differs between sessions of the same code,
    beyond what the processes of a session differ by. Standard deviations in percent: the estimate, and its upper
    bound (95 %)."""

    variant: Pattern
    kind: Annotated[Text, Field(description="the kind of a workload")]
    code: Annotated[
        Literal["same", "another"], Field(description="whether the same code measured both, or another version of it")
    ] = "same"
    sessions: Annotated[int, Field(strict=True, ge=2, description="the number of runs, 2 or more")]
    between: NotNegative
    at_most: NotNegative

    def fits(self, kind: str, variant: str, code: str) -> bool:
        """Whether it is about this variant on a workload of this kind."""
        return (kind, code) == (self.kind, self.code) and fnmatchcase(variant, self.variant)


class Thresholds(_Table):
    """More percent than this is a regression. Of several tables [[for]] that fit a subject, the last one counts.

    `gate`: what decides the exit code. The rest is shown.
    `sessions`: what sessions of the same code differ by; of several tables that fit, the last one counts.
    """

    gate: Annotated[tuple[What, ...], GATES, AfterValidator(no_repeats)] = ("time",)
    time: Percent = 2.5
    instructions: Percent = 0.5
    memory: Percent = 2.0
    for_some: tuple[ForSome, ...] = Field(default=(), alias="for", description="tables [[for]]")
    sessions: tuple[Shift, ...] = Field(default=(), description="tables [[sessions]]")

    def of(self, what: What, workload: str, variant: str) -> float:
        """The threshold of a subject, in percent."""
        own = [value for each in self.for_some if each.fits(workload, variant) if (value := getattr(each, what))]
        return float(own[-1] if own else getattr(self, what))

    def shift(self, kind: str, variant: str, *, same_code: bool = True) -> Shift | None:
        """What sessions of unchanged variants differ by, where it was measured. same_code: whether the same code
        measured them."""
        code = "same" if same_code else "another"
        fitting = [each for each in self.sessions if each.fits(kind, variant, code)]
        return fitting[-1] if fitting else None

    def with_time(self, percent: float) -> Thresholds:
        """The same with one threshold for all times."""
        others = tuple(each.model_copy(update={"time": None}) for each in self.for_some)
        return self.model_copy(update={"time": percent, "for_some": others})

    def fit_nothing(self, subjects: Iterable[tuple[str, str]]) -> list[ForSome]:
        """The tables [[for]] that are about none of these (workload, variant)."""
        known = list(subjects)
        return [each for each in self.for_some if not any(each.fits(*key) for key in known)]


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
