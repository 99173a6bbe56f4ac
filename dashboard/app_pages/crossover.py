"""Crossover: how an effect changes with width, length and position."""

from __future__ import annotations

from llama_workbench.dashboard import parts


def main() -> None:
    opened = parts.open_run("Crossover")
    if opened is None:
        return


main()
