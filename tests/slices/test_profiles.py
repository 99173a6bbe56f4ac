"""Flamegraphs without a browser: trees and differences by hypothesis, what the canvas is given, the part by AppTest."""

from __future__ import annotations

import base64
import json
import math
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")

from hypothesis import given, settings
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from llama_workbench import ROOT
from llama_workbench.dashboard.export import viewer as speedscope
from llama_workbench.dashboard.views import data
from llama_workbench.harness.machine import places
from llama_workbench.harness.measure import py_spy
from llama_workbench.harness.measure.profiling import ProfiledVariant
from llama_workbench.harness.report.causes import code_of, explanations_in
from llama_workbench.harness.report.phases import calls_alone
from llama_workbench.harness.slices.profiles import flames as flamegraphs
from llama_workbench.harness.slices.profiles import flames as picture
from llama_workbench.harness.slices.profiles import profiler
from llama_workbench.harness.slices.profiles import tree as frames
from llama_workbench.harness.slices.profiles.tree import merge
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.passes import Profile
from llama_workbench.harness.worker.looks import median_error
from studies import dashboard_speed
from tests import runs
from tests.dashboard_pages import commands, read
from tests.dashboard_runs import HOSTILE, MARKUP, folded

APP = ROOT / "dashboard" / "app.py"
LINK = {"run": "all", "claim": "mask-caching-helps"}


def a_profile(
    text: str | None = None,
    median_ns: float | None = 10e6,
    error_ns: float | None = None,
    variant: str = "proposal",
) -> frames.ProfileTree:
    root = frames.read_folded(folded() if text is None else text)
    row = Profile(
        workload="prefill", variant=variant, rate_hz=250.0, median_ns=median_ns, median_error_ns=error_ns or None
    )
    return frames.ProfileTree(row, root, "")


def named(drawn: Mapping[str, Any], column: str) -> dict[str, Any]:
    """A column of a picture by the boxes' names."""
    return {drawn["names"][name]: value for name, value in zip(drawn["name"], drawn[column], strict=True)}


# -- trees -----------------------------------------------------------------------------------------------------------


def test_folded_stacks_become_a_tree_that_keeps_every_sample() -> None:
    root = frames.read_folded(folded())
    assert root.samples == sum(int(line.rpartition(" ")[2]) for line in folded().splitlines())
    assert sum(sum(own) for _, _, own in root.by_own_time) == root.samples
    names = {frame.name for _, frame in root.walk()}
    assert "Attention.forward" in names
    assert not [name for name in names if "call_impl" in name]


def test_callers_are_merged_over_lines_and_own_samples_are_kept_by_line() -> None:
    text = "f (a.py:1);g (b.py:10) 3\nf (a.py:2);g (b.py:11) 4\nf (a.py:2);g (b.py:10);h (c.py:5) 2\n"
    [f] = frames.read_folded(text).children
    [g] = f.children
    assert (f.counts, g.counts, g.own) == ((9,), (9,), (7,))
    assert g.lines == ((11, (4,)), (10, (3,)))
    assert [child.name for child in g.children] == ["h"]


@pytest.mark.parametrize("text", ["f;g", "f;g many", " 3", "f;g -1", "f;g " + 5000 * "1"])
def test_what_is_not_folded_stacks_is_an_error_that_names_the_line(text: str) -> None:
    with pytest.raises(frames.StackError, match="line 2"):
        frames.read_folded(f"f 1\n{text}\n")


def test_a_stack_of_any_depth_is_cut_and_keeps_its_time() -> None:
    root = frames.read_folded(";".join(f"f{k} (a.py:{k + 1})" for k in range(20_000)) + " 7\n")
    assert max(level for level, _ in root.walk()) == frames.MOST_LEVELS
    assert root.samples == 7


