"""Time by phase: the marked variants are the plain ones, the map fits the source, and a profile says the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch

from llama_workbench import ROOT, variants
from llama_workbench.cache import cache_directory
from llama_workbench.datasets import geometries, workloads
from llama_workbench.datasets.checkpoints import synthesize
from llama_workbench.harness.claims.reading import load_dispute
from llama_workbench.harness.measure.profiling import ProfiledVariant
from llama_workbench.harness.metrics.base import PassContext
from llama_workbench.harness.plan.options import Options, Request
from llama_workbench.harness.report import phases as shares
from llama_workbench.harness.report.phases import Share, levels
from llama_workbench.harness.session import run as session
from llama_workbench.harness.slices.profiles import profiler as py_spy
from llama_workbench.harness.slices.share import worker
from llama_workbench.harness.slices.share.lines import MARK, Marker, Name, PhaseError, with_comments
from llama_workbench.harness.slices.share.metric import ANOTHER_SESSION, METRIC, SHORT, TimedPhases
from llama_workbench.harness.slices.share.report import profiling_markdown
from llama_workbench.harness.slices.share.worker import Instrumented, check_ops, instrument, ops_of_phases
from llama_workbench.harness.stats.means import exact_ends
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.passes import PHASES as PHASES_FILE
from llama_workbench.harness.worker.correctness import small_weights
from llama_workbench.harness.worker.model_gating import ComponentsKind
from llama_workbench.harness.worker.state import Bench, Worker, WorkerError
from llama_workbench.variants.phase_map import PHASES, VIEWS
from tests.commands.test_cli import output
from tests.runs import Quiet, measurement_of, write_run
from tests.tables import table_of
from tests.verdicts import an_effect

pytestmark = pytest.mark.usefixtures("warm")

TOKENS = torch.arange(2 * 24).view(2, 24) * 7 % 500

ONE_OF_EACH = (
    "team003", "team006_after", "team005_proposal", "candle", "modular_per_forward", "single_file_inline",
    "grid_modular_split_fresh_fused", "grid_single_file_unified_per_model_composite",
    "grid_single_file_split_fresh_fused", "transformers_eager", "transformers_sdpa", "transformers_static", "fast",
    "gpt_fast", "yardstick", "ladder_inlined", "ladder_heads_first", "ladder_one_kernel", "ladder_fused",
    "ladder_transposed", "sdpa_explicit_mask", "sdpa_repeated_heads", "fast_in_place",
    "fast_kv_bfloat16", "fast_kv_int8",
    *(f"fast_paged_{page}" for page in (16, 64, 256)),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def made(name: str, request: pytest.FixtureRequest) -> Instrumented:
    """A private import of its own for each test."""
    tag = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    return instrument(variants.get(name), f"{tag}_{name}")


def model_of(variant: variants.Variant, geometry: str = "tiny-gqa") -> variants.Model:
    config = geometries.get(geometry).config
    return variant.build(config, small_weights(config, torch.float32), max_length=64)


def ops_of(name: str, request: pytest.FixtureRequest) -> list[dict[str, dict[str, int]]]:
    """Ops by phase, views aside, of a prefill, a decode step and a later chunk, with KV buffers made before."""
    marked = made(name, request)
    model = model_of(marked.variant)
    model.forward(TOKENS, 0)
    found = []
    for start, stop in ((0, 16), (16, 17), (17, 24)):
        ops, _ = ops_of_phases(marked, lambda: model.forward(TOKENS[:, start:stop], start))  # noqa: B023
        found.append({phase: {op: n for op, n in ran.items() if op not in VIEWS} for phase, ran in ops.items()})
    return found


# --- the marked variants -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_marked_variants_give_the_same_bits_and_every_op_is_in_its_phase(name, request):
    marked, plain = made(name, request), model_of(variants.get(name))
    model = model_of(marked.variant)
    for start, stop in ((0, 16), (16, 17), (17, 24), (0, 16)):
        if start == 0:
            model.reset()
            plain.reset()
        tokens = TOKENS[:, start:stop]
        ops, logits = ops_of_phases(marked, lambda: model.forward(tokens, start))  # noqa: B023
        check_ops(ops)
        assert torch.equal(logits, plain.forward(tokens, start))
        assert ("attention_fused" in ops) != ("softmax" in ops)


@pytest.mark.parametrize("name", [name for name in variants.names() if name not in ONE_OF_EACH])
def test_every_variant_names_its_phases_or_is_an_engine_of_others(name):
    variant = variants.get(name)
    if variant.settings is not None:
        assert worker.names_of(variant) == {}
    else:
        module = getattr(variant.build, "module", "")  # the second changes what the layered model has built
        assert variant.compiled or module.startswith((".engines", ".as_written"))
        why = "compiled" if variant.compiled else "its source names no phases"
        with pytest.raises(PhaseError, match=f"{name}: {why}"):
            worker.names_of(variant)


def test_sources_written_apart_agree_op_by_op(request):
    """The same ops in the same order in three layouts: their phases must then be the same, to the count of each op."""
    layered, single, inline = (
        ops_of(name, request) for name in ("team005_hybrid", "team005_proposal", "single_file_inline")
    )
    assert layered == single == inline
    prefill = layered[0]
    layers = geometries.get("tiny-gqa").config.num_hidden_layers
    expected = {"qkv": ("mm", 3), "scores": ("bmm", 1), "output": ("bmm", 1), "o_proj": ("mm", 1), "mlp": ("mm", 3)}
    for phase, (op, count) in expected.items():
        assert prefill[phase][op] == count * layers
    assert prefill["other"] == {"add": 2 * layers}
    assert prefill["lm_head"]["mm"] == 1


def test_phases_come_in_order_and_sum_to_the_call(request):
    marked = made("team006_before", request)
    model = model_of(marked.variant, "tiny")
    ticks = iter(range(10, 10_000))
    marked.set_clock(lambda: next(ticks))
    model.forward(TOKENS, 0)  # makes the KV buffers
    marked.start(next(ticks))
    start = marked.log[0][1]
    model.forward(TOKENS, 0)
    end = next(ticks)
    order = [phase for phase, _ in groupby(PHASES[index] for index, _ in marked.log)]
    layer = "norm other qkv rope cache mask_create scores mask_apply output softmax output o_proj other mlp norm mlp"
    inside = [phase for phase, _ in groupby(["other", *([*layer.split(), "other"] * 2)])]
    assert order == ["other", "embedding", "mask_create", *inside, "lm_head", "final_norm", "lm_head", "other"]
    spent = worker.durations(marked.log, end)
    assert sum(spent.values()) == end - start
    assert spent["qkv"] == 2  # one tick a layer: a phase ends where the next begins


def test_nothing_is_left_behind_in_the_plain_variant(request):
    """The library's classes are not patched, and a plain variant built afterwards marks nothing."""
    from transformers.models.llama import modeling_llama

    marked = made("transformers_eager", request)
    marked.start(0)
    plain = model_of(variants.get("transformers_eager"))
    plain.forward(TOKENS, 0)
    assert len(marked.log) == 1
    assert MARK not in vars(modeling_llama)
    assert not any(isinstance(finder, worker._Finder) for finder in __import__("sys").meta_path)


