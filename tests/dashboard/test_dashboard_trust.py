"""Trust: what is made of samples and controls, their pictures, and the page by AppTest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")

from streamlit.testing.v1 import AppTest

from llama_workbench.dashboard.export.svg import forest_svg
from llama_workbench.dashboard.sections import trust as noise
from llama_workbench.dashboard.views import data, forest
from llama_workbench.harness.report.outcome import trust_of
from llama_workbench.harness.store.schema import Control, Manifest, Noise
from llama_workbench.harness.store.tables import COLUMNS
from tests import runs
from tests.dashboard_pages import UNFOLDED, alts, everything, open_in_app
from tests.tables import table_of
from tests.verdicts import an_effect


def samples(*, rounds: int = 40) -> pd.DataFrame:
    """Four variants in random order."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(rounds):
        slow = rng.lognormal(0, 0.2)
        for sub_round in range(3):
            for position, variant in enumerate(rng.permutation(4)):
                ns = int(1e6 * (1 + variant) * slow * rng.lognormal(0, 0.01))
                rows.append(["w", f"v{variant}", number + 1, number, sub_round, position, 8, 2, ns, 2 * ns, 0, 0, 0])
    names = ["workload", "variant", "process", "round", "sub_round", "position", "tokens", "repeats"]
    names += ["cpu_ns", "wall_ns", "faults", "first_cpu_ns", "first_wall_ns"]
    return (
        pd.DataFrame(rows, columns=names)
        .reindex(columns=list(COLUMNS), fill_value=0)
        .astype({"workload": "category", "variant": "category"})
    )


def a_control(
    workload: str, low: float | None, high: float | None, *, kind: str = "aa", fired: bool = False
) -> Control:
    ends = math.log(low) if low else -math.inf, math.log(high) if high else math.inf
    return Control(workload, kind, f"v@{kind}", 0.0, *ends, 24, fired)


# -- samples -----------------------------------------------------------------------------------------------------------


def test_rounds_have_the_time_of_a_call_by_the_workload_s_clock() -> None:
    table = samples(rounds=2)
    cpu, wall = (noise.aggregate(table_of(table), {"w": clock}).rounds for clock in ("cpu", "wall"))
    assert (wall["ns"] == 2 * cpu["ns"]).all()
    one = table[(table["variant"] == "v0") & (table["round"] == 0)]
    row = cpu[(cpu["variant"] == "v0") & (cpu["round"] == 0)].iloc[0]
    assert row["ns"] == one["cpu_ns"].median() / 2
    assert cpu.groupby("round")["seconds"].min().is_monotonic_increasing


def test_a_median_has_an_interval_once_there_are_rounds_enough() -> None:
    found = noise.median_ns(noise.aggregate(table_of(samples()), {}), "w", "v1")
    assert found and found.low < found.centre < found.high < 2 * found.centre
    few = noise.median_ns(noise.aggregate(table_of(samples(rounds=3)), {}), "w", "v1")
    assert few and (few.low, few.high) == (0.0, np.inf)
    assert noise.median_ns(noise.aggregate(table_of(samples(rounds=3)), {}), "w", "other") is None


def test_drift_takes_the_reference_benchmark_and_elsewhere_the_baseline() -> None:
    table = samples()
    assert set(noise.drift(noise.aggregate(table_of(table), {}), {"w": "v2"})["variant"]) == {"v2"}
    named = table.assign(variant=table["variant"].cat.rename_categories({"v3": "yardstick"}))
    found = noise.drift(noise.aggregate(table_of(named), {}), {"w": "v2"})
    assert set(found["variant"]) == {"yardstick"} and len(found) == 40
    assert found["relative"].median() == pytest.approx(1) and found["seconds"].is_monotonic_increasing
    figure = noise.drift_figure(found)
    assert len(figure.data[0].x) == 40 and len(figure.data[1].x) == 4
    assert "[%]" in figure.layout.yaxis.title.text and "40 rounds" in noise.drift_text(found)


# -- controls ----------------------------------------------------------------------------------------------------------


def test_the_self_check_says_in_how_many_controls_the_same_code_showed_no_difference() -> None:
    passed, open_, fired = a_control("w", 0.99, 1.01), a_control("w", None, None), a_control("w", 1.02, 1.3, fired=True)
    assert trust_of(Noise((passed,), "")).sentence.startswith(
        "Trusted. Identical code: no difference found in 1 check;"
    )
    in_part = trust_of(Noise((passed, fired, open_), ""))
    assert in_part.word == "Trusted in part" and "in 2 checks a difference was found: v@aa on w" in in_part.finding
    assert in_part.finding.endswith("1 more had too few rounds") and in_part.means.startswith(
        "On 1 workload a verdict "
    )
    assert in_part.short == "identical code differed on 1 workload"
    together = trust_of(Noise((passed, passed), "", typical=0.0024))
    assert together.short == "identical code differed by 0.24 %"
    assert together.word == "Trusted in part", "no check fired alone, and a verdict is held against what they show"
    assert "2 checks together show a difference, typically 0.24 %" in together.finding
    assert together.means == "A verdict counts only if it survives twice that difference."
    assert (
        trust_of(Noise((open_,), "")).word == "Trust not known" and "too few" in trust_of(Noise((open_,), "")).finding
    )
    assert trust_of(Noise((), "")).word == "Not checked"
    assert trust_of(Noise((passed,), "As the terminal has it")).finding == "As the terminal has it"


