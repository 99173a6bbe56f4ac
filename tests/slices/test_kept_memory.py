"""Memory that a function keeps counts beside what it needs for a moment, on every page that tells of memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llama_workbench.harness.baselines.regressions import compare
from llama_workbench.harness.baselines.thresholds import Thresholds
from llama_workbench.harness.plan.options import Options, Request
from llama_workbench.harness.report.comparison import KEPT, PEAK, Screen, screen_markdown, screens
from llama_workbench.harness.report.standings import evidence_of
from llama_workbench.harness.session.run import Run, plan_run
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.passes import MEMORY, Memory
from tests.runs import Quiet, short_sessions
from tests.unchanged import SESSIONS

pytest.importorskip("memray", reason="[profile] is not installed")

pytestmark = [pytest.mark.covers("dashboard", *SESSIONS), pytest.mark.usefixtures("short_sessions")]

SIZE = 8_000_000

SIDES = f"""
TABLE = []


def again(number):
    squares = [each * each for each in range(60_000)]
    return bytes(squares[number] % 7 for _ in range(1000))


def remembered(number):
    if not TABLE:
        TABLE.append(bytearray({SIZE}))
    return bytes(number * number % 7 for _ in range(1000))


def number(seed):
    return (seed % 1000,)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run, of a function that computes much against one that remembers something large."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "sides.py").write_text(SIDES)
    request = Request(
        compare=(f"{folder}/sides.py:again", f"{folder}/sides.py:remembered"), calls=(f"{folder}/sides.py:number",)
    )
    options = Options(budget_seconds=600, run_dir=folder / "results/runs/one")
    with short_sessions():
        Run(plan_run(request, options), options, Quiet()).measure()
    return folder / "results"


@pytest.fixture(scope="module")
def run(results: Path) -> RunFolder:
    return RunFolder(results / "runs/one")


def screen_of(run: RunFolder) -> Screen:
    [screen] = screens(run, run.read(VERDICTS), evidence_of(run, run.manifest()))
    return screen


def test_what_a_call_leaves_is_measured_beside_its_peak(run: RunFolder) -> None:
    sides: dict[str, Memory] = {each.variant: each for each in run.read(MEMORY)}
    again, remembered = sides["again"], sides["remembered"]
    assert again.peak_transient_bytes > 1_000_000 > 10 * remembered.peak_transient_bytes  # type: ignore[operator]
    assert remembered.kept_bytes - again.kept_bytes == pytest.approx(SIZE, rel=0.001)  # type: ignore[operator]
    assert 1000 < again.kept_bytes < 500_000  # type: ignore[operator] # the answer, and the code


def test_who_is_measured_first_keeps_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the importing of a file leaves in the process once is nobody's."""
    (tmp_path / "sides.py").write_text(SIDES)
    monkeypatch.chdir(tmp_path)
    request = Request(compare=("one=sides.py:again", "other=sides.py:again"), calls=("sides.py:number",))
    options = Options(budget_seconds=1, run_dir=tmp_path / "run")
    Run(plan_run(request, options), options, Quiet()).measure()
    one, other = (
        each.kept_bytes for each in RunFolder(tmp_path / "run").read(MEMORY) if each.variant in ("one", "other")
    )
    assert one is not None and other is not None and abs(one - other) < 4096


SLOW = """
import os
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = []


def _filled(seconds):
    if not TABLE:
        time.sleep(seconds)
        TABLE.append(bytearray(1000))
        with open(f"{HERE}/first-calls", "a") as file:
            file.write(f"{os.getpid()}\\n")


def soon(number):
    _filled(0.01)
    return number * number


def late(number):
    _filled(0.6)
    return number * number


def number(seed):
    return (seed % 1000,)
"""


def test_a_slow_first_call_is_not_paid_several_times_under_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass says that it goes on, makes each first call once more at most, and leaves out those that take long."""
    (tmp_path / "sides.py").write_text(SLOW)
    monkeypatch.chdir(tmp_path)
    request = Request(compare=("sides.py:soon", "sides.py:late"), calls=("sides.py:number",))
    options, progress = Options(budget_seconds=1, run_dir=tmp_path / "run"), Quiet()
    Run(plan_run(request, options), options, progress).measure()
    assert "memory: what a call takes and keeps" in progress.phases
    soon, late = (
        next(each for each in RunFolder(tmp_path / "run").read(MEMORY) if each.variant == name)
        for name in ("soon", "late")
    )
    assert soon.kept_bytes is not None and soon.kept_bytes > 1000
    assert late.kept_bytes is None and late.reason is None
    assert soon.peak_transient_bytes is not None and late.peak_transient_bytes is not None
    processes = (tmp_path / "first-calls").read_text().split()
    assert processes.count(processes[-1]) == 3, "each side's, and that of what is kept of one"


def test_who_keeps_more_is_not_praised_for_a_smaller_peak(run: RunFolder) -> None:
    screen = screen_of(run)
    assert {KEPT, PEAK} <= {measure.what for measure in screen.measures}
    advice = screen.told["What to do"]
    assert "7.63 MiB more memory kept" in advice and "if you can spare" in advice and "less peak memory" not in advice
    markdown = screen_markdown(screen)
    assert "| memory kept |" in markdown and "7.63 MiB more memory kept" in markdown


def _rewrite(run: RunFolder, memory: list[dict[str, Any]]) -> None:
    manifest = run.read_manifest()
    run.write_json("memory.json", memory)
    run.seal(manifest)


def test_a_run_that_does_not_know_it_reads_as_before(run: RunFolder, tmp_path: Path) -> None:
    old, now = (RunFolder(shutil.copytree(run.path, tmp_path / name)) for name in ("old", "now"))
    rows = json.loads((old.path / "memory.json").read_text())
    _rewrite(old, [{key: row[key] for key in row if key != "kept_bytes"} for row in rows])
    screen = screen_of(old)
    assert KEPT not in [measure.what for measure in screen.measures]
    assert "less peak memory" in screen.price and "no matter" not in screen.advice
    only = Thresholds(gate=("memory",))
    for base, new in ((old, now), (now, old)):
        compared = [row for row in compare(base, new, thresholds=only).rows if row.what == "memory"]
        assert compared and all(row.change_percent == 0 for row in compared)
    _rewrite(old, [row | {"kept_bytes": row["kept_bytes"] + 4 * SIZE} for row in rows])
    [row] = [r for r in compare(now, old, thresholds=only).rows if r.what == "memory" and r.variant == "remembered"]
    assert row.verdict == "regression" and "what is kept +32,000,000 bytes" in row.reason


def test_less_of_both_is_said(run: RunFolder) -> None:
    screen = screen_of(run)
    fewer = [replace(each, more=-abs(each.more), ratio=min(each.ratio, 0.5)) for each in screen.measures[1:]]
    price = replace(screen, measures=(screen.measures[0], *fewer)).price
    assert "less peak memory" in price and "7.63 MiB less memory kept" in price


def test_the_dashboard_has_both(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
    from tests.dashboard_pages import UNFOLDED, everything, open_in_app

    open_: Callable[..., Any] = open_in_app
    app = open_("comparison", monkeypatch, results, **UNFOLDED)
    text = everything(app)
    assert not app.exception and "Peak of a call" in text and "Kept after a call" in text
    assert "7.63 MiB" in text and "its answer, caches, globals" in text
