"""Variants: same logits as the library, same op traces where only the architecture differs, no strawmen."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from llama_workbench import ROOT, variants
from llama_workbench.harness.calls.source import parse
from llama_workbench.harness.worker.correctness import (
    CACHE_TOLERANCE,
    SMALL_LENGTH,
    TOLERANCES,
    OpTrace,
    attention_kernels,
    facts_of,
    judge_logits,
    op_counts,
    run_cases,
    small_cases,
    small_gate,
    small_geometries,
    small_weights,
    trace,
    trace_difference,
)
from llama_workbench.harness.worker.model_gating import reference_model
from llama_workbench.harness.worker.models import variant_from
from llama_workbench.variants import components, outside
from llama_workbench.variants.config import LlamaConfig
from llama_workbench.variants.digests import digest_of_code
from llama_workbench.variants.modular.attention import Attention
from llama_workbench.variants.modular.model import Llama
from llama_workbench.variants.phase_map import VIEWS
from llama_workbench.variants.settings import Settings

FOLDER = Path(variants.__file__).parent
GRID = [
    (cache, mask, ops)
    for cache in ("split", "unified")
    for mask in ("fresh", "per_model")
    for ops in ("composite", "fused")
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Gates are about numbers; several threads on a busy machine only make them slow."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def reference(geometry: str, dtype: torch.dtype, rounding: str = ""):
    config = small_geometries()[geometry]
    model = reference_model(config, small_weights(config, dtype), SMALL_LENGTH, rounding)
    return run_cases(model, small_cases(config))


def gate_of(variant: variants.Variant):
    """The gate with what the variant says of itself."""
    rounding = variant.rounding
    wanted = functools.partial(reference, rounding=rounding)
    return small_gate(variant.build, wanted, no_chunks=variant.no_chunks, rounding=rounding)


# --- the logits gate -----------------------------------------------------------------------------------------------

IN_TORCH = [name for name in variants.names() if variants.get(name).engine is None]  # the others: test_engines


@pytest.mark.parametrize("name", [name for name in IN_TORCH if not variants.get(name).compiled])  # test_compiled
def test_logits_match_the_library_in_float64(name):
    variant = variants.get(name)
    gate = gate_of(variant)
    assert gate.passed, gate.detail
    assert gate.cases == (10 if variant.no_chunks else 16)
    assert gate.tolerance == (CACHE_TOLERANCE if variant.rounding else TOLERANCES[torch.float64])
    assert "float32" not in gate.detail
    assert gate.detail.endswith(f", left out 6 with chunks: {variant.no_chunks}") == bool(variant.no_chunks)


@pytest.mark.parametrize("name", ["team006_after", "team005_proposal", "candle", "fast", "yardstick"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_match_in_the_dtypes_that_are_timed(name, dtype):
    config = small_geometries()["grouped"]
    weights = small_weights(config, dtype)
    wide = {key: tensor.to(torch.float32) for key, tensor in weights.items()}
    cases = small_cases(config)
    expected = run_cases(variants.get("transformers_eager").build(config, wide, max_length=SMALL_LENGTH), cases)
    model = variants.get(name).build(config, weights, max_length=SMALL_LENGTH)
    gate = judge_logits(cases, run_cases(model, cases), expected, dtype)
    assert gate.passed, gate.detail


@pytest.mark.parametrize("name", [name for name in IN_TORCH if variants.get(name).no_chunks])
def test_what_a_variant_is_said_not_to_do_it_does_wrong(name):
    gate = small_gate(variants.get(name).build, reference)
    assert not gate.passed and "chunk" in gate.detail


def _broken(base: str, change):
    """A variant whose logits `change(logits, tokens, position)` spoils."""
    inner = variants.get(base).build

    class Spoiled:
        def __init__(self, model):
            self.model = model
            self.reset = model.reset

        def forward(self, tokens, position):
            return change(self.model.forward(tokens, position), tokens, position)

    return lambda config, weights, *, max_length: Spoiled(inner(config, weights, max_length=max_length))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda logits, t, p: logits * float("nan"), "NaN"),
        (lambda logits, t, p: logits.masked_fill(logits == logits.max(), float("inf")), "infinite"),
        (lambda logits, t, p: logits + 1e-3, "off by"),
        (lambda logits, t, p: logits[:, :-1], "for [1, 97]"),
        (lambda logits, t, p: logits + (1.0 if p > 0 and t.shape[1] > 1 else 0.0), "chunked prefill"),
        (lambda logits, t, p: logits + (1.0 if t.shape[0] > 1 else 0.0), "batch of 3"),
        (lambda logits, t, p: logits + (1.0 if p == SMALL_LENGTH - 1 else 0.0), "context limit"),
        (lambda logits, t, p: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_wrong_variant_fails_the_gate_and_the_case_is_named(change, said):
    gate = small_gate(_broken("fast", change), reference)
    assert not gate.passed
    assert said in gate.detail


def test_is_causal_in_a_later_chunk_is_caught():
    """The classic fault: SDPA's is_causal aligns to the upper left, so that a chunk at an offset sees too little."""
    real = F.scaled_dot_product_attention

    def misaligned(q, k, v, mask=None, **options):
        return real(
            q, k, v, is_causal=q.shape[2] > 1, **{key: value for key, value in options.items() if key != "is_causal"}
        )

    patch = pytest.MonkeyPatch()
    patch.setattr(F, "scaled_dot_product_attention", misaligned)
    try:
        gate = small_gate(variants.get("fast").build, reference)
    finally:
        patch.undo()
    assert not gate.passed
    assert "chunk" in gate.detail


