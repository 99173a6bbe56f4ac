"""Compiled variants: the same logits through torch.compile, never eagerly under that name, and one compilation.

The compiler takes some five seconds of a processor for each kind of call, and eleven kinds for each geometry of the
gate: code is generated for a few of them, all others are only captured. (Each run that measures a compiled variant
takes it through the whole gate first, compiled as it is timed.)
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from llama_workbench import ROOT, variants
from llama_workbench.datasets import geometries
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import PlanError, Request
from llama_workbench.harness.worker.correctness import (
    SMALL_LENGTH,
    TOLERANCES,
    judge_logits,
    run_cases,
    small_cases,
    small_geometries,
    small_weights,
    trace,
)
from llama_workbench.variants import compiling

pytestmark = pytest.mark.covers("variants", "harness/worker")

needs_compiler = pytest.mark.skipif(compiling.missing() is not None, reason=f"torch.compile {compiling.missing()}")

GROUPED = geometries.get("tiny-gqa")


@pytest.fixture(autouse=True, scope="module")
def _what_the_compiler_leaves_slows_nobody() -> Iterator[None]:
    """Its millions of objects would be walked through by each collection in the tests that follow in this process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    gc.collect()
    gc.freeze()


@pytest.fixture
def captured_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch.compile captures graphs, guards them and runs them as they are: generating code would take minutes."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **options: real(function, backend="eager", **options))
    compiling.compiled.cache_clear()
    yield
    compiling.compiled.cache_clear()
    torch._dynamo.reset()


@pytest.mark.usefixtures("captured_only")
@pytest.mark.parametrize(("name", "geometry"), [
    ("fast_compiled", "grouped"),
    ("fast_rows_compiled", "grouped"),
    pytest.param("gpt_fast_compiled", "plain", marks=pytest.mark.long),
    pytest.param("team006_after_compiled", "grouped", marks=pytest.mark.long),
    pytest.param("team005_planned_compiled", "plain", marks=pytest.mark.long),
    pytest.param("transformers_static_compiled", "grouped", marks=pytest.mark.long),
])  # fmt: skip
def test_every_kind_of_call_is_captured_and_is_the_librarys_in_float64(name: str, geometry: str) -> None:
    config = replace(small_geometries()[geometry], num_hidden_layers=1)  # each layer takes as long to capture
    weights, cases = small_weights(config, torch.float64), small_cases(config)
    expected, found = (
        run_cases(variants.get(each).build(config, weights, max_length=SMALL_LENGTH), cases)
        for each in ("transformers_eager", name)
    )
    gate = judge_logits(cases, found, expected, torch.float64)
    assert gate.passed, gate.detail
    assert gate.cases == len(cases) == 8
    assert gate.tolerance == TOLERANCES[torch.float64]


@pytest.fixture(params=[pytest.param("fast", marks=needs_compiler), "gpt_fast", "team006_after", "transformers_static"])
def name(request: pytest.FixtureRequest) -> str:
    """Code is generated for the one variant, and the others only captured: it takes the compiler as long again."""
    if request.param != "fast":
        request.getfixturevalue("captured_only")
    return str(request.param)


def test_compiled_is_the_same_model_and_is_compiled_once(name: str) -> None:
    config = replace(GROUPED.config, num_hidden_layers=1)
    weights = small_weights(config, torch.float32)
    tokens = torch.arange(13)[None]
    with torch.inference_mode():
        models = [variants.get(name).build(config, weights, max_length=16)]
        models += [variants.get(f"{name}_compiled").build(config, weights, max_length=16) for _ in range(2)]
        for start, stop in ((0, 7), (7, 8), (8, 13)):  # prefill, decode and a chunk at an offset
            eager, first, again = (model.forward(tokens[:, start:stop], start) for model in models)
            torch.testing.assert_close(first, eager, rtol=1e-5, atol=1e-5)
            assert torch.equal(first, again)
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        third = variants.get(f"{name}_compiled").build(config, weights, max_length=16)
        third.forward(tokens[:, :7], 0)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs > 0
    with pytest.raises(RuntimeError, match="dispatch mode"):  # a trace would run it eagerly; it says so instead
        trace(lambda: variants.get(f"{name}_compiled").build(config, weights, max_length=16).forward(tokens, 0))


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert "install g++" in (variants.missing("fast_compiled") or "")
    monkeypatch.setenv("CXX", "my-compiler")
    assert "my-compiler" in (variants.missing("fast_compiled") or "")
    assert variants.missing("fast") is None


def test_compiled_code_is_no_evidence_on_architecture() -> None:
    [claim] = [claim for claim in load_claims(ROOT / "claims") if claim.id == "single-file-faster"]
    part = claim.hypothesis[0].model_copy(update={"variant": "fast_compiled"})
    with pytest.raises(PlanError, match="fast_compiled is compiled"):
        make_plan(Request(), [claim.model_copy(update={"hypothesis": (part,)})])