# --- the names -----------------------------------------------------------------------------------------------------

INLINE = (ROOT / "variants" / "inline.py").read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("        for layer, (", "        x = x * 1.0\n        for layer, (", "has no phase: 'x = x * 1.0'"),
        ("        x = F.emb", "        x = tokens * 1\n        x = F.emb", "has no phase: 'x = tokens * 1'"),
        ("  # phase: mask_apply", "", "has no phase: 'scores = scores + mask'"),
        ("scores = scores + mask", "pass", "names the phase of no statement"),
        ("F.linear(y.transpose(1, 2).flatten(2), layer.o)", "y.flatten(2)", "has no 'linear'"),
        ("  # phase: mask_apply", "  # phase: masks", "no phase 'masks'; there are embedding, norm"),
        ("  # phase: mask_apply", "\n                x = x + 1  # phase: mask_apply", "has no phase: 'scores ="),
        ("        end = position", "        assert length\n        end = position", "is a assert: not supported"),
    ],
)  # fmt: skip
def test_changed_code_does_not_slip_into_a_phase(old, new, said):
    source = INLINE.replace(old, new)
    assert source != INLINE
    Marker(INLINE.encode(), None, "inline.py")
    with pytest.raises(PhaseError, match="in line with the source") as caught:
        Marker(source.encode(), None, "inline.py")
    assert said in str(caught.value)
    assert str(caught.value).startswith("inline.py: ")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("# phase: qkv", "# phase: norm", "norm runs mm"),
        ("# phase: scores", "# phase: qkv", "qkv runs bmm, clone, mul"),
        ("# phase: mask_apply", "# phase: softmax", "softmax runs add"),
        ("rms_norm: final_norm", "rms_norm: norm", "final_norm runs none of _fused_rms_norm"),
    ],
)
def test_a_line_in_a_wrong_phase_is_found_by_its_ops(old, new, said, monkeypatch, request):
    def changed(source: bytes, *others: Any) -> Marker:
        assert old.encode() in source
        return Marker(source.replace(old.encode(), new.encode()), *others)

    monkeypatch.setattr(worker, "Marker", changed)
    ops = ops_of("single_file_inline", request)
    with pytest.raises(PhaseError, match=said):
        check_ops(ops[0])


