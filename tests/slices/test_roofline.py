"""The roofline: work counted by hand and by torch, samples turned into shares, and the pass for real."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from llama_workbench import ROOT, variants
from llama_workbench.commands.app import main
from llama_workbench.datasets import geometries, workloads
from llama_workbench.harness.claims.model import Claim, ClaimError
from llama_workbench.harness.claims.reading import check_claim
from llama_workbench.harness.evidence.evidence import evidence_from_manifest
from llama_workbench.harness.judge.parts import judge_claims
from llama_workbench.harness.machine.environment import last_level_cache_bytes
from llama_workbench.harness.metrics.base import PassContext
from llama_workbench.harness.metrics.roof import ForwardWork, work_of_call, work_of_forward
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import Options, Request
from llama_workbench.harness.session import run as session
from llama_workbench.harness.slices.roofline import metric as roofline
from llama_workbench.harness.slices.roofline import worker as kernels
from llama_workbench.harness.slices.roofline.metric import ROOFLINE, Reached, least_seconds
from llama_workbench.harness.slices.roofline.report import roofline_markdown
from llama_workbench.harness.slices.roofline.worker import products, weight_bytes
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.forms import plain
from llama_workbench.harness.store.schema import manifest_of
from llama_workbench.harness.store.tables import COLUMNS, no_rows
from llama_workbench.harness.store.verdict_schema import Verdict
from llama_workbench.harness.worker.correctness import small_weights
from tests.runs import Quiet, measurement_of, write_run

pytestmark = pytest.mark.usefixtures("warm")

TINY = geometries.get("tiny").config
OUTSIDE = ROOT / "tests" / "outside_variants.py"

# -- work ------------------------------------------------------------------------------------------------------------


def test_a_forward_is_counted_as_by_hand() -> None:
    """E 64, F 176, two layers, H·D 64, V 512; two sequences of three new tokens after two."""
    keys_and_values = 2 * 3 * 2 * (2 * 64 * 64)
    of_token = 2 * (2 * 64 * 64) + 3 * (2 * 64 * 176)  # q and o; gate, up and down
    first_layer = 3 * of_token + (3 + 4 + 5) * 4 * 64
    last_layer = of_token + 5 * 4 * 64  # of the last token alone
    flops = 2 * (keys_and_values + first_layer + last_layer + 2 * 64 * 512)
    assert flops == 1_008_128
    weights = 2 * (4 * 64 * 64 + 3 * 64 * 176 + 2 * 64) + 64 + 512 * 64  # the embedding is looked up, not read
    cache = 2 * 2 * 2 * 5 * 64  # K and V, layers, sequences, positions
    found = work_of_forward(TINY, tokens=3, positions=5, batch=2, item_bytes=4)
    assert found == ForwardWork(flops, 4 * (weights + cache))
    assert weight_bytes(TINY, item_bytes=4) == 4 * weights
    tied = geometries.get("15m").config
    assert weight_bytes(tied, item_bytes=2) == 2 * geometries.parameter_count(tied)


def counted(name: str, geometry: str, tokens: int, position: int) -> int:
    """FLOPs of one forward of two sequences, by torch."""
    config = geometries.get(geometry).config
    model = variants.get(name).build(config, small_weights(config, torch.float32), max_length=64)
    ids = torch.arange(2 * (position + tokens)).view(2, -1)
    with torch.no_grad():
        if position:
            model.forward(ids[:, :position], 0)
        with FlopCounterMode(display=False) as counter:
            model.forward(ids[:, position:], position)
    return int(counter.get_total_flops())


@pytest.mark.parametrize("geometry", ["tiny", "tiny-gqa"])
def test_torch_counts_the_same(geometry: str) -> None:
    config = geometries.get(geometry).config
    query, layers = config.num_attention_heads * config.head_dim, config.num_hidden_layers

    def ours(tokens: int, position: int) -> int:
        work = work_of_forward(config, tokens=tokens, positions=position + tokens, batch=2, item_bytes=4)
        return work.flops

    # At decode nothing can be left out, so that a model with attention written out does just that.
    assert counted("team006_before", geometry, 1, 17) == ours(1, 17)
    for tokens, position in ((12, 0), (5, 12)):
        # Torch does not count the fused kernel; the rest of `fast` is the least, but for the last layer's fused QKV.
        seen = tokens * position + tokens * (tokens + 1) // 2
        attention = 2 * 4 * query * ((layers - 1) * seen + position + tokens)
        queries = 2 * (tokens - 1) * 2 * config.hidden_size * query
        assert counted("fast", geometry, tokens, position) == ours(tokens, position) - attention + queries


def test_the_forwards_of_a_call() -> None:
    def flops(name: str, tokens: int) -> list[int]:
        return [one.flops for one in work_of_call(TINY, workloads.get(name), tokens=tokens, item_bytes=4)]

    def forward(tokens: int, positions: int, batch: int = 1) -> int:
        return work_of_forward(TINY, tokens=tokens, positions=positions, batch=batch, item_bytes=4).flops

    assert flops("prefill-tiny-t16", 16) == [forward(16, 16)]
    assert flops("prefill-tiny-t16-chunk6", 16) == [forward(6, 6), forward(6, 12), forward(4, 16)]
    assert flops("decode-tiny-c16-b3", 1) == [forward(1, 17, 3)]
    assert flops("generate-tiny-t8-n6-b1", 8) == [forward(8, 8), *(forward(1, 8 + step) for step in range(1, 6))]
    later = workloads.get("prefill-tiny-t16").model_copy(update={"context": 32})
    assert work_of_call(TINY, later, tokens=16, item_bytes=4)[0].flops == forward(16, 48)
    with pytest.raises(ValueError, match="rope-t8 is one part of a forward"):
        work_of_call(TINY, workloads.get("rope-t8"), tokens=8, item_bytes=4)
    shapes = products(TINY, workloads.get("prefill-tiny-t16-chunk6"))
    assert shapes == [(6, 64, 64), (6, 64, 176), (6, 176, 64), (1, 64, 512)]


def test_forwards_come_one_after_another() -> None:
    work = [ForwardWork(1000, 10), ForwardWork(100, 100)]
    assert least_seconds(work, flops_per_second=100, bytes_per_second=10) == (10, 10)
    assert least_seconds(work[1:], flops_per_second=10, bytes_per_second=10) == (10, 0)


# -- the roofs -------------------------------------------------------------------------------------------------------


def test_a_product_that_takes_long_is_cut_and_the_buffer_is_as_large_as_the_weights() -> None:
    assert kernels._cut((16, 64, 64)) == (16, 64, 64)
    assert kernels._cut((4096, 4096, 11008)) == (64, 4096, 11008)
    small = kernels.fastest_read(100_000)
    assert 90_000 < small.amount <= 100_000 and small.call_ns > 0
    assert small.build()().numel() >= 1
    size = last_level_cache_bytes()
    assert size is None or size >= 1 << 15


# -- shares ----------------------------------------------------------------------------------------------------------


def a_record(*, call_ms: float, nbytes: int = 10**6, rounds: int = 12, **changed: Any) -> dict[str, Any]:
    """100 GFLOP/s, 10 GB/s and a call of 1 GFLOP, in rounds of which each is slow in its own way."""
    roof_samples, samples = [], []
    for index in range(rounds):
        slow = 1 + 0.05 * (index % 4)
        for sub_round, held_up in enumerate((1.0, 1.0, 9.0)):  # a median leaves the third out
            ten_ms = round(1e7 * slow * held_up)
            roof_samples += [[name, index, sub_round, 1, ten_ms, 2 * ten_ms] for name in ("matmul", "memory")]
            took = round(2 * call_ms * 1e6 * slow * held_up)
            samples.append(["fast", index, sub_round, 16, 2, took, took])
    record = {
        "workload": "w",
        "reason": None,
        "variants": {"fast": {"clock": "cpu", "reason": None}, "candle": {"reason": "candle-nn is not installed"}},
        "rounds": rounds,
        "roofs": {"matmul": {"kernel": "square", "amount": 10**9}, "memory": {"kernel": "sum", "amount": 10**8}},
        "weight_bytes": nbytes,
        "cache_bytes": 32 << 20,
        "work": {"16": [[10**9, nbytes]]},
        "roof_samples": roof_samples,
        "samples": samples,
    }
    return json.loads(json.dumps(record | changed))  # as from the file


def reached(records: Sequence[dict[str, Any]], workload: str, variant: str, *, alpha: float) -> Reached:
    """Of records as they stand in the file."""
    return roofline.reached(ROOFLINE.form.validate_python(records), workload, variant, alpha=alpha)


def test_a_share_is_paired_within_rounds() -> None:
    found = reached([a_record(call_ms=20)], "w", "fast", alpha=0.01)
    assert found.share == pytest.approx((50, 50, 50), rel=1e-6)  # what slows a whole round cancels
    assert found.call_ms.low < 20 * 1.05 < found.call_ms.high and found.call_ms.high / found.call_ms.low > 1.05
    assert (found.binds, found.intensity, found.rounds) == ("computing", 1000, 12)
    assert found.gflops.high < 101 and found.gbytes.value == pytest.approx(found.gflops.value / 10)
    assert found.in_cache is True
    bound = reached([a_record(call_ms=20, nbytes=15 * 10**7)], "w", "fast", alpha=0.01)
    assert bound.share.value == pytest.approx(75) and (bound.binds, bound.in_cache) == ("memory", False)
    by_wall = a_record(call_ms=20, variants={"fast": {"clock": "wall"}})
    assert reached([by_wall], "w", "fast", alpha=0.01).share.value == pytest.approx(100)  # the roofs took twice as long
    fast = reached([a_record(call_ms=5)], "w", "fast", alpha=0.01)
    assert fast.share.value == pytest.approx(200) and found.above == ""
    assert fast.above.startswith("above 100 %: the peak is a measured kernel too (square), and the call computes")
    assert fast.above in roofline_markdown([fast], [], alpha=0.01)
    alone = reached([a_record(call_ms=20, rounds=1)], "w", "fast", alpha=0.01)
    assert alone.share[1:] == (0, math.inf)


@pytest.mark.parametrize(
    ("changed", "variant", "said"),
    [
        ({}, "candle", "candle-nn is not installed"),
        ({}, "other", "this run has not measured other"),
        ({"reason": "no forwards"}, "fast", "no forwards"),
        ({"work": {}}, "fast", "damaged: nothing about 16"),
        ({"roofs": {"matmul": {"kernel": "k", "amount": 0}}}, "fast", r"roofs\.matmul\.amount"),
        ({"samples": [["fast", 0]]}, "fast", r"samples\.0"),
        ({"roof_samples": []}, "fast", "no round with a valid time"),
        ({"workload": "v"}, "fast", "this run has not measured it"),
    ],
)
def test_a_record_without_numbers_says_why(changed: dict[str, Any], variant: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        reached([a_record(call_ms=20, **changed)], "w", variant, alpha=0.01)


# -- claims and verdicts ---------------------------------------------------------------------------------------------

CLAIM = """
id = "near-the-roof"
title = "The fast variant is near the roof"
who = ["a test"]
source = [{ document = "a test", section = "a test" }]
statement = "It reaches some of what this machine can do."
assumes = []
decided_by = "Its share of the roof, on every workload."

