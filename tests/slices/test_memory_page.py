"""The Memory page: what it computes from the files, what it draws, and what it says when they lack something."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_workbench import ROOT
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.passes import Memory
from llama_workbench.harness.store.verdict_schema import Effect
from tests import runs
from tests.dashboard_pages import alts, contrast, everything, open_page, texts, theme
from tests.dashboard_runs import HOSTILE, MARKUP, a_sweep
from tests.verdicts import an_effect

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")


from llama_workbench.dashboard.export import svg as colours
from llama_workbench.dashboard.views import data, samples
from llama_workbench.harness.slices.memory import section as sweeps

PAGE = ROOT / "dashboard" / "page_scripts" / "explore.py"
WORKLOAD = "prefill-15m-t128"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("results")
    run = runs.write_run(home / "runs" / "full", rounds=30)
    run.write_json("memory_sweep.json", [a_sweep("team006_after", 100_000), a_sweep("team005_hybrid", 20_000)])
    return home


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    return partial(open_page, PAGE, monkeypatch, show="memory")


def a_memory(variant: str, peak: float | None, parameters: float | None, caches: float | None, why: str) -> Memory:
    return Memory(
        workload="w",
        variant=variant,
        peak_transient_bytes=peak,
        parameter_bytes=parameters,
        cache_bytes=caches,
        reason=why or None,
    )


# -- bars -------------------------------------------------------------------------------------------------------------


def test_memory_bars_start_at_zero_and_name_their_unit() -> None:
    rows = [
        a_memory("before", 3 * 2**20, 60e6, 7e6, ""),
        a_memory("after", None, 60e6, 7e6, "the pass was stopped"),
    ]
    figure = sweeps.bars(rows, "peak_transient_bytes", "Peak", "before")
    [trace] = figure.data
    assert list(trace.x) == [3 * 2**20, 0]
    assert figure.layout.xaxis.range[0] == 0
    notes = [(note.text, note.y) for note in figure.layout.annotations]
    assert [text for text, _ in notes] == ["before", "3 MiB", "after", "not measured"]
    assert notes[0][1] == notes[1][1] > trace.y[0] > notes[2][1] > trace.y[1], "name and amount above the bar"
    assert [text for text in figure.layout.xaxis.ticktext if text != "0"] == ["1 MiB", "2 MiB", "3 MiB"]
    assert "the pass was stopped" in trace.hovertext[1]
    assert "3,145,728 bytes" in trace.hovertext[0]


@settings(deadline=None)
@given(st.one_of(st.none(), st.integers(0, 2**50)))
def test_memory_of_any_size_has_few_ticks(size: int | None) -> None:
    figure = sweeps.bars([a_memory("a", size, None, None, "")], "peak_transient_bytes", "Peak", "a")
    assert len(figure.layout.xaxis.tickvals) <= 6
    assert all(0 <= tick <= (size or 0) for tick in figure.layout.xaxis.tickvals)


@pytest.mark.parametrize(("name", "palette"), [("light", colours.LIGHT), ("dark", colours.DARK)])
def test_names_and_amounts_at_bars_bring_their_background(name: str, palette: colours.Palette) -> None:
    """Streamlit does not run the page again when the browser turns dark: text alone would vanish until it does."""
    for note in sweeps.bars([a_memory("a", 1, 1, 1, "")], "cache_bytes", "Kept", "a", palette).layout.annotations:
        assert note.bgcolor == theme()[name]["backgroundColor"]
        assert contrast(note.font.color, note.bgcolor) >= 4.5


@pytest.mark.parametrize("text", [HOSTILE, MARKUP, "%{customdata}", "a & b < c"])
def test_plotly_gets_no_markup_from_a_file(text: str) -> None:
    row = a_memory(text, None, 1.0, 1.0, text)
    for string in texts(sweeps.bars([row], "peak_transient_bytes", "Peak", "b")):
        tags = set(re.findall(r"<[^>]*>", string))
        assert tags <= {"<b>", "</b>", "<br>"}, string
        assert not re.search(r"\$.*\$", string), string
        assert "%{" not in string


# -- time against memory ---------------------------------------------------------------------------------------------


def a_timing(value: float, low: float | None, high: float | None, rounds: int) -> Effect:
    return an_effect(workload=WORKLOAD, value=value, low=low, high=high, rounds=rounds)


def a_spot(variant: str, amount: float, low: float, ratio: float, high: float) -> sweeps.Spot:
    return sweeps.Spot(variant, amount, a_timing(ratio, low, high, 30), 0.01)


def test_the_front_is_told_apart_from_what_is_beaten_and_from_what_is_not_settled() -> None:
    spots = [
        a_spot("fast but large", 300, 1.9, 2.0, 2.1),
        a_spot("small", 100, 1.4, 1.5, 1.6),
        a_spot("perhaps as fast", 150, 1.35, 1.45, 1.55),
        a_spot("slow", 200, 1.0, 1.1, 1.2),
        a_spot("smallest", 50, 0.9, 1.0, 1.1),
    ]
    standings = {spot.variant: sweeps._ranked(spot, spots).rank for spot in spots}
    assert standings == {
        "fast but large": sweeps.FRONT,
        "small": sweeps.FRONT,
        "perhaps as fast": "behind small, not settled",
        "slow": "beaten by small",
        "smallest": sweeps.FRONT,
    }


def test_a_speed_up_is_the_judged_one_or_this_page_s_own(home: Path) -> None:
    run = data.read_run(home / "runs" / "full")
    evidence = samples.read_evidence(run)
    judged, alpha = samples.timing(run, evidence, WORKLOAD, "team005_proposal", "team006_before")
    own, _ = samples.timing(run, evidence, WORKLOAD, "team005_hybrid", "team006_before")
    sides = (WORKLOAD, "team005_proposal", "team006_before")
    [effect, *_] = [
        effect
        for claim in run.claims
        for effect in claim.effects
        if (effect.workload, effect.variant, effect.baseline) == sides
    ]
    assert (judged, alpha) == (effect, run.claims[0].alpha)
    assert own.low is not None and own.high is not None
    assert own.low < 1.10 / 1.09 < own.high
    assert samples.timing(run, None, WORKLOAD, "team005_hybrid", "team006_before")[0].value is None
    spots, missing = sweeps.tradeoff(run, evidence, WORKLOAD)
    assert {spot.variant for spot in spots} == {"team006_before", "team006_after"}
    assert missing == {"team005_hybrid": "the memory pass ran into its time limit"}


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_every_dot_lies_where_it_was_measured_and_has_its_number(palette: colours.Palette) -> None:
    spots = [
        sweeps.Spot("a <b>", 3e6, a_timing(2.0, 1.9, 2.1, 9), 0.01, sweeps.FRONT),
        sweeps.Spot("c", 3.01e6, a_timing(1.99, None, None, 2), 0.01, sweeps.OPEN, "a <b>"),
        sweeps.Spot("d", 3.02e6, a_timing(1.2, 1.1, 1.3, 9), 0.01, sweeps.BEATEN, "a <b>"),
    ]
    figure = sweeps.tradeoff_figure(spots, "old", palette)
    drawn = {trace.name: (list(trace.x), list(trace.y)) for trace in figure.data}
    assert drawn == {"on the front": ([3e6], [2.0]), "not settled": ([3.01e6], [1.99]), "beaten": ([3.02e6], [1.2])}
    assert len({trace.marker.symbol for trace in figure.data}) == 3, "never by colour alone"
    assert "&lt;b&gt;" in figure.data[0].hovertext[0]
    assert [trace.text for trace in figure.data] == [("1",), ("3",), ("2",)], "its number in the table"
    told = sweeps.tradeoff_text(spots, "old")
    assert "2 c: 1.990× [no interval yet], 2.87 MiB, behind a <b>, not settled" in told


# -- policies --------------------------------------------------------------------------------------------------------


def test_a_sweep_has_measured_and_computed_side_by_side(home: Path) -> None:
    policies = sweeps.read_policies(data.read_run(home / "runs" / "full"))
    steps = policies[0].steps
    assert [(step.lengths, step.measured["mask"], step.computed["mask"]) for step in steps] == [
        (1, 1e5, 1e5),
        (2, 2e5, 2e5),
        (4, 4e5, 4e5),
    ]
    assert steps[-1].measured["caches"] == 1_410_000
    figure = sweeps.policies_figure(policies, "mask")
    assert [(trace.mode, trace.name) for trace in figure.data][:2] == [
        ("lines", "team006_after, computed"),
        ("markers", "team006_after, measured"),
    ]
    assert len({trace.marker.symbol for trace in figure.data if trace.mode == "markers"}) == 2


@pytest.mark.parametrize(
    "damage",
    [
        {"steps": "no"},
        {"steps": [{"lengths": 4}, {"lengths": [1], "held": [1], "computed": "x"}]},
        {"served": ["a"], "weights_bytes": -1},
        {"reason": "killed", "steps": [], "served": None},
    ],
)
def test_a_damaged_sweep_is_shown_as_far_as_it_goes(page: Any, tmp_path: Path, damage: dict[str, Any]) -> None:
    run = runs.write_run(tmp_path / "runs" / "one", rounds=12, only=(WORKLOAD,), judged=True)
    run.write_json("memory_sweep.json", [a_sweep("team006_after", 100_000, **damage)])
    app = page(tmp_path, workload=WORKLOAD)
    assert not app.exception


# -- the page --------------------------------------------------------------------------------------------------------


def test_a_link_leads_to_workload_and_kind(page: Any, home: Path) -> None:
    app = page(home, run="full", workload=WORKLOAD, held="kv")
    assert not app.exception
    told = alts(app)
    assert told[0].startswith("Speed-up over team006_before against kept and peak transient, above the weights.")
    assert told[1].startswith("Keys and values after 4 lengths: team006_after 977 KiB (2 % of the weights)")
    assert any("beaten by team006_after" in rank for table in app.dataframe for rank in table.value.get("rank", ()))
    app.selectbox(key="held").set_value("mask").run()
    assert app.query_params["held"] == "mask"
    assert alts(app)[1].startswith("Masks after 4 lengths: team006_after 391 KiB (0.8 % of the weights)")


def test_what_a_run_lacks_is_said_with_the_command_that_measures_it(page: Any, tmp_path: Path) -> None:
    run: RunFolder = runs.write_run(tmp_path / "runs" / "bare", rounds=12, only=(WORKLOAD,))
    (run.path / "memory.json").unlink()
    app = page(tmp_path)
    assert not app.exception
    text = everything(app)
    for command in ("--profile", "--claims mask-memory"):
        assert f"pytest --benchmark {command}" in text


# -- the sides of an effect ------------------------------------------------------------------------------------------


def test_an_engine_has_no_place_for_its_own_memory_is_not_counted(home: Path) -> None:
    run = data.read_run(home / "runs" / "full")
    row = run.memory[WORKLOAD, "team006_after"]
    with_engine = replace(run, memory={**run.memory, (WORKLOAD, "llama_cpp"): row})
    spots, missing = sweeps.tradeoff(with_engine, None, WORKLOAD)
    assert "llama_cpp" not in [spot.variant for spot in spots]
    assert missing["llama_cpp"] == "an engine, whose own memory is not counted"