def phases_by_line(source: str, functions: dict[str, str] | None = None) -> dict[int, set[str]]:
    found = Marker(source.encode(), functions, "f.py").phases_of_line
    return {line: own | called for line, (own, called) in found.items() if own | called}


def test_a_comment_on_its_own_line_names_its_block_up_to_an_empty_line():
    source = "def f(x):\n    # phase: norm\n    a = g(x)\n    if a:\n        b = g(x)\n"
    assert phases_by_line(source + "    d = g(x)\n") == {3: {"norm"}, 5: {"norm"}, 6: {"norm"}}
    inner = source + "        # phase: mlp\n        c = g(x)\n"
    assert phases_by_line(inner) == {3: {"norm"}, 5: {"norm"}, 7: {"mlp"}}
    for more in ("\n    d = g(x)\n", "    else:\n        d = g(x)\n", "    d = g(x)\n"):
        with pytest.raises(PhaseError, match=r"line \d of f has no phase: 'd = g\(x\)'"):
            phases_by_line((inner if more[0] == " " else source) + more)
    with pytest.raises(PhaseError, match=r"line 4 of f has no phase: 'b = g\(x\)'"):
        phases_by_line("def f(x):\n    # phase: other\n    a = g(x)\n    b = g(x)\n")


def test_parts_of_a_statement_have_phases_of_their_own():
    named = "# phase: other; /: mlp; @: qkv; norm: norm; k.head: rope"
    source = f"def f(x):\n    return (\n        o.k.head(x)\n        @ norm(x)\n    ) / x  {named}\n"
    assert phases_by_line(source) == {2: {"mlp"}, 3: {"mlp", "qkv", "rope"}, 4: {"mlp", "qkv", "norm"}, 5: {"mlp"}}
    with pytest.raises(PhaseError, match="has two phases"):
        phases_by_line("def f(x):\n    y = g(  # phase: norm\n        x)  # phase: mlp\n")


