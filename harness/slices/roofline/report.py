"""The roofline fractions of a run in `workbench report`, and the cells of their table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ...report.markdown import markdown_cell, markdown_rows, markdown_text
from ...report.text import short
from ...store.folder import RunFolder
from .metric import ROOFLINE, Estimate, Reached, all_reached


def markdown(folder: RunFolder, alpha: float) -> str:
    """What each variant reaches of this machine's roof, as a table; empty of a run without. Raises RunError."""
    records = folder.read(ROOFLINE)
    return roofline_markdown(*all_reached(records, alpha=alpha), alpha=alpha) if records else ""


def roofline_markdown(rows: Sequence[Reached], missing: Iterable[str], *, alpha: float) -> str:
    kernels: dict[str, str] = {}
    table = [(*map(markdown_cell, cells[:2]), *cells[2:]) for cells in roofline_rows(rows)]
    for row in rows:
        compute, memory = map(markdown_text, row.kernels)
        by = f"GFLOP/s by a matrix product ({compute}), GB/s by a {memory}; its weights {FITS[row.in_cache]}"
        kernels[markdown_text(row.workload)] = by
    notes = [f"{name}: {text}." for name, text in kernels.items()]
    if rows:
        notes.append(
            "The roofline is the least time that the operations and bytes of a call can take, at the rates measured in "
            f"the same rounds; each interval holds with {100 * (1 - alpha):.4g} % confidence."
        )
    notes += [f"{markdown_text(f'{row.variant} on {row.workload}')}: {row.above}." for row in rows if row.above]
    notes += [f"Not measured: {markdown_text(line)}" for line in missing]
    title = "# Roofline: what percentage of the hardware limit is reached"
    return "\n\n".join([title, markdown_rows(COLUMNS, table), *notes]) + "\n"


FITS = {
    True: "fit in the last-level cache: GB/s are the cache's",
    False: "do not fit in the last-level cache",
    None: "may fit in a cache; its size is not known here",
}
COLUMNS = (
    "workload", "variant", "ms a call", "roofline fraction, %", "rounds", "limited by", "FLOP a byte", "GFLOP/s",
    "GB/s",
)  # fmt: skip


def roofline_rows(rows: Iterable[Reached]) -> list[tuple[str, ...]]:
    """The cells below COLUMNS, a row for each workload and variant."""
    return [
        (
            row.workload,
            row.variant,
            _estimate_text(row.call_ms),
            _estimate_text(row.share),
            str(row.rounds),
            row.binds,
            short(row.intensity),
            _estimate_text(row.gflops),
            _estimate_text(row.gbytes),
        )
        for row in rows
    ]


def _estimate_text(estimate: Estimate) -> str:
    ends = [short(end) if 0 < end < math.inf else "open" for end in estimate[1:]]
    return f"{short(estimate.value)} [{', '.join(ends)}]"
