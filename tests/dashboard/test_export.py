"""Evidence as files: what the page and the figure say, that they ask for nothing, and that a run's words stay words."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_workbench import ROOT
from llama_workbench.commands.app import main
from llama_workbench.dashboard import words as shown
from llama_workbench.dashboard.export import evidence as export
from llama_workbench.dashboard.export.svg import LIGHT, MARKERS, forest_svg
from llama_workbench.dashboard.views import data
from llama_workbench.dashboard.words import LOOKS
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.store.folder import RunFolder
from tests.dashboard_runs import HOSTILE, deface
from tests.runs import write_run
from tests.verdicts import OPEN, a_verdict, an_effect

SVG = "{http://www.w3.org/2000/svg}"


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text outside <style>."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.inside: list[str] = []
        self.feed(page)
        self.close()
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self.inside = [*self.inside, tag] if tag == "style" else self.inside

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside[:-1] if tag == "style" else self.inside

    def handle_data(self, text: str) -> None:
        self.text += "" if self.inside else text


def asks_for_nothing(page: str) -> bool:
    """No script, no handler, no link, no address of anything that a browser would fetch or follow."""
    found = Page(page)
    kept = {tag for tag, _ in found.tags} & {"script", "link", "iframe", "img", "image", "object", "embed", "a", "base"}
    attributes = {name for _, given in found.tags for name in given}
    fetched = {name for name in attributes if name.startswith("on") or name in {"src", "href", "xlink:href", "srcset"}}
    style = "".join(re.findall(r"<style>.*?</style>|style=\"[^\"]*\"", page, re.DOTALL))
    return not kept and not fetched and "url(" not in style and "@import" not in style


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return write_run(tmp_path_factory.mktemp("runs") / "run", noise=0.003)


@pytest.fixture(scope="module")
def run(folder: RunFolder) -> data.Run:
    return data.read_run(folder.path)


def add_reading(folder: Path) -> None:
    """A verdict about a count: no workload, no baseline, exact."""
    verdicts = json.loads((folder / "verdicts.json").read_text())
    effect = {"workload": "", "variant": "library", "baseline": "", "metric": "lines", "unit": "lines", "value": 76.0}
    effect |= {"low": 76.0, "high": 76.0, "rounds": 1, "seconds": 0.0, "verdict": "refuted", "notes": ["76 in one"]}
    verdicts.append(
        {"claim": "library-50-lines", "part": None, "who": ["TEAM-008"], "title": "Fifty lines", "verdict": "refuted"}
        | {"reason": "outside", "claimed": "at most 60 lines", "region": {"low": None, "high": 60.0}, "alpha": 0.01}
        | {"effects": [effect]}
    )
    (folder / "verdicts.json").write_text(json.dumps(verdicts))


def said(arguments: Sequence[object], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code of the command, and what it said on stderr; it prints nothing."""
    with pytest.raises(SystemExit) as ended:
        main(["report", *map(str, arguments)])
    spoken = capsys.readouterr()
    assert spoken.out == ""
    assert isinstance(ended.value.code, int)
    return ended.value.code, spoken.err


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_says_all_that_the_verdict_rests_on(run: data.Run) -> None:
    claim = export.find_claim(run, "refactor-2x-3x")
    page = export.evidence_html(run, claim)
    text = Page(page).text
    for words in (claim.title, claim.statement, "Said by TEAM-005", "A document, A section", "Refuted", "(2-3x)"):
        assert words in text
    for effect in claim.effects:
        assert text.count(shown.effect(effect)) >= 2, "in the figure and in the table"
    floor = run.floors["prefill-15m-t128"]
    same = data.identical_code(run.floors[effect.workload] for effect in claim.effects if effect.workload in run.floors)
    assert floor.text in text and same in text
    assert "pass (error 1.0e-06 of 1.0e-04)" in text
    assert f"pytest --benchmark --claims {claim.claim}" in text
    assert "Simulated CPU" in text and "2.13.0+cpu" in text and run.noise.line in text
    assert f"Each interval holds with {100 * (1 - claim.alpha):.4g} % confidence, however often" in text
    assert asks_for_nothing(page)
    assert len(page.encode()) < 200_000


def test_of_functions_the_answers_were_compared_and_no_logits() -> None:
    run = data.read_run(ROOT / "results" / "baselines" / "first-comparison")
    text = Page(export.evidence_html(run, run.claims[0])).text
    assert "its answers" in text and "pass" in text and not re.search("(?i)logits|operation traces", text)


@pytest.mark.parametrize("identity", ["mask-caching-exactly-8.5", "gpu-kernels", "single-file-faster"])
def test_every_kind_of_verdict_has_a_page(run: data.Run, identity: str) -> None:
    claim = export.find_claim(run, identity)
    text = Page(export.evidence_html(run, claim)).text
    assert claim.verdict.look.word in text and " ".join(claim.reason.split()) in text
    assert ("Nothing was measured" in text) == (not claim.effects)


