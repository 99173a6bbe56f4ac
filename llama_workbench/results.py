"""Where runs lie, below the folder that one stands in, and a run by its name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .harness.store.folder import RunFolder

RUNS = Path("results/runs")
BASELINES = Path("results/baselines")


def find_run(name: str) -> RunFolder:
    """A run by its folder, or by its name under results/baselines or results/runs; the first of these that is there."""
    from .harness.store.folder import RunFolder  # loads pandas

    candidates = [Path(name), BASELINES / name, RUNS / name]
    return RunFolder(next((folder for folder in candidates if folder.is_dir()), candidates[0]))
