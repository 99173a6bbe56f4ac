"""Damaged files of every kind, with a fixed seed: a line that names the file, never a crash, never other numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import Kind, try_all
from tests.fuzz.foreign import KINDS

pytestmark = pytest.mark.covers("harness/store", "harness/evidence", "harness/claims", "datasets", "tests/fuzz")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.whole
def test_a_damaged_file_is_told_in_one_line(kind: Kind, tmp_path: Path) -> None:
    tally = try_all(kind, tmp_path / "tries", cases=40)

    assert tally.failed == []
    assert tally.refused + tally.warned + tally.accepted > tally.tried / 3