FRAMES = st.sampled_from([f"{name} ({file}:{line})" for name in "fg" for file in ("a.py", "b.py") for line in (1, 2)])
STACKS = st.lists(st.tuples(st.lists(FRAMES, min_size=1, max_size=4), st.integers(1, 60)), min_size=1, max_size=12)


def text_of(stacks: list[tuple[list[str], int]]) -> str:
    return "".join(f"{';'.join(stack)} {count}\n" for stack, count in stacks)


@settings(deadline=None, max_examples=40)
@given(STACKS, STACKS)
def test_merged_trees_hold_both_sides_whole(before: Any, after: Any) -> None:
    sides = [frames.read_folded(text_of(stacks)) for stacks in (before, after)]
    both = frames.merge(*sides)
    for side, tree in enumerate(sides):
        there = [(level, frame) for level, frame in both.walk() if frame.counts[side]]
        mine = sorted((level, frame.name, frame.counts[side]) for level, frame in there)
        assert mine == sorted((level, frame.name, frame.counts[0]) for level, frame in tree.walk())
        files = {(frame.name, file) for _, frame in there for file in frame.file.split(" / ")}
        assert {(frame.name, frame.file) for _, frame in tree.walk()} <= files
    for _, frame in both.walk():
        assert all(n >= 0 for n in frame.own)
        lines = [sum(counts[side] for _, counts in frame.lines) for side in range(2)]
        assert not frame.lines or tuple(lines) == frame.own


def test_functions_of_one_name_in_two_files_are_one_box_and_their_lines_stay_apart() -> None:
    before = "old (old.py:1);fold (old.py:5) 30\nold (old.py:1);g (old.py:9) 10\n"
    after = "old (new.py:1);fold (new.py:5) 6\nold (new.py:1);g (new.py:9) 5\nold (new.py:1);g (more.py:9) 4\n"
    merged = frames.merge(frames.read_folded(before), frames.read_folded(after))
    boxes = {(frame.name, frame.file): frame for _, frame in merged.walk()}
    assert boxes["fold", "old.py / new.py"].counts == (30, 6)
    assert boxes["fold", "old.py / new.py"].lines == ((5, (30, 0)), (5, (0, 6)))
    assert boxes["g", "old.py"].counts == (10, 0) and boxes["g", "more.py"].counts == (0, 4), "which of two is unknown"


# -- differences -----------------------------------------------------------------------------------------------------


SCALES = (frames.Scale(400, 10e6, 0.1e6), frames.Scale(900, 8e6, 0.05e6))


def test_a_difference_is_in_time_with_the_error_of_both_sides() -> None:
    found = flamegraphs.delta((100, 225), SCALES)
    assert found.ns == pytest.approx(8e6 / 4 - 10e6 / 4)
    first = math.hypot(math.sqrt(0.25 * 0.75 / 400) * 10e6, 0.25 * 0.1e6)
    second = math.hypot(math.sqrt(0.25 * 0.75 / 900) * 8e6, 0.25 * 0.05e6)
    assert found.error_ns == pytest.approx(math.hypot(first, second))
    assert found.only is None and not found.sure and replace(found, ns=-640e3).sure, "2.576 errors, as 99 % has it"
    assert flamegraphs.delta((400, 900), SCALES).error_ns == pytest.approx(math.hypot(0.1e6, 0.05e6))


def test_a_frame_that_takes_as_long_as_before_is_not_coloured_because_the_rest_became_faster() -> None:
    """Share points would say that `rope` grew from 20 to 33 %."""
    before = a_profile("rope (variants/a.py:1) 200\nmlp (variants/b.py:1) 800\n", 10e6)
    after = a_profile("rope (variants/a.py:1) 200\nmlp (variants/b.py:1) 400\n", 6e6)
    drawn = flamegraphs.difference(before, after).drawn
    assert named(drawn, "delta")["rope"] == 0 and not named(drawn, "sure")["rope"]
    assert named(drawn, "delta")["mlp"] == -4 and named(drawn, "sure")["mlp"]
    fills = named(drawn, "fill")
    assert fills["mlp"] < fills["rope"] == flamegraphs._NEUTRAL


