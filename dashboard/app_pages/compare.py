"""Compare: any two variants that were timed in the same rounds."""

from __future__ import annotations

from llama_workbench.dashboard import parts


def main() -> None:
    opened = parts.open_run("Compare")
    if opened is None:
        return


main()
