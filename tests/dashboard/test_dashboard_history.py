"""Many runs: their course and what it stands on, two runs by the rules of `workbench compare`, and runs
that go on."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")

import re
from contextlib import closing

from streamlit.testing.v1 import AppTest

from llama_workbench.commands.app import main
from llama_workbench.dashboard.export import svg as colours
from llama_workbench.dashboard.sections import course
from llama_workbench.dashboard.views import data, entries
from llama_workbench.dashboard.views import entries as entry_views
from llama_workbench.harness.baselines.regressions import compare
from llama_workbench.harness.machine.lifeline import Lock, is_held
from llama_workbench.harness.report import standings as standings_module
from llama_workbench.harness.report.standings import measure_standings, read_standings, write_standings
from llama_workbench.harness.spec.sample import Round
from llama_workbench.harness.store.files import MANIFEST, STANDINGS
from llama_workbench.harness.store.folder import RunFolder, RunSummary
from tests import runs
from tests.dashboard_pages import alts, everything, open_in_app, texts
from tests.dashboard_runs import HOSTILE, MARKUP, add_broken
from tests.runs import ENVIRONMENT, write_run

MODEL, PART = "prefill-15m-t128", "mask-create-apply-t128"
SLOWER = {"team005_proposal": 1.09 * 1.25}


def a_run(home: Path, number: int, **options: Any) -> RunFolder:
    """Run `number` of a history, without verdicts."""
    manifest = {"started": f"2026-01-{number:02}T03:04:05+00:00"}
    defaults: dict[str, Any] = {"only": [MODEL, PART], "judged": False, "rounds": 30, "seed": number}
    return write_run(home / "runs" / f"run-{number}", manifest=manifest, **defaults | options)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run 1 and 2 alike; 3 on another CPU; 4 as 1 but a slower proposal; 5 with other weights. 2 is a baseline too."""
    results = tmp_path_factory.mktemp("history")
    a_run(results, 1)
    a_run(results, 2, judged=True)
    a_run(results, 3, environment={"cpu_model": "Another CPU"})
    a_run(results, 4, factors=SLOWER, judged=True)
    last = a_run(results, 5, factors=SLOWER)
    manifest = last.read_manifest()
    manifest["checkpoints"]["15m"]["digest"] = "other weights"
    last.write_json("run.json", manifest)
    for number in (1, 2, 4, 5):  # run 3 is of before there was such a file
        write_standings(RunFolder(results / "runs" / f"run-{number}"))
    shutil.copytree(results / "runs" / "run-2", results / "baselines" / "main")
    return results


def pasts(home: Path) -> list[course.Past]:
    entries = entry_views.without_copies(entry_views.RunList(home).entries())[::-1]
    return [course.Past(entry, read_standings(RunFolder(entry.summary.path))) for entry in entries]


# -- ratios beside the run ---------------------------------------------------------------------------------------------


def test_what_is_kept_is_what_the_samples_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path, 1)
    measured = measure_standings(run)
    write_standings(run)
    monkeypatch.setattr(standings_module, "measure_standings", None)  # whoever reads samples now fails
    kept = read_standings(run)
    assert kept == measured
    assert kept.environment["cpu_model"] == ENVIRONMENT["cpu_model"] and kept.noise == measured.noise


def test_open_ends_and_runs_of_one_round_survive_the_file(tmp_path: Path) -> None:
    run = a_run(tmp_path, 1, rounds=1)
    write_standings(run)
    kept, measured = read_standings(run), measure_standings(run)
    assert kept.rows == measured.rows
    assert all(math.isinf(row.interval.high) for row in kept.rows)


@pytest.mark.parametrize("spoil", ["older", "damaged", "foreign", "format"])
def test_a_file_that_does_not_fit_the_run_is_not_used(tmp_path: Path, spoil: str) -> None:
    run = a_run(tmp_path, 1, rounds=10)
    write_standings(run)
    path = run.path / STANDINGS
    stored = json.loads(path.read_text())
    for row in stored["rows"]:
        row["log_ratio"] = 7.0
    if spoil == "older":
        run.append_round(Round(MODEL, 1, 0, ()))
    elif spoil == "foreign":
        stored["rows"] = {"a": 1}
    elif spoil == "format":
        stored["format"] = 1
    path.write_text(json.dumps(stored)[: 200 if spoil == "damaged" else None])
    assert all(row.interval.centre < 1 for row in read_standings(run).rows)


def test_comparing_by_what_is_kept_is_comparing_by_samples(home: Path, tmp_path: Path) -> None:
    names, rows = ("run-1", "run-4"), compare(*(RunFolder(home / "runs" / name) for name in ("run-1", "run-4"))).rows
    for name in names:
        shutil.copytree(home / "runs" / name, tmp_path / name)
        (tmp_path / name / STANDINGS).unlink()
    assert compare(*(RunFolder(tmp_path / name) for name in names)).rows == rows