@settings(deadline=None, max_examples=40)
@given(STACKS, STACKS)
def test_boxes_of_a_difference_fit_into_their_callers_and_swap_sign_with_the_sides(before: Any, after: Any) -> None:
    one, two = a_profile(text_of(before), 3e6, 1e4), a_profile(text_of(after), 5e6, 2e4, "after")
    drawn = flamegraphs.difference(one, two).drawn
    open_boxes: list[tuple[int, float, float]] = []
    for level, x, w in zip(drawn["level"], drawn["x"], drawn["w"], strict=True):
        open_boxes = open_boxes[:level]
        if level:
            _, left, wide = open_boxes[-1]
            assert left - 1e-6 <= x and x + w <= left + wide + 1e-6
        open_boxes.append((level, x, w))
    assert drawn["w"][0] == 1.0
    other = flamegraphs.difference(two, one).drawn
    assert sorted(drawn["delta"]) == sorted(-value for value in other["delta"])
    assert sorted(drawn["deltaError"]) == sorted(other["deltaError"])
    for fill, sure, delta in zip(drawn["fill"][1:], drawn["sure"][1:], drawn["delta"][1:], strict=True):
        assert (fill > flamegraphs._NEUTRAL) - (fill < flamegraphs._NEUTRAL) == ((delta > 0) - (delta < 0)) * sure


def test_what_only_one_side_has_is_as_wide_as_half_of_its_time_and_says_where_it_is() -> None:
    before = a_profile("f (a.py:1);old (a.py:2) 50\nf (a.py:1);g (a.py:3) 50\n", 4e6)
    after = a_profile("f (a.py:1);g (a.py:3) 50\nf (a.py:1);new (a.py:9) 50\n", 4e6)
    drawn = flamegraphs.difference(before, after).drawn
    only = named(drawn, "only")
    assert (only["old"], only["g"], only["new"]) == (0, -1, 1)
    assert named(drawn, "w")["old"] == pytest.approx(0.25)


def test_colours_go_by_leaves_and_not_by_what_calls_them() -> None:
    text = "f (a.py:1);g (a.py:2) {}\nf (a.py:1);h (a.py:3) {}\n"
    before, after = (frames.read_folded(text.format(*counts)) for counts in ((500, 500), (800, 700)))
    scales = (frames.Scale(1000, 10e6), frames.Scale(1500, 15e6))
    assert flamegraphs.colour_limit_ns(frames.merge(before, after), scales) == pytest.approx(3e6)


def test_of_identical_code_one_box_in_a_hundred_is_coloured() -> None:
    draws = np.random.default_rng(0).binomial(400, 0.3, size=(4000, 2)).tolist()
    scales = (frames.Scale(400, 1e7), frames.Scale(400, 1e7))
    coloured = sum(flamegraphs.delta((before, after), scales).sure for before, after in draws)
    assert 0.005 < coloured / len(draws) < 0.017


# -- what the canvas is given ----------------------------------------------------------------------------------------


def test_small_boxes_and_the_worker_s_shell_are_not_drawn() -> None:
    profile = a_profile()
    assert profile.root
    assert "rare" in {frame.name for _, frame in profile.root.walk()}
    picture = flamegraphs.flamegraph(profile)
    assert min(picture.drawn["share"]) >= frames.PRUNE_BELOW
    assert "rare" not in picture.drawn["names"]
    assert picture.shell == ("<module>", "main", "loop")
    assert picture.drawn["names"][picture.drawn["name"][1]] == "Llama.forward"
    assert {text for _, _, text in picture.legend} == {"the variant's own code", "torch"}


