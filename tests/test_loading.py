"""The loading pass: real loads of a tiny checkpoint, a page cache that really empties, and what the numbers mean."""

from __future__ import annotations

import math
import os
import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from llama_workbench import variants
from llama_workbench.datasets import geometries
from llama_workbench.datasets.checkpoints import synthesize
from llama_workbench.harness.metrics.loading import worker as loaders
from llama_workbench.harness.metrics.loading.files import LOADING
from llama_workbench.harness.metrics.loading.metric import (
    BASELINE,
    CONTROL,
    LEAST_BESIDE,
    LEAST_ROUNDS,
    MOST_ROUNDS,
    load_effects,
    load_shares,
    measure_loading,
    plan_rounds,
)
from llama_workbench.harness.metrics.loading.worker import forked, prepare_loads
from llama_workbench.harness.stats.confidence import fixed_interval
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.worker.state import Worker
from tests.runs import Quiet

pytestmark = pytest.mark.usefixtures("warm")

ALPHA = 0.01
METRIC = "llama_workbench.harness.metrics.loading.metric"
EVERYTHING = [(loader, cache) for loader in [*loaders.loaders(), CONTROL] for cache in ("cold", "warm")]


def test_every_loader_is_measured_with_cold_and_with_warm_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{METRIC}.plan_rounds", lambda *_: (2, 2))
    monkeypatch.setattr(f"{METRIC}.PROMPT_TOKENS", 8)
    folder = synthesize(geometries.get("tiny"), cache=tmp_path)
    before = sorted(tmp_path.iterdir())
    records = measure_loading(
        folder,
        cache=tmp_path,
        log=tmp_path / "checkpoints" / "log",
        seed=0,
        progress=Quiet(),
        asked=EVERYTHING,
    )
    names = ["safetensors-mmap", "torch-load", "torch-load-mmap", "gguf", CONTROL]
    assert [(r["loader"], r["cache"]) for r in records] == [(n, s) for n in names for s in ("cold", "warm")]
    for record in records:
        assert record["checkpoint"] == "tiny"
        if record["cache"] == "cold" and record["reason"] is not None:
            assert "page cache" in record["reason"]  # a file system where it cannot be emptied
            continue
        assert record["reason"] is None
        assert [load["round"] for load in record["loads"]] == [0, 1]
        for load in record["loads"]:
            assert 0 < load["open_ns"] < load["touched_ns"]
            assert load["peak_bytes"] >= 0
            if record["loader"] == "torch-load":
                assert load["mapped_bytes"] < record["file_bytes"] / 2
            else:
                assert load["mapped_bytes"] > record["file_bytes"] / 2
        for first in record["first_tokens"]:
            assert min(first[key] for key in first if key.endswith("_ns")) > 0
    positions = sorted(
        s["position"] for r in records for k in ("loads", "first_tokens") for s in r[k] if s["round"] == 0
    )
    assert positions == sorted(set(positions))
    run = RunFolder.create(tmp_path / "run")
    assert run.records("loading.json") == []
    run.write_json("loading.json", records)
    assert run.records("loading.json") == records
    assert {path for path in tmp_path.iterdir() if path.name.startswith(".partial")} <= set(before)


@pytest.mark.parametrize(
    ("asked", "beside", "found"),
    [
        (0.1, 0.1, (MOST_ROUNDS, MOST_ROUNDS)),  # a tiny file
        (1.0, 2.0, (20, 20)),  # all of it fits 20 times
        (2.0, 6.0, (LEAST_ROUNDS, 5)),  # what is asked comes first
        (16.0, 28.0, (LEAST_ROUNDS, LEAST_BESIDE)),  # 7B width: longer than a minute, but no fewer
        (0.0, 0.0, (MOST_ROUNDS, MOST_ROUNDS)),  # nothing could be loaded
    ],
)
def test_the_number_of_rounds_is_fixed_by_what_a_load_costs(
    asked: float, beside: float, found: tuple[int, int]
) -> None:
    assert plan_rounds(asked, beside) == found


