"""`import llama_workbench as wb; wb.open(RUN)`: a run as data frames."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

import llama_workbench as wb
from llama_workbench import ROOT, notebook
from llama_workbench.dashboard.export.svg import FIGURE_PX, forest_svg
from llama_workbench.dashboard.views.data import Definition, claim_of
from llama_workbench.harness.session.questions import Outcome
from llama_workbench.harness.store.files import RunError
from llama_workbench.notebook import Compared
from tests.dashboard_runs import MARKUP, deface
from tests.runs import write_run
from tests.verdicts import a_verdict, an_effect


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("results") / "runs" / "mine").path


def test_a_comparison_is_drawn_as_the_pages_draw_it(tmp_path: Path) -> None:
    effect = an_effect(variant="twice", baseline="once", value=0.5, low=0.48, high=0.53, verdict="slower")
    verdict = a_verdict(effect, claim="ad-hoc", verdict="slower", low=0.99, high=1.01)
    told: dict[str, Any] = {"variant": "twice", "baseline": "once", "reason": "", "claimed": verdict.claimed}
    told |= {"ratio": effect.ratio, "low": effect.low, "high": effect.high, "rounds": effect.rounds}
    shown = Compared(Outcome(**told, verdict=verdict.verdict, run=tmp_path, judged=verdict))._repr_html_()
    assert forest_svg(claim_of(verdict, Definition(), {}), {}, width=FIGURE_PX) in shown
    assert "twice is 0.500 [0.480, 0.530] times as fast as once" in shown


def test_the_frames_are_what_the_files_say(run: Path) -> None:
    opened = wb.open(run)
    stored = json.loads((run / "verdicts.json").read_text())
    assert tuple(opened.verdicts.columns) == notebook.VERDICT_COLUMNS
    assert opened.verdicts["verdict"].tolist() == [each["verdict"] for each in stored]
    assert tuple(opened.effects.columns) == notebook.EFFECT_COLUMNS
    flat = [(each, effect) for each in stored for effect in each["effects"]]
    assert len(opened.effects) == len(flat) > 10
    rows: Any = opened.effects.itertuples()
    for row, (each, effect) in zip(rows, flat, strict=True):
        assert (row.claim, row.part) == (each["claim"], each["part"] or "")
        value = effect.get("ratio", effect.get("value"))
        assert row.value == value or (value is None and row.value != row.value)
        assert row.low == (-math.inf if effect["low"] is None else effect["low"])
        assert row.high == (math.inf if effect["high"] is None else effect["high"])
    times = opened.effects[opened.effects["unit"] == "times"]
    assert not times.empty and (times["low"] <= times["value"]).all() and (times["value"] <= times["high"]).all()
    assert set(opened.samples.columns) >= {"workload", "variant", "round", "cpu_ns", "repeats"}
    assert opened.manifest["id"] == json.loads((run / "run.json").read_text())["id"]


def test_a_run_is_found_by_its_name(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parents[2])
    shutil.copytree(run.parents[1], "results", dirs_exist_ok=True)
    assert wb.open("mine").path == Path("results/runs/mine")


def test_a_killed_run_is_judged_from_its_rounds_and_stays_as_it_is(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", killed=True, only=("prefill-15m-t128",), compare=("team006_before", "team006_after")
    ).path
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with pytest.warns(UserWarning):  # its last line is cut off
        opened = wb.open(run)
        assert opened.effects["rounds"].tolist() == [39]
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_what_a_notebook_shows_is_text(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    deface(run)
    opened = wb.open(run.path)
    shown = opened._repr_html_()
    assert "<script" not in shown and "<img" not in shown and MARKUP not in shown
    assert repr(opened).startswith("<run ") and "refuted" in repr(opened)


def test_what_is_no_run_or_damaged_is_told(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no such run folder"):
        wb.open(tmp_path / "none")
    copied = Path(shutil.copytree(run, tmp_path / "damaged"))
    (copied / "verdicts.json").write_text("[{")
    opened = wb.open(copied)
    with pytest.raises(RunError, match=r"verdicts\.json"):
        opened.verdicts  # noqa: B018
    assert "verdicts.json" in repr(opened) and "verdicts.json" in opened._repr_html_()
    sealed = Path(shutil.copytree(ROOT / "results" / "baselines" / "reference", tmp_path / "sealed"))
    (sealed / "verdicts.json").write_text("[]")
    with pytest.raises(RunError, match="its content is not what the run wrote"):
        wb.open(sealed).verdicts  # noqa: B018


WITHOUT_GUARD = """\
import llama_workbench as wb


def added(numbers):
    return sum(numbers)


def joined(numbers):
    return sum([*numbers])


def numbers(seed):
    return [seed] * 1000


wb.compare(added, joined, payload=numbers, budget=600)
"""


def test_a_script_that_compares_as_it_is_imported_fails_at_once_and_is_told_the_fix(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WITHOUT_GUARD)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 1 and 'put the call below `if __name__ == "__main__":`' in done.stderr, done.stderr
    assert "hangs" not in done.stderr


# -- a real kernel -----------------------------------------------------------------------------------------------------

CELLS = (
    "import random\nimport llama_workbench as wb",
    "SEPARATOR = ' '\n\ndef old(text):\n    seen = []\n    for word in text.split(SEPARATOR):\n"
    "        if word not in seen:\n            seen.append(word)\n    return seen",
    "def new(text):\n    return list(dict.fromkeys(text.split(SEPARATOR)))",
    "def texts(seed):\n    draw = random.Random(seed)\n"
    "    return SEPARATOR.join(str(draw.randrange(500)) for _ in range(2000))",
    "result = wb.compare(old, new, payload=texts, budget=10)\nresult",
)


@pytest.mark.covers("harness/calls", "harness/session", "llama_workbench")
@pytest.mark.long
def test_cells_of_a_jupyter_kernel_are_compared(tmp_path: Path) -> None:
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(tmp_path))
    try:
        shown: list[Any] = []
        for cell in CELLS:
            reply = client.execute_interactive(cell, timeout=300, output_hook=shown.append)
            assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    [result] = [each["content"]["data"] for each in shown if each["msg_type"] == "execute_result"]
    assert "times as fast as old" in result["text/plain"] and "faster" in result["text/plain"]
    assert "<svg" in result["text/html"]
