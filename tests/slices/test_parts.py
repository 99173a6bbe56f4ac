"""Shares of parts that were timed alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from llama_workbench import ROOT
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.evidence.evidence import Evidence
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import Request
from llama_workbench.harness.slices.parts.metric import METRIC, PartsHypothesis
from llama_workbench.harness.spec.sample import Sample
from tests.tables import table_of

TIMES = {"a-t8": 60.0, "b-t8": 20.0, "a-t32": 300.0, "b-t32": 100.0, "c-t32": 600.0}
SHARE = {"metric": "share_of_parts", "variant": "new", "baseline": "old", "workloads": [*TIMES], "range": [20, 80]}


def evidence(rounds: int = 15, **more) -> Evidence:
    random = np.random.default_rng(1)
    rows = [
        Sample(variant, 0, 0, 1, 1, ns := int(micros * 1e3 * scale * random.lognormal(0, 0.01)), ns, 0)._asdict()
        | {"workload": name, "process": number + 1, "round": number}
        for name, micros in TIMES.items()
        for number in range(rounds)
        for variant, scale in (("new", 1.0), ("old", 2.0))
    ]
    sizes = {name: float(name.partition("-t")[2]) for name in TIMES}
    measured = dict.fromkeys(TIMES, ("new", "old"))
    return Evidence(table_of(pd.DataFrame(rows)), **{"measured": measured, "sizes": sizes, **more})


def judged(found: Evidence, **more):
    part = PartsHypothesis.model_validate(SHARE | {"top": ["a-t8", "a-t32"]} | more)
    return METRIC.judge(part, found, alpha=0.01)


def test_a_share_is_of_the_parts_of_its_own_length_and_the_verdict_of_every_length() -> None:
    short, long = judged(evidence()).effects
    assert short.low < 75 < short.high < short.low + 5 and long.low < 30 < long.high < long.low + 5
    assert (short.rounds, short.unit, short.verdict, long.verdict) == (15, "%", "supported", "supported")
    assert short.notes[0] == "of a-t8, b-t8" and short.notes[1].startswith("old: 7")
    assert judged(evidence(), range=[40, 80]).verdict == "depends"
    assert judged(evidence(), range=[90, 95]).verdict == "refuted"
    assert judged(evidence(rounds=5)).verdict == "inconclusive"


def test_a_sum_without_one_of_its_parts_is_none() -> None:
    gone = judged(evidence(measured=dict.fromkeys([*TIMES][1:], ("new", "old"))))
    assert gone.verdict == "not measurable here" and "not in this run: a-t8" in gone.reason
    wrong = judged(evidence(unusable={("c-t32", "new"): "not installed"}), top=["a-t32"])
    assert wrong.effects[0].rounds == 0 and "new: not installed" in wrong.reason
    with pytest.raises(ValueError, match="top names x, which workloads does not"):
        PartsHypothesis.model_validate(SHARE | {"top": ["x"]})


def test_the_shipped_ones_are_planned_whole_or_not_at_all() -> None:
    claims = [claim for claim in load_claims(ROOT / "claims") if claim.id == "qkv-61"]
    plan = make_plan(Request(claims=("qkv-61",)), claims)
    [part] = [part for part in plan.claims[0].hypothesis if part.metric == "share_of_parts"]
    assert {each.workload for each in plan.comparisons()} == set(part.workload_names())
    cut = make_plan(Request(claims=("qkv-61",), workloads=("qkv-t128", "prefill-15m-t128")), claims)
    assert all(part.metric != "share_of_parts" for part in cut.claims[0].hypothesis)
