"""Digests of source: the same for the same code, wherever it lies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from llama_workbench import ROOT
from llama_workbench.variants.digests import digest_of_code

MINE = "import beside\nfrom llama_workbench.variants.presets import presets\n"


def digest_in(home: Path, other: Path, *, mine: str = MINE, beside: str = "NUMBER = 1\n") -> str:
    """Of `mine.py` in a folder, which imports a module from another folder, and one that ships."""
    for folder, name, text in ((home, "mine.py", mine), (other, "beside.py", beside)):
        folder.mkdir(parents=True)
        (folder / name).write_text(text, encoding="utf-8")
    return digest_of_code(home / "mine.py", [home, other], "mine")


def test_it_is_the_same_in_another_place(tmp_path: Path) -> None:
    """On another machine the folders of a run have other names, and so another order."""
    assert digest_in(tmp_path / "a", tmp_path / "b") == digest_in(tmp_path / "d", tmp_path / "c")


def test_it_is_the_same_on_either_side_of_the_workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_in(tmp_path / "a", tmp_path / "a2")
    copied = tmp_path / "m"
    shutil.copytree(ROOT / "variants", copied, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("llama_workbench.variants.digests.HERE", copied)
    assert digest_in(tmp_path / "b", tmp_path / "b2") == digest_in(tmp_path / "y", tmp_path / "z") == before


@pytest.mark.parametrize("change", [{"mine": f"{MINE}# more\n"}, {"beside": "NUMBER = 2\n"}])
def test_it_is_another_one_for_other_code(tmp_path: Path, change: dict[str, str]) -> None:
    assert digest_in(tmp_path / "a", tmp_path / "b") != digest_in(tmp_path / "c", tmp_path / "d", **change)