def test_judging_leaves_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path, 1, rounds=8)
    with pytest.raises(SystemExit) as ended:
        main(["judge", str(run.path)])
    assert ended.value.code == 0, capsys.readouterr().err
    assert json.loads((run.path / STANDINGS).read_text())["made_from"] == run.digest()


# -- pairing runs ------------------------------------------------------------------------------------------------------


def test_the_line_breaks_where_runs_cannot_be_compared_with_the_reason(home: Path) -> None:
    points, breaks = course.points_of(pasts(home), MODEL, "team005_proposal")
    assert [point.name for point in points] == [
        "runs/run-1",
        "baselines/main",
        "runs/run-3",
        "runs/run-4",
        "runs/run-5",
    ] or [point.name for point in points] == ["run-1", "baselines/main", "run-3", "run-4", "run-5"]
    assert [each.index for each in breaks] == [2, 3, 4]
    assert "CPU: Simulated CPU against Another CPU" in breaks[0].reasons
    assert breaks[2].reasons == ("the checkpoints differ",)
    assert points[1].baseline and not points[0].baseline and all(point.against == "yardstick" for point in points)


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four commits with three runs each; from the third on the proposal takes a tenth more time."""
    results = tmp_path_factory.mktemp("commits")
    for number in range(12):
        commit = {"id": "abcd"[number // 3] * 40, "dirty": False}
        slower = {"factors": {"team005_proposal": 1.09 * 1.1}} if number >= 6 else {}
        run = a_run(results, number + 1, rounds=15, only=[MODEL], environment={"commit": commit}, **slower)
        write_standings(run)
    return results


def test_runs_of_one_commit_are_one_point_with_their_mean(commits: Path) -> None:
    runs = pasts(commits)
    points, breaks = course.points_of(runs, MODEL, "team005_proposal")
    assert [point.name for point in points] == [f"{letter * 10} (3 runs)" for letter in "abcd"] and not breaks
    own = [past.standings.times[MODEL, "team005_proposal"].interval for past in runs[:3]]
    pooled = points[0].interval
    assert pooled.centre == pytest.approx(sum(each.centre for each in own) / 3)
    widths = [each.high - each.low for each in own]
    assert pooled.n == 45 and pooled.high - pooled.low < 0.8 * sum(widths) / 3
    assert "12 runs" in course.timeline_text(MODEL, "team005_proposal", points, breaks)


def test_a_component_stands_against_its_baseline(home: Path) -> None:
    points, _ = course.points_of(pasts(home), PART, "team006_after")
    assert {point.against for point in points} == {"team006_before"}


# -- the picture -------------------------------------------------------------------------------------------------------


def test_the_line_is_cut_at_a_break_and_marks_have_intervals(home: Path) -> None:
    points, breaks = course.points_of(pasts(home), MODEL, "team005_proposal")
    figure = course.timeline(points, breaks, colours.DARK)
    line = figure.data[0]
    assert [x is None for x in line.x].count(True) == len(breaks) == len(figure.layout.shapes)
    assert [trace.name for trace in figure.data[1:]] == ["a run", "a baseline"]
    marks = figure.data[1]
    interval = points[0].interval
    assert marks.y[0] + marks.error_y.array[0] == pytest.approx(math.exp(interval.high))
    assert marks.y[0] - marks.error_y.arrayminus[0] == pytest.approx(math.exp(interval.low))
    told = course.timeline_text(MODEL, "team005_proposal", points, breaks)
    assert "5 runs" in told and "3 breaks" in told and "30 rounds" in told
    with pytest.raises(ValueError, match="no runs"):
        course.timeline([], [])


def test_an_open_interval_and_a_hostile_name_can_be_drawn(home: Path) -> None:
    points, _ = course.points_of(pasts(home), MODEL, "team005_proposal")
    open_ = replace(points[0].interval, low=-math.inf, high=math.inf)
    figure = course.timeline([replace(points[0], interval=open_, name=f"{HOSTILE}{MARKUP}", against=HOSTILE)], [])
    assert figure.data[1].error_y.array[0] == 0
    assert not any("<script" in text or "<img" in text for text in texts(figure))


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_shows_course_breaks_verdicts_and_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_in_app("history", monkeypatch, home, workload=MODEL, variant="team005_proposal", claim="refactor-2x-3x")
    assert not app.exception and not app.warning
    assert [app.selectbox(key=key).value for key in ("workload", "variant", "claim")] == [
        MODEL,
        "team005_proposal",
        "refactor-2x-3x",
    ]
    text = everything(app)
    assert "CPU: Simulated CPU against Another CPU" in text and "the checkpoints differ" in text
    assert "the reference benchmark, code that is never edited" in text
    verdicts = app.dataframe[0].value
    assert list(verdicts["run"]) == ["run-4", "baselines/main"] and set(verdicts["verdict"]) == {"Refuted"}
    assert "5 runs" in alts(app)[0]
    listed = open_in_app("runs", monkeypatch, home).dataframe[0].value
    assert len(listed) == 6 and "./?run=run-4" in set(listed["run"]) and "Another CPU" in listed["machine"].to_string()
    app.selectbox(key="variant").select("team006_after").run()
    assert app.query_params["variant"] in ("team006_after", ["team006_after"]) and "team006_after" in alts(app)[0]


def test_another_workload_has_its_own_variants_and_says_what_they_stand_against(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = open_in_app("history", monkeypatch, home, workload=PART)
    assert not app.exception and app.selectbox(key="variant").options == ["team006_after"]
    assert "team006_before, its own baseline" in everything(app)


def test_one_run_broken_folders_and_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    app = open_in_app("history", monkeypatch, tmp_path / "empty")
    assert not app.exception and "make bench" in everything(app)
    a_run(tmp_path, 1, rounds=8)
    add_broken(tmp_path / "runs")
    app = open_in_app("history", monkeypatch, tmp_path)
    assert not app.exception and "1 run:" in alts(app)[0]
    cut = a_run(tmp_path, 2, rounds=8)
    samples = cut.path / "samples.parquet"
    data_ = bytearray(samples.read_bytes())
    data_[100:400] = bytes(300)  # the footer is whole, the rows are not
    samples.write_bytes(bytes(data_))
    app = open_in_app("history", monkeypatch, tmp_path)
    assert not app.exception and "run-2: samples.parquet" in everything(app) and len(alts(app)) == 1


# The two_page that compares two runs: the rows of `workbench compare`, the largest proven change first.


# After dashboard_pages, which skips these tests where the dashboard's packages are missing.


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, the newer one with a slower proposal and a much slower masked variant; the older one is saved too."""
    results = tmp_path_factory.mktemp("two-runs")
    slower = {"team005_proposal": 1.09 * 1.3, "team006_before": 1.8, "team005_hybrid": 1.09 * 1.12}
    for number, factors in ((1, {}), (2, slower)):
        manifest = {"started": f"2026-01-0{number}T03:04:05+00:00"}
        folder = results / "runs" / f"run-{number}"
        write_run(folder, seed=number, rounds=30, only=[MODEL, PART], manifest=manifest, factors=factors)
    shutil.copytree(results / "runs" / "run-1", results / "baselines" / "main")
    return results