def test_the_sentence_counts_what_could_have_been_seen() -> None:
    found = [
        a_control("fine", 0.995, 1.005),
        a_control("fine", 0.98, 1.03, kind="copy"),
        a_control("good", 0.992, 1.008),
        a_control("open", None, None),
        a_control("bad", 1.02, 1.3, fired=True),
    ]
    sizes = [noise.smallest(control) for control in found]
    assert sizes[1:3] == pytest.approx([0.0252, 0.008], abs=1e-4) and math.isinf(sizes[3])
    assert trust_of(Noise(tuple(found), "")).finding.startswith("Identical code: in 4 checks a difference was found: ")
    ends = {"a": (0.99, 1.01), "b": (0.9, 1.1), "c": (None, None)}
    effects = tuple(an_effect(workload=name, low=low, high=high) for name, (low, high) in ends.items())
    again = an_effect(workload="a", low=0.995, high=1.005), an_effect(workload="d", unit="%", low=1.0, high=2.0)
    claims = [data.figure("One", 0.01, effects), data.figure("Two", 0.01, again)]
    assert noise.could_see(claims) == (
        "Half of 2 comparisons are known within ±5.5 %, all within ±11 %. "
        "Where an interval cannot tell, the verdict is inconclusive."
    )
    one = noise.could_see([replace(claims[0], effects=effects[:1])])
    assert one == "The comparison is known within ±1 %. Where an interval cannot tell, the verdict is inconclusive."
    assert noise.could_see([]) == ""


def test_the_forest_says_in_words_what_fired_and_draws_no_open_interval() -> None:
    found = (
        a_control("good", 0.99, 1.01, kind="copy"),
        a_control("o", None, None),
        a_control("bad", 1.02, 1.3, fired=True),
    )
    run = data.Run(Path("run"), Manifest(), (), {}, {}, {}, (), (), noise=Noise(controls=found))
    shown = noise.controls_as_claim(run)
    svg = forest_svg(shown, {}, heading="")
    assert len({look.symbol for look in forest.forest(shown, {}).looks}) == 2
    assert "v@copy: a difference of 1 % could have been seen" in svg
    for name in ("fired", "passed", "bad", "good", "entered twice", "identical copy"):
        assert f">{name}</text>" in svg
    assert ">o</text>" not in svg
    said = forest.in_words(shown, {})
    assert "bad against entered twice: 1.000× [1.020, 1.300], fired" in said and "identical copy" in said
    assert not noise.controls_as_claim(replace(run, noise=Noise())).effects


# -- the page ----------------------------------------------------------------------------------------------------------

Opener = Callable[..., AppTest]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    yield lambda *results, **link: open_in_app("trust", monkeypatch, *results, **link)


@pytest.mark.whole
def test_the_page_tells_how_far_a_run_can_be_trusted(page: Opener, tmp_path: Path) -> None:
    runs.write_run(tmp_path / "runs" / "one", rounds=30)
    app = page(tmp_path, run="one")
    assert not app.exception
    text = everything(app)
    assert app.header[0].value == "Trusted" and "no difference found in 7 checks" in text
    assert "comparisons are known within ±" in text and "widest interval ±" in text
    assert "120 rounds of the same code" in text and "samples." in text
    assert "variants passed on every workload they ran" in text
    assert "MALLOC_MMAP_THRESHOLD_ = 1073741824" in text and "docs/concepts/statistics.md" in text
    assert len(alts(app)) == 1 and len(alts(page(tmp_path, run="one", **UNFOLDED))) == 2


def test_a_damaged_run_is_shown_as_far_as_it_goes(page: Opener, tmp_path: Path) -> None:
    run = runs.write_run(tmp_path / "runs" / "one", rounds=30)
    manifest = run.read_manifest()
    twice = pq.read_table(run.path / "samples.parquet")
    pq.write_table(pa.concat_tables([twice, twice]), run.path / "samples.parquet")
    run.write_json("run.json", manifest | {"environment": {}})
    app = page(tmp_path)
    assert not app.exception
    assert "samples.parquet" in everything(app) and "cannot be read here" in everything(app)
