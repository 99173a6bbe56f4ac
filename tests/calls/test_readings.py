"""Claims about one value instead of two times: how they are written, found out and judged."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from llama_workbench import ROOT
from llama_workbench.harness.claims.model import Claim, ClaimError
from llama_workbench.harness.claims.reading import check_claim, load_claims
from llama_workbench.harness.evidence.evidence import evidence_from_manifest
from llama_workbench.harness.judge.parts import judge_claims
from llama_workbench.harness.metrics.base import subjects
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import Options, PlanError, Request
from llama_workbench.harness.report.markdown import markdown_table
from llama_workbench.harness.report.text import effect_text
from llama_workbench.harness.session import run as session
from llama_workbench.harness.spec.regions import Range
from llama_workbench.harness.store.forms import ExactResult, plain
from llama_workbench.harness.store.schema import manifest_of
from llama_workbench.harness.store.tables import COLUMNS, no_rows
from llama_workbench.harness.store.verdict_schema import Verdict
from tests.tables import table_of

CLAIMS = load_claims(ROOT / "claims")


def a_claim(**hypothesis: Any) -> Claim:
    table = {
        "id": "c",
        "title": "t",
        "who": ["TEAM-1"],
        "source": [{"document": "d", "section": "s"}],
        "statement": "s",
        "assumes": [],
        "decided_by": "d",
        "hypothesis": [hypothesis],
    }
    return check_claim(table, "c.toml")


def judged(*results: ExactResult, samples: pd.DataFrame | None = None, **hypothesis: Any) -> Verdict:
    names = ("a", "b", "c")
    manifest = {
        "experiments": [
            {"workload": {"name": name, "kind": "prefill", "tokens": 8 * 4**index}, "variants": ["new", "old"]}
            for index, name in enumerate(names)
        ]
    }
    passes = {result.metric: {result.subject: result} for result in results}
    evidence = evidence_from_manifest(
        manifest_of(manifest), no_rows(COLUMNS) if samples is None else table_of(samples), passes=passes
    )
    [verdict] = judge_claims([a_claim(**hypothesis)], evidence)
    return verdict


# -- how they are written ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hypothesis", "problem"),
    [
        ({"metric": "count", "quantity": "lines"}, "hypothesis[0].variant is missing, expected a name of letters"),
        ({"metric": "count", "quantity": "lines", "variant": "v"}, "exactly one of range, above, at_most; found none"),
        (
            {"metric": "share", "variant": "v", "workloads": ["w"], "above": 1},
            "hypothesis[0].phases is missing, expected a list of one or more phases without repeats",
        ),
        (
            {"metric": "share", "variant": "v", "workloads": ["w"], "above": 1, "phases": ["mlp"], "of": "attention"},
            'mlp is no phase of "attention", which has qkv, rope',
        ),
        (
            {"metric": "share", "variant": "v", "workloads": ["w"], "above": 1, "phases": ["mlp"], "of": "whole"},
            'of = "whole" is no denominator; there are forward, layer',
        ),
        (
            {"metric": "trend", "variant": "v", "baseline": "u", "workloads": ["w"], "above": 1},
            "workloads = ['w'], expected a list of two or more names without repeats",
        ),
        ({"metric": "count", "variant": "v", "quantity": "lines", "above": "1"}, "above = '1', expected a number"),
        ({"metric": "counts"}, "did you mean 'count'?"),
    ],
)
@pytest.mark.whole
def test_a_faulty_reading_is_told_with_the_fix(hypothesis: dict[str, Any], problem: str) -> None:
    with pytest.raises(ClaimError) as caught:
        a_claim(**hypothesis)
    assert any(problem in line and line.startswith("c.toml: hypothesis[0]") for line in caught.value.problems), (
        caught.value.problems
    )


def test_every_claim_survives_the_run_folder() -> None:
    for claim in CLAIMS:
        assert Claim.model_validate(claim.stored()) == claim


def test_a_range_says_what_it_allows() -> None:
    assert Range(2, 55, "%").describe() == "2-55 %"
    assert Range(10, math.inf, "%").describe() == "above 10 %"
    assert Range(-math.inf, 60, "lines").describe() == "at most 60 lines"
    assert Range(2, 55, "%").contains(2, 55) and not Range(2, 55, "%").contains(1.9, 3)
    assert Range(2, 55, "%").excludes(56, 57) and not Range(2, 55, "%").excludes(54, 57)
    with pytest.raises(ValueError, match="low <= high"):
        Range(3, 2, "%")


# -- what is planned -----------------------------------------------------------------------------------------------


@pytest.mark.whole
def test_long_parts_are_left_out_unless_named_or_all_is_asked_for() -> None:
    def parts(request: Request) -> int:
        return sum(len(claim.hypothesis) for claim in make_plan(request, CLAIMS).claims)

    quick = sum(bool(hypothesis.quick) for claim in CLAIMS for hypothesis in claim.hypothesis)
    assert parts(Request()) == quick < parts(Request(everything=True))
    named = make_plan(Request(claims=("qkv-61",)), CLAIMS)
    assert len(named.claims[0].hypothesis) == 4


@pytest.mark.whole
def test_a_part_may_be_measured_on_some_of_its_workloads_without_all() -> None:
    [claim] = [claim for claim in CLAIMS if claim.id == "single-file-faster"]
    some, every = ("prefill-15m-t8", "decode-15m-c64"), claim.hypothesis[0].workload_names()
    for request, measured in (
        (Request(), some),
        (Request(everything=True), every),
        (Request(claims=("single-file-faster",)), every),
        (Request(workloads=("decode-7b-1layer-c1",)), ("decode-7b-1layer-c1",)),
    ):
        [planned] = [each for each in make_plan(request, CLAIMS).claims if each.id == "single-file-faster"]
        assert planned.hypothesis[0].workload_names() == measured
        assert planned.hypothesis[0].left_out == (2 if measured == some else 0)
        assert Claim.model_validate(planned.stored()) == planned  # as a run stores it
        said = judge_claims([planned], evidence_from_manifest(manifest_of({"experiments": []}), no_rows(COLUMNS)))[
            0
        ].fewer
        assert said == "on 2 of its 4 workloads; --all has all" * (measured == some)
    table = claim.hypothesis[0].model_dump(exclude_defaults=True) | {"quick": ["prefill-tiny-t16"]}
    with pytest.raises(ClaimError, match="quick names prefill-tiny-t16, which workloads does not"):
        a_claim(**table)
    [trend, *_] = [part for claim in CLAIMS for part in claim.hypothesis if part.metric == "trend"]
    with pytest.raises(ClaimError, match="quick needs at least 2 workloads, has 1"):
        a_claim(**trend.model_dump(exclude_defaults=True) | {"quick": [trend.workload_names()[0]]})


@pytest.mark.whole
def test_a_share_is_planned_as_a_pass_and_takes_no_rounds() -> None:
    plan = make_plan(Request(claims=("fragmentation-10pct",)), CLAIMS)
    assert ("decode-15m-c64", "team006_after") in subjects(plan.hypotheses())
    assert all(not experiment.targets and not experiment.controls for experiment in plan.experiments)
    assert all("team006_after" in experiment.variants for experiment in plan.experiments)


def test_what_the_claims_ask_for_exists() -> None:
    assert not [hypothesis.fault() for claim in CLAIMS for hypothesis in claim.hypothesis if hypothesis.fault()]


# -- how they are judged -------------------------------------------------------------------------------------------


@pytest.mark.whole
def test_a_count_is_judged_by_where_it_lies() -> None:
    def found(value: float) -> ExactResult:
        return ExactResult("count", "lines", "", "fast", "", value, 1)

    asked: dict[str, Any] = {"metric": "count", "quantity": "lines", "variant": "fast", "at_most": 60}
    assert judged(found(60), **asked).verdict == "supported"
    refuted = judged(found(61), **asked)
    assert refuted.verdict == "refuted"
    [effect] = plain(refuted)["effects"]
    assert "ratio" not in effect and effect["value"] == effect["low"] == 61 and effect["unit"] == "lines"
    assert effect_text(refuted.effects[0]) == "61 lines"
    assert "61 lines" in markdown_table([refuted], manifest_of({}))


@pytest.mark.whole
def test_what_nobody_looked_at_is_not_measurable() -> None:
    assert judged(metric="count", quantity="lines", variant="fast", at_most=60).verdict == "not measurable here"
    share = judged(metric="share", variant="old", workloads=["a"], phases=["qkv"], of="forward", above=10)
    assert share.verdict == "not measurable here" and "no phases" in share.reason
    nobody = judged(metric="none", reason="it takes people")
    assert nobody.verdict == "not measurable here" and nobody.reason == "it takes people" and nobody.claimed == ""


def rounds(shifts: dict[str, float], *, count: int = 60, sd: float = 0.004) -> pd.DataFrame:
    """Samples of `old` and `new` on workloads a, b, c; `shifts` is the gain of `new` in log units."""
    rng = np.random.default_rng(3)
    rows = []
    for workload, gain in shifts.items():
        for name, shift in (("old", 0.0), ("new", -gain)):
            for index in range(count):
                ns = round(1e6 * math.exp(shift + rng.normal(0, sd)))
                rows.append((workload, name, index + 1, index, 0, 1, ns, ns, 0))
    columns = ("workload", "variant", "process", "round", "sub_round", "repeats", "cpu_ns", "wall_ns", "faults")
    return pd.DataFrame(rows, columns=list(columns))


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [((0.01, 0.05, 0.09), "supported"), ((0.09, 0.05, 0.01), "refuted"), ((0.03, 0.03, 0.03), "refuted")],
)
def test_a_trend_is_read_off_all_lengths_at_once(gains: tuple[float, ...], verdict: str) -> None:
    asked = {"metric": "trend", "variant": "new", "baseline": "old", "workloads": ["a", "b", "c"], "above": 2}
    found = judged(samples=rounds(dict(zip("abc", gains, strict=True))), **asked)
    assert found.verdict == verdict, found.reason
    [effect] = found.effects
    true = math.expm1(gains[2] - gains[0]) * 100
    assert effect.low < true < effect.high and effect.unit == "% rise" and effect.rounds == 60


def test_a_trend_without_rounds_is_open() -> None:
    found = judged(metric="trend", variant="new", baseline="old", workloads=["a", "b"], above=2)
    assert found.verdict == "inconclusive" and "no rounds" in found.reason


@pytest.mark.whole
def test_shares_of_several_workloads_are_judged_at_alpha_each() -> None:
    sizes = {"metric": "share", "variant": "old", "phases": ["qkv"], "of": "forward", "above": 10}
    claim = a_claim(workloads=["a", "b"], **sizes)
    manifest = {"experiments": [{"workload": {"name": "a"}, "variants": ["old"]}]}
    evidence = evidence_from_manifest(manifest_of(manifest), table_of(rounds({"a": 0.0})))
    [verdict] = judge_claims([claim], evidence)
    assert verdict.alpha == 0.01


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"metric": "memory", "variant": "fast", "quantity": "mask_of_weights"}, 'did you mean "masks_of_weights"'),
        ({"metric": "count", "variant": "fast", "quantity": "commits"}, "there are: lines, "),
        ({"metric": "check", "quantity": "gguf-load"}, 'did you mean "gguf-loads"'),
        ({"metric": "check", "quantity": "like-the-library"}, "need a variant"),
        ({"metric": "check", "quantity": "like-the-library-but-for-chunks"}, "need a variant"),
        ({"metric": "check", "quantity": "gguf-loads", "variant": "fast"}, "no other check has one"),
    ],
)
@pytest.mark.whole
def test_a_quantity_that_nobody_finds_out_is_refused(table: dict[str, object], said: str, tmp_path: Path) -> None:
    text = "\n".join(f"{key} = {json.dumps(value)}" for key, value in table.items())
    more = "" if table["metric"] == "check" else "\nabove = 1"
    more += '\nworkloads = ["prefill-15m-t128"]' if table["metric"] == "memory" else ""
    (tmp_path / "x.toml").write_text(
        'id = "x"\ntitle = "t"\nwho = ["w"]\nsource = [{ document = "d", section = "s" }]\nstatement = "s"\n'
        f'assumes = []\ndecided_by = "d"\n\n[[hypothesis]]\n{text}{more}\n',
        encoding="utf-8",
    )
    with pytest.raises(PlanError, match=re.escape(said)):
        session.plan_run(Request(), Options(run_dir=tmp_path / "run", claims_folder=tmp_path))


# -- arithmetic on what documents state --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantity", "figures", "value", "region", "verdict"),
    [
        ("gain", [9.9, 9.1], 8.791, {"above": 10}, "refuted"),
        ("gain", [2.1, 1.9], 10.526, {"above": 10}, "supported"),
        ("less_time", [9.9, 9.1], 8.081, {"range": [8.85, 8.95]}, "refuted"),
        ("share", [1.9, 107], 1.776, {"above": 5}, "refuted"),
        ("times", [260, 238], 1.092, {"range": [15, 25]}, "refuted"),
        ("gain", [[9.85, 9.95], [9.05, 9.15]], 8.791, {"above": 10}, "refuted"),
        ("gain", [[2.05, 2.15], [1.85, 1.95]], 10.526, {"above": 10}, "inconclusive"),
        ("less_time", [[9.85, 9.95], [9.05, 9.15]], 8.081, {"range": [8.85, 8.95]}, "inconclusive"),
        ("share", [9.2, [85.3, 107]], 9.568, {"range": [5.6, 11.6]}, "supported"),
    ],
)
def test_what_a_document_states_is_computed_and_needs_no_run(quantity, figures, value, region, verdict) -> None:
    claim_of = a_claim(metric="stated", quantity=quantity, figures=figures, **region)
    [judged] = judge_claims([claim_of], evidence_from_manifest(manifest_of({"experiments": []}), no_rows(COLUMNS)))
    [effect] = judged.effects
    assert judged.verdict == verdict and effect.ratio == pytest.approx(value, abs=5e-4)
    texts = [" to ".join(f"{end:g}" for end in (each if isinstance(each, list) else [each])) for each in figures]
    text = f"from {texts[0]} and {texts[1]}"
    assert effect.said == ((effect.reason, text) if verdict == "inconclusive" else (text,))
    assert effect.low <= effect.ratio <= effect.high
    assert (effect.low == effect.high) == all(isinstance(each, float | int) for each in figures)


@pytest.mark.parametrize("figures", [[1], [0, 1], [1, float("inf")], ["one", 2]])
def test_what_is_no_number_is_not_computed_with(figures) -> None:
    with pytest.raises(ClaimError, match="figures"):
        a_claim(metric="stated", quantity="gain", figures=figures, above=10)