def test_what_is_asked_is_measured_in_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = synthesize(geometries.get("tiny"), cache=tmp_path)
    monkeypatch.setattr(f"{METRIC}.plan_rounds", lambda *_: (4, 2))
    monkeypatch.setattr(f"{METRIC}.PROMPT_TOKENS", 8)
    records = measure_loading(
        folder,
        cache=tmp_path,
        log=tmp_path / "log",
        seed=0,
        progress=Quiet(),
        asked={(BASELINE, "warm")},
    )
    counted = {
        (r["loader"], r["cache"]): [[s["round"] for s in r[key]] for key in ("first_tokens", "loads")]
        for r in records
        if r["reason"] is None
    }
    assert counted.pop((BASELINE, "warm")) == [[0, 1, 2, 3], [1, 3]]
    assert all(rounds == [[1, 3], [1, 3]] for rounds in counted.values())


def test_a_file_leaves_the_page_cache_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    assert loaders.warm(path) is None
    assert loaders.cached_share(path) == 1
    if reason := loaders.evict(path):
        pytest.skip(f"not on this file system: {reason}")
    assert loaders.cached_share(path) <= loaders.COLD_SHARE
    with path.open("rb") as file:
        file.read(4096)
    assert 0 < loaders.cached_share(path) <= 1


def test_a_file_that_cannot_be_evicted_is_never_called_cold() -> None:
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        pytest.skip("no file system in memory here")
    path = memory / f"workbench-test-{os.getpid()}"
    try:
        path.write_bytes(bytes(1 << 20))
        assert "100% of the file stay in the page cache" in (loaders.evict(path) or "")
    finally:
        path.unlink()
    assert "cannot be emptied here" in (loaders.evict(path) or "")


def fails() -> dict[str, Any]:
    raise RuntimeError("no such format")


def dies() -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


@pytest.mark.parametrize(
    ("work", "found"),
    [
        (lambda: {"pid": 1}, {"pid": 1}),
        (fails, {"reason": "raises RuntimeError: no such format (test_loading.py, line 155)"}),
        (dies, {"reason": "kills its process (SIGKILL)"}),
    ],
)
def test_a_load_that_fails_takes_only_its_fork_along(work: Callable[[], dict[str, Any]], found: dict[str, Any]) -> None:
    assert forked(work) == found


def test_a_loader_that_gives_other_weights_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = synthesize(geometries.get("tiny"), cache=tmp_path / "cache")
    honest = loaders.loaders()["torch-load"]

    def rounded(path: Path) -> dict[str, torch.Tensor]:
        return {name: tensor.bfloat16().float() for name, tensor in honest.load(path).items()}

    kinds = {
        "honest": honest,
        "rounded": loaders.Loader(".pt", honest.write, rounded),
        "declared": loaders.Loader(".pt", honest.write, rounded, exact=False),
        "broken": loaders.Loader(".none", honest.write, lambda path: {}),
    }
    worker = Worker({"cache": str(tmp_path / "cache"), "threads": torch.get_num_threads()})
    monkeypatch.setattr(loaders, "loaders", lambda: kinds)
    facts = prepare_loads(worker, str(folder), str(tmp_path), "fast")
    assert "bytes" in facts["honest"]
    assert "bytes" in facts["declared"]
    assert "does not come back from weights.pt as it was written" in facts["rounded"]["reason"]
    assert "KeyError" in facts["broken"]["reason"]


# -- what it means -----------------------------------------------------------------------------------------------------


def a_record(loader: str, cache: str, factor: float, *, rounds: int = 40, reason: str | None = None) -> dict[str, Any]:
    """Loads of `factor` times 10 ms and first tokens after 30 ms of which `factor` times 10 ms are the load's."""
    rng = np.random.default_rng([ord(letter) for letter in loader + cache])
    loads, first_tokens = [], []
    for number in range(rounds):
        open_ns, touch_ns = (1e6 * factor * np.exp(rng.normal(0, 0.02, 2)) * (4, 6)).round().tolist()
        loads.append({"round": number, "position": 0, "open_ns": open_ns, "touched_ns": open_ns + touch_ns})
        again = {"build_again_ns": 5e6, "first_again_ns": 15e6}
        first = {"open_ns": open_ns, "build_ns": 5e6 + touch_ns, "first_ns": 15e6}
        first_tokens.append({"round": number, "position": 0, **first, **again})
    keys = {"checkpoint": "tiny", "loader": loader, "cache": cache, "reason": reason}
    return {**keys, "loads": loads, "first_tokens": first_tokens}