def test_a_map_names_what_a_source_does_not():
    source = "class C:\n    def f(self, x):\n        y = g(x)  # why\n        return h(\n            y\n        )\n"
    functions = {"C.f": "norm  y = g(x)\nother; h: mlp  return h(..."}
    assert with_comments(source, functions).splitlines()[3] == "        return h(  # phase: other; h: mlp"
    assert phases_by_line(source, functions) == {3: {"norm"}, 4: {"mlp"}, 5: {"mlp"}, 6: {"mlp"}}
    for wrong, said in (
        ({"C.g": "norm  y"}, "there is no function C.g"),
        ({"C.f": "norm  y = g(z)"}, r"C.f has no 'y = g\(z\)'"),
        ({"C.f": "norms  y = g(x)"}, "no phase 'norms'"),
    ):
        with pytest.raises(PhaseError, match=said):
            phases_by_line(source, wrong)
    assert Name.parse("norm; a: mlp", 1).problem() == "line 1 names the phase of no statement"


# --- shares --------------------------------------------------------------------------------------------------------


def table(*rounds: dict[str, int], variant: str = "a", plain: int = 100) -> pd.DataFrame:
    rows = [("w", variant, 1, i, 0, 8, phase, ns, plain) for i, r in enumerate(rounds) for phase, ns in r.items()]
    return pd.DataFrame(rows, columns=list(PHASES_FILE.columns))


def test_the_denominators_and_the_dispute_s_own_table():
    """Their five lines in their denominator give their percentages; a whole layer gives others."""
    theirs = {"qkv": 65500, "rope": 9200, "scores": 8500, "mask_apply": 1900, "softmax": 11700, "output": 10000}
    more = {"o_proj": 20000, "mlp": 150000, "norm": 1000, "other": 1200, "cache": 1000, "embedding": 20}
    more["lm_head"] = 5000
    frame = table(theirs | more, theirs | more)

    def percent(names: str, of: str) -> float:
        return round(100 * shares.share(table_of(frame), "w", "a", names.split(), of).value, 1)

    assert [percent(name, "attention-subset") for name in ("qkv", "rope", "scores", "mask_create mask_apply")] == [
        61.3, 8.6, 8.0, 1.8,
    ]  # fmt: skip
    assert percent("softmax output", "attention-subset") == 20.3
    attention = sum(theirs.values()) + 21000
    assert percent("qkv", "attention") == round(6550000 / attention, 1)
    assert percent("qkv", "layer") == round(6550000 / (attention + 152200 + 1000 - 1000), 1)
    assert percent("qkv", "forward") == round(6550000 / (attention + 152200 + 5020), 1)
    assert percent(" ".join(PHASES), "forward") == 100.0


def test_the_interval_is_over_rounds_and_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(3)
    missed, series = 0, 100
    for _ in range(series):
        frame = table(*({"qkv": int(q), "mlp": 100_000 - int(q)} for q in 30_000 + 2_000 * rng.standard_normal(12)))
        found = shares.share(table_of(frame), "w", "a", ["qkv"], "forward", alpha=0.05)
        missed += not found.low <= 0.30 <= found.high
        assert found.rounds == 12
    assert 1 <= missed <= 12
    assert found.error == pytest.approx((found.high - found.low) / 2 / 2.201, rel=1e-3)  # t, 11 degrees of freedom
    alone = shares.share(table_of(table({"qkv": 1, "mlp": 3})), "w", "a", ["qkv"], "forward")
    assert (alone.value, alone.low, alone.high, alone.error) == (0.25, 0.0, 1.0, math.inf)


def test_a_call_that_is_held_up_changes_nothing_and_lengths_are_weighed_by_their_time():
    names = list(PHASES_FILE.columns)
    rows = []
    for round_index in (0, 1):
        for call, (tokens, qkv, mlp) in enumerate([(8, 1, 3), (8, 1, 3), (8, 900, 3), (64, 60, 40)]):
            rows += [("w", "a", 1, round_index, call, tokens, "qkv", qkv, 1)]
            rows += [("w", "a", 1, round_index, call, tokens, "mlp", mlp, 1)]
    found = shares.share(table_of(pd.DataFrame(rows, columns=names)), "w", "a", ["qkv"], "forward")
    assert found.value == found.low == found.high == pytest.approx(61 / 104)


