"""One level for every effect of a report, the same in the measuring loop and in the judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_workbench import ROOT
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.selection import Request
from llama_workbench.harness.rejudge import judge_run
from llama_workbench.harness.run import stopping_rule
from tests.runs import write_run

CLAIMS = load_claims(ROOT / "claims")
WORKLOADS = ("prefill-15m-t128", "decode-15m-c64")


@pytest.mark.parametrize(
    ("request_", "pairs", "effects"),
    [
        (Request(claims=("single-file-faster",), workloads=WORKLOADS), (), 2),
        (
            Request(
                claims=("single-file-faster",),
                workloads=WORKLOADS,
                variants=("team005_hybrid", "team005_proposal", "team006_before", "team006_after"),
            ),
            (("team005_hybrid", "team006_before"), ("team005_hybrid", "team006_after")),
            6,
        ),
        (
            Request(compare=("team006_before", "team006_after"), workloads=WORKLOADS),
            (("team006_before", "team006_after"),),
            2,
        ),
    ],
    ids=["claims", "claims and other pairs", "a pair alone"],
)
def test_loop_and_judge_divide_alpha_among_all_effects(
    request_: Request, pairs: tuple[tuple[str, str], ...], effects: int, tmp_path: Path
) -> None:
    plan = make_plan(request_, CLAIMS)
    assert plan.ad_hoc == pairs
    run = write_run(
        tmp_path,
        only=WORKLOADS,
        claims=[claim.model_dump(mode="json") for claim in plan.claims],
        judged=False,
        manifest={"ad_hoc": [list(pair) for pair in pairs]},
    )
    verdicts, _ = judge_run(run.read_manifest(), plan.claims, run)
    assert len(verdicts) == len(pairs) + sum(len(claim.hypothesis) for claim in plan.claims)
    assert sum(len(verdict.effects) for verdict in verdicts) == effects
    assert {verdict.alpha for verdict in verdicts} == {0.01 / effects} == {stopping_rule(plan, {}).alpha}


def test_a_pair_that_a_claim_compares_as_well_counts_once(tmp_path: Path) -> None:
    plan = make_plan(Request(claims=("single-file-faster",), workloads=WORKLOADS), CLAIMS)
    run = write_run(
        tmp_path,
        only=WORKLOADS,
        claims=[claim.model_dump(mode="json") for claim in plan.claims],
        judged=False,
        manifest={"ad_hoc": [["team005_proposal", "team005_hybrid"]]},
    )
    verdicts, _ = judge_run(run.read_manifest(), plan.claims, run)
    assert [verdict.alpha for verdict in verdicts] == [0.005, 0.005]
