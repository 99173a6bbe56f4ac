"""Where time goes: shares of a forward by phase and length, and the flamegraph."""

from __future__ import annotations

from llama_workbench.dashboard import parts


def main() -> None:
    opened = parts.open_run("Where time goes")
    if opened is None:
        return


main()
