"""Compiled variants: the same logits through torch.compile, never eagerly under that name, and one compilation."""

from __future__ import annotations

import pytest
import torch

from llama_workbench import ROOT, variants
from llama_workbench.harness.claims import load_claims
from llama_workbench.harness.gates import small_geometries, small_weights, trace
from llama_workbench.harness.plan import PlanError, Request, make_plan
from llama_workbench.variants import compiling


@pytest.mark.skipif(compiling.missing() is not None, reason=f"torch.compile {compiling.missing()}")
@pytest.mark.parametrize("name", ["fast", "gpt_fast"])
def test_compiled_is_the_same_model_and_is_compiled_once(name: str) -> None:
    config = small_geometries()["grouped"]
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
