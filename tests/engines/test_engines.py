"""Engines as variants: what is held of them without their packages, and their gates where a package is there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from llama_workbench import variants
from llama_workbench.cache import FIX
from llama_workbench.datasets import geometries, workloads
from llama_workbench.harness.claims import reading
from llama_workbench.harness.claims.reading import check_claim
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import PlanError, Request
from llama_workbench.harness.store.schema import Excluded
from llama_workbench.harness.worker.correctness import (
    ROUNDING_TOLERANCES,
    SMALL_LENGTH,
    run_cases,
    small_cases,
    small_gate,
    small_geometries,
    small_weights,
)
from llama_workbench.variants import components
from llama_workbench.variants.engines import files
from llama_workbench.variants.engines.files import EngineError
from llama_workbench.variants.engines.files import folder as engine_folder
from llama_workbench.variants.engines.presets import LLAMA_CPP
from llama_workbench.variants.phase_map import DENOMINATORS
from llama_workbench.variants.presets import Engine
from tests.measure.test_measure import run
from tests.runs import a_claim

pytestmark = pytest.mark.usefixtures("warm")

ENGINES = [name for name in variants.names() if variants.get(name).engine is not None]
LAST = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture(autouse=True)
def _threads_as_in_a_run(monkeypatch):
    monkeypatch.setenv("RAYON_NUM_THREADS", str(torch.get_num_threads()))


def needs(name: str) -> None:
    if missing := variants.missing(name):
        pytest.skip(f"{name} is {missing}")


def reference(geometry: str, dtype: torch.dtype) -> list[list[torch.Tensor]]:
    config = small_geometries()[geometry]
    weights = small_weights(config, dtype)
    model = variants.get("yardstick").build(config, weights, max_length=SMALL_LENGTH)
    return run_cases(model, small_cases(config))


# -- without any of the packages ---------------------------------------------------------------------------------------


def test_an_engine_says_what_to_install():
    assert Engine({"torch": "torch"}).missing() is None
    gone = Engine({"torch": "torch", "no_such_module": "no-such-package", "nor_this": "nor-this"})
    assert gone.missing() == "not installed: pip install no-such-package nor-this"
    others = [name for name in ENGINES if not name.startswith("candle_") or name.startswith("candle_engine")]
    assert others == ["candle_engine", "candle_engine_fresh", "llama_cpp", "llama_cpp_q8", "transformers_int8"]
    assert variants.missing("team006_before") is None


@pytest.mark.parametrize("evidence", ["architecture", "operations", "context"])
@pytest.mark.parametrize("side", ["variant", "baseline"])
def test_an_engine_is_context_and_never_other_evidence(evidence, side):
    hypothesis = {
        "evidence": evidence,
        side: "candle_engine",
        "workloads": ["prefill-15m-t8"],
        "same_within_percent": 1,
    }
    claim = check_claim(a_claim("about-an-engine", hypothesis), "test")
    if evidence == "context":
        assert len(make_plan(Request(), [claim]).comparisons()) == 1
        return
    with pytest.raises(PlanError, match=f'about-an-engine: evidence = "{evidence}", but candle_engine is another'):
        make_plan(Request(), [claim])


def test_a_run_takes_the_engines_that_are_there_and_goes_on_without_the_others(tmp_path, monkeypatch):
    installed = Engine.missing
    monkeypatch.setattr(
        Engine, "missing", lambda self: "not installed: pip install it" if self is LLAMA_CPP else installed(self)
    )
    there = [name for name in ENGINES if variants.missing(name) is None]
    request = Request(variants=("yardstick", "fast", *ENGINES), workloads=("prefill-tiny-t16", "decode-tiny-c16"))
    result, notes = run(tmp_path, request, rounds=6)

    assert Excluded(variant="llama_cpp", reason="not installed: pip install it") in result.manifest.excluded
    assert len(result.manifest.excluded) == len(ENGINES) - len(there)
    assert [note for note in notes if "llama_cpp" in note] == ["llama_cpp is left out", "llama_cpp_q8 is left out"]
    told = {verdict.effects[0].variant: verdict for verdict in result.verdicts}
    assert told["llama_cpp"].verdict == "not evidence" and "not installed" in told["llama_cpp"].reason

    samples = result.folder.read_samples().frame()
    assert {"yardstick", "fast", *there} <= set(samples["variant"])
    assert (samples[["cpu_ns", "wall_ns"]] > 0).all().all()
    for experiment in result.manifest.experiments:
        assert "fast" in experiment.traces
        assert not set(experiment.traces) & set(ENGINES)  # or torch would call those of two engines the same


def test_files_for_an_engine_are_written_once_for_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    config = small_geometries()["grouped"]
    weights = small_weights(config, torch.float32)
    written = []

    def write(folder):
        written.append(folder)
        files.write_safetensors(folder / "model.safetensors", config, weights)

    first = files.folder("test-1", config, weights, write)
    assert files.folder("test-1", config, dict(weights), write) == first and len(written) == 1
    changed = weights | {"model.norm.weight": weights["model.norm.weight"] * 1.001}
    assert files.folder("test-1", config, changed, write) != first
    assert files.folder("test-2", config, weights, write) != first
    assert sorted(path.name for path in first.parent.iterdir() if path.name.startswith(".")) == []
    from safetensors.torch import load_file

    assert load_file(first / "model.safetensors").keys() == weights.keys() - {"lm_head.weight"}


def test_an_engine_with_other_threads_than_the_run_is_refused(monkeypatch):
    monkeypatch.setenv("RAYON_NUM_THREADS", str(torch.get_num_threads() + 1))
    with pytest.raises(files.EngineError, match=f"RAYON_NUM_THREADS={torch.get_num_threads()}$"):
        files.check_threads()


def test_published_figures_stand_beside_workloads_of_the_same_part():
    figures = reading.published()
    for name, figure in figures.items():
        work = workloads.get(name)
        assert work.kind == "component" and work.tokens == int(figure.bench.split("/")[1].split()[0])
        assert (work.geometry, work.component in components.NAMES) == ("7b-1layer", True)
        assert figure.interval is None or figure.interval[0] <= figure.microseconds <= figure.interval[1]
    assert {phase for line in reading.published_shares() for phase in line.phases} <= {
        *DENOMINATORS["attention-subset"]
    }
    assert figures["mask-create-apply-t512"].microseconds == 58832
    assert figures["mask-apply-t512"].microseconds == 55000


# -- with them ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_agrees_with_the_reference(name):
    needs(name)
    variant = variants.get(name)
    gate = small_gate(variant.build, reference, rounding=variant.rounding)
    assert gate.passed, gate.detail
    if variant.rounding:  # rounding shows, and stays within what is allowed
        assert 1e-3 < gate.max_error < gate.tolerance == ROUNDING_TOLERANCES[variant.rounding]
    else:
        assert gate.max_error < 1e-5
    assert gate.cases == 16


@pytest.mark.parametrize("name", ["llama_cpp_q8", "transformers_int8"])
def test_weights_in_int8_do_not_hide_a_fault(name):
    needs(name)
    build = variants.get(name).build

    def forgets(config, weights, *, max_length):
        return build(config, {**weights, LAST: torch.zeros_like(weights[LAST])}, max_length=max_length)

    assert not small_gate(forgets, reference, rounding=variants.get(name).rounding).passed


ALONE = [name for name in components.NAMES if name not in (components.ROPE_ATTENTION, components.WORKER_LAYER)]


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("tokens", [1, 9])
def test_parts_on_candle_give_what_ours_give(name, tokens):
    needs("candle_engine")
    build = variants.get("candle_engine").component
    assert build is not None
    part = build(name, geometries.get("tiny").config, tokens=tokens, seed=3)
    torch.testing.assert_close(part.read(part.run()).double(), part.expected().double(), rtol=0, atol=2e-6)


def test_candle_makes_a_mask_anew_or_looks_it_up_as_the_variant_says() -> None:
    needs("candle_engine")
    config = geometries.get("tiny").config

    def kept(variant: str, name: str) -> bool:
        part = variants.get(variant).component(name, config, tokens=9, seed=0)  # type: ignore[misc]
        return part.run() is part.run()

    assert kept("candle_engine", "mask-get")
    assert not kept("candle_engine_fresh", "mask-get")
    assert not kept("candle_engine", "mask-create")


def test_an_engine_that_cannot_have_its_file_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file"))
    config = geometries.get("tiny").config
    with pytest.raises(EngineError, match=rf"file/engines: the engine's weights cannot be written \(.*\); {FIX}"):
        engine_folder("none-1", config, {"a": torch.ones(3)}, lambda path: None)
