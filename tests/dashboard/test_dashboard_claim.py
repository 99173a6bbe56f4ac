"""Verdicts and Comparison: what is said in words, round by round and in links is what the judge found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
from pydantic import TypeAdapter

from llama_workbench import ROOT
from llama_workbench.harness.session.judging import rejudge
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.forms import plain
from llama_workbench.harness.store.schema import Noise
from tests import runs
from tests.dashboard_pages import UNFOLDED, alts, everything, open_in_app, strips
from tests.dashboard_runs import HOSTILE
from tests.verdicts import OPEN

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")

from streamlit.testing.v1 import AppTest

from llama_workbench.dashboard.sections import sides as paired_rounds
from llama_workbench.dashboard.views import data, outcomes, samples
from llama_workbench.harness.store.schema import Manifest
from tests.dashboard.test_dashboard import a_claim, an_effect

APP = ROOT / "dashboard" / "app.py"
SHORT = ("prefill-15m-t128", "decode-15m-c64")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    runs.write_run(results / "runs" / "all")
    return results


@pytest.fixture(scope="module")
def run(home: Path) -> data.Run:
    return data.read_run(home / "runs" / "all")


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`page("comparison", results, run="…")` opens that page of the app on that link."""

    def opened(name: str, results: Path, **link: str) -> AppTest:
        return open_in_app(name, monkeypatch, results, **link)

    yield opened


def links(app: AppTest) -> dict[str, dict[str, list[str]]]:
    """The query of each link, by the page that it leads to; without that to the trust in the run."""
    elsewhere = [link.proto for link in app.get("page_link") if "show=trust" not in link.proto.query_string]
    return {link.page: parse_qs(link.query_string) for link in elsewhere}


# -- processes: the judge's own numbers --------------------------------------------------------------------------------


def test_paired_processes_end_in_the_interval_of_the_verdict(run: data.Run) -> None:
    timed = [(claim, effect) for claim in run.claims for effect in claim.effects if effect.value is not None]
    assert len(timed) > 8
    for claim, effect in timed[:5]:
        sides = effect.workload, effect.variant, effect.baseline
        found = samples.pair(run, *sides, claim.time, claim.alpha, effect.one_sided)
        assert len(found.ratios) == effect.rounds
        assert (found.effect.value, found.effect.low, found.effect.high) == pytest.approx(
            (effect.value, effect.low, effect.high)
        )
        assert (found.lows[-1], found.highs[-1]) == pytest.approx((effect.low, effect.high))
        assert np.all(found.lows[1:] >= found.lows[:-1]) and np.all(found.highs[1:] <= found.highs[:-1])
        assert found.clock == effect.metric.split()[0]


def test_a_dot_is_the_median_of_the_paired_turns_of_its_process(run: data.Run) -> None:
    table = RunFolder(run.path).read_samples().frame()
    here = table[(table["workload"] == "decode-15m-c64") & (table["process"] == 8)]
    call = {
        name: side.set_index("sub_round")["cpu_ns"] / side.set_index("sub_round")["repeats"]
        for name, side in here.groupby("variant", observed=True)
    }
    by_hand = np.exp(np.median(np.log(call["team006_before"] / call["team006_after"])))
    found = samples.pair(run, "decode-15m-c64", "team006_after", "team006_before", "time", 0.01)
    assert found.ratios[7] == pytest.approx(by_hand)


def test_noise_comes_back_from_the_manifest_as_it_was_judged(run: data.Run) -> None:
    written = RunFolder(run.path).read_manifest()["noise"]
    assert plain(TypeAdapter(Noise).validate_python(written)) == {
        "controls": [
            control | {name: pytest.approx(control[name]) for name in ("ratio", "low", "high")}
            for control in written["controls"]
        ],
        "line": written["line"],
    }


def test_samples_of_some_variants_are_those_of_all(tmp_path: Path) -> None:
    run = runs.write_run(tmp_path / "run", only=SHORT, rounds=4, judged=False)
    names = ["yardstick", "team006_after"]
    everybody, some = run.read_samples().frame(), run.read_samples(names).frame()
    expected = everybody[everybody["variant"].isin(names)].reset_index(drop=True)
    for column in expected.columns:
        assert some[column].tolist() == expected[column].tolist()
    all_names = tuple(sorted(everybody["variant"].unique()))
    assert run.timed_together() == dict.fromkeys(SHORT, frozenset([all_names]))
    killed = runs.write_run(tmp_path / "killed", only=SHORT[1:], rounds=4, killed=True)
    with pytest.warns(UserWarning, match="cut off"):
        assert len(killed.read_samples(names).frame()) == 3 * 2 * runs.SUB_ROUNDS
    with pytest.warns(UserWarning, match="cut off"):
        assert set(killed.timed_together()) == {"decode-15m-c64"}