def test_shares_that_cannot_be_had_are_refused():
    fused = table({"qkv": 50, "attention_fused": 50}, {"qkv": 40, "attention_fused": 60})
    with pytest.raises(ValueError, match="one kernel here: scores"):
        shares.share(table_of(fused), "w", "a", ["scores"], "forward")
    together = shares.share(table_of(fused), "w", "a", ["scores", "softmax", "output", "mask_apply"], "attention")
    assert together.value == pytest.approx(0.55)
    for phases_, of, said in (
        (["mlp"], "attention", "no part"),
        (["x"], "layer", "no phase"),
        (["mlp"], "x", "no den"),
    ):
        with pytest.raises(ValueError, match=said):
            shares.share(table_of(fused), "w", "a", phases_, of)
    with pytest.raises(ValueError, match="no phases of b on w"):
        shares.share(table_of(fused), "w", "b", ["qkv"], "forward")


def test_top_consumers_grades_overhead_and_difference():
    one = table(*({"qkv": 60 + i, "mlp": 30, "rope": 7, "cache": 3 - i} for i in (0, 1, 0)))
    two = table(*({"qkv": 50 + i, "mlp": 40, "rope": 7, "cache": 3 - i} for i in (0, 1, 0)), variant="b", plain=80)
    top = shares.top_consumers(table_of(one), "w", "a")
    assert [(phase, levels(share.value, share.value)) for phase, share in top.items()] == [
        ("qkv", "critical"), ("mlp", "critical"), ("rope", "moderate"), ("cache", "minor"),
    ]  # fmt: skip
    assert levels(top["cache"].low, top["cache"].high) == "minor or moderate"  # three rounds: 2.7 % or up to 6
    assert {levels(share.low, share.high) for share in list(top.values())[:3]} == {"critical", "moderate"}
    both = pd.concat([one, two])
    assert shares.overhead(table_of(both), "w", "b").value == pytest.approx(1.25)


@pytest.mark.parametrize(("busy", "told"), [(0.0, False), (0.09, False), (0.31, True)])
def test_a_share_says_that_others_kept_the_machine_busy(busy: float, told: bool) -> None:
    timed = table_of(table({"qkv": 1, "mlp": 3}, {"qkv": 1, "mlp": 3}))
    evidence = SimpleNamespace(passes={"share": TimedPhases(timed, {("w", "a"): busy})})
    asked = SimpleNamespace(variant="a", phases=("qkv",), of="forward")
    effect = METRIC.measured(an_effect(workload="w", variant="a"), cast(Any, asked), cast(Any, evidence), 0.01)
    assert effect.ratio == pytest.approx(25), "too large to differ much between sessions"
    assert [*effect.notes] == [
        "other programs used 31 % of this machine meanwhile, which makes short phases longer"
    ] * told


def test_a_small_share_says_that_another_session_may_have_another() -> None:
    timed = table_of(table({"qkv": 1, "mlp": 5}, {"qkv": 1, "mlp": 9}))
    evidence = SimpleNamespace(passes={"share": TimedPhases(timed, {})})
    asked = SimpleNamespace(variant="a", phases=("qkv",), of="forward")
    effect = METRIC.measured(an_effect(workload="w", variant="a"), cast(Any, asked), cast(Any, evidence), 0.01)
    assert effect.ratio < 100 * SHORT and effect.notes == (ANOTHER_SESSION,)


