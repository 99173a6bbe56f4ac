"""The roofline of a run as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..metrics.roofline.roofline import Estimate, Reached
from .markdown import markdown_cell, markdown_rows, markdown_text
from .text import short


def roofline_markdown(rows: Sequence[Reached], missing: Iterable[str], *, alpha: float) -> str:
    """What each variant reaches of this machine's roof, as a Markdown table; `missing` has a line for each without."""
    kernels: dict[str, str] = {}
    table = []
    for row in rows:
        estimates = [_estimate_text(each) for each in (row.call_ms, row.share, row.gflops, row.gbytes)]
        facts = [str(row.rounds), row.binds, short(row.intensity)]
        table.append([markdown_cell(row.workload), markdown_cell(row.variant), *estimates[:2], *facts, *estimates[2:]])
        fits = {True: "fit in the last-level cache: GB/s are the cache's", False: "do not fit in the last-level cache"}
        where = fits[row.in_cache] if row.in_cache is not None else "may fit in a cache, whose size is not known here"
        compute, memory = map(markdown_text, row.kernels)
        kernels[markdown_text(row.workload)] = (
            f"GFLOP/s by a matrix product ({compute}), GB/s by a {memory}; its weights {where}"
        )
    notes = [f"{name}: {text}." for name, text in kernels.items()]
    if rows:
        notes.append(
            "The roof is the least time that the operations and bytes of a call can take at the rates measured in the "
            f"same rounds; each interval holds with {100 * (1 - alpha):.4g} % confidence."
        )
    notes += [f"Not measured: {markdown_text(line)}" for line in missing]
    return (
        "\n\n".join(["# What this machine can do, and what is reached of it", markdown_rows(COLUMNS, table), *notes])
        + "\n"
    )


COLUMNS = (
    "workload", "variant", "ms a call", "share of the roof, %", "rounds", "binds", "FLOP a byte", "GFLOP/s", "GB/s",
)  # fmt: skip


def _estimate_text(estimate: Estimate) -> str:
    ends = [short(end) if 0 < end < math.inf else "open" for end in estimate[1:]]
    return f"{short(estimate.value)} [{', '.join(ends)}]"