def test_a_variant_that_cannot_do_float64_is_judged_in_float32():
    inner = variants.get("fast").build

    def build(config, weights, *, max_length):
        assert weights["model.norm.weight"].dtype == torch.float32, "float32 only"
        return inner(config, weights, max_length=max_length)

    gate = small_gate(build, reference)
    assert gate.passed
    assert "float32" in gate.detail


# --- the op-trace gate ---------------------------------------------------------------------------------------------


def _trace(name: str, *, tokens: int, geometry: str = "plain") -> OpTrace:
    """As `_traced`, of a preset."""
    return _traced(variants.get(name).build, tokens=tokens, geometry=geometry)


def _traced(build: variants.Build, *, tokens: int, geometry: str = "plain") -> OpTrace:
    """The op trace of a warm prefill of `tokens`, or of a decode step after 12 where it is 1."""
    config = small_geometries()[geometry]
    ids = torch.arange(2 * SMALL_LENGTH).view(2, -1) % config.vocab_size
    with torch.no_grad():
        model = build(config, small_weights(config, torch.float32), max_length=SMALL_LENGTH)
        for _ in range(2):
            model.reset()
            model.forward(ids[:, : max(tokens, 12)], 0)
        if tokens > 1:
            model.reset()
            return trace(lambda: model.forward(ids[:, :tokens], 0))
        return trace(lambda: model.forward(ids[:, 12:13], 12))


SAME_OPS = [
    ("team005_hybrid", "team005_proposal"),  # A alone
    ("team005_proposal", "single_file_inline"),  # B alone
    ("path_bhtd_per_op", "path_bhtd_inline"),  # B alone, heads first
    ("team005_split", "team005_hybrid"),  # C alone
    ("team005_split", "modular_rope_unified"),  # C, RoPE tables alone
    *((f"grid_modular_{'_'.join(cell)}", f"grid_single_file_{'_'.join(cell)}") for cell in GRID),
    *((f"grid_{layout}_split_{mask}_{ops}", f"grid_{layout}_unified_{mask}_{ops}")
      for layout in ("modular", "single_file") for _, mask, ops in GRID[:4]),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME_OPS)
