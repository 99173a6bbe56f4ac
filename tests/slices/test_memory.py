"""What variants hold: found from outside and computed from their policies, byte for byte the same."""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from llama_workbench import ROOT, variants
from llama_workbench.cache import cache_directory
from llama_workbench.datasets import geometries, workloads
from llama_workbench.datasets.checkpoints import synthesize
from llama_workbench.harness.metrics.base import PassContext
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import Request
from llama_workbench.harness.slices.memory import worker as memory_worker
from llama_workbench.harness.slices.memory.metric import (
    METRIC,
    QUANTITIES,
    disagreement,
    memory_results,
)
from llama_workbench.harness.slices.memory.worker import (
    bytes_by_kind,
    kind_of,
    live_tensors,
    memory,
    memory_held,
    tensors_since,
)
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.worker.correctness import small_weights
from llama_workbench.harness.worker.models import model_variant
from llama_workbench.harness.worker.state import Subject, Worker, WorkerError
from llama_workbench.harness.worker.torch_verbs import open_workload
from llama_workbench.variants.memory_policy import (
    KINDS,
    MOST_LENGTHS,
    Policy,
    doublings,
    expected,
    forwards,
    served_lengths,
)
from llama_workbench.variants.presets import Engine, presets
from tests.runs import Quiet, measurement_of
from tests.variants.test_compiled import (  # noqa: F401
    GROUPED,
    _what_the_compiler_leaves_slows_nobody,
    captured_only,
    needs_compiler,
)

pytestmark = pytest.mark.usefixtures("warm")

OUTSIDE = ROOT / "tests" / "outside_variants.py"
T16 = "prefill-tiny-t16"

OURS = {name: preset for name, preset in presets().items() if preset.engine is None}

# Of the grid's sixteen cells two: its other axes hold nothing. Those that are compiled: test_compiled.
PRESETS = [name for name, preset in OURS.items() if not (preset.compiled or name.startswith("grid_"))]
PRESETS += ["grid_modular_unified_per_model_fused", "grid_single_file_split_fresh_composite"]