def test_loaders_are_compared_within_rounds() -> None:
    records = [
        a_record(BASELINE, "warm", 1.0),
        a_record("torch-load", "warm", 2.0)
        | {"loads": a_record("torch-load", "warm", 2.0)["loads"][5:]},  # rounds without a partner do not count
        a_record(CONTROL, "warm", 1.0),
        a_record(BASELINE, "cold", 3.0),
        a_record("torch-load", "cold", 3.0, rounds=0, reason="the page cache cannot be emptied here"),
    ]
    effects = {
        (cache, metric, loader): interval
        for (_, loader, cache), by_metric in load_effects(LOADING.form.validate_python(records), alpha=ALPHA).items()
        for metric, interval in by_metric.items()
    }
    assert len(effects) == 9
    for metric in ("open", "touched"):
        effect = effects["warm", metric, "torch-load"]
        assert math.exp(effect.low) < 0.5 < math.exp(effect.high) < 0.6
        assert effect.n == 35
        control = effects["warm", metric, CONTROL]
        assert control.low < 0 < control.high
    assert math.exp(effects["warm", "first_token", "torch-load"].centre) == pytest.approx(30 / 40, rel=0.02)
    nothing = effects["cold", "open", "torch-load"]
    assert (nothing.n, nothing.low, nothing.high) == (0, -math.inf, math.inf)
    assert math.isnan(nothing.centre)


def test_the_second_model_is_not_built_in_memory_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = variants.get("yardstick").build
    made: list[weakref.ref[Any]] = []
    lives_on: list[bool] = []

    def watched(*args: Any, **kwargs: Any) -> Any:
        lives_on.append(bool(made) and made[-1]() is not None)
        model = build(*args, **kwargs)
        made.append(weakref.ref(model))
        return model

    monkeypatch.setattr(variants, "get", lambda _: SimpleNamespace(build=watched))
    loader, path = loaders.loaders()["safetensors-mmap"], tmp_path / "weights.safetensors"
    loader.write(synthesize(geometries.get("tiny"), cache=tmp_path), path, tmp_path)
    loaders._until_first_token(loader, path, geometries.get("tiny").config, "yardstick", 4)
    assert lives_on == [False, True]


def test_the_share_of_loading_counts_what_is_paid_lazily() -> None:
    records = [a_record(BASELINE, "warm", 1.0), a_record(BASELINE, "cold", 6.0), a_record("x", "warm", 1.0, rounds=1)]
    warm, cold, few = load_shares(LOADING.form.validate_python(records), alpha=ALPHA)
    assert warm.low < 10 / 30 < warm.high < 0.4
    assert cold.centre == pytest.approx(60 / 80, rel=0.02)
    assert math.isinf(few.low)


@pytest.mark.parametrize(
    "spread",
    [
        lambda rng, size: rng.normal(0, 0.05, size),
        lambda rng, size: rng.normal(0, 0.02, size) + rng.choice([-0.15, 0.15], size) * (rng.random(size) < 0.1),
        lambda rng, size: rng.standard_t(3, size) * 0.02,
    ],
    ids=["normal", "one load in ten held up", "heavy tails"],
)
@pytest.mark.parametrize("rounds", [LEAST_ROUNDS, MOST_ROUNDS])
def test_the_error_rate_is_held_at_a_fixed_number_of_rounds(
    spread: Callable[[np.random.Generator, tuple[int, int]], Any], rounds: int
) -> None:
    series = spread(np.random.default_rng(7), (4000, rounds))
    intervals = [fixed_interval(values, 0.05) for values in series]
    missed = sum(not i.low <= 0 <= i.high for i in intervals)
    assert missed / len(series) < 0.05 + 4 * math.sqrt(0.05 * 0.95 / len(series))
    assert all(math.isfinite(i.high) for i in intervals)


def test_one_round_says_that_it_is_too_few() -> None:
    [share] = load_shares(LOADING.form.validate_python([a_record(BASELINE, "warm", 1.0, rounds=1)]), alpha=ALPHA)
    assert (share.n, share.low, share.high) == (1, -math.inf, math.inf)
    assert share.centre == pytest.approx(1 / 3, abs=0.05)