def test_flamegraph_is_in_milliseconds_and_adds_up() -> None:
    drawn = flamegraphs.flamegraph(a_profile("run (w.py:1);f (a.py:1) 30\nrun (w.py:1);g (a.py:9) 10\n", 8e6)).drawn
    assert drawn["scale"] == "full width = 8 ms a call"
    assert named(drawn, "time") == {"": 8, "run": 8, "f": 6, "g": 2}
    assert named(drawn, "error")["f"] == pytest.approx(2.5758 * 8 * (0.75 * 0.25 / 40) ** 0.5, rel=1e-4)
    assert named(drawn, "own") == {"": 0, "run": 0, "f": 0.75, "g": 0.25}
    assert drawn["places"][named(drawn, "place")["g"]] == "a.py:9"


def test_both_sides_of_a_comparison_have_one_scale() -> None:
    sides = [flamegraphs.flamegraph(a_profile(median_ns=median_ns), 12e6).drawn for median_ns in (12e6, 9e6)]
    assert [side["w"][0] for side in sides] == [1.0, 0.75]


def test_flamegraph_without_a_median_shows_shares_and_without_samples_refuses() -> None:
    drawn = flamegraphs.flamegraph(a_profile("f (a.py:1) 3\ng (a.py:2) 1\n", None)).drawn
    assert named(drawn, "share") == {"": 1, "f": 0.75, "g": 0.25}
    assert drawn["totals"] == [None] and "ms" not in drawn["scale"]
    with pytest.raises(ValueError, match="no profile"):
        flamegraphs.flamegraph(replace(a_profile(), root=None))


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("variants/modular/attention.py", "variant"),
        ("added/mine.py", "variant"),
        ("torch/nn/functional.py", "torch"),
        ("torch/lib/libtorch_cpu.so", "torch"),
        ("site-packages/transformers/models/llama/modeling_llama.py", "library"),
        ("harness/worker/main.py", "other"),
        ("elsewhere/libc.so.6", "other"),
        ("", "other"),
    ],
)
def test_a_frame_is_coloured_by_whose_code_it_is(file: str, expected: str) -> None:
    assert flamegraphs.kind(frames.StackFrame("forward", file, (1,))) == expected


def test_pictures_in_words_name_the_largest() -> None:
    text = flamegraphs.flamegraph_text(a_profile("run (w.py:1);f (a.py:1) 30\nrun (w.py:1);g (a.py:9) 10\n", 8e6))
    assert "8 ms a call" in text and "f 6 ms, g 2 ms" in text


def test_a_picture_travels_as_packed_columns() -> None:
    picture = flamegraphs.difference(
        a_profile("f (a.py:1) 700\n", 7e6), a_profile("f (a.py:1) 90\ng (a.py:2) 9\n", 3e6)
    )
    [sent] = flamegraphs.payload([picture])["pictures"]
    for column in picture.drawn["columns"]:
        numbers = np.frombuffer(base64.b64decode(sent[column]), "<f4")
        np.testing.assert_allclose(numbers, picture.drawn[column], rtol=1e-6)
    assert {"x", "w", "delta", "deltaError", "time2", "error2"} <= {*picture.drawn["columns"]}
    assert sent["names"] == picture.drawn["names"] and len(json.dumps(sent)) < 5000


# -- where frames lie ------------------------------------------------------------------------------------------------