@pytest.mark.parametrize("tokens", [1, 16])
@pytest.mark.parametrize("geometry", ["plain", "grouped"])
def test_architecture_alone_leaves_the_op_trace_alone(one, other, tokens, geometry):
    difference = trace_difference(
        _trace(one, tokens=tokens, geometry=geometry), _trace(other, tokens=tokens, geometry=geometry)
    )
    assert difference is None, difference


def test_traces_of_different_ops_differ_and_the_difference_is_named():
    before, after = (_trace(name, tokens=16) for name in ("team006_before", "team006_after"))
    difference = trace_difference(before, after)
    assert difference is not None
    assert "full" in difference  # the mask that is made anew
    made = {name: (first, second) for name, first, second in op_counts(before, after)}
    assert made["full.default"][0] > made["full.default"][1] == 0
    assert all(first != second for first, second in made.values())
    assert op_counts(after, after) == []
    facts = facts_of(before)  # what a run keeps, by which two runs are compared
    assert facts["counts"]["full.default"] == made["full.default"][0]
    assert sum(facts["counts"].values()) == facts["ops"] == len(before.ops)


def test_only_the_worker_before_its_change_makes_a_mask_at_decode():
    traces = {name: _trace(name, tokens=1) for name in ("team006_before", "team006_after", "modular_per_forward")}
    assert traces["team006_after"].digest == traces["modular_per_forward"].digest
    layers = small_geometries()["plain"].num_hidden_layers
    made = {name: (before, after) for name, before, after in op_counts(*list(traces.values())[:2])}
    assert made == {"zeros.default": (layers, 0), "add.Tensor": (made["add.Tensor"][1] + layers, made["add.Tensor"][1])}
    letter = _trace("team006_before_literal", tokens=1)  # which differs in later chunks alone
    assert letter.digest == traces["team006_before"].digest


def test_parts_of_the_worker_are_as_its_teams_wrote_them():
    config = small_geometries()["grouped"]
    model = variants.get("team006_after_in_out").build(
        config, small_weights(config, torch.float32), max_length=SMALL_LENGTH
    )
    assert isinstance(model, Llama)
    for block in model.blocks:
        attention = block.attention
        assert isinstance(attention, Attention)
        lies = [each.weight.t().is_contiguous() for each in (attention.q_proj, attention.k_proj, attention.v_proj)]
        assert lies == [True] * 3 and attention.o_proj.weight.is_contiguous()
    assert op_counts(_trace("team006_after", tokens=16), _trace("team006_after_in_out", tokens=16)) == []
    before, last = (_trace(name, tokens=1) for name in ("team006_before", "team008_last"))
    made = {name: after - then for name, then, after in op_counts(before, last)}
    layers = small_geometries()["plain"].num_hidden_layers
    assert made["cos.default"] == made["sin.default"] == made["complex.default"] == layers, "tables at every call"
    assert made["pow.Scalar"] == made["reciprocal.default"] == layers, "and the frequencies that they are made of"
    assert made["zeros.default"] == made["add.Tensor"] == -layers, "and no mask at decode"
    fresh, last = (_trace(name, tokens=16) for name in ("team006_before", "team008_last"))
    made = {name: after - then for name, then, after in op_counts(fresh, last)}
    assert made["full.default"] == made["triu_.default"] == -layers and "add.Tensor" not in made
    assert made["le.Tensor"] == made["rsub.Scalar"] == layers, "its masks are made by other operations"


def test_masks_are_vectorised_two_ops_each():
    before, after = _trace("team006_before", tokens=16), _trace("team006_after", tokens=16)
    layers = small_geometries()["plain"].num_hidden_layers
    assert len(before.ops) - len(after.ops) == 2 * layers


@pytest.mark.parametrize("name", ["fast", "grid_modular_split_fresh_fused", "transformers_sdpa"])
@pytest.mark.parametrize("tokens", [1, 16])
def test_fused_attention_uses_the_flash_kernel(name, tokens):
    kernels = attention_kernels(_trace(name, tokens=tokens))
    assert kernels == ["_scaled_dot_product_flash_attention_for_cpu.default"]


