"""Where time goes: shares and published figures as they are read, the bars, and the page by AppTest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")

from streamlit.testing.v1 import AppTest

from llama_workbench import ROOT
from llama_workbench.dashboard.export import svg as colours
from llama_workbench.dashboard.sections import trust
from llama_workbench.dashboard.views import data, samples
from llama_workbench.harness.claims.reading import load_claims, published, published_shares
from llama_workbench.harness.report.phases import Share
from llama_workbench.harness.slices.share import section
from llama_workbench.harness.slices.share.metric import ShareHypothesis
from llama_workbench.variants.phase_map import PHASES
from tests import runs
from tests.dashboard_pages import everything, open_page
from tests.dashboard_runs import BEFORE, HOSTILE, LONG, SHORT, add_phases

PAGE = ROOT / "dashboard" / "page_scripts" / "explore.py"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    add_phases(runs.write_run(results / "runs" / "phased"))
    return results


@pytest.fixture
def run(home: Path) -> data.Run:
    return data.read_run(home / "runs" / "phased")


Opener = Callable[..., AppTest]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    yield partial(open_page, PAGE, monkeypatch, show="time")


# -- reading -----------------------------------------------------------------------------------------------------------


def test_shares_have_intervals_levels_and_milliseconds(run: data.Run) -> None:
    found = section.shares_of(section.read_phases(run), SHORT, BEFORE, "forward", 0.01)
    by_phase = {share.phase: share for share in found.shares}
    assert [share.phase for share in found.shares[:3]] == ["mlp", "qkv", "rope"]
    qkv = by_phase["qkv"]
    assert qkv.percent == pytest.approx(20) and 18.5 < qkv.low < 20 < qkv.high < 21.5
    assert qkv.ms == pytest.approx(0.2) and found.ms == pytest.approx(1.0)
    assert sum(share.percent for share in found.shares) == pytest.approx(100)
    assert (qkv.grade, by_phase["scores"].grade) == ("critical", "minor")
    assert found.overhead.value == pytest.approx(1000 / 990)


def test_the_bar_the_flamegraph_and_the_comparison_have_one_time_of_a_call(run: data.Run) -> None:
    phases = section.read_phases(run)
    bar = section.breakdown_of(run, phases, SHORT, BEFORE, "forward")
    ns = samples.call_ns(run, SHORT, BEFORE)
    assert ns is not None and bar.ms == pytest.approx(ns / 1e6)
    assert bar.ms != pytest.approx(section.shares_of(phases, SHORT, BEFORE, "forward", run.alpha).ms, rel=0.01)
    layer = section.breakdown_of(run, phases, SHORT, BEFORE, "layer")
    ours = {share.phase: share.ms for share in bar.shares}
    assert {share.phase: share.ms for share in layer.shares}.items() <= ours.items(), (
        "of any whole a phase takes as long"
    )
    shown = next(each for each in samples.read_screens(run, "mask-caching-helps", "") if each.effect.workload == SHORT)
    assert shown.call_ns[0] == pytest.approx(ns, rel=0.02)
    assert shown.call_ns[1] == pytest.approx(samples.call_ns(run, SHORT, shown.effect.variant))


def test_what_another_variant_takes_more_adds_up_and_an_end_holds_where_both_shares_do() -> None:
    def side(**percents: float) -> section.Breakdown:
        shares = tuple(section.PhaseShare(name, p, p - 1, p + 1, p / 10) for name, p in percents.items())
        return section.Breakdown("w", "v", "forward", shares, 12, Share(1, 1, 1, 12, 0.0))

    rows = section.differences(side(mlp=60.0, rope=40.0), side(mlp=30.0, qkv=50.0))
    assert [row[0] for row in rows] == ["QKV", "RoPE", "MLP"]
    assert sum(row[3] for row in rows) == pytest.approx(8.0 - 10.0)
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["MLP"] == pytest.approx((6.0, 3.0, -3.0, 2.9 - 6.1, 3.1 - 5.9))
    assert by_name["QKV"] == pytest.approx((0.0, 5.0, 5.0, 4.9, 5.1))


def test_a_level_that_the_interval_does_not_settle_names_both() -> None:
    assert section.PhaseShare("rope", 5.2, 4.8, 5.6, 1.0).grade == "minor or moderate"


def test_why_their_table_says_what_it_says_is_computed(run: data.Run) -> None:
    phases = section.read_phases(run)
    said = section.why_their_share(phases, SHORT, BEFORE, published_shares(), 0.01)
    assert "divides 65.5 ms by 106.8 ms, the sum of 5 micro-benchmarks" in said
    assert "these parts are 40.0 %" in said and "MLP (40 %), LM head (10 %)" in said
    assert "takes 50.0 %" in said and "of the whole forward 20.0 %" in said
    assert section.why_their_share(phases, SHORT, "fast", published_shares(), 0.01) == ""


def test_published_shares_are_what_the_claims_are_about() -> None:
    lines = published_shares()
    total = sum(line.milliseconds for line in lines)
    assert all(line.percent == pytest.approx(100 * line.milliseconds / total, abs=0.2) for line in lines)
    claimed = [
        (set(hypothesis.phases), hypothesis.range)
        for claim in load_claims(ROOT / "claims")
        for hypothesis in claim.hypothesis
        if isinstance(hypothesis, ShareHypothesis) and hypothesis.of == "attention-subset"
    ]
    matched = [(line, ends) for line in lines for phases, ends in claimed if phases == set(line.phases)]
    assert len(matched) >= 4
    assert all(ends[0] <= line.percent <= ends[1] for line, ends in matched if ends)


def test_published_times_stand_beside_ours_with_their_growth(run: data.Run) -> None:
    rows = section.compared(run, trust.read_noise(run), published()).set_index("workload")
    measured = rows.loc["mask-create-apply-t128"]
    assert measured["variant here"] == BEFORE and measured["ours"].endswith(" ms") and measured["rounds"] == "40"
    low, high = (float(end.split()[0]) for end in measured["our interval"].split(" – "))
    assert low < float(measured["ours"].split()[0]) < high
    assert measured["their growth"] == f"{2116.7 / 118.65:.2f}×" and measured["our growth"] == ""
    assert rows.at["rope-t1", "ours"] == "not measured" and rows.at["rope-t1", "their growth"] == ""
    assert measured["on Candle here"] == measured["growth on Candle"] == ""


def test_growth_is_that_over_the_next_shorter_length(run: data.Run) -> None:
    figures = published()
    first, second, *_ = [name for name in figures if name.startswith("rope-t")]
    rounds = pd.DataFrame([(first, "candle_engine", 1e6), (second, "candle_engine", 2e6)])
    measured = trust.Noise(rounds.set_axis(["workload", "variant", "ns"], axis=1), 2, "")
    growths = section.compared(run, measured, figures).set_index("workload")["growth on Candle"]
    assert (growths[first], growths[second]) == ("", "2.00×")


# -- the bars ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_bars_sum_to_the_whole_and_never_differ_by_colour_alone(palette: colours.Palette) -> None:
    shares = [section.PhaseShare(phase, 100 / len(PHASES), 1, 9, 1.0) for phase in PHASES]
    figure = section.phase_bars([("T = 8", shares), (HOSTILE, shares[:3])], palette)
    assert sum(trace.x[0] for trace in figure.data) == pytest.approx(100)
    looks = {(trace.marker.color, trace.marker.pattern.shape) for trace in figure.data}
    assert len(looks) == len(PHASES)
    assert all(trace.text[0].startswith(trace.name) for trace in figure.data)
    assert "<script" not in figure.to_json().replace("&lt;script", "").replace("\\u003c", "<")
    assert "[%]" in figure.layout.xaxis.title.text


# -- the page ----------------------------------------------------------------------------------------------------------


def test_a_link_leads_to_variant_and_workload(page: Opener, home: Path) -> None:
    link = {"variant": BEFORE, "workload": LONG}
    app = page(home, run="phased", **link)
    assert not app.exception and not app.warning
    assert {key: app.selectbox(key=key).value for key in link} == link
    text = everything(app)
    assert "Their table says 61.2 % for QKV Projection" in text


def test_the_page_shows_where_the_time_goes(page: Opener, home: Path) -> None:
    app = page(home, run="phased", workload=SHORT)
    text = everything(app)
    assert not app.exception
    alts = [chart.proto.alt for chart in app.get("plotly_chart")]
    assert alts[0].startswith("Shares of the time. prefill, 128 tokens, 15M: MLP 40.0 %")
    assert "nobody can compare absolute times of two machines" in text


def test_a_run_without_phases_says_what_measures_them(page: Opener, tmp_path: Path) -> None:
    runs.write_run(tmp_path / "runs" / "plain", only=["mask-create-apply-t128"], claims=runs.CLAIMS[-2:])
    app = page(tmp_path)
    assert not app.exception
    assert "pytest --benchmark --claims qkv-61" in everything(app)
    assert "causal_mask/128" in everything(app), "the published times are there all the same"


def test_a_damaged_table_of_phases_leaves_the_rest(page: Opener, tmp_path: Path) -> None:
    damaged = runs.write_run(tmp_path / "runs" / "damaged", rounds=12)
    add_phases(damaged)
    (damaged.path / "phases.parquet").write_bytes(b"PAR1 no more")
    app = page(tmp_path)
    assert not app.exception and "phases" in " ".join(warning.value for warning in app.warning)
