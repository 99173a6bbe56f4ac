"""The Crossover page: which effects lie on an axis, what is said of them, and what is drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.spec.words import Cause
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.verdict_schema import Ends
from tests import runs
from tests.dashboard_pages import everything, open_page
from tests.dashboard_runs import HOSTILE
from tests.verdicts import an_effect

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")


from llama_workbench.dashboard.figures import colours
from llama_workbench.dashboard.figures import scaling as figures
from llama_workbench.dashboard.views import data
from llama_workbench.dashboard.views import scaling as crossovers
from llama_workbench.harness.store.schema import Manifest

PAGE = ROOT / "dashboard" / "page_scripts" / "explore.py"
SIDES = ("new", "old", "cpu time")
WIDTHS = (256, 512, 1024, 2048)


def a_run(effects: Sequence[tuple[str, float | None, float | None, float | None]], **workload: Any) -> data.Run:
    """A run whose one claim ("same within ±1 %") has effects (workload, low, ratio, high), workloads by `workload`."""
    experiments = [
        {
            "workload": {"name": name, "kind": "decode", "tokens": 1, "context": 1, "batch": 1, "lengths": "repeated"}
            | {"dtype": "float32", "threads": 1, "geometry": f"w{width}"}
            | {key: value[place] if isinstance(value, tuple) else value for key, value in workload.items()},
            "variants": ["new", "old"],
        }
        for place, ((name, *_), width) in enumerate(zip(effects, WIDTHS, strict=False))
    ]
    rows = tuple(
        an_effect(workload=name, variant="new", baseline="old", value=ratio, low=low, high=high, verdict="inconclusive")
        for name, low, ratio, high in effects
    )
    claim = data.figure("T", 0.01, rows, claimed="same within ±1 %", region=Ends(1 / 1.01, 1.01))
    checkpoints = {f"w{width}": {"hidden_size": width} for width in WIDTHS}
    manifest = {"id": "run", "alpha": 0.01, "experiments": experiments, "checkpoints": checkpoints}
    return data.Run(Path("run"), Manifest.model_validate(manifest), (claim,), {}, {}, {}, (), ())


FALLING = [("a", 1.2, 1.28, 1.4), ("b", 1.05, 1.09, 1.15), ("c", 0.99, 1.02, 1.05), ("d", 0.995, 1.0, 1.005)]


def test_an_effect_over_the_width_crosses_where_the_harness_says() -> None:
    [series] = crossovers.all_series(a_run(FALLING))[SIDES]
    assert (series.axis, list(series.effects)) == ("width", [256, 512, 1024, 2048])
    assert [series.settled(size) for size in series.effects] == [True, True, False, True]
    [crossing] = series.sweep.crossings
    assert (crossing.low, crossing.high) == (512, 2048) and 512 < crossing.estimate < 2048


def test_a_link_leads_to_the_series_that_covers_most_of_the_workloads() -> None:
    run = a_run(FALLING)
    [series] = crossovers.all_series(run)[SIDES]
    assert crossovers.link_to(run, "new", "old", ["a", "c", "x"]) == {
        "effect": crossovers.sides_key(SIDES),
        "axis": series.key,
    }
    assert crossovers.link_to(run, "new", "old", ["a"]) == {}, "one size is no trend"
    assert crossovers.link_to(run, "old", "new", ["a", "b"]) == {}


def test_what_was_confounded_settles_nothing() -> None:
    run = a_run(FALLING)
    claim = run.claims[0]
    doubtful = replace(claim.effects[0], cause=Cause.CONFOUNDED, reason="a control fired")
    run = replace(run, claims=(replace(claim, effects=(doubtful, *claim.effects[1:])),))
    [series] = crossovers.all_series(run)[SIDES]
    assert not series.settled(256)


@pytest.mark.parametrize(
    ("workload", "axes"),
    [
        ({"kind": "prefill", "tokens": (8, 32, 128, 512), "geometry": "w256"}, ["length"]),
        ({"kind": "decode", "context": (64, 128, 512, 2048), "geometry": "w256"}, ["position"]),
        ({"kind": "component", "component": "rope", "tokens": (1, 8, 32, 128), "geometry": "w256"}, ["length"]),
        ({"kind": "decode", "context": (1, 2, 3, 4)}, []),  # two things differ at once
        ({"kind": "prefill", "lengths": "trace", "tokens": (8, 32, 128, 512), "geometry": "w256"}, []),
        ({"kind": "prefill", "batch": (1, 2, 3, 4)}, []),
    ],
)
def test_only_workloads_that_differ_in_one_thing_make_a_series(workload: dict[str, Any], axes: list[str]) -> None:
    found = crossovers.all_series(a_run(FALLING, **workload))
    assert [one.axis for series in found.values() for one in series] == axes


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_the_figure_is_hollow_where_nothing_is_settled_and_says_so(palette: colours.Palette) -> None:
    run = a_run([*FALLING[:3], ("d", None, 1.0, None)])
    floors = {"a": data.Floor(1.001, 0.97, 1.02, 30, False)}
    [series] = crossovers.all_series(run)[SIDES]
    figure = figures.ratios(series, floors, palette)
    [same] = [trace.x for trace in figure.data if trace.name == "identical code"]
    drawn = [
        (trace.name, trace.marker.symbol, list(trace.x)) for trace in figure.data if trace.name != "identical code"
    ]
    assert drawn == [
        ("settled", "circle", [256, 512]),
        ("not settled", "circle-open", [1024]),
        ("not settled", "circle-open", [2048]),
    ]
    assert list(same) == [pytest.approx(256 / figures.LANE)], "left of its point"
    [first, alone] = [trace for trace in figure.data if trace.name == "not settled"]
    assert list(first.x) == [1024] and first.showlegend and list(alone.x) == [2048] and not alone.showlegend
    assert alone.error_y.visible is False, "without an interval none is drawn"
    assert figure.layout.xaxis.type == "log"
    assert "at 1,024: 1.020× [0.990, 1.050], not settled" in figures.ratios_text(series, floors)


def test_an_end_that_is_open_runs_to_the_edge() -> None:
    [series] = crossovers.all_series(a_run([("a", 1.1, 1.2, None), *FALLING[1:]]))[SIDES]
    figure = figures.ratios(series, {})
    [first] = [trace for trace in figure.data if 256 in trace.x]
    assert first.y[0] + first.error_y.array[0] == pytest.approx(10 ** figure.layout.yaxis.range[1])


# -- from a run's samples ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("results")
    widths = {"15m": 288, "7b-1layer": 4096}
    checkpoints = {name: {"name": name, "hidden_size": width} for name, width in widths.items()}
    runs.write_run(home / "runs" / "two", rounds=30, manifest={"checkpoints": checkpoints})
    return home


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    return partial(open_page, PAGE, monkeypatch, show="sizes")


def test_a_link_leads_to_its_series(page: Any, home: Path) -> None:
    effect, axis = "team006_after~team006_before~cpu time", "width~prefill of 128 tokens"
    app = page(home, run="two", effect=effect, axis=axis)
    assert not app.exception
    assert app.selectbox(key="effect").value == effect
    assert app.selectbox(key="axis").value == axis
    assert re.search(r"Asked: \S.*\. (Above|Inside|Below|Inconclusive) ", everything(app))
    [alt] = [chart.proto.alt for chart in app.get("plotly_chart")]
    assert alt.startswith("Speed-up of team006_after over team006_before against width of the model")
    assert "Effect nonsense is not in this run." in everything(page(home, effect="nonsense"))


def test_a_run_without_series_says_which_command_makes_one(page: Any, tmp_path: Path) -> None:
    runs.write_run(tmp_path / "runs" / "one", rounds=20, only=("prefill-15m-t128",))
    assert "--claims python-calls-negligible,refactor-2x-3x" in everything(page(tmp_path))


def test_damaged_samples_and_hostile_names_leave_the_page(page: Any, tmp_path: Path) -> None:
    checkpoints = {name: {"hidden_size": width} for name, width in (("15m", 288), ("7b-1layer", 4096))}
    run: RunFolder = runs.write_run(tmp_path / "runs" / "bad", rounds=20, manifest={"checkpoints": checkpoints})
    verdicts = run.records("verdicts.json")
    manifest = run.read_manifest()
    for effect in (effect for verdict in verdicts for effect in verdict["effects"]):
        effect["variant"] = HOSTILE if effect["variant"] == "team005_proposal" else effect["variant"]
    for experiment in manifest["experiments"]:
        experiment["variants"].append(HOSTILE)
    run.write_json("verdicts.json", verdicts)
    run.write_json("run.json", manifest)
    path = run.path / "samples.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * 296 + whole[300:])
    app = page(tmp_path, effect=f"{HOSTILE}~team006_before~cpu time")
    assert not app.exception
    assert HOSTILE in everything(app)
    assert not any(re.search(r"(?<!\\)<script", item.value) for item in app.markdown)
