"""docs/reference/file-format.md is what the models of a run folder say."""

from __future__ import annotations

from llama_workbench import ROOT
from llama_workbench.harness.metrics.document import document
from llama_workbench.harness.metrics.registry import declared_files
from llama_workbench.harness.store.files import FORMS, JOURNAL, SAMPLES, SUMS


def test_the_page_is_up_to_date() -> None:
    written = (ROOT / "docs/reference/file-format.md").read_text(encoding="utf-8")
    assert written == document(declared_files()), "python -m llama_workbench.harness.metrics.document > ..."


def test_every_file_and_key_is_described() -> None:
    page = document(declared_files())
    assert all(f"## {name}\n" in page for name in (*FORMS, *declared_files(), SAMPLES, JOURNAL, SUMS))
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 150 and all(what.removesuffix(" |").strip() for _, _, what in rows)