@pytest.fixture
def two_page(two_runs: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    return lambda **link: open_in_app("two_runs", monkeypatch, two_runs, **link)


def tables(app: AppTest) -> list[pd.DataFrame]:
    """What is decided, and what is not."""
    return [shown.value for shown in app.dataframe]


def test_its_rows_are_those_of_the_command_and_the_largest_proven_change_is_first(
    two_page: Callable[..., AppTest], two_runs: Path
) -> None:
    app = two_page(run="run-2")
    assert not app.exception, app.exception[0].stack_trace
    assert not app.warning
    by_command = compare(RunFolder(two_runs / "baselines" / "main"), RunFolder(two_runs / "runs" / "run-2"))
    times = [row for row in by_command.rows if row.what == "time"]
    told, folded = tables(app)
    shown = pd.concat([told, folded])
    assert set(folded["answer"]) == {"inconclusive"} and not {"inconclusive"} & {*told["answer"]}
    assert app.expander[0].label == f"{len(folded)} inconclusive"
    assert sorted(zip(shown["variant"], shown["answer"], strict=True)) == sorted((r.variant, r.verdict) for r in times)
    proven = [answer in entries.PROVEN for answer in shown["answer"]]
    assert any(proven) and not all(proven) and proven == sorted(proven, reverse=True)
    first = shown.iloc[0]
    [drawn] = alts(app)
    assert drawn.index("team006_before on ") < drawn.index("team005_proposal on "), "the largest change is drawn first"
    assert ", slower." in drawn and "against" not in drawn
    assert (first["variant"], first["answer"]) == ("team006_before", "regression") and first["change"].startswith("+")
    assert "regression" in everything(app) and "Threshold" in everything(app)


def test_a_choice_is_in_the_link_and_one_that_is_not_there_is_named(two_page: Callable[..., AppTest]) -> None:
    app = two_page(run="run-1", base="run-2")
    assert app.selectbox(key="base").value == "run-2" and set(tables(app)[0]["answer"]) >= {"improvement"}
    assert "gone is not here" in everything(two_page(run="run-2", base="gone"))


def test_a_run_is_not_compared_with_its_own_copy(two_runs: Path) -> None:
    listed = entries.RunList(two_runs).entries()
    assert list(entries.to_compare_with("baselines/main", listed)) == ["run-2"]
    assert list(entries.to_compare_with("run-2", listed)) == ["baselines/main"]


def test_a_run_that_shares_no_workload_is_no_choice() -> None:
    listed = [
        entry("shown", MODEL),
        entry("functions", "texts"),
        entry("baselines/other", "words"),
        entry("same", MODEL),
    ]
    assert list(entries.to_compare_with("shown", listed)) == ["same"]


def test_a_run_of_the_same_machine_comes_before_a_saved_one_of_another() -> None:
    listed = [
        entry("shown", MODEL, machine="a Xeon"),
        entry("baselines/other", MODEL, machine="an EPYC"),
        entry("same", MODEL, machine="a Xeon"),
        entry("functions", "texts", machine="a Xeon"),
    ]
    assert list(entries.to_compare_with("shown", listed)) == ["same", "baselines/other"]


def test_a_run_that_shares_no_side_is_no_choice() -> None:
    listed = [
        entry("shown", "texts", sides=("old.f", "new.f")),
        entry("other", "texts", sides=("old.g", "new.g")),
        entry("same", "texts", sides=("old.f", "newer.f")),
    ]
    assert list(entries.to_compare_with("shown", listed)) == ["same"]


def entry(name: str, *workloads: str, machine: str = "", sides: tuple[str, ...] = ()) -> entries.Entry:
    timed = tuple((workload, side) for workload in workloads for side in sides)
    summary = RunSummary(Path(name), name, "complete", workloads=workloads, machine=machine, timed=timed)
    return entries.Entry(name, summary)


def test_a_run_of_which_no_other_timed_the_same_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "runs" / "run-1", rounds=12, only=[MODEL])
    assert "no other run" in everything(open_in_app("two_runs", monkeypatch, tmp_path))
    write_run(tmp_path / "runs" / "run-2", rounds=12, only=[PART])
    assert "no other run" in everything(open_in_app("two_runs", monkeypatch, tmp_path, run="run-2"))


