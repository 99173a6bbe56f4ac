"""The dispute's designs on Candle's kernels: what differs between two of them, and what a wrong one is caught by.

Their gates are with those of all engines, in test_engines.py.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from llama_workbench import ROOT, variants
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.metrics.time import TimeHypothesis
from llama_workbench.harness.metrics.unmeasurable import UnmeasurableHypothesis
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import Request
from llama_workbench.harness.worker.correctness import SMALL_LENGTH, small_gate, small_geometries, small_weights
from llama_workbench.variants import compiling, outside
from llama_workbench.variants.presets import Engine
from tests.engines.test_engines import needs, reference

KERNELS = [claim for claim in load_claims(ROOT / "claims") if claim.id.startswith("kernels-")]
NAMES = [
    "candle_worker", "candle_worker_masks", "candle_many_caches", "candle_many_files", "candle_one_file",
    "candle_rewrite_added", "candle_rewrite", "candle_worker_last",
]  # fmt: skip
INSTALL = "not installed: pip install candle-nn"

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture(autouse=True)
def _threads_as_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYON_NUM_THREADS", str(torch.get_num_threads()))


# -- without the wheel -------------------------------------------------------------------------------------------------


def test_every_design_is_in_a_claim_and_the_claims_compare_nothing_else() -> None:
    assert len(KERNELS) == 5
    assert {name for claim in KERNELS for name in claim.names()} == {*NAMES, "candle_engine"}
    parts = [part for claim in KERNELS for part in claim.hypothesis]
    assert all(isinstance(part, TimeHypothesis) and part.evidence == "context" for part in parts)
    assert all(variants.get(name).engine is variants.get("candle_engine").engine for name in NAMES)


def test_without_the_wheel_nothing_of_it_is_planned_and_the_claims_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Engine, "missing", lambda self: INSTALL)
    plan = make_plan(Request(claims=tuple(claim.id for claim in KERNELS)), KERNELS)
    assert plan.experiments == () and len(plan.claims) == len(KERNELS)
    labels = [[part.part for part in claim.hypothesis] for claim in KERNELS]
    assert [[part.part for part in claim.hypothesis] for claim in plan.claims] == labels
    for part in (part for claim in plan.claims for part in claim.hypothesis):
        assert isinstance(part, UnmeasurableHypothesis)
        assert part.reason.startswith("not tested here: candle_") and part.reason.endswith(f": {INSTALL}")


def test_with_the_wheel_all_of_it_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "missing", lambda self: None)
    plan = make_plan(Request(everything=True), KERNELS)
    assert set(plan.comparisons()) == {pair for claim in KERNELS for pair in claim.comparisons()}
    assert {name for each in plan.experiments for name in each.variants} == {*NAMES, "candle_engine"}


def test_what_has_one_side_here_stays_in_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other side may be installed in another environment, and a run says why it is left out."""
    monkeypatch.setattr(Engine, "missing", lambda self: INSTALL)
    claims = load_claims(ROOT / "claims")
    plan = make_plan(Request(claims=("own-layers-slower",)), claims)
    assert any("candle_engine" in each.variants for each in plan.experiments)


def test_one_file_and_many_do_not_know_each_other() -> None:
    engines = Path(variants.__file__).parent / "engines"

    def imported(path: Path) -> set[str]:
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        return {f"{'.' * node.level}{node.module or ''}" for node in nodes}

    many = [path for path in (engines / "candle_layers").glob("*.py") if path.stem != "__init__"]
    assert len(many) == 8
    assert not any("candle_layers" in module for module in imported(engines / "candle_one_file.py"))
    assert not any("candle_one_file" in module for path in many for module in imported(path))


# -- with it -----------------------------------------------------------------------------------------------------------


class Recorded:
    """A tensor of Candle that writes down what is called on it."""

    def __init__(self, tensor: Any, log: list[str]) -> None:
        self.tensor, self.log = tensor, log

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.tensor, name)
        return recorded(name, found, self.log, self.tensor.shape) if callable(found) else found


def recorded(name: str, call: Callable[..., Any], log: list[str], *shapes: Any) -> Callable[..., Any]:
    """The call, which writes down its name with the shapes and numbers that it is given."""

    def plain(value: Any) -> Any:
        if isinstance(value, Recorded):
            return value.tensor
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list) else value

    def shown(value: Any) -> Any:
        return value.shape if isinstance(value, Recorded) else [shown(v) for v in value] if name == "cat" else "..."

    def made(*given: Any, **more: Any) -> Any:
        told = [value if isinstance(value, int | float | tuple) else shown(value) for value in given]
        log.append(f"{name} {shapes} {told}")
        out = call(*map(plain, given), **more)
        return Recorded(out, log) if hasattr(out, "flatten_all") else out

    return made