[[hypothesis]]
part = "ours"
metric = "roofline"
variant = "fast"
workloads = ["prefill-tiny-t16", "decode-tiny-c16"]
above = 1e-6

[[hypothesis]]
part = "another"
metric = "roofline"
variant = "tires"
workloads = ["prefill-tiny-t16"]
at_most = 100
"""


def a_claim(**hypothesis: Any) -> Claim:
    base = {"id": "c", "title": "t", "who": ["T"], "source": [{"document": "d", "section": "s"}], "statement": "s"}
    base |= {"assumes": [], "decided_by": "d", "hypothesis": [{"metric": "roofline", "variant": "fast"} | hypothesis]}
    return check_claim(base, "c.toml")


def judged(*records: dict[str, Any], excluded: tuple[str, ...] = (), **hypothesis: Any) -> Verdict:
    fallen = [{"variant": name, "reason": "it fell out"} for name in excluded]
    manifest = {"experiments": [{"workload": {"name": "w"}, "variants": ["fast"], "excluded": fallen}]}
    evidence = evidence_from_manifest(
        manifest_of(manifest), no_rows(COLUMNS), passes={"roofline": ROOFLINE.form.validate_python(records)}
    )
    [verdict] = judge_claims([a_claim(**({"workloads": ["w"]} | hypothesis))], evidence)
    return verdict


def test_a_stored_roofline_is_judged() -> None:
    record = a_record(call_ms=20)
    for asked, word in (({"above": 40}, "supported"), ({"at_most": 40}, "refuted"), ({"range": [45, 55]}, "supported")):
        verdict = judged(record, **asked)
        assert verdict.verdict == word
        [effect] = plain(verdict)["effects"]
        assert (effect["unit"], effect["rounds"]) == ("%", 12) and effect["value"] == pytest.approx(50)
        assert "limited by computing" in effect["metric"]
    assert judged(record | a_record(call_ms=20, rounds=1), above=40).verdict == "inconclusive"
    assert judged(a_record(call_ms=5), above=90).effects[0].said[0].startswith("above 100 %: the peak is a")
    assert judged(record, excluded=("fast",), above=40).verdict == "not evidence"
    assert "not measured the roofline" in judged(above=40).reason
    both = judged(record, workloads=["w", "v"], above=40)
    assert both.alpha == 0.01 and both.verdict == "supported" and "not measured: v" in both.reason


def test_how_it_is_written_and_planned() -> None:
    with pytest.raises(ClaimError, match="quantity = 'flops': unknown key"):
        a_claim(workloads=["w"], above=1, quantity="flops")
    claim = a_claim(workloads=["decode-tiny-c16"], above=1)
    assert Claim.model_validate(claim.stored()) == claim
    plan = make_plan(Request(), [claim])
    [experiment] = plan.experiments
    assert (experiment.variants, experiment.targets, experiment.controls) == (("fast",), (), ())


# -- the pass --------------------------------------------------------------------------------------------------------


def a_run(tmp_path: Path) -> tuple[session.Run, Quiet]:
    claims = tmp_path / "claims"
    claims.mkdir()
    (claims / "near.toml").write_text(CLAIM)
    options = Options(run_dir=tmp_path / "run", claims_folder=claims, budget_seconds=5.0)
    plan = session.plan_run(Request(added=(f"{OUTSIDE}:tires",)), options)
    told = Quiet()
    return session.Run(plan, options, told), told


def test_the_pass_from_claim_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two variants fails in the middle: the other has its numbers all the same."""
    monkeypatch.setattr(roofline, "ROOFLINE_SECONDS", 0.1)
    run, told = a_run(tmp_path)
    result = run.measure()
    assert "roofline prefill-tiny-t16: fast, tires" in [text for text, _ in told.steps]
    records = RunFolder(result.folder.path).records("roofline.json")
    names = ["prefill-tiny-t16", "decode-tiny-c16"]
    assert [(record["workload"], name) for record in records for name in record["variants"]] == [
        (names[0], "fast"),
        (names[0], "tires"),
        (names[1], "fast"),
    ]
    for record, name in zip(records, names, strict=True):
        assert record["rounds"] == 6
        for number in range(1, 7):  # all of them in every round
            mine = [*record["samples"], *([f"{row[0]} roof", *row[1:]] for row in record["roof_samples"])]
            assert {row[0] for row in mine if row[1] == number} == {"fast", "matmul roof", "memory roof"}
        found = reached(records, name, "fast", alpha=0.01)
        for estimate in (found.share, found.call_ms, found.gflops, found.gbytes):
            assert 0 < estimate.low <= estimate.value <= estimate.high < math.inf
        assert found.rounds == 6 and found.seconds > 0 and found.intensity > 0
    ours, other = result.verdicts
    assert ours.verdict == "supported"
    assert other.verdict == "not measurable here" and "tired" in other.reason
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["report", str(result.folder.path)])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert shown.count("| fast |") == 2 and "prefill-tiny-t16: GFLOP/s by a matrix product (" in shown
    assert "Not measured: tires on prefill-tiny-t16: RuntimeError: tired" in shown


