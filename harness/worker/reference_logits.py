"""What the reference gives for the calls of the gates. It is computed once and then kept in the cache directory.

Importing the library takes four seconds, longer than most gates. The key of a kept file covers everything that the
logits depend on.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from llama_workbench import variants
from llama_workbench.cache import CacheError, partial_folder
from llama_workbench.datasets.checkpoints import Checkpoint, load
from llama_workbench.variants import LlamaConfig, Model

from .gates.logits import Case, greedy, rounded, run_cases
from .gates.small import SMALL_LENGTH, WEIGHTS, small_cases, small_geometries, small_weights
from .state import Bench, Worker

REFERENCE = "transformers_eager"

WIDE_PARAMETERS = 50_000_000
"""The reference computes in float64 for models with fewer parameters than this, else in float32."""

OWN_TYPE_PARAMETERS = 2_000_000_000
"""From so many on, in the type of the weights: a copy of 7B in float32 is 27 GB."""

Logits = list[list[Tensor]]
"""By case and step."""


def of_small_gate(worker: Worker, geometry: str, dtype: torch.dtype, rounding: str = "") -> Logits:
    """Logits of all cases of the small gate on one of its geometries. `rounding` of the cache: see `rounded`."""
    config = small_geometries()[geometry]
    cases = small_cases(config)

    def compute() -> Logits:
        return run_cases(reference_model(config, small_weights(config, dtype), SMALL_LENGTH, rounding), cases)

    what = f"small {WEIGHTS} {geometry} {dtype} {SMALL_LENGTH}{_also(rounding)}"
    return remembered(worker.cache, what, cases, compute)


def of_case(worker: Worker, bench: Bench, case: Case, rounding: str = "") -> Logits:
    """Logits of one case on the bench's checkpoint."""
    name = f"{_name(bench)}{_also(rounding)}"
    return remembered(worker.cache, name, [case], lambda: run_cases(_model(worker, bench, rounding), [case]))


def of_generation(worker: Worker, bench: Bench) -> tuple[Tensor, Tensor]:
    """What the reference generates after the gate prompt, and by how much each token led: [B, N] each."""
    count = bench.workload.new_tokens or 0
    prompt = bench.gate_prompt[:, : bench.workload.tokens].cpu()

    def compute() -> Logits:
        tokens, margins = greedy(_model(worker, bench), prompt, count)
        return [[torch.stack([tokens.double(), margins.double()])]]

    name = f"greedy {count} {_name(bench)}"
    [[both]] = remembered(worker.cache, name, [Case("prompt", ((prompt, 0),))], compute)
    return both[0].long(), both[1]


def _wide(checkpoint: Checkpoint) -> torch.dtype:
    if checkpoint.parameters >= OWN_TYPE_PARAMETERS:
        return checkpoint.weights["lm_head.weight"].dtype
    return torch.float64 if checkpoint.parameters < WIDE_PARAMETERS else torch.float32


def _name(bench: Bench) -> str:
    return f"{bench.loaded.digest} {bench.workload.dtype} {_wide(bench.loaded)}"


def _also(rounding: str) -> str:
    return rounding and f" cache in {rounding}"


def _model(worker: Worker, bench: Bench, rounding: str = "") -> Model:
    """The reference, always on the CPU: variants on every device are held to the same logits."""
    checkpoint = bench.loaded
    if worker.device.kind != "cpu":
        assert bench.source is not None
        checkpoint = load(bench.source, dtype=bench.dtype, cache=worker.cache)
    weights = {name: tensor.to(_wide(checkpoint)) for name, tensor in checkpoint.weights.items()}
    return reference_model(checkpoint.config, weights, bench.max_length, rounding)


def reference_model(config: LlamaConfig, weights: Mapping[str, Tensor], max_length: int, rounding: str = "") -> Model:
    """The library's model. With a `rounding` its cache keeps keys and values rounded, those of the new tokens too."""
    model: Any = variants.get(REFERENCE).build(config, weights, max_length=max_length)
    if rounding:
        from transformers import DynamicCache

        class RoundedCache(DynamicCache):
            def update(
                self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
            ) -> tuple[Tensor, Tensor]:
                keys, values = (rounded(each, rounding) for each in (key_states, value_states))
                return super().update(keys, values, layer_idx, *args, **kwargs)

        model._new_cache = RoundedCache
    return cast(Model, model)


def remembered(cache: Path, what: str, cases: Sequence[Case], compute: Callable[[], Logits]) -> Logits:
    """The logits of `cases` from the cache directory, or computed and left there. `what` names the model."""
    versions = [importlib.metadata.version(package) for package in ("torch", "transformers")]
    sizes = [len(case.steps) for case in cases]
    key = hashlib.sha256(repr((what, versions, sizes)).encode())
    for case in cases:
        for tokens, position in case.steps:
            key.update(tokens.contiguous().numpy().tobytes() + bytes(str((tuple(tokens.shape), position)), "ascii"))
    path = cache / "reference" / f"{key.hexdigest()[:32]}.safetensors"
    if os.path.isfile(path):  # Path.is_file would raise where the folder may not be searched
        try:
            tensors = load_file(path)
            return [[tensors[f"{i}.{j}"] for j in range(size)] for i, size in enumerate(sizes)]
        except Exception as error:  # a damaged file can be computed again
            print(f"{path.name}: {error}; computed again", file=sys.stderr)
    logits = compute()
    named = {f"{i}.{j}": t.contiguous() for i, row in enumerate(logits) for j, t in enumerate(row)}
    # Without a cache the same work is done next time; the run has warned of that once.
    with suppress(CacheError, SafetensorError), partial_folder(path.parent, path.name, needed_bytes=0) as folder:
        save_file(named, folder / path.name)
        os.replace(folder / path.name, path)
    return logits
