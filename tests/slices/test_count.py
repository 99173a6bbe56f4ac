"""What is counted in the source of variants, of today and as committed runs have it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from llama_workbench import ROOT, variants
from llama_workbench.harness.metrics.base import FINDINGS
from llama_workbench.harness.slices.count.metric import counted, lines, units
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.forms import plain


def test_lines_that_hold_code_are_counted() -> None:
    text = '"""Doc\nstring."""\n\n# comment\nx = """a\nb"""\n\ndef f():\n    """Doc."""\n    return (1,\n        2)\n'
    assert lines(text) == 5  # the text over two lines, def, and a return over two
    assert units(text + "def _private(): ...\nclass A: ...\n") == 2


def test_a_variant_is_counted_with_all_it_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = counted("files", "team006_after")
    assert whole.value == len(list((ROOT / "variants" / "modular").glob("*.py"))) - 1 and "modular.rope" in whole.detail
    assert counted("files", "team005_proposal").value == 1
    assert counted("lines", "team005_proposal").value == lines((ROOT / "variants" / "single_file.py").read_text())
    monkeypatch.setattr(variants, "get", lambda name: SimpleNamespace(build=None))
    assert counted("lines", "theirs").reason == "variant 'theirs' has no source here to count"


def test_a_count_may_be_over_that_of_a_baseline() -> None:
    result = counted("lines", "fast", "transformers_sdpa")
    assert result.value == counted("lines", "fast").value / counted("lines", "transformers_sdpa").value
    assert FINDINGS.form.validate_python(plain([result])) == [result]


@pytest.mark.parametrize("name", ["reference", "reference-second"])
def test_what_was_counted_in_the_source_is_what_it_holds_today(name: str) -> None:
    """Code of variants is what some claims are about: a file that is joined with another changes a verdict. (The
    library's model has one line more since then.)"""
    stored = [each for each in RunFolder(ROOT / "results/baselines" / name).read(FINDINGS) if each.metric == "count"]
    counts = [(each.quantity, each.variant, each.baseline) for each in stored]
    today = [counted(*count).value for count in counts]
    assert len(counts) > 3 and today == pytest.approx([each.value for each in stored], rel=0.03)
