"""What the dispute published of its own measurements, from `datasets/published.toml`, to be shown beside ours.

Importing this module does not import torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, model_validator

from llama_workbench import ROOT

from .claims import Source
from .geometries import DataError, Text, checked, impossible, nearest, read_toml, shown

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


def published(path: Path = PUBLISHED_FILE) -> dict[str, Figure]:
    """Figures by workload, in the file's order. Raises `DataError` on a mistake in it or a workload given twice."""
    tables = read_toml(path)
    for key in tables.keys() - {"figure"}:
        raise DataError(f"{shown(path)}: [{key}]: no such table; {nearest(key, ['figure'])}")
    found: dict[str, Figure] = {}
    for number, table in enumerate(tables.get("figure", []), start=1):
        figure = checked(Figure, table, file=shown(path), table=f"[[figure]] {number}")
        if figure.workload in found:
            raise DataError(f"{shown(path)}: [[figure]] {number}: workload = {figure.workload!r} occurs twice")
        found[figure.workload] = figure
    return found
