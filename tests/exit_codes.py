"""The page of exit codes: `python -m tests.exit_codes docs/reference/exit-codes.md` writes its tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from llama_workbench.harness.report.markdown import markdown_rows, update_file
from llama_workbench.harness.spec.exits import SessionExit, VerbExit


def blocks() -> dict[str, str]:
    """What is between the markers of the page, by the name of the block."""
    return {"session-exits": _table(SessionExit), "command-exits": _table(VerbExit)}


def _table(codes: Iterable[SessionExit] | Iterable[VerbExit]) -> str:
    return markdown_rows(("exit code", "meaning"), ((str(code.value), code.meaning) for code in codes))


if __name__ == "__main__":
    update_file(Path(sys.argv[1]), blocks())
