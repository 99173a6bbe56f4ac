"""The page that compares two runs: the rows of `workbench compare`, the largest proven change first."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from llama_workbench.harness.baselines.regressions import compare
from llama_workbench.harness.store.folder import RunFolder, RunSummary
from tests.dashboard_pages import alts, everything, open_in_app
from tests.runs import write_run

# After dashboard_pages, which skips these tests where the dashboard's packages are missing.
from streamlit.testing.v1 import AppTest  # isort: skip

from llama_workbench.dashboard.views import entries  # isort: skip

MODEL, PART = "prefill-15m-t128", "mask-create-apply-t128"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def page(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    return lambda **link: open_in_app("two_runs", monkeypatch, home, **link)


def tables(app: AppTest) -> list[pd.DataFrame]:
    """What is decided, and what is not."""
    return [shown.value for shown in app.dataframe]


def test_its_rows_are_those_of_the_command_and_the_largest_proven_change_is_first(
    page: Callable[..., AppTest], home: Path
) -> None:
    app = page(run="run-2")
    assert not app.exception, app.exception[0].stack_trace
    assert not app.warning
    by_command = compare(RunFolder(home / "baselines" / "main"), RunFolder(home / "runs" / "run-2"))
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


def test_a_choice_is_in_the_link_and_one_that_is_not_there_is_named(page: Callable[..., AppTest]) -> None:
    app = page(run="run-1", base="run-2")
    assert app.selectbox(key="base").value == "run-2" and set(tables(app)[0]["answer"]) >= {"improvement"}
    assert "gone is not here" in everything(page(run="run-2", base="gone"))


def test_a_run_is_not_compared_with_its_own_copy(home: Path) -> None:
    listed = entries.RunList(home).entries()
    assert list(entries.to_compare_with("baselines/main", listed)) == ["run-2"]
    assert list(entries.to_compare_with("run-2", listed)) == ["baselines/main"]


def test_a_run_that_shares_a_workload_comes_before_saved_ones_that_do_not() -> None:
    listed = [
        entry("shown", MODEL),
        entry("functions", "texts"),
        entry("baselines/other", "words"),
        entry("same", MODEL),
    ]
    assert list(entries.to_compare_with("shown", listed)) == ["same", "baselines/other", "functions"]


def test_a_run_of_the_same_machine_comes_before_a_saved_one_of_another() -> None:
    listed = [
        entry("shown", MODEL, machine="a Xeon"),
        entry("baselines/other", MODEL, machine="an EPYC"),
        entry("same", MODEL, machine="a Xeon"),
        entry("functions", "texts", machine="a Xeon"),
    ]
    assert list(entries.to_compare_with("shown", listed)) == ["same", "baselines/other", "functions"]


def test_a_run_that_shares_a_side_comes_first() -> None:
    listed = [
        entry("shown", "texts", sides=("old.f", "new.f")),
        entry("other", "texts", sides=("old.g", "new.g")),
        entry("same", "texts", sides=("old.f", "newer.f")),
    ]
    assert list(entries.to_compare_with("shown", listed)) == ["same", "other"]


def entry(name: str, *workloads: str, machine: str = "", sides: tuple[str, ...] = ()) -> entries.Entry:
    timed = tuple((workload, side) for workload in workloads for side in sides)
    summary = RunSummary(Path(name), name, "complete", workloads=workloads, machine=machine, timed=timed)
    return entries.Entry(name, summary)


def test_a_run_alone_and_one_that_has_nothing_in_common_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "runs" / "run-1", rounds=12, only=[MODEL])
    assert "no other run" in everything(open_in_app("two_runs", monkeypatch, tmp_path))
    write_run(tmp_path / "runs" / "run-2", rounds=12, only=[PART])
    assert "no variant and workload in common" in everything(
        open_in_app("two_runs", monkeypatch, tmp_path, run="run-2")
    )


def test_a_damaged_run_is_named(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = tmp_path / "results"
    shutil.copytree(home, copied)
    for folder in (copied / "baselines" / "main", copied / "runs" / "run-1"):
        content = bytearray((folder / "samples.parquet").read_bytes())
        content[100:200] = bytes(100)  # within a page: lists of runs read the end of the file alone
        (folder / "samples.parquet").write_bytes(content)
    app = open_in_app("two_runs", monkeypatch, copied, run="run-2")
    assert not app.exception and "cannot be compared" in app.warning[0].value
    assert "samples.parquet" in everything(app)