def test_only_the_last_position_reaches_the_head():
    config = small_geometries()["plain"]
    for name in IN_TORCH:
        if variants.get(name).compiled:
            continue  # nothing of it can be traced; it is the same function as its eager twin
        heads = [op for op in _trace(name, tokens=16).ops if f"[{config.hidden_size}, {config.vocab_size}]" in op]
        assert heads, name
        assert all(f"[2, {config.hidden_size}]" in op for op in heads), (name, heads)


# --- presets -------------------------------------------------------------------------------------------------------


def _changed(one: str, other: str) -> set[str]:
    ours, theirs = variants.get(one).factors, variants.get(other).factors
    return {axis for axis in ours if ours[axis] != theirs[axis]}


def test_each_step_of_the_ladder_changes_what_it_says():
    assert _changed("team003", "team006_before") == {"rope"}
    assert _changed("team006_before", "team006_after") == {"mask"}
    assert _changed("team006_after", "team005_hybrid") == {"mask", "cache"}
    assert _changed("team005_hybrid", "team005_proposal") == {"layout"}
    assert _changed("team005_split", "team005_hybrid") == {"cache"}
    assert _changed("team005_proposal", "team005_integrated") == {"boundary"}
    assert _changed("team005_integrated", "team005_planned") == {"mask_application"}
    assert _changed("team005_proposal", "single_file_inline") == {"granularity"}
    assert _changed("team006_before", "modular_per_forward") == {"mask"}


def test_the_ladder_begins_with_the_worker_and_ends_with_the_best_code():
    from llama_workbench.variants.ladder import build as rung

    for tokens in (1, 16):
        assert _trace("ladder_inlined", tokens=tokens).ops == _trace("team006_after", tokens=tokens).ops
    rungs: list[Any] = [variants.get(name).build for name in variants.names() if name.startswith("ladder_")]
    steps = [dict(build.options) for build in rungs]
    assert [len(taken) for taken in steps] == list(range(len(steps))), "each takes one step more"
    top = functools.partial(rung, **steps[-1], last_only=True)
    assert small_gate(top, reference).passed
    for tokens in (1, 16):
        # (The views of a product are taken in another order, which is no work.)
        assert sorted(_traced(top, tokens=tokens).ops) == sorted(_trace("fast", tokens=tokens).ops)


@pytest.mark.parametrize("tokens", [1, 16])
def test_only_the_cache_differs_between_the_ways_to_keep_one(tokens):
    """In place it is `fast` to the letter; in pages the new tokens are written, and gathered, once for K and for V."""
    ours, other = (_trace(name, tokens=tokens) for name in ("fast", "fast_in_place"))
    assert sorted(ours.ops) == sorted(other.ops)
    layers = small_geometries()["plain"].num_hidden_layers
    differing = {name: (a, b) for name, a, b in op_counts(other, _trace("fast_paged_16", tokens=tokens))}
    computing = {name: counts for name, counts in differing.items() if name.partition(".")[0] not in VIEWS}
    assert computing.pop("index_select.default") == (0, 2 * layers)
    assert computing.pop("index_copy_.default") == (0, 2 * layers)
    assert computing.pop("copy_.default") == (2 * layers, 0)
    assert all(after - before <= 2 for before, after in computing.values()), computing  # the table, once a sequence