# -- the figure --------------------------------------------------------------------------------------------------------


def a_series(centre: float = 1.02, count: int = 40) -> samples.Paired:
    ratios = centre * np.exp(np.random.default_rng(0).normal(0, 0.01, count))
    lows, highs = np.full(count, 0.0), np.full(count, np.inf)
    lows[20:], highs[20:] = 0.99 * centre, 1.01 * centre
    effect = an_effect(value=centre, low=0.99 * centre, high=1.01 * centre, rounds=count)
    return samples.Paired(
        effect, "cpu", 0.001, ratios, lows, highs, 2e6, 0.0,
    )  # fmt: skip


def test_the_figure_has_a_dot_a_process_and_ends_in_the_interval() -> None:
    series = a_series()
    figure = paired_rounds.paired_rounds(
        series, look=Word.SUPPORTED.look, claimed="claimed: 1-3 % faster", low=1.01, high=1.03
    )
    by_name = {trace.name: trace for trace in figure.data if trace.name}
    assert list(by_name["one process"].y) == series.ratios.tolist()
    assert len(by_name["interval so far"].x) == 20, "before the first look there is no interval to draw"
    last = by_name["after 40 processes"]
    assert last.x[0] > 40
    assert last.y[0] + last.error_y.array[0] == pytest.approx(series.effect.high)
    assert last.y[0] - last.error_y.arrayminus[0] == pytest.approx(series.effect.low)
    [region] = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert (region.y0, region.y1) == pytest.approx((1.01, 1.03))
    [median] = [shape for shape in figure.layout.shapes if shape.name == "median of the processes"]
    assert median.y0 == median.y1 == pytest.approx(np.median(series.ratios))
    low, high = (10**end for end in figure.layout.yaxis.range)
    assert low < min(1, series.ratios.min()) and series.ratios.max() < high
    assert "log scale" in figure.layout.yaxis.title.text and "process" in figure.layout.xaxis.title.text


def test_few_rounds_are_drawn_without_an_interval() -> None:
    none = np.empty(0)
    few = a_series(count=3)
    few = replace(few, lows=np.zeros(3), highs=np.full(3, np.inf), effect=replace(few.effect, **OPEN))
    figure = paired_rounds.paired_rounds(few)
    assert "interval so far" not in {trace.name for trace in figure.data}
    assert "[no interval yet]" in paired_rounds.in_words(few)
    with pytest.raises(ValueError, match="no processes"):
        paired_rounds.paired_rounds(replace(few, ratios=none))


# -- in plain words ----------------------------------------------------------------------------------------------------


def a_run(**floors: data.Floor) -> data.Run:
    return data.Run(Path(), Manifest(alpha=0.01), (), floors, {}, {}, (), ())


def test_how_sure_a_claim_is_names_its_confidence_its_processes_and_what_identical_code_did() -> None:
    effects = [
        an_effect("a", value=1.02, low=1.01, high=1.03),
        an_effect("b", value=0.9, low=0.8, high=0.95, rounds=90),
    ]
    sure = outcomes.certainty(a_run(a=data.Floor(1.02, 0.99, 1.05, 30, False)), a_claim(*effects))
    assert "Each interval holds with 99 % confidence" in sure and "Processes: 84 to 90" in sure
    assert "On these workloads identical code came out within 2 % of 1 (widest interval ±3 %)." in sure


def test_what_was_counted_is_exact_and_what_was_not_measured_has_no_number() -> None:
    counted = an_effect("", unit="lines", value=76.0, low=76.0, high=76.0, baseline="", metric="lines", rounds=1)
    claim = a_claim(counted, claimed="at most 60 lines", low=None, high=60.0)
    assert outcomes.sentence(claim) == "TEAM-005 claimed at most 60 lines; measured: 76 lines."
    assert outcomes.certainty(a_run(), claim).startswith("Exact")
    nothing = a_claim(an_effect(value=None, low=None, high=None, rounds=0), verdict="inconclusive")
    assert outcomes.sentence(nothing) == "TEAM-005 claimed 2-3x; not measured."


