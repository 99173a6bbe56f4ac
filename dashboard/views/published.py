"""Times that the dispute published beside this machine's: rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llama_workbench.harness.claims.published import Figure

from . import data, noise

ON_CANDLE = ("candle_engine_fresh", "candle_engine")
"""Variants that do the same work on the dispute's own engine; the first makes its masks anew, as theirs did."""


@dataclass(frozen=True)
class Row:
    """One published time, and of the same work here: `ours` on PyTorch, `candle` on Candle, each the median of a call
    in nanoseconds.

    The growths are the time over that of the next shorter length of the same part, None where there is none.
    """

    figure: Figure
    variant: str
    ours: noise.Span | None
    candle: noise.Span | None
    their_growth: float | None
    our_growth: float | None
    candle_growth: float | None


def rows(run: data.Run, measured: noise.Noise, published: Mapping[str, Figure]) -> list[Row]:
    """All published times, in the order of their file; ours are those of the workload's baseline."""
    found = list[Row]()
    before: dict[str, Row] = {}
    for workload, figure in published.items():
        variant = data.experiment(run, workload).baseline or ""
        ours = noise.median_ns(measured, workload, variant) if variant else None
        on_candle = (noise.median_ns(measured, workload, name) for name in ON_CANDLE)
        candle = next((found for found in on_candle if found is not None), None)
        part = workload.rpartition("-t")[0]
        shorter = before.get(part)
        row = Row(
            figure=figure,
            variant=variant,
            ours=ours,
            candle=candle,
            their_growth=figure.microseconds / shorter.figure.microseconds if shorter else None,
            our_growth=growth(ours, shorter.ours if shorter else None),
            candle_growth=growth(candle, shorter.candle if shorter else None),
        )
        before[part] = row
        found.append(row)
    return found


def growth(longer: noise.Span | None, shorter: noise.Span | None) -> float | None:
    """The longer call's time over the shorter one's; None where one of them is not known."""
    return longer.value / shorter.value if longer and shorter else None
