"""From a request to experiments."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from llama_workbench import ROOT, variants
from llama_workbench.datasets import geometries, workloads
from llama_workbench.datasets.geometries import DataError, Geometry
from llama_workbench.harness.claims.model import ClaimError
from llama_workbench.harness.claims.reading import load_claims, load_dispute, select
from llama_workbench.harness.metrics.time import TimeHypothesis
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import PlanError, Request
from llama_workbench.harness.spec.dispute import Dispute, MainQuestion
from llama_workbench.harness.spec.experiments import without

CLAIMS = load_claims(ROOT / "claims")
OUTSIDE = f"{ROOT / 'tests' / 'outside_variants.py'}"


@pytest.mark.whole
def test_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "missing", lambda name: None)
    plan = make_plan(Request(everything=True), CLAIMS)
    assert plan.mode == "claims"
    assert len(plan.claims) == len(CLAIMS)
    wanted = {comparison for claim in CLAIMS for comparison in claim.comparisons()}
    assert set(plan.comparisons()) == wanted


@pytest.mark.whole
def test_every_claim_that_ships_names_variants_and_workloads_that_exist():
    for claim in CLAIMS:
        for name in claim.names():
            variants.get(name)
        for name in claim.workloads():
            workloads.get(name)


def test_one_experiment_a_workload_serves_all_claims():
    plan = make_plan(Request(), CLAIMS)
    names = [experiment.workload.name for experiment in plan.experiments]
    assert len(names) == len(set(names))


@pytest.mark.whole
def test_what_the_first_screen_asks_for_is_wanted_to_a_percent():
    plan = make_plan(Request(), CLAIMS, dispute=load_dispute())
    targets = [(each.workload, target) for each in plan.experiments for target in each.targets]
    asked = [(workload, target) for workload, target in targets if target.question]
    assert {target.precision for workload, target in asked if workload.kind == "prefill"} == {0.01}
    assert {target.precision for workload, target in asked if workload.kind == "decode"} == {0.02}
    assert {target.precision for _, target in targets if not target.question} == {0.03}
    assert {"single-file-faster", "rope-3x-5x", "integrated-pipeline"} <= {
        target.part.split()[1] for _, target in asked
    }
    split = Dispute(question=(MainQuestion(claim="arch-or-ops", part="operations", text="Which?"),))
    asked_grids = [each for each in make_plan(Request(), CLAIMS, dispute=split).experiments if each.grid_is_asked]
    assert [each.workload.name for each in asked_grids] == ["prefill-15m-t128"]
    here = {(claim.id, part.part) for claim in plan.claims for part in claim.hypothesis}
    for question in plan.dispute.question:
        beside = {(each.claim, each.part) for each in question.beside if each.claim == question.claim}
        forms = beside | {(question.claim, question.part)}
        assert forms & here, "every question has a number after `make bench`"
    assert not any(target.question for each in make_plan(Request(), CLAIMS).experiments for target in each.targets)


@pytest.mark.whole
def test_where_nobody_can_measure_what_is_asked_the_form_beside_it_is_asked_for():
    """`make bench` on a fresh machine has no Candle, and the full prefill is measured at 7B width alone."""
    plan = make_plan(Request(), CLAIMS, dispute=load_dispute())
    asked = [(claim.id, part.part) for claim in plan.claims for part in claim.hypothesis if plan.asks(claim, part)]
    of_masks = {part for claim, part in asked if claim == "mask-caching-6-11"}
    assert of_masks == {"micro-op (create + apply)", "whole prefill, 7B width"}
    questions = {question.claim for question in plan.dispute.question}
    assert {claim for claim, _ in asked} <= questions and len(asked) >= len(questions) - 1


def test_the_sides_of_both_headlines_are_profiled():
    assert make_plan(Request(), CLAIMS, dispute=load_dispute()).profiled_headlines() == [
        *product(("prefill-15m-t8", "prefill-15m-t128"), ("team005_integrated", "team006_before")),
        *product(("prefill-7b-1layer-t8", "prefill-7b-1layer-t128"), ("team006_after", "team006_before")),
    ]
    assert make_plan(Request(), CLAIMS).profiled_headlines() == []


def test_controls_ride_along():
    for experiment in make_plan(Request(), CLAIMS).experiments:
        if not (experiment.targets or experiment.grid):
            continue  # nothing of it is timed
        assert f"{experiment.baseline}@aa" in experiment.controls
        if experiment.workload.kind != "component":
            assert "yardstick" in experiment.entered()
    assert any(name.endswith("@copy") for e in make_plan(Request(), CLAIMS).experiments for name in e.controls)


def test_claims_about_architecture_alone_compare_presets_that_differ_on_one_axis():
    for claim in CLAIMS:
        for hypothesis in claim.hypothesis:
            if not isinstance(hypothesis, TimeHypothesis) or hypothesis.evidence != "architecture":
                continue
            ours = variants.get(hypothesis.variant).factors
            for baseline in hypothesis.baseline:
                theirs = variants.get(baseline).factors
                changed = {axis for axis in ours if ours[axis] != theirs[axis]}
                assert len(changed) == 1 and changed <= {"layout", "granularity", "cache"}, (claim.id, changed)


def test_a_claim_can_be_tried_on_a_workload_it_does_not_list():
    plan = make_plan(Request(claims=("single-file-faster",), workloads=("prefill-110m-t128",)), CLAIMS)
    assert [experiment.workload.name for experiment in plan.experiments] == ["prefill-110m-t128"]
    assert plan.claims[0].workloads() == ("prefill-110m-t128",)


def test_where_a_part_lists_a_workload_the_others_are_not_asked_there():
    """Several sequences at a time are no matter of workloads with one."""
    plan = make_plan(Request(claims=("already-optimised",), workloads=("prefill-15m-t8", "decode-15m-c64")), CLAIMS)
    assert [(part.part, part.workload_names()) for part in plan.claims[0].hypothesis] == [
        ("one sequence", ("decode-15m-c64",)),
        ("one sequence, projections in the worker's order", ("decode-15m-c64",)),
    ]


@pytest.mark.whole
def test_variants_cut_claims_down_and_the_rest_is_compared_ad_hoc():
    request = Request(variants=("team006_before", "team006_after", "gpt_fast"), workloads=("prefill-15m-t128",))
    plan = make_plan(request, CLAIMS)
    assert {claim.id for claim in plan.claims} == {
        "decision-rule",
        "mask-caching-10-30-overall",
        "mask-caching-6-11",
        "mask-caching-helps",
        "mask-memory",
    }
    assert plan.ad_hoc == (("team006_before", "gpt_fast"),)
    assert set(plan.experiments[0].variants) == {"team006_before", "team006_after", "gpt_fast"}


def test_an_added_variant_joins_the_workloads_of_the_claims():
    plan = make_plan(Request(claims=("single-file-faster",), added=(f"{OUTSIDE}:good",)), CLAIMS)
    assert all("good" in experiment.variants for experiment in plan.experiments)
    assert plan.ad_hoc == (("team005_hybrid", "good"),)


def test_compare_needs_no_claim():
    request = Request(compare=("fast", "good"), added=(f"{OUTSIDE}:good",), workloads=("decode-tiny-c16",))
    plan = make_plan(request, CLAIMS)
    assert (plan.mode, plan.claims, plan.ad_hoc) == ("compare", (), (("fast", "good"),))
    assert plan.experiments[0].variants == ("fast", "good")


def test_a_real_checkpoint_stands_in_for_every_geometry():
    tiny = geometries.get("tiny")
    config = replace(tiny.config, max_position_embeddings=4096)
    real = Geometry("my-llama", config, "mine", "given")
    plan = make_plan(Request(claims=("single-file-faster",)), CLAIMS, checkpoint=real)
    names = [experiment.workload.name for experiment in plan.experiments]
    assert names == ["prefill-my-llama-t8", "prefill-my-llama-t128", "decode-my-llama-c64", "decode-my-llama-c1"]
    assert {experiment.workload.geometry for experiment in plan.experiments} == {"my-llama"}


def test_threads_are_those_asked_for():
    plan = make_plan(Request(claims=("single-file-faster",), threads=2), CLAIMS)
    assert {experiment.workload.threads for experiment in plan.experiments} == {2}
    assert plan.threads == 2


def test_a_workload_on_two_threads_makes_no_other_machine_of_the_rest():
    plan = make_plan(Request(claims=("gain-holds",), everything=True), CLAIMS)
    assert {experiment.workload.threads for experiment in plan.experiments} == {1, 2}
    assert plan.threads == 1


def test_what_fell_out_takes_its_effects_and_controls_along():
    experiment = make_plan(Request(compare=("team006_before", "fast")), CLAIMS).experiments[0]
    left = without(experiment, ["fast"])
    assert left.targets == ()
    assert "fast@copy" not in left.controls
    assert left.variants == ("team006_before",)


@pytest.mark.parametrize(
    ("request_", "error", "said"),
    [
        (Request(variants=("team06_before",)), PlanError, "did you mean team006_before"),
        (Request(compare=("fast", "fats")), PlanError, "did you mean fast"),
        (Request(compare=("fast", "fast")), PlanError, "both sides are the same"),
        (Request(workloads=("prefill-15m-t12",)), DataError, "did you mean .prefill-15m-t"),
        (Request(claims=("single-file-fast",)), ClaimError, "single-file-faster"),
        (Request(added=("nowhere.py:f",)), variants.outside.OutsideVariantError, "no file"),
        (Request(added=(f"{OUTSIDE}:good", f"{OUTSIDE}:good")), PlanError, "exists already"),
        (
            Request(claims=("mask-caching-10-30-overall",), variants=("fast", "candle")),
            PlanError,
            "nothing to measure",
        ),
    ],
)
def test_a_bad_request_is_explained(request_, error, said):
    with pytest.raises(error, match=said):
        make_plan(request_, CLAIMS)


def test_selecting_keeps_the_order_of_the_register():
    assert [claim.id for claim in select(CLAIMS, ["single-file-faster", "call-overhead-negligible"])]
