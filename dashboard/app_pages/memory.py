"""Memory: time against memory, and what caching policies hold on to."""

from __future__ import annotations

from llama_workbench.dashboard import parts


def main() -> None:
    opened = parts.open_run("Memory")
    if opened is None:
        return


main()
