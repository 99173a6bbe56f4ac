"""Claim: one claim with all its evidence, and the command that measures it again."""

from __future__ import annotations

from llama_workbench.dashboard import parts


def main() -> None:
    opened = parts.open_run("Claim")
    if opened is None:
        return


main()