def test_a_profile_names_files_by_whose_they_are_and_no_folder_of_the_machine(tmp_path: Path) -> None:
    import torch

    mine = tmp_path / "secret" / "mine.py"
    stack = [
        f"_profiled_call ({places.__file__}:3)",
        f"Fast.forward ({ROOT / 'variants' / 'fast.py'}:12)",
        f"linear ({torch.nn.functional.__file__}:7)",
        f"at::(anonymous namespace)::mm<int, 2> ({Path(torch.__file__).parent / 'lib' / 'libtorch_cpu.so'})",
        f"__enter__ ({sys.modules['contextlib'].__file__}:5)",
        f"get ({Path(pytest.__file__).parents[1] / 'numpy' / 'x.py'}:1)",
        f"build ({mine}:2)",
        "memcpy (/lib/somewhere/libc.so.6)",
        "<module> (<string>:1)",
        "0x7f12",
    ]
    text, samples = profiler._in_loop(f"outer (/x/y.py:1);{';'.join(stack)} 3\nidle (/x/y.py:1) 9\n", [mine])
    assert samples == 3
    assert text.rstrip().rpartition(" ")[0].split(";") == [
        "Fast.forward (variants/fast.py:12)",
        "linear (torch/nn/functional.py:7)",
        "at::(anonymous namespace)::mm<int, 2> (torch/lib/libtorch_cpu.so)",
        "__enter__ (stdlib/contextlib.py:5)",
        "get (site-packages/numpy/x.py:1)",
        "build (added/mine.py:2)",
        "memcpy (elsewhere/libc.so.6)",
        "<module> (<string>:1)",
        "0x7f12",
    ]
    assert [child.name for child in frames.read_folded(text).children] == ["Fast.forward"]


class _Looping:
    """A measuring process that has just begun to loop."""

    pid = 1

    def ask_in_two(self, verb: str, timeout_seconds: float, **arguments: Any) -> Any:
        return lambda: {"calls": 9, "median_ns": 5e6, "median_error_ns": 1e4}


def test_where_attaching_is_refused_the_profile_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "py-spy"
    tool.write_text('#!/bin/sh\necho "$@" >> "$0.log"\necho "Permission Denied: try sudo" >&2\nexit 1\n')
    tool.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: str(tool))
    entry = profiler.PROFILER.look(ProfiledVariant(_Looping(), "w", "v", tmp_path))  # type: ignore[arg-type]
    assert entry["path"] is None and "Permission Denied: try sudo" in entry["reason"]
    assert entry["median_ns"] == 5e6
    tried = (tmp_path / "py-spy.log").read_text().splitlines()
    assert ["--nonblocking" in line for line in tried] == [False, True]
    assert all(f"--rate {profiler.RATE_HZ}" in line for line in tried)


def test_py_spy_refuses_a_process_that_is_gone(tmp_path: Path) -> None:
    tool = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if tool is None:
        pytest.skip("py-spy is not installed")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    recorder, said = py_spy.attach(tool, gone.pid, tmp_path / "raw", [], profiler.RATE_HZ)
    assert recorder is None and said


def test_the_error_of_a_median_is_that_of_normal_values() -> None:
    rng = random.Random(1)
    found = [median_error([round(rng.gauss(1e6, 1e4)) for _ in range(101)]) for _ in range(400)]
    mean = sum(value for value in found if value) / len(found)
    assert mean == pytest.approx(1.2533e4 / math.sqrt(101), rel=0.1)
    assert median_error([1, 2, 3, 4]) is None


# -- the part of a page ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("results")
    run = runs.write_run(home / "runs" / "all", only=["prefill-15m-t128"], rounds=12)
    run.write_json("profiles.json", [row | {"median_error_ns": 2e5} for row in run.records("profiles.json")])
    return home


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """`page(results, flame="…")` opens the page Comparison on a claim with profiles; speedscope is not installed."""
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))

    def opened(results: Path, **link: str) -> AppTest:
        monkeypatch.setenv("WORKBENCH_RESULTS", str(results))
        monkeypatch.setattr(sys, "argv", ["app.py"])
        app = AppTest.from_file(str(APP), default_timeout=60).run().switch_page("page_scripts/comparison.py")
        for name, value in (LINK | link).items():
            app.query_params[name] = value
        return app.run()

    yield opened


def drawn(app: AppTest) -> dict[str, Any]:
    """What the canvas was given."""
    given_ = [json.loads(each.proto.json) for each in app.get("bidi_component")]
    found: dict[str, Any]
    [found] = [each for each in given_ if "pictures" in each]
    return found