# -- gates and traces --------------------------------------------------------------------------------------------------


def test_traces_are_compared_by_words_or_by_digest(tmp_path: Path) -> None:
    folder = runs.write_run(tmp_path / "run", only=["decode-15m-c64"], rounds=12)
    content = folder.read_manifest()
    content["experiments"][0]["trace_differences"] = [
        {
            "baseline": "team006_before",
            "variant": "team006_after",
            "same": False,
            "detail": "op 64 of 400 / 398: full.default([8, 8], -inf) against add.Tensor(x, 2)",
            "counts": [["full.default", 2, 0]],
        }
    ]
    folder.write_json("run.json", content)
    run = data.read_run(folder.path)
    there = outcomes.traces(run, "decode-15m-c64", "team006_before", "team006_after")
    back = outcomes.traces(run, "decode-15m-c64", "team006_after", "team006_before")
    assert there.state == back.state == "differ"
    assert there.rows[-1] == ("first that differs: number 64", "full.default([8, 8], -inf)", "add.Tensor(x, 2)")
    assert back.rows[-1][1:] == there.rows[-1][:0:-1]
    assert (there.counts, back.counts) == ((("full.default", 2, 0),), (("full.default", 0, 2),))
    assert outcomes.traces(run, "decode-15m-c64", "team005_hybrid", "team005_proposal").state == "the same"
    assert outcomes.traces(run, "decode-15m-c64", "team005_hybrid", "nobody").state == "not compared"


# -- Verdicts ----------------------------------------------------------------------------------------------------------


def titles(app: AppTest) -> list[str]:
    """Of a claim with several parts those, else the claim's own."""
    rows = strips(app)["claims"]["rows"]
    return [part["title"] if len(row["parts"]) > 1 else row["title"] for row in rows for part in row["parts"]]


def test_a_long_list_is_filtered_by_the_link(page: Any, tmp_path: Path) -> None:
    more = [runs.a_claim(f"more-{k}", {"workloads": ["decode-15m-c64"], "ratio": [2, 3]}) for k in range(4)]
    runs.write_run(tmp_path / "runs" / "one", rounds=24, claims=[*runs.CLAIMS, *more], only=SHORT)
    app = page("answer", tmp_path)
    assert len(titles(app)) == 11
    app = page("answer", tmp_path, search="more- decode")
    assert [title.split()[-2:] for title in titles(app)] == [["more", str(k)] for k in range(4)]
    app = page("answer", tmp_path, verdict="not measurable here", claim="gpu-kernels")
    assert {row["look"]["word"] for row in strips(app)["claims"]["rows"]} == {"Not measurable here"}
    assert any(title.startswith("gpu") for title in titles(app))
    app.text_input(key="search").set_value("refactor").run()
    assert app.query_params["search"] == "refactor"
    assert "No claim of this run is like that." in everything(app)
    app.button_group(key="verdict").set_value([]).run()
    assert "verdict" not in app.query_params
    assert titles(app)[0].startswith("refactor")


# -- Claim -------------------------------------------------------------------------------------------------------------


@pytest.mark.whole
def test_the_bundle_of_a_claim_about_times(page: Any, home: Path) -> None:
    folded = page("claim", home, run="all", claim="mask-caching-helps")
    assert len(alts(folded)) == 1, "figures far below the answer wait until they are opened"
    app = page("claim", home, run="all", claim="mask-caching-helps", **UNFOLDED)
    assert not app.exception and not app.warning
    text = everything(app)
    assert app.title[0].value == "Comparison"
    assert "TEAM-005 and TEAM-006 claimed more than 1 % faster; measured: " in text
    assert "pytest --benchmark --claims mask-caching-helps" in text
    assert "A document, A section" in text and "By timing both sides in the same rounds." in text
    assert "Simulated CPU (AVX2), 2 cores, 1 thread, torch 2.13.0+cpu" in text
    assert "Each interval holds with 99.5 % confidence" in text
    assert "pass (error 1.0e-06 of 1.0e-04)" in text
    told = alts(app)
    assert told[0].startswith("Speed-up per workload")
    assert told[1].startswith("Times of a call by process: team006_before ") and " of 40 processes" in told[1]
    assert told[2].startswith("Paired times of team006_after against team006_before on prefill-15m-t128: 40 processes")
    assert any("team006_after 3.05 MiB" in one for one in told)
    others = [parse_qs(link.proto.query_string).get("claim") for link in app.get("page_link")]
    assert "Claims on these two" in text and ["mask-caching-6-11"] in others and ["mask-caching-helps"] not in others
    assert "No claim says anything of this pair" not in text


