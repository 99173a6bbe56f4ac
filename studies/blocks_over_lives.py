"""What do blocks buy over processes? `python -m studies.blocks_over_lives [SECONDS]` measures one pair of variants on
six workloads, with blocks and in rounds alone, and prints a table. Nothing else may run.

As a plugin of pytest (`-p studies.blocks_over_lives`) it lets a run measure in rounds alone.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from pathlib import Path

from llama_workbench import ROOT
from llama_workbench.harness.measure import choosing
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.harness.store.folder import RunFolder

PAIR = ("team005_hybrid", "team005_proposal")
WORKLOADS = (
    "prefill-15m-t8", "prefill-15m-t128", "prefill-15m-t512", "decode-15m-c64", "prefill-7b-1layer-t8",
    "decode-7b-1layer-c1",
)  # fmt: skip
SECONDS = 30.0


def pytest_configure() -> None:
    choosing.CAN_SLICE = False


def measured(workload: str, seconds: float, folder: Path, *, blocks: bool) -> str:
    """A cell of the table: half width, processes, and the share of the time in samples of the pair."""
    run = folder / f"{workload}-{blocks}"
    command = [sys.executable, "-m", "pytest", "--benchmark", "-p", "no:cacheprovider", "--no-causes"]
    command += [] if blocks else ["-p", "studies.blocks_over_lives"]
    command += ["--compare", *PAIR, "--workloads", workload, "--budget", f"{seconds:g}", "--run-dir", str(run)]
    subprocess.run(command, cwd=ROOT, check=False, capture_output=True)
    [verdict] = RunFolder(run).read(VERDICTS)
    [effect] = verdict.effects
    [experiment] = RunFolder(run).manifest().experiments
    share = 100 * (experiment.compared_seconds or 0.0) / (experiment.wall_seconds or math.inf)
    half = 50 * math.log(effect.high / effect.low) if effect.low > 0 else math.inf
    return f"±{half:.2f} %, {effect.rounds}, {share:.0f} %"


def main(seconds: float) -> None:
    """Print a row as soon as a workload is measured."""
    print("| workload | in blocks | in rounds |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        for workload in WORKLOADS:
            cells = [measured(workload, seconds, Path(name), blocks=blocks) for blocks in (True, False)]
            print(f"| {workload} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