def said(app: AppTest) -> str:
    elements = [*app.markdown, *app.caption, *app.text]
    return read("\n".join([*(str(element.value) for element in elements), *commands(app)]))


def test_both_sides_with_samples_rate_and_error(page: Any, home: Path) -> None:
    app = page(home)
    assert not app.exception
    assert [picture["title"] for picture in drawn(app)["pictures"]] == ["team006_before", "team006_after"]
    assert "780 samples at 250 Hz" in said(app) and "under the profiler" not in said(app), "a call has one time"
    assert "A millisecond is as wide on both sides" in said(app)


def test_a_link_leads_to_the_difference_and_to_what_was_searched(page: Any, home: Path) -> None:
    app = page(home, flame="difference", find="mask")
    assert not app.exception
    given_ = drawn(app)
    [picture] = given_["pictures"]
    assert picture["sides"] == ["team006_before", "team006_after"]
    assert given_["find"] == "mask"
    assert "the difference measured in 12 rounds that both shared" in said(app)
    app.button_group(key="flame").set_value("side").run()
    assert len(drawn(app)["pictures"]) == 2
    assert app.query_params["flame"] in ("side", ["side"])


def test_one_side_without_a_profile_says_why_and_the_other_is_shown(page: Any, tmp_path: Path, home: Path) -> None:
    shutil.copytree(home / "runs", tmp_path / "runs")
    run = RunFolder(tmp_path / "runs" / "all")
    rows = run.records("profiles.json")
    rows[0] |= {"path": None, "reason": "ptrace is not allowed here"}
    run.write_json("profiles.json", rows)
    app = page(tmp_path, flame="difference")
    assert not app.exception
    assert "No profile: ptrace is not allowed here." in said(app)
    assert len(drawn(app)["pictures"]) == 1


def test_the_raw_profile_can_be_kept_and_the_command_for_speedscope_is_told(page: Any, home: Path) -> None:
    app = page(home, raw="team006_after")
    assert not app.exception
    assert "Download the folded stacks" in [button.proto.label for button in app.get("download_button")]
    assert "workbench speedscope" in said(app)
    assert not app.get("iframe")


# -- speedscope ------------------------------------------------------------------------------------------------------


def test_an_archive_with_another_hash_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    archive = tmp_path / "speedscope.tgz"
    archive.write_bytes(b"not it")
    with pytest.raises(speedscope.SpeedscopeError, match=r"speedscope\.tgz is not speedscope .* expected sha512-"):
        speedscope.install(archive)
    assert speedscope.installed_folder() is None
    assert not list((tmp_path / "cache").iterdir())


def test_the_document_has_all_in_it_and_names_stay_data(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<html><head><link rel="stylesheet" href="s.css"><link rel="icon" href="i.png"></head>'
        '<body><script src="s.js"></script></body></html>'
    )
    (tmp_path / "s.css").write_text('@font-face{src:url("./f.woff2")}')
    (tmp_path / "f.woff2").write_bytes(b"font")
    (tmp_path / "s.js").write_text('const end = "</script>";')
    page = speedscope.document(tmp_path, f"{HOSTILE};{MARKUP} 3\n", f"</script>{HOSTILE}.folded")
    assert page.count("</script>") == page.count("<script>") == 3
    assert "alert(1)" in page and HOSTILE not in page
    assert "src=" not in page and "href=" not in page and "url(data:font/woff2;base64,Zm9udA==)" in page
    assert "default-src &#x27;none&#x27;" in page
    (tmp_path / "index.html").write_text("<html></html>")
    with pytest.raises(speedscope.SpeedscopeError, match=r"index\.html names no"):
        speedscope.document(tmp_path, "f 1\n", "x")


