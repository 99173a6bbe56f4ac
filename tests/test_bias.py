"""The page of statements names claims that are there, with parts that they have, and leaves none out."""

from __future__ import annotations

import re

from llama_workbench import ROOT
from llama_workbench.harness.claims.reading import load_folder

PAGE = ROOT / "docs" / "results" / "statements.md"
TEXT = PAGE.read_text(encoding="utf-8").partition("## What they said, and where it is judged")[2]
CLAIMS = {claim.id: claim for claim in load_folder(ROOT / "claims")[0]}
NAMED = re.findall(r"`([\w.-]+)`(?: \(([^)]*)\))?", TEXT)


def test_every_claim_is_named_and_every_name_is_a_claim() -> None:
    assert {name for name, _ in NAMED} - {"id"} == set(CLAIMS)


def test_every_part_that_is_named_is_one_of_its_claim() -> None:
    for name, said in NAMED:
        known = [part.part or "" for part in CLAIMS[name].hypothesis] if name in CLAIMS else []
        for part in filter(None, said.split("; ")):
            assert any(each.startswith(part.split(",")[0]) for each in known), (name, part, known)


def test_there_is_a_row_for_each_of_some_seventy_statements() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| statement")]
    assert len(rows) > 70 and len(set(rows)) == len(rows)
    assert all((line.count("|") == 4 and "`" in line) or "none: " in line or "the gate: " in line for line in rows)
