"""Prints docs/reference/file-format.md.

python -m llama_workbench.harness.metrics.document > docs/reference/file-format.md
"""

from __future__ import annotations

from ..store.document import document
from .registry import declared_files

if __name__ == "__main__":
    print(document(declared_files()), end="")