def test_a_line_takes_the_same_time_in_the_flamegraph_of_its_side_and_beside_its_code() -> None:
    [explained] = explanations_in(RunFolder(ROOT / "results" / "baselines" / "first-comparison")).values()
    drawn = flamegraphs.alone(explained)[0].drawn
    boxes = {drawn["names"][name]: time for name, time in zip(drawn["name"], drawn["time"], strict=True)}
    lines = code_of(explained, "baseline")
    assert len(lines) >= 2
    for line in lines:
        assert boxes[f"line {line.line}"] == pytest.approx(line.ns / 1e6, rel=1e-9), line


# Profiles of two variants laid on each other: by phase, and to the times that were measured in picture.


REFERENCE = ROOT / "results" / "baselines" / "reference"
PROFILED = ROOT / "results" / "baselines" / "reference-second"
"""The reference's own profiles were taken beside tests, and have fewer samples."""
LINES = {
    "variants/old.py": {"1": [["other"], ["mlp", "norm"]], "2": [["scores"], []], "3": [["softmax"], []]},
    "variants/new.py": {"7": [["mlp"], []], "8": [["attention_fused"], []], "9": [["mlp", "other"], []]},
}
OLD = (
    "Run.prepare (harness/r.py:1);draw (harness/r.py:2) 99\n"
    "Run.call (harness/r.py:5);Old.forward (variants/old.py:1);SwiGLU.forward (variants/parts.py:4) 60\n"
    "Run.call (harness/r.py:5);Old.forward (variants/old.py:2) 25\n"
    "Run.call (harness/r.py:5);Old.forward (variants/old.py:3);exp (torch/nn/functional.py:3) 10\n"
    "Run.call (harness/r.py:5) 5\n"
)
NEW = (
    "Run.call (harness/r.py:5);New.forward (variants/new.py:7);SwiGLU.forward (variants/new.py:2) 40\n"
    "Run.call (harness/r.py:5);New.forward (variants/new.py:8) 30\n"
    "Run.call (harness/r.py:5);New.forward (variants/new.py:9) 10\n"
)


def test_phases_of_different_code_lie_on_each_other() -> None:
    old, new = picture.phase_trees(*(picture.phase_stacks(text, LINES) for text in (OLD, NEW)))
    merged = merge(old, new)
    boxes = {child.name: child for child in merged.children}
    attention = "attention from mask to output"  # a kernel of the one side does what is three phases of the other
    assert {name: box.counts for name, box in boxes.items()} == {"MLP": (60, 50), attention: (35, 30), "other": (5, 0)}
    [function] = boxes["MLP"].children
    assert (function.name, function.counts) == ("SwiGLU.forward", (60, 40)), "of files of different name"
    assert {child.name: child.counts for child in boxes[attention].children} == {
        "scores": (25, 0),
        "softmax": (10, 0),
        "fused attention": (0, 30),
    }
    assert (old.samples, new.samples) == (100, 80), "preparing is no part of a call"
    assert not picture.phase_stacks(OLD, {}), "nothing is known of its lines"
    assert calls_alone(OLD).count("\n") == 4 and calls_alone(NEW) == NEW


@pytest.mark.parametrize("variant", ["team006_after", "fast", "transformers_eager"])
def test_the_difference_that_is_drawn_is_the_difference_measured(variant: str) -> None:
    """On the committed run, between variants of one source and of two."""
    run, workload, baseline = data.read_run(PROFILED), "prefill-15m-t128", "team006_before"
    times = picture.paired_times(run, workload, baseline, variant)
    pair = picture.read_pair(run, workload, baseline, variant, times)
    assert not pair.unaligned and (times is None) == (pair.paired is None)
    scales = picture.scales_of(pair.before, pair.after)
    merged = merge(pair.before.root, pair.after.root)
    deltas = {box.name: picture.delta(box.counts, scales).ns for box in merged.children}
    whole = scales[1].median_ns - scales[0].median_ns
    assert sum(deltas.values()) == pytest.approx(whole)
    if times is not None:
        assert times[0].value is not None
        assert whole == pytest.approx(times[1][0] * (1 / times[0].value - 1))
        error = picture.delta(merged.counts, scales).error_ns
        assert error == pytest.approx(times[2][1]) and 0 < error < abs(whole) + 0.1 * times[1][0]
    alone = sum(sum(box.counts) for box in merged.children if not all(box.counts))
    assert alone < 0.02 * sum(merged.counts), "only on one side"


