"""Trust: how far this machine's numbers can be trusted: controls, noise, gates, environment."""

from __future__ import annotations

from llama_workbench.dashboard import parts


def main() -> None:
    opened = parts.open_run("Trust")
    if opened is None:
        return


main()
