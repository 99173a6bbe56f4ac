"""Claims that strangers wrote: too long, too deep, with numbers out of all bounds. Told in short lines, at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llama_workbench.datasets.files import MOST_FAULTS, SMALL_BYTES
from llama_workbench.harness.claims.model import ClaimError
from llama_workbench.harness.claims.reading import check_claim, read_claim
from tests.fuzz.foreign import CLAIM


def claim_problems(folder: Path, old: str, new: str) -> tuple[str, ...]:
    assert old in CLAIM
    (folder / "claim.toml").write_text(CLAIM.replace(old, new))
    with pytest.raises(ClaimError) as caught:
        read_claim(folder / "claim.toml")
    for line in caught.value.problems:
        assert line.startswith(f"{folder / 'claim.toml'}")
        assert len(line.splitlines()) == 1
        assert len(line) < 1200
    return caught.value.problems


def test_a_claim_with_a_number_of_5000_digits(tmp_path: Path) -> None:
    for number in ("9" * 5000, "-" + "9" * 5000):
        (told,) = claim_problems(tmp_path, "[6, 11.5]", f"[6, {number}]")
        assert told.endswith("not valid TOML: a number of too many digits")
    (told,) = claim_problems(tmp_path, "[6, 11.5]", f"0x{'f' * 5000}")  # this many TOML's reader takes
    assert "gain_percent = a number of 20,000 bits, expected [low, high]" in told


@pytest.mark.parametrize("deep", ["[" * 5000 + "]" * 5000, "{ " + ".".join("a" * 5000) + " = 1 }", "{ a = " * 60 + "1"])
def test_a_claim_nested_5000_deep(deep: str, tmp_path: Path) -> None:
    (told,) = claim_problems(tmp_path, "[6, 11.5]", deep + " }" * deep.count("{ a ="))
    assert "not valid TOML: nested too deeply" in told or "not valid TOML: a key of more than 50 parts" in told


def test_a_claim_with_a_table_5000_deep(tmp_path: Path) -> None:
    (told,) = claim_problems(tmp_path, "[[hypothesis]]", f"[{'.'.join('a' * 5000)}]")
    assert ":9:2: not valid TOML: a key of more than 50 parts" in told


def test_a_stored_claim_nested_deep_is_told_as_well() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ClaimError, match=r"here: title = \[\[\["):
        check_claim({"title": deep}, "here")


def test_a_claim_with_5000_hypotheses(tmp_path: Path) -> None:
    table = "\n[[hypothesis]]\nmetric = 1\n"
    (told,) = claim_problems(tmp_path, "range = [20, 50]", table * 5000 + "range = [20, 50]")
    assert told.endswith("claim.toml: hypothesis: has 5,003 entries, expected at most 100")
    (told,) = claim_problems(tmp_path, '["prefill-15m-t8", "decode-15m-c64"]', str([f"w{i}" for i in range(5000)]))
    assert "hypothesis[0].workloads: has 5,000 entries, expected at most 100" in told


def test_of_a_claim_with_hundreds_of_faults_the_first_are_told(tmp_path: Path) -> None:
    odd = "\n".join(f"key{number} = 1" for number in range(500))
    told = claim_problems(tmp_path, 'title = "One file is faster"', odd)
    assert len(told) == MOST_FAULTS + 1
    assert told[-1].endswith("claim.toml: and 481 more faults")


def test_a_key_that_breaks_lines_is_told_in_one(tmp_path: Path) -> None:
    (told,) = claim_problems(tmp_path, "assumes = []", f'assumes = []\n"a\\n\\u2028b{"y" * 5000}" = 1')
    assert "unknown key" in told


def test_a_claim_beyond_its_size_is_refused(tmp_path: Path) -> None:
    (told,) = claim_problems(tmp_path, "assumes = []", "assumes = []\n#" + "x" * SMALL_BYTES)
    assert "expected at most 262,144" in told
