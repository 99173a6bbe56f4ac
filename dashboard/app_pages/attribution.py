"""Attribution: what a speed-up is due to: layout, cache ownership, masks or operations."""

from __future__ import annotations

from llama_workbench.dashboard import parts


def main() -> None:
    opened = parts.open_run("Attribution")
    if opened is None:
        return


main()