for operator in ("add", "sub", "mul", "truediv", "gt", "le"):
    name = f"__{operator}__"
    setattr(Recorded, name, lambda self, other, name=name: self.__getattr__(name)(other))


def operations(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All that a design asks of Candle in a prompt, a chunk after it, and a token."""
    import candle
    from candle import functional, utils

    from llama_workbench.variants.engines import candle_io

    log: list[str] = []
    config = small_geometries()["grouped"]
    weights = small_weights(config, torch.float32)
    with monkeypatch.context() as patch:
        load = utils.load_safetensors
        patch.setattr(candle_io, "read", lambda path: {k: Recorded(v, log) for k, v in load(str(path)).items()})
        patch.setattr(utils, "save_safetensors", recorded("save", utils.save_safetensors, []))
        for module, called in ((candle, ("cat", "zeros", "Tensor")), (functional, ("softmax", "silu"))):
            for function in called:
                patch.setattr(module, function, recorded(function, getattr(module, function), log))
        model = variants.get(name).build(config, weights, max_length=SMALL_LENGTH)
        tokens = torch.arange(12)[None]
        for _ in range(2):  # the second time masks are there
            log.clear()
            model.reset()
            for begin, end in ((0, 6), (6, 11), (11, 12)):
                model.forward(tokens[:, begin:end], begin)
    return log


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("candle_one_file", "candle_many_files", True),
        ("candle_many_files", "candle_many_caches", True),
        ("candle_worker_masks", "candle_many_caches", True),  # each layer asks a dict of its own, or all the same one
        ("candle_worker", "candle_worker_masks", False),
        ("candle_rewrite_added", "candle_one_file", False),
        ("candle_rewrite", "candle_rewrite_added", False),
        ("candle_worker_last", "candle_worker", False),
    ],
)
def test_layout_and_ownership_change_no_operation_and_all_else_does(
    one: str, other: str, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("candle_engine")
    first, second = operations(one, monkeypatch), operations(other, monkeypatch)
    assert len(first) > 100
    assert (first == second) is alike


def test_models_of_a_process_share_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("candle_engine")
    from candle import utils

    read: list[str] = []
    load = utils.load_safetensors

    def loaded(path: str) -> dict[str, Any]:
        read.append(path)
        return load(path)

    monkeypatch.setattr(utils, "load_safetensors", loaded)
    config = small_geometries()["grouped"]
    weights = {
        name: weight + 0.001 for name, weight in small_weights(config, torch.float32).items()
    }  # read by no other
    for name in ("candle_engine", *NAMES):
        variants.get(name).build(config, weights, max_length=SMALL_LENGTH)
    assert len(read) == 2, "all, and Q, K and V as the worker had them"


def test_the_rewrite_has_half_the_copies_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("candle_engine")

    def copies(name: str) -> int:
        return sum(line.startswith("contiguous") for line in operations(name, monkeypatch))

    chunks, layers = 2, small_geometries()["grouped"].num_hidden_layers
    # Q and K there and back, Q and K for the scores, V, output: eight; Q, K, V, output: four. Each call has the head's.
    assert copies("candle_worker") - 3 == 8 * chunks * layers
    assert copies("candle_rewrite") - 3 == 4 * chunks * layers
    assert copies("candle_engine") - 3 == 4 * chunks * layers, "of one token none, as in Candle 0.9"


def test_a_mask_is_made_in_each_layer_and_call_or_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("candle_engine")
    layers = small_geometries()["grouped"].num_hidden_layers
    before, after = operations("candle_worker", monkeypatch), operations("candle_worker_masks", monkeypatch)
    assert sum(line.startswith("copy") for line in before) == 2 * layers  # a prompt and a chunk
    assert sum(line.startswith("zeros") for line in before) == layers  # a token
    assert not any(line.startswith(("copy", "zeros")) for line in after)
    last = operations("candle_worker_last", monkeypatch)  # TEAM-008's had a mask for prompts alone
    for operation in ("__le__", "to_dtype", "__sub__", "broadcast_mul"):
        of_masks = tuple(f"{operation} ({shape},)" for shape in ((6, 6), (5, 11)))
        assert sum(line.startswith(of_masks) for line in last) == 2 * layers, operation
    assert not any(line.startswith(("copy", "zeros")) for line in last)


def without_mask(length: int, kv_length: int, dtype: Any) -> Any:
    import candle

    return candle.zeros((length, kv_length), dtype=dtype)


def wrong_masks() -> Iterator[tuple[str, Callable[..., Any]]]:
    """What is wrong, and the maker of masks that is."""
    needs("candle_engine")
    from llama_workbench.variants.engines.candle_layers.masks import additive_mask

    yield "nothing is masked", without_mask
    yield (
        "by T alone: a later chunk is not masked",
        lambda length, kv_length, dtype: (additive_mask if length == kv_length else without_mask)(
            length, kv_length, dtype
        ),
    )
    yield (
        "shifted by a key",
        lambda length, kv_length, dtype: (
            additive_mask(length + 1, kv_length, dtype).narrow(0, 0, length)
            if length < kv_length
            else additive_mask(length, kv_length, dtype)
        ),
    )


@pytest.mark.parametrize("name", ["candle_worker", "candle_worker_masks", "candle_many_files"])
def test_a_wrong_mask_in_many_files_fails_the_gate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for what, make in wrong_masks():
        with monkeypatch.context() as patch:
            patch.setattr("llama_workbench.variants.engines.candle_layers.masks.additive_mask", make)
            gate = small_gate(variants.get(name).build, reference)
        assert not gate.passed, what
        assert "logits off by" in gate.detail or "NaN" in gate.detail


@pytest.mark.parametrize("name", ["candle_one_file", "candle_rewrite_added", "candle_rewrite"])
def test_a_wrong_mask_in_one_file_fails_the_gate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("candle_engine")
    from llama_workbench.variants.engines.candle_one_file import Cache

    right = Cache.mask

    def by_length(self: Any, length: int, kv_length: int) -> Any:
        return right(self, length, kv_length) if length == kv_length else None

    for wrong in (lambda self, length, kv_length: None, by_length):
        with monkeypatch.context() as patch:
            patch.setattr(Cache, "mask", wrong)
            gate = small_gate(variants.get(name).build, reference)
        assert not gate.passed and "logits off by" in gate.detail


# -- compiled code of our own ------------------------------------------------------------------------------------------

COMPILED = ROOT / "claims" / "compiled"


def test_the_compiled_functions_are_right() -> None:
    if missing := compiling.missing():
        pytest.skip(f"compiled code {missing}")
    compiled = outside.import_file(COMPILED / "compiled.py")
    for masks in (compiled.masks_1, compiled.masks_8, compiled.masks_32, compiled.masks_128):
        length, times = masks(3)
        hidden = times * length * (length - 1) / 2
        assert compiled.masks_made(length, times) == compiled.masks_found(length, times) == hidden
    for queries in (compiled.queries_1, compiled.queries_8, compiled.queries_32, compiled.queries_128):
        x, cos, sin, times = queries(5)
        turned = torch.complex(*map(torch.from_numpy, (x[..., 0::2].copy(), x[..., 1::2].copy())))
        turned = turned * torch.complex(*map(torch.from_numpy, (cos, sin)))[:, None]
        expected = torch.stack((turned.real, turned.imag), -1).flatten(-2)
        for rotate in (compiled.rope_gathered, compiled.rope_one_pass):
            torch.testing.assert_close(torch.from_numpy(rotate(x, cos, sin, times)), expected, rtol=0, atol=1e-5)
    x, times = compiled.token(7)
    ours, theirs = (torch.from_numpy(pass_on(x, times)) for pass_on in (compiled.layers_called, compiled.layers_in_one))
    torch.testing.assert_close(ours, theirs)
    assert not torch.equal(ours, torch.from_numpy(x))


def test_without_a_compiler_the_functions_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(outside.OutsideVariantError, match=r"needs a C\+\+ compiler .*: install g\+\+"):
        outside.import_file(COMPILED / "compiled.py")


def test_the_claims_about_compiled_code_are_planned_by_themselves() -> None:
    claims = load_claims(COMPILED)
    assert [claim.id for claim in claims] == ["compiled-calls", "compiled-lookup", "compiled-rope"]
    plan = make_plan(Request(), claims)
    assert {each.workload.kind for each in plan.experiments} == {"call"}
    assert set(plan.comparisons()) == {pair for claim in claims for pair in claim.comparisons()}