def test_the_form_says_how_large_each_phase_is_and_what_the_plan_does() -> None:
    form = {
        "mlp": (45, 44, 46),
        "mask_create": (12, 11, 13),
        "cache": (9, 7, 11),
        "rope": (5, 5, 10),
        "norm": (4, 3, 5),
    }
    shares = {phase: Share(value / 100, low / 100, high / 100, 12, 0.01) for phase, (value, low, high) in form.items()}
    text = profiling_markdown(load_dispute().form, {("prefill-15m-t128", "team006_before"): shares})
    beyond = "the library's own operations: the plan says that these cannot be optimised"
    assert "## team006_before on prefill-15m-t128" in text
    assert [line for line in text.splitlines() if line.startswith("| ")][1:] == [
        f"| mlp | 45.0 % | [44.0, 46.0] | critical | {beyond} |",
        "| mask_create | 12.0 % | [11.0, 13.0] | critical | cache masks (Phase 3A) |",
        "| cache | 9.0 % | [7.0, 11.0] | moderate or critical | unify the caches (Phase 3B) |",
        "| rope | 5.0 % | [5.0, 10.0] | moderate |  |",
        "| norm | 4.0 % | [3.0, 5.0] | minor or moderate |  |",
    ]


def with_shares(run: RunFolder, variant: str = "team006_before") -> RunFolder:
    """The run with a phase pass: the mask is 12 % of each call, the cache 2 %, the MLP what is left, give or take."""
    rows = []
    for index in range(12):
        spent = {"mask_create": 12_000 + 10 * index, "cache": 2_000 - 5 * index, "mlp": 86_000}
        total = sum(spent.values())
        rows += [["prefill-15m-t128", variant, 1, index, 0, 128, phase, ns, total] for phase, ns in spent.items()]
    run.write_table(PHASES_FILE, rows)
    return run


def test_report_fills_in_the_plan_s_form_and_applies_the_teams_rules(tmp_path: Path) -> None:
    run = with_shares(write_run(tmp_path / "run", only=["prefill-15m-t128"]))
    text = output("report", run.path)
    assert text.startswith("# The answer\n\n**Is the rewrite ")
    form = text[text.index("# Where the time goes") :]
    assert "## team006_before on prefill-15m-t128" in form and "cache masks (Phase 3A)" in form
    assert "| critical |" in form and "| mlp | 8" in form and "## team006_after" not in form
    assert "**cache masks** on the one workload" in form and "ruled out: " not in form


def test_report_says_what_it_lacks(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", only=["prefill-15m-t128"])
    missing = "no time breakdown; to measure one: pytest --benchmark --claims qkv-61"
    assert missing in output("report", run.path)
    other = with_shares(write_run(tmp_path / "other", only=["prefill-15m-t128"]), "team006_after")
    assert "own rule" not in output("report", other.path), "the rules ask about team006_before"
    functions = ROOT / "results" / "baselines" / "first-comparison"
    assert "no time breakdown" not in output("report", functions), "functions have no phases"


# --- a profiler's samples ------------------------------------------------------------------------------------------


def sampled_phases(folded: str, lines: shares.Lines) -> Counter[frozenset[str]]:
    """Samples of a profile by the phases that they may belong to."""
    counts: Counter[frozenset[str]] = Counter()
    for frames, count in shares.stacks_of_calls(folded):
        counts[shares.phases_of_stack(frames, lines)[0]] += count
    return counts


LINES: shares.Lines = {
    "variants/v.py": {"10": [["other"], ["mlp", "norm"]], "11": [["output", "softmax"], []], "12": [[], []]},
    "variants/w.py": {"5": [["lm_head"], ["final_norm"]]},
}


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ("P.call (h/w.py:1);V.forward (variants/v.py:10)", {"other"}),
        ("V.forward (variants/v.py:10);SwiGLU.forward (m/mlp.py:3);Linear.forward (m/linear.py:9)", {"mlp"}),
        ("V.forward (variants/v.py:10);FusedRMSNorm.forward (m/norm.py:3);rms_norm (nn/functional.py:9)", {"norm"}),
        ("V.forward (variants/w.py:5);FusedRMSNorm.forward (m/norm.py:3)", {"final_norm"}),
        ("V.forward (variants/w.py:5);Linear.forward (m/linear.py:3)", {"lm_head"}),
        ("V.forward (variants/v.py:10);Module._call_impl (m/module.py:3)", {"other"}),
        ("V.forward (variants/v.py:11)", {"output", "softmax"}),
        ("V.forward (variants/v.py:12);B.forward (variants/w.py:5)", {"lm_head"}),
        ("V.forward (variants/v.py:12)", {"other"}),
        ("P.call (h/w.py:1)", {"other"}),
        ("_profiled_call (h/w.py:1)", None),
        ("P.prepare (h/w.py:1);V.forward (variants/w.py:5)", None),
    ],
)
def test_a_sample_goes_to_the_phase_of_the_line_nearest_to_its_leaf(stack, expected):
    found = sampled_phases(f"{stack} 3\n", LINES)
    assert found == ({} if expected is None else {frozenset(expected): 3})


