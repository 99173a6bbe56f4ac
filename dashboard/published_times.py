"""Times that the dispute published beside this machine's: rows of a table, no Streamlit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llama_workbench.harness.published import Figure

from . import data, noise, values


@dataclass(frozen=True)
class Row:
    """One published time and ours of the same work. `ours` is the median of a call in nanoseconds.

    The growths are the time over that of the next shorter length of the same part, None where there is none.
    """

    figure: Figure
    variant: str
    ours: noise.Span | None
    their_growth: float | None
    our_growth: float | None


def rows(run: data.Run, measured: noise.Noise, published: Mapping[str, Figure]) -> list[Row]:
    """All published times, in the order of their file; ours are those of the workload's baseline."""
    found = list[Row]()
    before: dict[str, Row] = {}
    for workload, figure in published.items():
        variant = values.text(data.experiment(run, workload).get("baseline"))
        ours = noise.median_ns(measured, workload, variant) if variant else None
        part = workload.rpartition("-t")[0]
        shorter = before.get(part)
        row = Row(
            figure=figure,
            variant=variant,
            ours=ours,
            their_growth=figure.microseconds / shorter.figure.microseconds if shorter else None,
            our_growth=ours.value / shorter.ours.value if ours and shorter and shorter.ours else None,
        )
        before[part] = row
        found.append(row)
    return found