def test_without_shared_rounds_the_profiles_times_are_kept(tmp_path: Path) -> None:
    run = data.read_run(runs.write_run(tmp_path / "run", only=["prefill-15m-t128"], rounds=12).path)
    sides = "team006_before", "team006_after"
    assert picture.paired_times(run, "prefill-15m-t128", sides[0], "llama_cpp") is None
    times = picture.paired_times(run, "prefill-15m-t128", *sides)
    assert times is not None and times[0].value == pytest.approx(times[1][0] / times[2][0])
    pair = picture.read_pair(run, "prefill-15m-t128", *sides, None)
    assert pair.before.row.median_ns == run.profiles["prefill-15m-t128", sides[0]].median_ns
    pair = picture.read_pair(run, "prefill-15m-t128", *sides, times)
    assert math.isclose(pair.after.row.median_ns or 0, times[2][0])


def test_lines_come_from_a_source_only_where_every_place_fits_it() -> None:
    file = "variants/fast.py"
    text = frames.profile_text(data.read_run(REFERENCE), "prefill-15m-t128", "fast")
    assert picture.phase_lines([], "fast", text).keys() == {file}
    moved = text + f"forward ({file}:3) 1\n"
    assert not picture.phase_lines([], "fast", moved), "it was another file when the profile was taken"
    foreign = "f (variants/../conftest.py:1);g (added/mine.py:1);h (/etc/passwd:1) 4\n"
    assert not picture.phase_lines([], "x", foreign)


# -- reading ----------------------------------------------------------------------------------------------------------


def test_a_profile_is_read_or_says_why_not(tmp_path: Path) -> None:
    run = data.read_run(runs.write_run(tmp_path / "all").path)
    profile = frames.read_profile(run, "prefill-15m-t128", "team006_before")
    assert profile and profile.root and profile.root.samples == 780
    missing = frames.read_profile(run, "prefill-15m-t128", "team005_hybrid")
    assert missing and missing.root is None
    assert missing.reason == "py-spy may not attach to other processes here"
    assert frames.read_profile(run, "decode-15m-c64", "team006_before") is None


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../secret.folded", "leads out of the run folder"),
        ("/etc/hostname", "leads out of the run folder"),
        ("nowhere.folded", "No such file"),
        ("run.json", "is not"),
    ],
)
def test_a_profile_elsewhere_or_damaged_is_not_read(tmp_path: Path, path: str, reason: str) -> None:
    (tmp_path / "secret.folded").write_text("f 1\n")
    run = runs.write_run(tmp_path / "run", only=["prefill-15m-t128"], rounds=12)
    run.write_json("profiles.json", [{"workload": "w", "variant": "v", "path": path, "median_ns": 1e6}])
    profile = frames.read_profile(data.read_run(run.path), "w", "v")
    assert profile and profile.root is None
    assert reason in profile.reason


def test_a_drawn_profile_has_as_many_boxes_as_it_should(tmp_path: Path) -> None:
    """On which pages are timed."""

    def boxes(frame: frames.StackFrame) -> int:
        return 1 + sum(map(boxes, frame.children))

    run = runs.write_run(tmp_path / "run", only=["prefill-15m-t128"], rounds=12)
    dashboard_speed.write_profile(run, 500)
    profile = frames.read_profile(data.read_run(run.path), "prefill-15m-t128", "team006_before")
    assert profile is not None and profile.root is not None
    assert boxes(profile.root) == 1 + 500, "the root is no call"
