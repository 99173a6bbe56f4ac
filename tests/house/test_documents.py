"""README and the pages of docs/: links lead somewhere, pages are short, and the first comparison was measured."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from conftest import Said
from llama_workbench import ROOT
from llama_workbench.harness.baselines import regressions
from llama_workbench.harness.calls.digest import digest_of
from llama_workbench.harness.calls.source import parse
from llama_workbench.harness.report.markdown import update_file
from llama_workbench.harness.store.folder import RunFolder
from studies import first_comparison, pictures
from tests import reference
from tests.commands.test_cli import output

README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [*sorted(ROOT.glob("*.md")), ROOT / "results" / "README.md", *PAGES]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def without_code(text: str) -> str:
    """Fenced blocks hold no headings, links or prose."""
    return re.sub(r"(?ms)^```.*?^```$", "", text)


def links_in(text: str) -> Iterator[tuple[str, str]]:
    """Path and anchor of each link to a file, as they are typed; "" for this file."""
    prose = re.sub(r"`[^`]*`", "code", without_code(text))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield unquote(path), anchor


def anchors_in(text: str) -> set[str]:
    """The anchors that GitHub gives to headings."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"(?m)^#{1,6} +(.*?) *#*$", without_code(text)):
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_lead_somewhere(document: Path) -> None:
    for path, anchor in links_in(document.read_text(encoding="utf-8")):
        target = (document.parent / path).resolve() if path else document
        assert target.exists() and target.is_relative_to(ROOT), path
        if anchor:
            assert anchor in anchors_in(target.read_text(encoding="utf-8")), f"{path}#{anchor}"


def test_links_and_anchors_are_read_as_github_does() -> None:
    headings = "# A `b`, c?\n## Same\n## Same\n```\n# no [x](y.md)\n```\n"
    assert anchors_in(headings) == {"a-b-c", "same", "same-1"} and not [*links_in(headings)]
    links = "[`d`](e.md#f) ![g](h.svg) [i](https://j) `[k](l)` [m](#n)\n"
    assert [*links_in(links)] == [("e.md", "f"), ("h.svg", ""), ("", "n")]


def test_every_page_can_be_reached_from_the_list_of_pages() -> None:
    listed = {(ROOT / "docs" / path).resolve() for path, _ in links_in((ROOT / "docs/index.md").read_text("utf-8"))}
    assert {page.resolve() for page in PAGES} - listed == {(ROOT / "docs/index.md").resolve()}
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f" {named(page)}\n" in site for page in PAGES)


QUOTED = "gallery|verdicts|headlines|metrics"
"""Blocks with words of claims and of code, as a run or a module has them."""


@pytest.mark.parametrize(
    "document", [each for each in DOCUMENTS if each.stem not in ("CHANGELOG", "file-format")], ids=named
)
def test_no_document_has_a_retired_word(document: Path) -> None:
    """The glossary lists them. Code is left out, and the page that has the names of a run's files."""
    told, _, listed = (
        (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8").partition("## Retired words")
    )
    retired = {word for row in re.findall(r"(?m)^\| ([a-z, ]+) \| .+ \|$", listed) for word in row.split(", ")} - {
        "retired"
    }
    assert {"lives", "yardstick", "control", "payload"} <= retired
    text = told if document.stem == "glossary" else document.read_text(encoding="utf-8")
    text = re.sub(rf"(?s)<!-- ({QUOTED}):begin -->.*?<!-- \1:end -->", "", text)
    text = re.sub(r"`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", " ", without_code(text))
    assert not re.findall(rf"(?i)\b(?:{'|'.join(sorted(retired))})\b(?!\.\w)", text)


def test_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= 1100


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_is_short(page: Path) -> None:
    """Prose is all but code, tables, and what a command writes."""
    text = re.sub(r"(?s)<!-- (\S+):begin -->.*?<!-- \1:end -->", "", page.read_text(encoding="utf-8"))
    lines = (line for line in without_code(text).splitlines() if not line.startswith("|"))
    assert len(" ".join(lines).split()) <= 1800


@pytest.mark.parametrize("page", reference.PAGES, ids=named)
@pytest.mark.whole
def test_reference_pages_are_what_the_code_says(page: Path) -> None:
    assert not update_file(page, reference.blocks(), check=True), reference.__doc__


def test_tolerances_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "how-to" / "ci.md").read_text(encoding="utf-8")
    for when, percent in (
        ("about as long as the reference benchmark's", regressions.TOLERANCE_PERCENT),
        ("more than twice as long, or less than half", regressions.TOLERANCE_UNLIKE_PERCENT),
        ("less than a twentieth", regressions.TOLERANCE_SHORT_PERCENT),
    ):
        assert f"a call takes {when} | {percent:.0f} % |" in page
    assert f"(standard deviation) is {regressions.BETWEEN_PERCENT:g} %, and the interval includes it |" in page


def test_the_first_comparison_was_measured_with_the_code_that_is_shown(tmp_path: Path) -> None:
    first_comparison.write_files(tmp_path)
    manifest = RunFolder(ROOT / "results" / "baselines" / first_comparison.RUN).read_manifest()
    words = first_comparison.words()
    assert manifest["command"][: 1 + len(words)] == ["pytest", *words]
    sources = [each for each in manifest["sources"]["variants"].values() if "given" in each]  # not the reference's
    sources += [each["payload"] for each in manifest["sources"]["calls"].values()]
    assert {each["file"] for each in sources} == {*first_comparison.files()} and len(sources) == 3
    for each in sources:
        assert each["digest"] == digest_of(parse(each["given"], option="", folder=tmp_path))


def test_the_functions_of_the_first_comparison_agree(run_pytest: Callable[..., Said], tmp_path: Path) -> None:
    first_comparison.write_files(tmp_path)
    words = [re.sub(r"^(?=\w+\.py:)", f"{tmp_path}/", word) for word in first_comparison.words()]
    said = run_pytest(*words, "--benchmark-disable", f"--run-dir={tmp_path / 'run'}")
    assert said.returncode == 0, said.stdout


def test_the_screen_in_the_readme_is_what_show_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", first_comparison.COLUMNS)
    shown = first_comparison.block(output(*first_comparison.SHOW))
    assert f"<!-- screen:begin -->\n{shown}\n<!-- screen:end -->" in README.read_text(encoding="utf-8")
    assert "How sure: 99 % " in shown and "Where the difference is" in shown


def test_pictures_show_the_committed_runs_as_they_are_now() -> None:
    """`python -m studies.pictures` draws them again."""
    listed = json.loads(pictures.LISTED.read_text(encoding="utf-8"))
    assert {*listed} == {f"{name}.png" for name in pictures.SHOTS} | {f"{pictures.TERMINAL}.svg"}
    for name, facts in listed.items():
        assert pictures.entry(pictures.FOLDER / name, facts["run"]) == facts, name
    texts = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    assert not [name for name in listed if f"images/{name}" not in texts], "each stands in a document"