ONE_OF_EACH_POLICY = (
    "team006_before", "team006_after", "team005_hybrid", "modular_per_forward", "modular_rope_unified", "candle",
    "single_file_inline", "transformers_sdpa", "transformers_static", "fast", "fast_paged_16", "fast_kv_bfloat16",
    "fast_kv_int8", "yardstick",
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _collector_walks_only_what_is_new() -> Iterator[None]:
    """As in a worker, where torch and its like are frozen; here also what the library imports at its first call."""
    memory_held(opened(workloads.get(T16)), T16, "transformers_static")
    gc.collect()
    gc.freeze()
    with torch.inference_mode():
        yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def tiny() -> Worker:
    return opened(workloads.get(T16))


def opened(workload: workloads.Workload) -> Worker:
    made = Worker({"process": 0, "added": {}, "cache": str(cache_directory()), "threads": 1})
    folder = synthesize(geometries.get(workload.geometry), cache=cache_directory())
    open_workload(made, workload.model_dump(), str(folder), 0)
    return made


def agree(found: dict[str, Any]) -> None:
    for step in found["steps"]:
        assert disagreement(step) == "", step["lengths"]


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_found_is_what_the_policies_say(tiny: Worker, name: str) -> None:
    found = memory_held(tiny, T16, name)
    assert [len(step["lengths"]) for step in found["steps"]] == [0, 1, 2, 4, 8, 16]
    agree(found)


@pytest.mark.parametrize("name", ONE_OF_EACH_POLICY)
@pytest.mark.parametrize(
    "changes",
    [
        {"context": 7, "batch": 3, "dtype": "bfloat16", "lengths": "distinct"},
        {"context": 3, "chunk": 5, "geometry": "tiny-gqa"},
    ],
    ids=["context, batch, bfloat16", "chunks, grouped queries"],
)
def test_also_behind_a_context_in_chunks_batches_and_half_precision(name: str, changes: dict[str, Any]) -> None:
    workload = workloads.get(T16).model_copy(update=changes)
    agree(memory_held(opened(workload), T16, name))


# --- kinds, against parts that are known ----------------------------------------------------------------------------


def address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def known_parts(model: Any, given: set[int]) -> dict[int, str]:
    """Storage → kind of a modular model, by where its code keeps each part."""
    parts: dict[int, str] = {}
    for block in model.blocks:
        attention = block.attention
        for tensor in (attention.kv.k, attention.kv.v):
            parts[address(tensor)] = "kv"
        policy = getattr(attention.masks, "masks", attention.masks)
        policy = getattr(policy, "masks", policy)  # the unified Cache has a policy, and that a dict
        kept = policy.values() if isinstance(policy, dict) else [getattr(policy, "mask", None)]
        for mask in kept:
            if mask is not None:
                parts[address(mask)] = "mask"
        parts |= {address(table): "rope" for table in attention.rotary.tables.parts}
        for projection in (attention.q_proj, attention.k_proj):
            if address(projection.weight) not in given:
                parts[address(projection.weight)] = "repacked"
    return parts


@pytest.mark.parametrize(
    "name",
    [name for name in PRESETS if variants.get(name).settings and variants.get(name).factors["layout"] == "modular"],
)
@pytest.mark.parametrize("tokens", [2, 8, 16], ids="T={}".format)  # 8 and 16: masks shaped like RoPE tables of D = 16
def test_each_tensor_of_the_modular_model_gets_its_kind(name: str, tokens: int) -> None:
    config = geometries.get("tiny-gqa").config
    weights = small_weights(config, torch.float32)
    before = live_tensors()
    model = variants.get(name).build(config, weights, max_length=17)
    built = set(tensors_since(before))
    for length in sorted({2, tokens}):
        model.reset()
        model.forward(torch.arange(length)[None] + 1, 0)
    found = tensors_since(before)
    kinds = {
        place: kind_of(tensor, config, lengths=(tokens, 17), built=place in built) for place, tensor in found.items()
    }
    assert kinds == known_parts(model, {address(tensor) for tensor in weights.values()})


CONFIG = geometries.get("tiny-gqa").config  # D = 16, H = 4, G = 2, E = 64
ANGLES = torch.outer(torch.arange(40.0), 10_000 ** (-torch.arange(8.0) / 8))


@pytest.mark.parametrize(
    ("tensor", "kind"),
    [
        (torch.full((9, 9), -math.inf).triu(1), "mask"),
        (torch.full((9, 20), torch.finfo(torch.float16).min, dtype=torch.float16).triu(12), "mask"),
        (torch.ones(1, 1, 40, 40, dtype=torch.bool).tril(), "mask"),
        (torch.ones(5, 9, dtype=torch.uint8).triu(5), "mask"),
        (torch.ones(9, 9, dtype=torch.bool), "other"),
        (torch.full((9, 9), -1.0).triu(1), "other"),
        (torch.full((9, 9), -math.inf).tril(-1).index_fill(0, torch.tensor([4]), -math.inf), "other"),
        (ANGLES.cos(), "rope"),
        (torch.cat((ANGLES, ANGLES), -1).sin().bfloat16()[None, None], "rope"),
        (torch.polar(torch.ones_like(ANGLES), ANGLES), "rope"),
        (10_000 ** (-torch.arange(8.0) / 8), "rope"),
        (2 * ANGLES.cos(), "other"),
        (0.1 + ANGLES.cos() / 2, "other"),
        (torch.zeros(40, 16), "other"),
        (torch.zeros(1, 2, 40, 16), "kv"),
        (torch.zeros(2, 2, 1, 40, 2, 16), "kv"),
        (torch.zeros(1, 40, 2 * 16), "kv"),
        (torch.zeros(1, 2, 40, 1), "kv"),
        (torch.zeros(1, 2, 39, 1), "other"),
        (torch.zeros(1, 2, 39, 16), "other"),
        (torch.zeros(1, 40, 16), "other"),
        (torch.ones(64, 64), "repacked"),
        (torch.ones(3), "other"),
    ],
)
def test_the_rules_tell_look_alikes_apart(tensor: Tensor, kind: str) -> None:
    assert kind_of(tensor, CONFIG, lengths=(40,), built=True) == kind
    assert kind_of(torch.ones(7, CONFIG.hidden_size), CONFIG, lengths=(40,), built=False) == "other"


class Hidden:
    """Holds tensors where a walk over attributes of ordinary objects would miss them, and views where it would not."""

    __slots__ = ("_call", "views")

    def __init__(self, weights: dict[str, Tensor]) -> None:
        mask, spare = torch.full((16, 16), -math.inf).triu_(1), torch.empty(1000)
        self._call = lambda: (mask, GLOBAL)
        self.views = [spare[:10], spare[990:], weights["model.norm.weight"][3:]]

    def __call__(self) -> Any:
        return self._call()


GLOBAL: list[Tensor] = []


def test_a_tensor_counts_wherever_it_is_held_and_once() -> None:
    weights = small_weights(CONFIG, torch.float32)
    before = live_tensors()
    hidden = Hidden(weights)
    GLOBAL.append(torch.ones(50))
    try:
        found = bytes_by_kind(tensors_since(before), CONFIG, lengths=(16,), built=frozenset())
        assert hidden()
    finally:
        GLOBAL.clear()
    assert found == dict.fromkeys(KINDS, 0) | {"mask": 16 * 16 * 4, "other": 4000 + 200}
    del hidden
    assert not tensors_since(before)


class StaticRows:
    """One S×S mask for good, its rows indexed (gpt-fast, litgpt): a policy of which no preset is made."""

    def __init__(self, longest: int) -> None:
        self.table = torch.full((longest, longest), -math.inf).triu_(1)

    def begin(self, length: int, kv_length: int) -> None:
        pass

    def get(self, length: int, kv_length: int) -> Tensor | None:
        return None if length == 1 else self.table[kv_length - length : kv_length, :kv_length]


def test_static_rows_in_the_modular_model_are_one_mask_from_the_start() -> None:
    variant = variants.get("team006_before")
    weights = small_weights(CONFIG, torch.float32)
    tokens = torch.arange(12)[None] + 1
    wanted = variant.build(CONFIG, weights, max_length=17).forward(tokens, 0)
    before = live_tensors()
    model: Any = variant.build(CONFIG, weights, max_length=17)
    model.masks = StaticRows(17)
    for block in model.blocks:
        block.attention.masks = model.masks
    built = frozenset(tensors_since(before))
    assert variant.memory is not None
    policy = replace(variant.memory, mask="static")

    def check(lengths: list[int], state: str) -> None:
        computed = expected(policy, CONFIG, lengths, item_bytes=4, max_length=17)[state]
        assert bytes_by_kind(tensors_since(before), CONFIG, lengths=(17,), built=built) == computed

    check([], "held")
    logits = model.forward(tokens, 0)
    assert torch.allclose(logits, wanted, atol=1e-5)
    del logits
    check([12], "held")
    model.reset()
    check([12], "kept")


def test_what_is_filled_shows_in_pages_and_not_in_one_buffer() -> None:
    workload = workloads.get(T16).model_copy(update={"tokens": 64})
    worker = opened(workload)
    held = {name: memory_held(worker, T16, name) for name in ("fast_in_place", "fast_paged_16", "transformers_sdpa")}
    percent = {name: [100 * fill["kv"] / row["kv_bytes"] for fill in row["fills"]] for name, row in held.items()}
    assert percent == {
        "fast_in_place": [100 * 65 / 64] * 3, "fast_paged_16": [25, 50, 100], "transformers_sdpa": [12.5, 50, 100],
    }  # fmt: skip


@pytest.mark.parametrize("batch", [1, 3])
def test_pages_are_taken_as_they_fill_and_kept_for_the_next_sequence(batch: int) -> None:
    """A token at a time past the end of a page, and a shorter sequence after a longer one."""
    variant, weights = variants.get("fast_paged_16"), small_weights(CONFIG, torch.float32)
    assert variant.memory is not None
    before = live_tensors()
    model: Any = variant.build(CONFIG, weights, max_length=100)
    built = frozenset(tensors_since(before))
    longest = 0
    for length in (5, 16, 17, 40, 3):
        model.reset()
        model.forward(torch.ones(batch, length - 1 or 1, dtype=torch.long), 0)
        model.forward(torch.ones(batch, 1, dtype=torch.long), length - 1)
        longest = max(longest, length)
        computed = expected(variant.memory, CONFIG, [longest, length], item_bytes=4, max_length=100, batch=batch)
        found = bytes_by_kind(tensors_since(before), CONFIG, lengths=(16,), built=built)
        assert found == computed["held"]
        row = 2 * CONFIG.num_hidden_layers * CONFIG.num_key_value_heads * CONFIG.head_dim * 4
        assert found["kv"] == batch * row * 16 * -(-longest // 16)  # in place it is 100 positions from the first on


# --- computed -------------------------------------------------------------------------------------------------------


def test_masks_of_the_disputes_own_size() -> None:
    """Seven billion parameters, T = 4096: 64 MiB a layer, 2 GiB in 32 layers, where one for the model is 64 MiB."""
    config = replace(CONFIG, num_hidden_layers=32)

    def masks(name: str, lengths: list[int]) -> int:
        policy = variants.get(name).memory
        assert policy is not None
        return expected(policy, config, lengths, item_bytes=4, max_length=4097)["held"]["mask"]

    mib = 1 << 20
    assert [masks(name, [4096]) / mib for name in ("team006_before", "team006_after", "team005_hybrid", "candle")] == [
        0, 2048, 64, 16,
    ]  # fmt: skip
    # A third of the largest for each length more, and no end to it.
    growth = [masks("team005_hybrid", served_lengths(4096, count)) / (64 * mib) for count in doublings(4096)]
    assert growth == pytest.approx([(n + 1) * (2 * n + 1) / (6 * n) for n in (1, 2, 4, 8, 16, 32)])


@pytest.mark.parametrize("longest", [1, 2, 3, 16, 31, 33, 127, 2048])
def test_lengths_are_distinct_rising_and_nested(longest: int) -> None:
    counts = doublings(longest)
    assert counts[-1] <= min(longest, MOST_LENGTHS) < 2 * counts[-1]
    before: set[int] = set()
    for count in counts:
        lengths = served_lengths(longest, count)
        assert lengths == sorted({*lengths}) and len(lengths) == count
        assert lengths[0] >= 1 and lengths[-1] == longest and before <= {*lengths}
        before = {*lengths}
    with pytest.raises(ValueError, match=f"expected 1 to {longest}"):
        served_lengths(longest, longest + 1)


def test_forwards_of_a_sequence_and_policies_of_all_that_ship() -> None:
    assert forwards(5) == [(5, 5)]
    assert forwards(5, context=3) == [(3, 3), (5, 8)]
    assert forwards(5, context=3, chunk=2) == [(3, 3), (2, 5), (2, 7), (1, 8)]
    assert forwards(4, chunk=2) == [(2, 2), (2, 4)]
    assert all(isinstance(preset.memory, Policy) for preset in OURS.values())
    assert variants.Variant("mine", variants.get("fast").build, "", "").memory is None


# --- the passes -----------------------------------------------------------------------------------------------------


def test_it_stops_before_memory_runs_out(tiny: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    room = iter([1 << 40, 1 << 40, -(1 << 40)])
    monkeypatch.setattr(tiny.device, "available_bytes", lambda: next(room))
    assert [len(step["lengths"]) for step in memory_held(tiny, T16, "fast")["steps"]] == [0, 1, 2]


def test_no_bytes_are_claimed_of_tensors_that_are_not_torchs(tiny: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine caches masks as well; that torch sees none of them is no finding."""
    monkeypatch.setattr(
        memory_worker, "model_variant", lambda worker, name: replace(variants.get("fast"), engine=Engine({}))
    )
    with pytest.raises(WorkerError, match="nobody counts them"):
        memory_held(tiny, T16, "candle_engine")
    row = {"workload": T16, "variant": "candle_engine", "reason": "an engine", "seconds": 1.0}
    found = {finding.subject[1]: finding for finding in memory_results([row])}
    assert math.isnan(found["masks_of_weights"].value) and found["masks_of_weights"].reason == "an engine"


@pytest.mark.parametrize("name", ["team006_after", "transformers_static"])
def test_the_memory_pass_counts_the_same_bytes(tiny: Worker, name: str) -> None:
    tiny.benches[T16].subjects[name] = Subject(model_variant(tiny, name))
    found = memory(tiny, T16, name)
    held = memory_held(tiny, T16, name)
    assert found["cache_bytes"] == sum(held["steps"][1]["held"].values())
    assert found["parameter_bytes"] == 4 * geometries.parameter_count(geometries.get("tiny").config)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[tuple[str, str], Any], Quiet]:
    """Real processes: a variant that keeps masks, one that kills its process, and what cannot be swept."""
    folder = RunFolder.create(tmp_path_factory.mktemp("memory") / "run")
    plan = make_plan(
        Request(
            variants=("yardstick", "team006_after", "kills"),
            added=(f"{OUTSIDE}:kills",),
            workloads=(T16, "decode-tiny-c16"),
        ),
        [],
    )
    progress = Quiet()
    folders, cache = {"tiny": synthesize(geometries.get("tiny"), cache=cache_directory())}, cache_directory()
    measurement = measurement_of(plan, folder.path, folders=folders, cache=cache, progress=progress)
    wanted = [
        (T16, "kills"), (T16, "fast"), ("decode-tiny-c16", "yardstick"), ("prefill-15m-t8", "yardstick"),
        (T16, "team006_after"), (T16, "team006_after"),
    ]  # fmt: skip
    METRIC.run([Mock(**{"subjects.return_value": wanted})], PassContext(measurement, folder, progress, folder.path, 0))
    records = folder.records("memory_sweep.json")
    return {(record["workload"], record["variant"]): record for record in records}, progress


def test_what_dies_or_cannot_be_swept_has_its_reason_and_the_rest_goes_on(swept: Any) -> None:
    records, progress = swept
    reasons = {pair: record["reason"] for pair, record in records.items() if record["reason"]}
    assert len(records) == 5 and len(reasons) == len(progress.notes) == 4
    assert "SIGKILL" in reasons[T16, "kills"]
    assert "not measured on this workload" in reasons[T16, "fast"]
    assert "this one is decode" in reasons["decode-tiny-c16", "yardstick"]
    assert "not in this run" in reasons["prefill-15m-t8", "yardstick"]


def test_findings_are_the_bytes_in_percent(swept: Any) -> None:
    records, _ = swept
    record = records[T16, "team006_after"]
    agree(record)
    assert record["planned_lengths"] == 16 == len(record["served"])
    found = {finding.subject: finding for finding in memory_results(list(records.values()))}
    assert len(found) == 5 * len(QUANTITIES)

    def of(quantity: str, variant: str = "team006_after") -> Any:
        return found["memory", quantity, T16, variant, ""]

    config = geometries.get("tiny").config
    masks = 2 * 4 * sum(n * n for n in range(2, 17))  # two layers, float32; a single token needs none
    weights = 4 * geometries.parameter_count(config)
    assert record["weights_bytes"] == weights
    assert of("masks_of_weights").value == pytest.approx(100 * masks / weights)
    assert of("kv_at_eighth").value == of("kv_at_full").value == 100 * 17 / 16
    assert of("masks_of_weights").count == 16
    detail = of("masks_of_weights").detail
    assert f"{masks:,} bytes of masks after 16 lengths of up to 16 tokens, weights {weights:,}" in detail
    assert "times 1.25, 1.50, 1.70, 1.83" in detail and "computed" not in detail
    dead = of("masks_of_weights", "kills")
    assert math.isnan(dead.value) and "SIGKILL" in dead.reason and dead.count == 0


def test_findings_say_where_the_bytes_are_not_the_computed_ones_and_want_all_lengths(swept: Any) -> None:
    record = copy.deepcopy(swept[0][T16, "team006_after"])
    record["steps"][-1]["kept"]["kv"] += 5
    first = memory_results([record])[0]
    assert first.subject[1] == "masks_of_weights" and "kept: 17,413 bytes of kv, computed 17,408" in first.detail
    record["steps"][-1]["computed"] = None
    assert "policies of this variant are not known" in memory_results([record])[0].detail
    del record["steps"][-1]
    record["reason"] = "memory gets short: 8 of 16 different lengths served"
    values = {finding.subject[1]: finding for finding in memory_results([record])}
    assert math.isnan(values["masks_of_weights"].value) and "8 of 16 different" in values["masks_of_weights"].reason


@pytest.mark.long
@pytest.mark.covers("variants", "harness/slices/memory", "harness/worker")
@pytest.mark.parametrize("name", [pytest.param("fast", marks=needs_compiler), "transformers_static"])
def test_what_is_compiled_holds_what_the_policy_says(name: str, request: pytest.FixtureRequest) -> None:
    """With a cache of ours, and with the library's."""
    if name != "fast":
        request.getfixturevalue("captured_only")
    config = replace(GROUPED.config, num_hidden_layers=1)  # each layer takes as long to capture
    geometry = replace(GROUPED, name="tiny-gqa-of-one-layer", config=config)
    workload = workloads.get("prefill-tiny-t16").model_copy(update={"geometry": geometry.name})
    worker = Worker({"process": 0, "added": {}, "cache": str(cache_directory()), "threads": 1})
    open_workload(worker, workload.model_dump(), str(synthesize(geometry, cache=cache_directory())), 0)
    with torch.inference_mode():
        found = memory_held(worker, workload.name, f"{name}_compiled")
    assert [len(step["lengths"]) for step in found["steps"]] == [0, 1, 2, 4, 8, 16]
    assert [disagreement(step) for step in found["steps"]] == [""] * 6
