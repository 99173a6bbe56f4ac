"""History: runs and baselines over time, as ratios to the frozen yardstick."""

from __future__ import annotations

from llama_workbench.dashboard import parts


def main() -> None:
    opened = parts.open_run("History")
    if opened is None:
        return


main()