def test_a_damaged_run_is_named(two_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = tmp_path / "results"
    shutil.copytree(two_runs, copied)
    for folder in (copied / "baselines" / "main", copied / "runs" / "run-1"):
        content = bytearray((folder / "samples.parquet").read_bytes())
        content[100:200] = bytes(100)  # within a two_page: lists of runs read the end of the file alone
        (folder / "samples.parquet").write_bytes(content)
    app = open_in_app("two_runs", monkeypatch, copied, run="run-2")
    assert not app.exception and "cannot be compared" in app.warning[0].value
    assert "samples.parquet" in everything(app)


# A run that is being measured does not take the front page; a line says how far it is. A killed one is called so.


@pytest.fixture
def going_on(tmp_path: Path) -> Path:
    """A run that is complete, and a newer one that is not."""
    runs.write_run(tmp_path / "runs" / "old", rounds=12, only=("prefill-15m-t128",))
    newer = runs.write_run(tmp_path / "runs" / "new", rounds=12, only=("prefill-15m-t128",))
    manifest = newer.read_manifest()
    [experiment] = manifest["experiments"]
    changed = {"status": "running", "started": "2030-01-01T00:00:00+00:00", "budget_seconds": 200.0, "sealed": None}
    newer.write_json(MANIFEST, manifest | changed | {"experiments": [experiment | {"seconds": 50.0}]})
    return tmp_path


def test_the_run_that_goes_on_is_told_and_another_is_shown(going_on: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Lock()) as lock:
        lock.take(going_on / "runs" / "new")
        listed = entries.RunList(going_on).entries()
        assert entries.first_shown(listed).name == "old"
        assert [str(each) for each in entries.going_on(listed)] == [
            "new is being measured (yardstick, team006_before, team006_after and 2 more on prefill-15m-t128): "
            "25 % of the time for its rounds is used, 2 min 30 s left."
        ]
        assert data.read_run(going_on / "runs" / "new").unfinished.startswith("This run goes on")
        app = open_in_app("answer", monkeypatch, going_on)
        text = everything(app)
        assert not app.exception and "25 % of the time for its rounds" in text
        assert re.search(r"So far: [\d.]+× \[[\d.]+, [\d.]+\] team006_after against team006_before on prefill", text)
        assert dict(app.query_params)["run"] == "old"


def test_a_killed_run_is_called_killed(going_on: Path) -> None:
    folder = going_on / "runs" / "new"
    (folder / ".lock").write_text("1\n")
    assert not is_held(folder)
    listed = entries.RunList(going_on).entries()
    assert entries.going_on(listed) == [] and entries.first_shown(listed).name == "old"
    assert data.read_run(folder).unfinished.startswith("This run was killed")


def test_where_only_one_goes_on_it_is_shown(going_on: Path) -> None:
    listed = [entry for entry in entries.RunList(going_on).entries() if entry.name == "new"]
    assert entries.first_shown(listed).name == "new"
