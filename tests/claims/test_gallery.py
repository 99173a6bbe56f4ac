"""Public arguments: each claim can be read and passes its gates, and the page says what the committed run found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Said
from llama_workbench import ROOT
from llama_workbench.commands.app import main
from llama_workbench.harness.claims.reading import load_folder
from llama_workbench.harness.report.markdown import gallery_markdown
from llama_workbench.harness.store.verdict_schema import Effect
from tests.verdicts import a_verdict, an_effect

pytestmark = pytest.mark.usefixtures("warm")

FOLDER = ROOT / "claims" / "public"


def test_there_are_twelve_arguments_each_with_its_threads() -> None:
    claims, _ = load_folder(FOLDER)
    assert len(claims) >= 12
    for claim in claims:
        assert len(claim.who) >= 1 and claim.assumes and "workbench" not in " ".join(claim.who), claim.id
        assert any("#" in each.document or "PyPI" in each.document for each in claim.source), claim.id


@pytest.mark.covers("claims/public", "harness/calls", "harness/machine", "harness/measure", "harness/worker")
@pytest.mark.long
def test_both_sides_of_every_argument_give_the_same_answers(run_pytest: Callable[..., Said], tmp_path: Path) -> None:
    said = run_pytest("--benchmark", "--benchmark-disable", f"--claims-dir={FOLDER}", f"--run-dir={tmp_path / 'run'}")
    assert said.returncode == 0, said.stdout


@pytest.mark.parametrize(
    ("name", "file"),
    [
        (("public", "--claims-dir", "claims/public", "--session", "public-second"), "docs/results/public-arguments.md"),
        (("further",), "docs/results/another-processor.md"),
        (("h200",), "docs/results/gpu.md"),
    ],
)
@pytest.mark.whole
def test_the_page_is_what_the_committed_run_says(
    name: tuple[str, ...], file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as ended:
        main(["judge", *name, "--write", file, "--check"])
    assert (ended.value.code, capsys.readouterr().err) == (0, f"{file}: up to date\n")


def test_every_public_argument_has_its_threads_and_its_command() -> None:
    page = (ROOT / "docs/results/public-arguments.md").read_text(encoding="utf-8")
    assert page.count("\nMeasure it: `pytest --benchmark --claims-dir claims/public ") >= 12
    assert "[pydantic/pydantic#8893](https://github.com/pydantic/pydantic/issues/8893)" in page


def effect(workload: str) -> Effect:
    return an_effect(workload=workload, variant="one-step", baseline="json.loads-first")


def test_a_section_has_what_is_said_what_came_out_and_the_command() -> None:
    claims, _ = load_folder(FOLDER)
    verdict = a_verdict(effect("json-1"), claim="json-in-one-step", part="faster at all")
    times = {("json-1", "one-step", "json.loads-first"): (3e6, 2e6)}
    page = gallery_markdown(claims, [verdict], times, "claims/public")
    assert page.count("\n## ") == 1, "of what the run has not measured there is no section"
    assert "| one entry | one-step against json.loads-first | 2.00 ms against 3.00 ms | " in page
    assert (
        "`pytest --benchmark --claims-dir claims/public --all --claims json-in-one-step`" in page
        and "<summary>What is assumed" in page
    )