def test_what_has_no_roofline_says_so(tmp_path: Path) -> None:
    claim = a_claim(workloads=["rope-t8"], above=1)
    plan = make_plan(Request(), [claim])
    measurement = measurement_of(plan, tmp_path)
    folder = RunFolder.create(tmp_path / "run")
    wanted = Mock(**{"subjects.return_value": [("rope-t8", "fast"), ("decode-tiny-c16", "fast")]})
    roofline.METRIC.run([wanted], PassContext(measurement, folder, Quiet(), tmp_path, 0))
    component, absent = folder.records("roofline.json")
    with pytest.raises(ValueError, match="a component has no roofline"):
        reached([component], "rope-t8", "fast", alpha=0.01)
    with pytest.raises(ValueError, match="not in this run"):
        reached([absent], "decode-tiny-c16", "fast", alpha=0.01)


def fractions(app: Any) -> list[str]:
    """The roofline fractions of the page, in percent."""
    return [text for table in app.dataframe for text in table.value.get("roofline fraction, %", ())]


def test_the_roof_has_a_part_of_the_page_and_a_damaged_one_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
    from tests.dashboard_pages import everything, open_page
    from tests.dashboard_runs import HOSTILE

    page = partial(open_page, ROOT / "dashboard" / "page_scripts" / "explore.py", monkeypatch, show="roofline")
    run = write_run(tmp_path / "runs" / "roofed")
    assert "--claims fast-is-level" in everything(page(tmp_path))
    record = {
        "workload": HOSTILE,
        "variants": {"fast": {}, "candle": {"reason": "candle-nn is not installed"}},
        "rounds": 6,
        "roofs": {"matmul": {"kernel": "square", "amount": 10**9}, "memory": {"kernel": "sum", "amount": 10**8}},
        "work": {"16": [[10**9, 1000]]},
        "roof_samples": [[name, i, 0, 1, 10**7, 10**7] for i in range(6) for name in ("matmul", "memory")],
        "samples": [["fast", i, 0, 16, 1, 2 * 10**7, 2 * 10**7] for i in range(6)],
    }
    run.write_json("roofline.json", [record])
    app = page(tmp_path)
    text = everything(app)
    assert not app.exception
    assert fractions(app) == ["50 [50, 50]"] and "computing" in text and HOSTILE in text
    assert "candle-nn is not installed" in text and "above 100 %" not in text
    fast = [["fast", i, 0, 16, 1, 8 * 10**6, 8 * 10**6] for i in range(6)]
    run.write_json("roofline.json", [record | {"samples": fast}])
    app = page(tmp_path)
    text = everything(app)
    assert fractions(app) == ["125 [125, 125]"] and "above 100 %: the peak is a measured kernel too (square)" in text
    run.write_json("roofline.json", [record | {"work": {}}])
    assert "roofline.json is damaged" in everything(page(tmp_path))
    (run.path / "roofline.json").write_text("[")
    assert "The roofline cannot be read." in everything(page(tmp_path))
