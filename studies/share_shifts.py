"""Why shares differ between two sessions: `python -m studies.share_shifts FIRST SECOND [WORKLOAD ...]`.

For each phase that both runs timed on a workload: how many times as long it took in the second run as in the first, and
by how many percent it grows where the products of matrices grow by one percent, from life to life within each run. A
machine that takes more from small operations when it is slower shows both.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from llama_workbench.harness.metrics.share.metric import PHASES
from llama_workbench.harness.report.markdown import markdown_rows
from llama_workbench.harness.store.folder import RunFolder

PRODUCTS = ["qkv", "o_proj", "mlp", "lm_head"]
"""Phases that are products of matrices, nearly all of them."""

WORKLOADS = ("prefill-15m-t128", "decode-15m-c64")


def lives(folder: RunFolder, workload: str) -> pd.DataFrame:
    """Logarithms of the median time of a phase in a call: a row a variant and process, a column a phase. "products" are
    those of matrices together."""
    rows = folder.read_table(PHASES).where(workload=workload).frame().astype({"variant": str, "phase": str})
    times = rows.groupby(["variant", "process", "phase"])["ns"].median().unstack()
    return times.assign(products=times[PRODUCTS].sum(axis=1)).map(math.log)


def slope(logs: pd.DataFrame, phase: str) -> float:
    """Percent more in a phase for one percent more in the products, from life to life of each variant."""
    centred = logs - logs.groupby(level="variant").transform("mean")
    of = centred[phase].notna()
    products, times = centred["products"][of], centred[phase][of]
    return float((products * times).sum() / (products**2).sum())


def table(first: RunFolder, second: RunFolder, workload: str) -> str:
    """A row for each phase, the one that changed most first."""
    both = lives(first, workload), lives(second, workload)
    shift = (both[1].groupby(level="variant").mean() - both[0].groupby(level="variant").mean()).mean().dropna()
    return markdown_rows(
        (f"{workload}: phase", "second run / first run", "per 1 % of the products: first run", "second run"),
        [
            [str(phase), f"{np.exp(shift[phase]):.2f}", *(f"{slope(logs, str(phase)):.1f} %" for logs in both)]
            for phase in shift.sort_values(ascending=False).index
        ],
    )


def main(first: str, second: str, *workloads: str) -> None:
    for workload in workloads or WORKLOADS:
        sys.stdout.write(f"{table(RunFolder(Path(first)), RunFolder(Path(second)), workload)}\n\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