# --- on disk, and in real measuring processes ----------------------------------------------------------------------


def test_phases_on_disk(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    assert not len(folder.read_table(PHASES_FILE))
    assert folder.records("phases.json") == []
    rows = [["w", "a", 1, 0, 0, 8, "qkv", 5, 9], ["w", "a", 1, 0, 0, 8, "mlp", 4, 9]]
    folder.write_table(PHASES_FILE, rows)
    assert list(map(list, folder.read_table(PHASES_FILE).rows())) == rows
    folder.write_table(PHASES_FILE, [*rows, rows[0]])
    with pytest.raises(RunError, match="a phase of a call twice"):
        folder.read_table(PHASES_FILE)
    folder.write_table(PHASES_FILE, [])
    assert not len(folder.read_table(PHASES_FILE))


WORKLOADS = ("prefill-15m-t128", "decode-15m-c64")
MEASURED = ("team006_before", "single_file_inline", "transformers_sdpa")


def measured_on(workload: str) -> tuple[str, ...]:
    """The library on one of them: its processes take seconds to begin."""
    return MEASURED if workload == WORKLOADS[0] else MEASURED[:2]


def disagreements(folder: RunFolder, stacks: str) -> tuple[list[Any], list[Any]]:
    """Phases of the first variant, those that share a sample's line together: the sampled shares that are further from
    the timed ones than chance; and all."""
    workload, variant = WORKLOADS[0], MEASURED[0]
    fact = next(f for f in folder.records("phases.json") if (f["workload"], f["variant"]) == (workload, variant))
    sampled, table = sampled_phases(stacks, fact["lines"]), folder.read_table(PHASES_FILE)
    ran = [frozenset({phase}) for phase in shares.times_ns(table, workload, variant)]
    total, compared, apart = sum(sampled.values()), [], []
    for group in shares.merged_sets([*ran, *sampled]):
        timed = shares.share(table, workload, variant, [phase for phase in PHASES if phase in group], "forward")
        count = sum(count for phases, count in sampled.items() if phases <= group)
        low, high = exact_ends(count, total, 0.01)
        compared.append((sorted(group), count / total, timed.value))
        apart += compared[-1:] * (max(timed.low - high, low - timed.high) > 0.03)
    return apart, compared


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, tuple[dict[str, Any], str]]:
    """A phase pass in a real measuring process; and what py-spy recorded of the first variant."""
    tmp = tmp_path_factory.mktemp("phases")
    plan = session.plan_run(Request(variants=MEASURED, workloads=WORKLOADS), Options(run_dir=tmp / "run"))
    folders, cache = {"15m": synthesize(geometries.get("15m"), seed=0, cache=cache_directory())}, cache_directory()
    measurement = measurement_of(plan, tmp, folders=folders, cache=cache)
    folder = RunFolder.create(tmp / "run")
    wanted = [(workload, name) for workload in WORKLOADS for name in (*measured_on(workload), "team003")]
    with measurement.processes.running(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("llama_workbench.harness.slices.share.metric.PHASE_PROCESSES", 3)
        patch.setattr(py_spy, "SECONDS", 3.0)
        measurement.gates.pass_gates()

        def record() -> tuple[dict[str, Any], str]:
            process = measurement.gates.standing(measurement.processes.groups[0])
            workload = measurement.participants.states[0].experiment.workload.name
            at = ProfiledVariant(process, workload, MEASURED[0], tmp / "profiled")
            entry = dict(py_spy.PROFILER.look(at))
            return entry, at.stacks().read_text() if at.stacks().exists() else ""

        # The two look at different seconds, and of one the wall time: what another program does to the machine in only
        # one of them tells them apart as well. It goes away; a line that counts for the wrong phase is there each time.
        for _ in range(5):
            METRIC.run([Mock(**{"subjects.return_value": wanted})], PassContext(measurement, folder, Quiet(), tmp, 0))
            plain = record()
            if plain[0]["reason"] or not disagreements(folder, plain[1])[0]:
                break
    return folder, plain


@pytest.mark.covers("harness/measure", "harness/slices/share", "harness/slices/profiles", "harness/worker", "variants")
@pytest.mark.long
def test_a_phase_pass_of_ours_the_library_s_and_someone_else_s(passed):
    folder, _ = passed
    frame = folder.read_table(PHASES_FILE)
    facts = {(fact["workload"], fact["variant"]): fact for fact in folder.records("phases.json")}
    for workload in WORKLOADS:
        assert "not measured in this run" in facts[workload, "team003"]["reason"]
        for name in measured_on(workload):
            assert facts[workload, name]["reason"] is None
            rows = frame.where(workload=workload, variant=name)
            assert len(set(rows["process"])) == 3
            assert set(rows["phase"]) >= {"embedding", "norm", "qkv", "rope", "cache", "o_proj", "mlp", "lm_head"}
            assert (set(rows["phase"]) >= {"scores", "softmax", "output"}) == (name != "transformers_sdpa")
            assert shares.share(frame, workload, name, PHASES, "forward").value == pytest.approx(1.0)
            assert shares.share(frame, workload, name, ["other"], "forward").value < 0.2
    # A mask is made once and looked up after that, or made in every layer, which at decode adds one of zeros.
    made_anew, looked_up = (
        shares.share(frame, WORKLOADS[0], name, ["mask_create"], "forward").value for name in MEASURED[:2]
    )
    assert looked_up < made_anew / 2
    adding = frame.where(workload=WORKLOADS[1], phase="mask_apply")
    assert set(adding["variant"]) == {MEASURED[0]}


@pytest.mark.covers("harness/measure", "harness/slices/share", "harness/slices/profiles", "harness/worker", "variants")
@pytest.mark.long
def test_timed_and_sampled_phases_agree(passed):
    """py-spy knows nothing of the marks: lines of the plain variant, read from outside, give the same shares."""
    folder, (entry, stacks) = passed
    if entry["reason"]:
        pytest.skip(entry["reason"])
    apart, found = disagreements(folder, stacks)
    assert len(found) >= 12, found  # hardly any line mixes phases
    assert not apart, found
    assert sum(sampled for _, sampled, _ in found) == pytest.approx(1.0)
    assert "Llama.forward (variants/modular/model.py:" in stacks and "torch/nn/modules/module.py:" in stacks
    assert str(ROOT) not in stacks and "/lib/python" not in stacks


def test_what_has_no_phases_says_so():
    subject = Worker.__new__(Worker)
    subject.benches = {"rope-t8": Bench(workloads.get("rope-t8"), ComponentsKind(), 0)}
    with pytest.raises(WorkerError, match="a component has no phases"):
        worker.phases(subject, "rope-t8", ["fast"], 1, False)
    subject.added = {"mine": {}}
    with pytest.raises(PhaseError, match="mine: code from outside names no phases"):
        worker.instrumented(subject, "mine")
    entry_point = variants.Variant("theirs", model_of, "", "")  # type: ignore[arg-type]
    with pytest.raises(PhaseError, match="theirs: its source names no phases"):
        instrument(entry_point, "theirs")