def test_choosing_a_claim_and_a_row_writes_the_link(page: Any, home: Path) -> None:
    app = page("claim", home, run="all", claim="mask-caching-6-11", part="whole prefill", row="2", **UNFOLDED)
    assert app.selectbox(key="row").value == "2"
    assert "on prefill-7b-1layer-t128" in next(told for told in alts(app) if told.startswith("Paired times"))
    app.selectbox(key="row").set_value("1").run()
    assert app.query_params["row"] == "1"
    first = app.selectbox(key="claim").options.index(app.selectbox(key="claim").options[0])
    app.selectbox(key="claim").set_value(first).run()
    assert app.query_params["claim"] == "refactor-2x-3x"
    assert "part" not in app.query_params and "row" not in app.query_params, "of another claim they mean nothing"
    assert "has no claim gone" in page("claim", home, run="all", claim="gone").warning[0].value


@pytest.mark.whole
def test_without_profiles_and_memory_the_command_that_makes_them(page: Any, home: Path) -> None:
    text = everything(page("claim", home, run="all", claim="mask-caching-helps", row="2", **UNFOLDED))
    assert "This run has no profiles" in text and "This run has no memory measurements" in text
    assert "pytest --benchmark --profile --workloads prefill-7b-1layer-t128" in text


@pytest.mark.whole
def test_a_side_without_a_profile_says_why(page: Any, home: Path) -> None:
    text = everything(page("claim", home, run="all", claim="single-file-faster", **UNFOLDED))
    assert "py-spy may not attach to other processes here" in text
    assert "team005_hybrid: the memory pass ran into its time limit" in text


def test_a_verdict_that_is_no_evidence_says_why(page: Any, tmp_path: Path) -> None:
    broken = {"passed": False, "cases": 6, "max_error": 0.3, "tolerance": 1e-4, "detail": "row 3"}
    run = runs.write_run(tmp_path / "runs" / "one", rounds=12, only=["decode-15m-c64"])
    content = run.read_manifest()
    content["experiments"][0]["gates"]["team005_proposal"] = broken
    run.write_json("run.json", content)
    verdicts = run.records("verdicts.json")
    verdicts[0] |= {"verdict": "not evidence", "reason": "team005_proposal fails the logits gate"}
    verdicts[0]["effects"] = [verdicts[0]["effects"][-1] | {"verdict": "not evidence", "ratio": None}]
    run.write_json("verdicts.json", verdicts)
    text = everything(page("claim", tmp_path))
    assert "Not evidence:" in text and "team005_proposal fails the logits gate" in text
    assert "fail (error 3.0e-01 of 1.0e-04)" in text and "pass (error 1.0e-06 of 1.0e-04)" in text


READINGS = (
    runs.a_claim("a-count", {"metric": "count", "quantity": "lines", "at_most": 60}),
    runs.a_claim("a-share", {"metric": "share", "workloads": ["prefill-15m-t128"], "phases": ["qkv"], "of": "layer"}),
    runs.a_claim("a-trend", {"metric": "trend", "workloads": list(SHORT), "above": 1}),
)


def reading(claim: str, **effect: Any) -> dict[str, Any]:
    """A verdict about one value, in the form of verdicts.json."""
    common = {"variant": "team006_after", "baseline": "", "rounds": 12, "seconds": 1.0, "verdict": "refuted"}
    row = common | {"workload": "", "metric": claim, "unit": "%", "low": 41.0, "high": 44.0, "notes": []} | effect
    return {
        "claim": claim, "part": None, "who": ["TEAM-006"], "title": claim, "statement": "", "verdict": "refuted",
        "reason": "outside the claimed range", "alpha": 0.001, "claimed": "58-64 %", "region": {"low": 58, "high": 64},
        "effects": [row],
    }  # fmt: skip