@pytest.mark.parametrize("fault", ["stale", "swapped", "short"])
def test_a_wrong_page_fails_the_gate(fault, monkeypatch):
    """A page that was read before instead of a new one, pages in the wrong order, new tokens at the place of others."""
    from llama_workbench.variants import caches

    begin = caches.Paged.begin

    def wrong(self, position, end):
        places, blocks = begin(self, position, end)
        pages = -(-end // self.page)
        if fault == "stale" and pages > 1:
            blocks = blocks.clone()
            blocks[-1] = blocks[-2]
        elif fault == "swapped" and pages > 1:
            blocks = blocks.view(self.batch, -1).flip(1).flatten()
        elif fault == "short" and position:
            places = places - 1
        return places, blocks

    assert small_gate(variants.get("fast_paged_16").build, reference).passed
    monkeypatch.setattr(caches.Paged, "begin", wrong)
    assert not small_gate(variants.get("fast_paged_16").build, reference).passed


FAULTS = ["not rounded", "towards zero", "a token too far", "stale", "another's scale"]


@pytest.mark.parametrize(
    ("rounding", "fault"),
    [*((how, fault) for how in ("bfloat16", "int8") for fault in FAULTS), ("int8", "one scale a token")],
)
def test_a_wrong_rounded_cache_fails_the_gate(rounding, fault, monkeypatch):
    from llama_workbench.variants import caches

    keep = caches.Rounded.keep

    def spoiled(x):
        """[B, T, G, D] as they are to be kept; `keep` rounds them."""
        size = x.abs().amax(-1, keepdim=True)
        step = size / 127 if rounding == "int8" else 2**-8 * x.abs()
        if fault == "towards zero":
            return x - x.sign() * step / 2
        if fault == "another's scale":
            return x / size * size.roll(1, 1) if x.shape[1] > 1 else x * 1.05
        if fault == "one scale a token":
            step = x.abs().amax((2, 3), keepdim=True) / 127
            return torch.round(x / step) * step
        return x

    def wrong(self, i, k, v, position, where):
        if fault == "not rounded":
            past = self.exact[i] if position else (k[:, :0], v[:, :0])
            self.exact = getattr(self, "exact", {})
            self.exact[i] = [torch.cat(both, dim=1) for both in zip(past, (k, v), strict=True)]
            return [each.transpose(1, 2) for each in self.exact[i]]
        found = keep(self, i, spoiled(k), spoiled(v), position, where)
        if fault == "a token too far":
            return [each.roll(1, 2) for each in found]
        if fault == "stale" and position:
            return [torch.cat((each[:, :, :-1], each[:, :, -2:-1]), 2) for each in found]
        return found

    monkeypatch.setattr(caches.Rounded, "keep", wrong)
    assert not gate_of(variants.get(f"fast_kv_{rounding}")).passed


def test_the_grid_is_whole():
    cells = {name for name in variants.names() if name.startswith("grid_")}
    assert len(cells) == 16
    factors = {tuple(sorted(variants.get(name).factors.items())) for name in cells}
    assert len(factors) == 16


def test_every_variant_says_what_it_is_and_who_does_it_so():
    for name in variants.names():
        variant = variants.get(name)
        assert variant.description
        assert variant.source


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(variants.UnknownVariant, match="team006_before"):
        variants.get("team06_before")


def test_the_reference_benchmark_is_frozen():
    digest = hashlib.sha256((FOLDER / "yardstick.py").read_bytes()).hexdigest()
    assert digest == "2801c751ce50cbd56bcc8b580ec78174e08b48b2c064787b7ce715bbadc17a28", (
        "yardstick.py must not change: saved runs are compared by it"
    )


def test_the_reference_benchmark_of_functions_is_frozen():
    file = FOLDER / "function_yardstick.py"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert digest == "00a84f65dedce66ee9133397e06fdbfd6c9e646db26a0b3fdaeb1aa30ad89756", (
        "function_yardstick.py must not change: saved runs are compared by it"
    )
    module = outside.import_file(file)
    answer = hashlib.sha256(json.dumps(module.work(module.inputs(2026))).encode()).hexdigest()
    assert answer == "bb8fd30b22b9387400c9047e03c6fb878f5a667a8d09c37910ab7958fcfdfb6c"
    assert module.inputs(1) != module.inputs(2)


def test_single_file_and_modular_do_not_know_each_other():
    def modules_of(path: Path) -> set[str]:
        tree = ast.parse(path.read_text())
        return {f"{'.' * node.level}{node.module or ''}" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    assert not any("modular" in module for module in modules_of(FOLDER / "single_file.py"))
    assert not any("modular" in module for module in modules_of(FOLDER / "inline.py"))
    for path in (FOLDER / "modular").glob("*.py"):
        assert not any("single_file" in module for module in modules_of(path))


def test_single_file_refuses_levels_it_has_no_branch_for():
    config = small_geometries()["plain"]
    from llama_workbench.variants.single_file import build

    with pytest.raises(ValueError, match="rope = 'gathered'"):
        build(config, {}, max_length=8, settings=Settings(layout="single_file", rope="gathered"))


def test_listing_variants_imports_no_torch():
    code = "import sys; from llama_workbench import variants; variants.names(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("kernel", ["gathered", "complex", "rotate_half"])
def test_every_rope_kernel_gives_the_same_logits(kernel):
    from llama_workbench.variants.modular.model import build

    settings = Settings(rope=kernel)
    gate = small_gate(
        lambda config, weights, *, max_length: build(config, weights, max_length=max_length, settings=settings),
        reference,
    )
    assert gate.passed, gate.detail


def test_mask_caches_hold_what_their_policy_says():
    config = small_geometries()["plain"]
    weights = small_weights(config, torch.float32)
    ids = torch.arange(16)[None]
    with torch.inference_mode():
        per_layer: Any = variants.get("team006_after").build(config, weights, max_length=32)
        per_model: Any = variants.get("team005_hybrid").build(config, weights, max_length=32)
        for model in (per_layer, per_model):
            for length in (4, 7, 4, 9):
                model.reset()
                model.forward(ids[:, :length], 0)
    owners = {id(block.attention.masks) for block in per_layer.blocks}
    assert len(owners) == config.num_hidden_layers
    assert all(len(block.attention.masks.masks) == 3 for block in per_layer.blocks)
    shared = {id(block.attention.masks) for block in per_model.blocks}
    assert len(shared) == 1
    assert len(per_model.blocks[0].attention.masks.masks.masks) == 3


# --- components ----------------------------------------------------------------------------------------------------

SMALL_LAYER = LlamaConfig(64, 64, 64, 1, 4, 4, 16, 64)


@pytest.mark.parametrize("preset", ["team003", "team006_before", "team006_after", "candle", "modular_per_forward"])
@pytest.mark.parametrize("name", components.NAMES)
def test_components_give_what_the_formula_says(preset, name):
    settings = variants.get(preset).settings
    assert settings is not None
    if name == "mask-get" and settings.mask == "per_forward":
        with pytest.raises(ValueError, match="neither"):
            components.build(name, settings, SMALL_LAYER, tokens=9, seed=0)
        return
    part = components.build(name, settings, SMALL_LAYER, tokens=9, seed=0)
    torch.testing.assert_close(part.read(part.run()).double(), part.expected().double(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tokens", [1, 9])
def test_the_best_code_for_the_worker_s_part_of_a_layer_gives_what_the_worker_gives(tokens):
    build = variants.get("ladder_transposed").component
    assert build is not None
    for name in (components.WORKER_LAYER, components.ROPE_ATTENTION):
        part = build(name, SMALL_LAYER, tokens=tokens, seed=0)
        torch.testing.assert_close(part.run().double(), part.expected(), atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="worker-layer"):
        build("rope", SMALL_LAYER, tokens=tokens, seed=0)


def test_an_unknown_component_is_refused():
    with pytest.raises(ValueError, match="mask-create-apply"):
        components.build("mask-crate", Settings(), SMALL_LAYER, tokens=4, seed=0)


# --- outside variants ----------------------------------------------------------------------------------------------


def test_an_outside_variant_is_named_after_its_function(tmp_path, turn):
    (tmp_path / "helper.py").write_text("BASE = 'fast'\n")
    file = tmp_path / "mine.py"
    file.write_text(
        "from llama_workbench import variants\nimport helper\n"
        "def mine(config, weights, *, max_length):\n"
        "    '''My own, and fast.'''\n"
        "    return variants.get(helper.BASE).build(config, weights, max_length=max_length)\n"
    )
    variant = variant_from(parse(f"{file}:mine", option="x"), turn)
    assert (variant.name, variant.description) == ("mine", "My own, and fast.")
    assert small_gate(variant.build, reference).passed


@pytest.mark.parametrize(
    ("text", "body", "said"),
    [
        ("{file}", "", "FILE:FUNCTION"),
        ("{file}:", "", "FILE:FUNCTION"),
        ("nowhere.py:f", "", "no file"),
        ("{file}:f", "def f(): pass\n1 / 0", "ZeroDivisionError"),
        ("{file}:f", "def (", "mine.py line 1: not Python: invalid syntax"),
        ("{file}:f", "def g(): pass", "it defines g"),
        ("{file}:f", "f = 3", "no function 'f'"),
    ],
)
def test_a_bad_outside_variant_is_explained(tmp_path, turn, text, body, said):
    file = tmp_path / "mine.py"
    file.write_text(body)
    with pytest.raises(outside.OutsideVariantError, match=said.replace("(", r"\(")):
        variant_from(parse(text.format(file=file), option="x"), turn)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def g(): pass\nclass H: pass", "mine.py: no function 'f'; it defines g, H"),
        ("x = 1\n\ndef (", "mine.py line 3: not Python"),
        ("f = make()", None),
        ("from somewhere import g as f", None),
        ("from somewhere import *", None),
        ("def __getattr__(name): return name", None),
        ("globals().update(made())", None),
        ("if True:\n    def f(): pass", None),
    ],
)
def test_a_function_is_looked_for_before_anything_runs(tmp_path, body, said):
    file = tmp_path / "mine.py"
    file.write_text(body)
    if said is None:
        outside.look_for(file, "f")
    else:
        with pytest.raises(outside.OutsideVariantError, match=said):
            outside.look_for(file, "f")


# --- digests of source ------------------------------------------------------------------------------------------------

MINE = "import beside\nfrom llama_workbench.variants.presets import presets\n"


def digest_in(home: Path, other: Path, *, mine: str = MINE, beside: str = "NUMBER = 1\n") -> str:
    """Of `mine.py` in a folder, which imports a module from another folder, and one that ships."""
    for folder, name, text in ((home, "mine.py", mine), (other, "beside.py", beside)):
        folder.mkdir(parents=True)
        (folder / name).write_text(text, encoding="utf-8")
    return digest_of_code(home / "mine.py", [home, other], "mine")


def test_a_digest_is_the_same_in_another_place(tmp_path: Path) -> None:
    """On another machine the folders of a run have other names, and so another order."""
    assert digest_in(tmp_path / "a", tmp_path / "b") == digest_in(tmp_path / "d", tmp_path / "c")


def test_a_digest_is_the_same_on_either_side_of_the_workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_in(tmp_path / "a", tmp_path / "a2")
    copied = tmp_path / "m"
    shutil.copytree(ROOT / "variants", copied, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("llama_workbench.variants.digests.HERE", copied)
    assert digest_in(tmp_path / "b", tmp_path / "b2") == digest_in(tmp_path / "y", tmp_path / "z") == before


@pytest.mark.parametrize("change", [{"mine": f"{MINE}# more\n"}, {"beside": "NUMBER = 2\n"}])
def test_a_digest_is_another_one_for_other_code(tmp_path: Path, change: dict[str, str]) -> None:
    assert digest_in(tmp_path / "a", tmp_path / "b") != digest_in(tmp_path / "c", tmp_path / "d", **change)
