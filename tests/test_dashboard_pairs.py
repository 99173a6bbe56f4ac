"""Profiles of two variants laid on each other: by phase, and to the times that were measured in picture."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.metrics.share.shares import calls_alone
from tests import runs

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")

from llama_workbench.dashboard.sections import breakdown
from llama_workbench.dashboard.sections import flames as picture
from llama_workbench.dashboard.views import data
from llama_workbench.dashboard.views.tree import merge

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
    nothing = breakdown.read_phases(data.read_run(ROOT / "results" / "baselines" / "fast-is-level"))
    file = "variants/fast.py"
    text = data.profile_text(data.read_run(REFERENCE), "prefill-15m-t128", "fast")
    assert picture.phase_lines(nothing, "fast", text).keys() == {file}
    moved = text + f"forward ({file}:3) 1\n"
    assert not picture.phase_lines(nothing, "fast", moved), "it was another file when the profile was taken"
    foreign = "f (variants/../conftest.py:1);g (added/mine.py:1);h (/etc/passwd:1) 4\n"
    assert not picture.phase_lines(nothing, "x", foreign)