@pytest.mark.whole
def test_readings_say_what_was_read_and_which_page_shows_it(page: Any, tmp_path: Path) -> None:
    run = runs.write_run(tmp_path / "runs" / "one", rounds=24, only=SHORT, judged=False)
    run.write_json("claims.json", READINGS)
    run.write_json(
        "verdicts.json",
        [
            reading("a-count", value=76.0, low=76.0, high=76.0, unit="lines", rounds=1),
            reading("a-share", value=42.0, workload="prefill-15m-t128"),
            reading("a-trend", value=3.0, workload=" to ".join(SHORT), baseline="team006_before"),
        ],
    )
    detail = f"76 lines in {HOSTILE}"
    subject = {"metric": "count", "quantity": "lines", "workload": "", "variant": "team006_after", "baseline": ""}
    run.write_json("findings.json", [subject | {"value": 76, "count": 1, "detail": detail, "reason": ""}])
    counted = page("claim", tmp_path, claim="a-count")
    assert detail in everything(counted) and not links(counted)
    share = page("claim", tmp_path, claim="a-share", **UNFOLDED)
    assert links(share) == {"explore": {"run": ["one"], "show": ["time"], "workload": ["prefill-15m-t128"]}}
    assert "qkv" in everything(share) and not any("Paired times" in told for told in alts(share))
    trend = page("claim", tmp_path, claim="a-trend", row="2", **UNFOLDED)
    assert "explore" not in links(trend), "the page itself has the gain at each workload"
    assert any(told.startswith("Paired times") and "decode-15m-c64" in told for told in alts(trend))
    for app in (counted, share, trend):
        assert not app.exception
    (run.path / "findings.json").write_text("{")
    broken = page("claim", tmp_path, claim="a-count")
    assert not broken.exception and "findings.json: not JSON" in everything(broken)


def test_damaged_samples_take_only_the_rounds_away(page: Any, tmp_path: Path) -> None:
    run = runs.write_run(tmp_path / "runs" / "one", rounds=12, only=SHORT)
    path = run.path / "samples.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * 296 + whole[300:])
    with pytest.raises(RunError, match=r"samples\.parquet"):
        samples.pair(data.read_run(run.path), "decode-15m-c64", "team006_after", "team006_before", "time", 0.01)
    app = page("claim", tmp_path, **UNFOLDED)
    assert not app.exception
    assert "The processes cannot be shown" in everything(app) and "samples.parquet: damaged" in everything(app)


# -- Compare -----------------------------------------------------------------------------------------------------------


def test_a_condition_is_answered_and_can_be_measured_again(page: Any, tmp_path: Path) -> None:
    pair = ("team006_before", "team006_after")
    run = runs.write_run(tmp_path / "runs" / "one", compare=pair, only=SHORT, manifest={"fail_if": ["slower:50"]})
    run.write_json("verdicts.json", rejudge(run)[0])
    app = page("claim", tmp_path, claim="fail-if", part="slower:50")
    assert not app.exception
    text = everything(app)
    assert f"{pair[1]} is more than 50 % slower than {pair[0]}. Measured: " in text
    assert any("asked: more than 50 % slower" in told for told in alts(app)) and "laimed: " not in text
    assert f"--compare {pair[0]} {pair[1]} --workloads {','.join(SHORT)} --fail-if slower:50" in text


def test_a_generation_is_also_told_in_tokens_per_second(page: Any, tmp_path: Path) -> None:
    run = runs.write_run(tmp_path / "runs" / "one", rounds=12, only=SHORT)
    link = {"claim": "mask-caching-helps"}
    table = page("claim", tmp_path, **link).dataframe[0]
    assert not [column for column in table.value if "tokens/s" in column]
    manifest = run.read_manifest()
    manifest["experiments"][0]["workload"] |= {"new_tokens": 16, "batch": 2}
    run.write_json("run.json", manifest)
    table = page("claim", tmp_path, **link).dataframe[0]
    [row] = [each for _, each in table.value.iterrows() if each["workload"].startswith("prefill, 2 × ")]
    assert row["variant, tokens/s"] == pytest.approx(32 / (row["variant, here"] / 1e3))
    assert row["baseline, tokens/s"] == pytest.approx(32 / (row["baseline, here"] / 1e3))


def test_where_both_sides_do_different_work_the_ratio_is_no_evidence(page: Any, home: Path) -> None:
    text = everything(page("claim", home, run="all", claim="mask-caching-helps"))
    assert "The op traces differ on prefill, 128 tokens, 15M" in text and "no evidence on architecture" in text
    assert "It holds for this machine in this state only" in text