def test_a_reading_has_neither_baseline_nor_gate_nor_floor(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", only=["decode-15m-c64"], rounds=8)
    add_reading(folder.path)
    run = data.read_run(folder.path)
    claim = export.find_claim(run, "library-50-lines")
    text = Page(export.evidence_html(run, claim)).text
    assert "76 lines" in text and "library" in text and "lines [lines]" in text
    assert "baseline" not in text and "Checks before timing" not in text and "identical code" not in text
    assert "variant faster" not in export.evidence_svg(run, claim)


def test_a_run_that_is_not_sound_says_so_on_the_page(tmp_path: Path) -> None:
    other = write_run(tmp_path / "run", only=["decode-15m-c64"], rounds=24, status="interrupted")
    manifest = other.read_manifest()
    manifest["noise"]["controls"][0]["fired"] = True
    other.write_json("run.json", manifest)
    (other.path / "memory.json").write_text("{")
    run = data.read_run(other.path)
    text = Page(export.evidence_html(run, export.find_claim(run, "single-file-faster"))).text
    assert "This run is interrupted" in text
    assert "An A/A check failed on decode, after 64 tokens, 15M" in text
    assert "Left out: memory.json" in text


def test_what_a_run_says_is_text_and_nothing_else(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", rounds=8)
    deface(folder)
    text = (folder.path / "verdicts.json").read_text().replace("They say", "\\ud800 \\u0007 ]]> ' \\\" They say")
    (folder.path / "verdicts.json").write_text(text)
    run = data.read_run(folder.path)
    for claim in run.claims:
        page = export.evidence_html(run, claim)
        assert asks_for_nothing(page)
        assert HOSTILE in Page(page).text
        page.encode("utf-8")
        if claim.effects:
            figure = ElementTree.fromstring(export.evidence_svg(run, claim))
            assert not [element for element in figure.iter() if element.tag == f"{SVG}script"]
            assert HOSTILE[:20] in "".join(figure.itertext())


# -- the figure --------------------------------------------------------------------------------------------------------


def elements(svg: str, name: str) -> list[dict[str, str]]:
    return [element.attrib for element in ElementTree.fromstring(svg).iter(f"{SVG}{name}")]


def test_every_verdict_has_a_marker() -> None:
    assert {look.symbol for look in LOOKS.values()} <= MARKERS.keys()


def test_intervals_lie_where_the_axis_says(run: data.Run) -> None:
    """The ends of every interval, read back off the picture by its own ticks."""
    claim = export.find_claim(run, "refactor-2x-3x")
    svg = forest_svg(claim, {}, LIGHT, width=760)
    ticks = {
        float(text.text[:-1]): float(text.attrib["x"])
        for text in ElementTree.fromstring(svg).iter(f"{SVG}text")
        if text.text and re.fullmatch(r"[\d.]+×", text.text)
    }
    per_octave = ticks[2] - ticks[1]
    ink = LIGHT.verdict[Word.REFUTED.look.colour]
    bars = [line for line in elements(svg, "line") if line["y1"] == line["y2"] and ink in line["style"]]
    found = [[2 ** ((float(bar[end]) - ticks[1]) / per_octave) for end in ("x1", "x2")] for bar in bars]
    assert found == [pytest.approx([effect.low, effect.high], rel=1e-3) for effect in claim.effects]


def test_an_open_end_runs_to_the_edge_without_a_cap(run: data.Run) -> None:
    claim = export.find_claim(run, "mask-caching-exactly-8.5")
    [effect] = claim.effects
    half = replace(effect, high=math.inf)
    svg = forest_svg(replace(claim, effects=(half,)), {}, LIGHT, width=760)
    ink = LIGHT.verdict[effect.verdict.look.colour]
    lines = [line for line in elements(svg, "line") if f"{ink};stroke-width:2" in line["style"]]
    assert max(float(line["x2"]) for line in lines) == 760 - 32
    assert len([line for line in lines if line["x1"] == line["x2"]]) == 1


def test_what_was_not_measured_keeps_its_row(run: data.Run) -> None:
    claim = export.find_claim(run, "mask-caching-exactly-8.5")
    unmeasured = replace(claim.effects[0], ratio=math.nan, **OPEN)
    svg = forest_svg(replace(claim, effects=(unmeasured,)), {}, LIGHT, width=760)
    assert "make and apply a mask, 128 tokens" in svg and "not measured" in svg
    with pytest.raises(ValueError, match="nothing was measured"):
        forest_svg(replace(claim, effects=()), {}, LIGHT)


numbers = st.floats(1e-6, 1e6) | st.none()


@settings(max_examples=60, deadline=None)
@given(value=numbers, low=numbers, high=numbers, unit=st.sampled_from(["", "%"]), width=st.sampled_from([None, 760]))
def test_nothing_is_drawn_outside(
    value: float | None, low: float | None, high: float | None, unit: str, width: float | None
) -> None:
    effect = an_effect(unit=unit, value=value, low=low, high=high, verdict="refuted")
    claim = data.Claim(**vars(a_verdict(effect, low=low, high=high, verdict="refuted")))
    svg = forest_svg(claim, {"w": data.Floor(1.01, 0.5, 1.9, 3, False)}, LIGHT, width=width)
    most = 100.0 if width is None else width - 32
    for shape in [*elements(svg, "rect"), *elements(svg, "line")]:
        for name in ("x", "x1", "x2"):
            place = shape.get(name, "0")
            if width is not None or place.endswith("%"):
                assert -7 <= float(place.removesuffix("%")) <= most


@pytest.mark.skipif(importlib.util.find_spec("resvg_py") is None, reason="resvg-py (extra `export`) is not installed")
def test_the_picture_is_a_png_of_twice_the_figure_s_size(run: data.Run) -> None:
    claim = export.find_claim(run, "refactor-2x-3x")
    png = export.evidence_png(run, claim)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    figure = ElementTree.fromstring(export.evidence_svg(run, claim)).attrib
    size = [int.from_bytes(png[start : start + 4], "big") for start in (16, 20)]
    assert size == [2 * float(figure["width"]), 2 * float(figure["height"])]


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_writes_what_is_asked_for(
    folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, figure = tmp_path / "new" / "evidence.html", tmp_path / "figure.svg"
    arguments = [folder.path, "--claim", "mask-caching-6-11", "--part", "micro-op", "--html", page, "--svg", figure]
    assert said(arguments, capsys) == (0, f"{page}: written\n{figure}: written\n")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    ElementTree.parse(figure)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--claim", "refactor-2x-3", "--html", "o"], "has no claim 'refactor-2x-3'; did you mean 'refactor-2x-3x'?"),
        (["--claim", "qqqq", "--html", "o"], "there is: refactor-2x-3x, single-file-faster"),
        (["--claim", "mask-caching-6-11", "--svg", "o"], "choose with --part micro-op, --part 'whole prefill'"),
        (["--claim", "mask-caching-6-11", "--part", "micro", "--svg", "o"], "did you mean 'micro-op'?"),
        (["--claim", "gpu-kernels", "--svg", "o"], "nothing was measured, so there is no figure; --html says why"),
        (["--claim", "gpu-kernels", "--html", "."], "cannot be written (Is a directory); name another file"),
        (["--claim", "gpu-kernels"], "needs a file to write: add --html FILE"),
        (["--html", "o"], "--html needs a claim: add --claim ID"),
        (["--claim", "a", "--html", "o", "--svg", "o"], "need different files"),
    ],
)
def test_mistakes_are_one_line_with_the_fix(
    folder: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, line = said([folder.path, *arguments], capsys)
    assert code == 2 and line.count("\n") == 1 and message in line
    assert not (tmp_path / "o").exists()


def test_a_run_without_verdicts_says_how_to_get_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", only=["decode-15m-c64"], judged=False)
    code, line = said([run.path, "--claim", "gpu-kernels", "--html", tmp_path / "o"], capsys)
    assert code == 2 and "verdicts.json" in line and f"workbench judge {run.path}" in line


def test_a_page_and_a_figure_need_no_extra(folder: RunFolder, tmp_path: Path) -> None:
    """Neither the dashboard's packages nor torch; and a PNG without its package says what to install."""
    program = """
import sys
sys.modules |= dict.fromkeys(["streamlit", "plotly", "torch", "resvg_py"])
from llama_workbench.commands.app import main
main(sys.argv[1:])
"""
    base = [sys.executable, "-c", program, "report", str(folder.path), "--claim", "refactor-2x-3x"]
    here: dict[str, Any] = {"cwd": Path(__file__).parents[2], "capture_output": True, "text": True}
    done = subprocess.run([*base, "--html", str(tmp_path / "o.html"), "--svg", str(tmp_path / "o.svg")], **here)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([*base, "--png", str(tmp_path / "o.png")], **here)
    assert done.returncode == 2 and "pip install 'resvg-py>=0.5'" in done.stderr


def test_a_file_is_named_after_its_claim_whatever_that_is_called(tmp_path: Path) -> None:
    claim = data.read_run(write_run(tmp_path / "run").path).claims[0]
    hostile = replace(claim, claim="../<script>", part="of what they timed")
    assert export.file_name(hostile) == "script-of-what-they-timed"
    assert export.file_name(replace(claim, claim="..", part="")) == "claim"
