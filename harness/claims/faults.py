"""What is wrong with a claim, in words for its author: the key, its value, what is expected, the nearest valid word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from llama_workbench.datasets.faults import MOST_FAULTS, Location, dotted, faults, model_below, unknown_key

from ..metrics.registry import names
from .model import Claim, hypothesis_model

NOTED_BY_RUNS = "left_out"
"""A key of parts that only the claims stored with a run have."""


class ClaimError(ValueError):
    """A claim cannot be used. One line for each fault: file, key, value, what was expected, nearest valid name."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def problems_of(error: ValidationError, table: Mapping[str, Any], where: str) -> list[str]:
    """What pydantic found wrong with a claim, a line each; `where` stands at the start of every line."""

    def model_at(location: Location) -> type[BaseModel]:
        match location:
            case ["hypothesis", int(index), *below] if isinstance(part := table["hypothesis"][index], Mapping):
                return model_below(hypothesis_model(part.get("metric")), tuple(below))
        return model_below(Claim, location)

    lines = faults(error, table, model_at, words={"metric": names()}, unlisted=(NOTED_BY_RUNS,))
    return [f"{where}: {line}" for line in lines]


def noted_by_runs(table: Mapping[str, Any], where: str) -> list[str]:
    """The keys of a claim file that only a run may write, a line each."""
    parts = table.get("hypothesis")
    lines = []
    for index, part in enumerate(parts if isinstance(parts, list) else []):
        if isinstance(part, Mapping) and NOTED_BY_RUNS in part:
            keys = [name for name in hypothesis_model(part.get("metric")).model_fields if name != NOTED_BY_RUNS]
            place = dotted(("hypothesis", index, NOTED_BY_RUNS))
            lines.append(f"{where}: {unknown_key(place, part[NOTED_BY_RUNS], NOTED_BY_RUNS, keys)}")
    return lines[:MOST_FAULTS]
