"""What the dispute published of its own measurements, from `datasets/published.toml`, to be shown beside ours.

Importing this module does not import torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, model_validator

from llama_workbench import ROOT
from llama_workbench.datasets.files import nearest
from llama_workbench.datasets.geometries import Text, checked, read_toml, shown
from llama_workbench.datasets.shape import DataError, impossible
from llama_workbench.variants.phase_map import DENOMINATORS

from .model import Source

PUBLISHED_FILE = ROOT / "datasets" / "published.toml"


class Figure(BaseModel):
    """One published time, in microseconds a call: `bench` is its name there, `workload` ours that does the same."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    workload: Text
    bench: Text
    microseconds: PositiveFloat
    interval: Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)] | None = None
    source: Source

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
    source: Source

    @model_validator(mode="after")
    def _known(self) -> Portion:
        for phase in self.phases:
            if phase not in DENOMINATORS["attention-subset"]:
                raise impossible("phases", phase, nearest(phase, DENOMINATORS["attention-subset"]))
        return self


def published(path: Path = PUBLISHED_FILE) -> dict[str, Figure]:
    """Figures by workload, in the file's order. Raises `DataError` on a mistake in it or a workload given twice."""
    tables = _tables(path)
    found: dict[str, Figure] = {}
    for number, table in enumerate(tables.get("figure", []), start=1):
        figure = checked(Figure, table, file=shown(path), table=f"[[figure]] {number}")
        if figure.workload in found:
            raise DataError(f"{shown(path)}: [[figure]] {number}: workload = {figure.workload!r} occurs twice")
        found[figure.workload] = figure
    return found


def published_shares(path: Path = PUBLISHED_FILE) -> tuple[Portion, ...]:
    """The lines of the dispute's table of shares, in its order. Raises `DataError` on a mistake in the file."""
    rows = enumerate(_tables(path).get("share", []), start=1)
    return tuple(checked(Portion, row, file=shown(path), table=f"[[share]] {number}") for number, row in rows)


def _tables(path: Path) -> dict[str, Any]:
    tables = read_toml(path)
    for key in tables.keys() - {"figure", "share"}:
        raise DataError(f"{shown(path)}: [{key}]: no such table; {nearest(key, ['figure', 'share'])}")
    return tables
