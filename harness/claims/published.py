"""What the dispute published of its own measurements, from `datasets/published.toml`, to be shown beside ours.

Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, model_validator

from llama_workbench import ROOT
from llama_workbench.datasets.faults import impossible
from llama_workbench.datasets.files import nearest, shown
from llama_workbench.datasets.geometries import DataError, Text, checked, read_toml
from llama_workbench.variants.phase_map import DENOMINATORS

from .model import Citation

M = TypeVar("M", bound=BaseModel)

PUBLISHED_FILE = ROOT / "datasets" / "published.toml"


class Figure(BaseModel):
    """One published time, in microseconds a call: `bench` is its name there, `workload` ours that does the same."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    workload: Text
    bench: Text
    microseconds: PositiveFloat
    interval: Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)] | None = None
    source: Citation

    @model_validator(mode="after")
    def _inside(self) -> Figure:
        if self.interval is not None and not self.interval[0] <= self.microseconds <= self.interval[1]:
            raise impossible("interval", self.interval, f"ends around {self.microseconds}")
        return self


class Portion(BaseModel):
    """One line of the dispute's table of shares: what it calls it, our phases that do the same, and both figures."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    line: Text
    phases: Annotated[list[Text], Field(min_length=1)]
    percent: Annotated[float, Field(gt=0, le=100)]
    milliseconds: PositiveFloat
    source: Citation

    @model_validator(mode="after")
    def _known(self) -> Portion:
        for phase in self.phases:
            if phase not in DENOMINATORS["attention-subset"]:
                raise impossible("phases", phase, nearest(phase, DENOMINATORS["attention-subset"]))
        return self


def published(path: Path = PUBLISHED_FILE) -> dict[str, Figure]:
    """Figures by workload, in the file's order. Raises `DataError` on a mistake in it or a workload given twice."""
    figures: dict[str, Figure] = {}
    for number, figure in enumerate(_entries(path, "figure", Figure), start=1):
        if figures.setdefault(figure.workload, figure) is not figure:
            raise DataError(f"{shown(path)}: [[figure]] {number}: workload = {figure.workload!r} occurs twice")
    return figures


def published_shares(path: Path = PUBLISHED_FILE) -> tuple[Portion, ...]:
    """The lines of the dispute's table of shares, in its order. Raises `DataError` on a mistake in the file."""
    return tuple(_entries(path, "share", Portion))


def _entries(path: Path, name: str, model: type[M]) -> Iterator[M]:
    tables = read_toml(path)
    for key in tables.keys() - {"figure", "share"}:
        raise DataError(f"{shown(path)}: [{key}]: no such table; {nearest(key, ['figure', 'share'])}")
    for number, row in enumerate(tables.get(name, []), start=1):
        yield checked(model, row, file=shown(path), table=f"[[{name}]] {number}")
