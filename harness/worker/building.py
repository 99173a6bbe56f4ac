"""Variants by the name they were entered under, and their models for a workload."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import ModuleType

import torch

import llama_workbench
from llama_workbench import variants
from llama_workbench.datasets import geometries
from llama_workbench.variants import Model, Variant, components, outside

from .bench import Bench
from .devices import Cuda
from .runners import (
    ChunkedPrefillRunner,
    ComponentRunner,
    DecodeRunner,
    GenerateRunner,
    PrefillRunner,
    QueuedGenerateRunner,
    RequestRunner,
    Runner,
)
from .state import Worker, WorkerError


def variant_of(worker: Worker, entered: str) -> Variant:
    """A variant by the name it was entered under. A control (`NAME@aa`, `NAME@copy`) is NAME once more."""
    name = entered.partition("@")[0]
    if worker.is_outside(name):
        for weights in worker.weights():
            worker.watch.weights_changed(weights)  # as they are before it is imported
        hide(worker)
    if name in worker.added:
        path, function = outside.parse(worker.added[name])
        return outside.load(path, function)  # imported anew each time
    return import_privately(variants.get(name), entered.replace("@", "_"))


def hide(worker: Worker) -> None:
    """Remove what measures and judges, and our variants, from `sys.modules` before foreign code is imported.

    What foreign code then imports under these names are copies of its own. Code that searches the stack or the heap
    still finds the originals; see METHODOLOGY.
    """
    if not worker.alone:
        return
    packages = ("llama_workbench.harness", "llama_workbench.datasets")
    private = [name for name in sys.modules if name.startswith(f"{variants.__name__}.") and "__" in name]
    gone = [name for name in sys.modules if name.startswith(packages)]
    worker.hidden += [sys.modules.pop(name) for name in (*gone, *private, "__main__")]
    sys.modules["__main__"] = ModuleType("__main__")
    for package in packages:
        with suppress(AttributeError):
            delattr(llama_workbench, package.rpartition(".")[2])


def import_privately(variant: Variant, tag: str) -> Variant:
    """The same variant from a private import of its source: other code objects, same text.

    Variants that share code warm it for each other, in the processor's caches and in the interpreter's inline caches.
    With a shared import, a second copy of a layered model was 4 % slower at 0.4 ms a call than the first copy, whose
    code two more variants used. The library's own model cannot be imported twice and stays as it is.
    """
    module = getattr(variant.build, "module", None)
    if module is None or module == ".library":
        return variant
    package = variants.__name__
    top, _, rest = module.lstrip(".").partition(".")
    source = importlib.util.find_spec(f"{package}.{top}")
    assert source is not None
    private = f"{package}.{top}__{tag}"
    if private not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            private, source.origin, submodule_search_locations=source.submodule_search_locations
        )
        assert spec is not None and spec.loader is not None
        sys.modules[private] = loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    build = import_module(f"{private}.{rest}" if rest else private).build
    return replace(variant, build=partial(build, **variant.build.options))  # type: ignore[attr-defined]


def takes_requests(variant: Variant) -> bool:
    """Whether it is an engine that answers requests with tokens, in threads of its own."""
    return variant.engine is not None and variant.engine.outputs == "log-probabilities"


def model_of(bench: Bench, variant: Variant) -> Model:
    """The variant's model with the bench's checkpoint, built anew."""
    assert bench.checkpoint is not None
    with torch.inference_mode():
        return variant.build(bench.checkpoint.config, bench.checkpoint.weights, max_length=bench.max_length)


def engine_of(worker: Worker, bench: Bench, variant: Variant, entered: str) -> Model:
    """The model of an engine that is too slow to load in every round: one for all workloads that it is long enough for.

    Other engines are loaded anew as our variants are built anew. One load of a model may be slower than another for as
    long as it lives, and no number of rounds with the same two loads would show that.
    """
    key = (entered, id(bench.checkpoint))
    longest, model = worker.engines.get(key, (0, None))
    if model is None or longest < bench.max_length:
        model = model_of(bench, variant)
        worker.engines[key] = (bench.max_length, model)
    return model


def component_of(worker: Worker, bench: Bench, variant: Variant) -> components.Component:
    """The part of a layer that the bench times, as the variant has it. Raises WorkerError where it has none."""
    work = bench.workload
    config = geometries.get(work.geometry).config
    if variant.component is not None and work.component is not None:
        return variant.component(work.component, config, tokens=work.tokens, seed=bench.seed)
    if variant.settings is None or work.component is None:
        raise WorkerError(f"{variant.name} has no separate {work.component}: only variants of ours do")
    return components.build(
        work.component, variant.settings, config, tokens=work.tokens, seed=bench.seed, device=worker.device.kind
    )


def runner_of(worker: Worker, bench: Bench, variant: Variant) -> Runner:
    """The variant built anew, with what a sample calls on this workload."""
    if bench.checkpoint is None:
        return ComponentRunner(component_of(worker, bench, variant))
    model = model_of(bench, variant)
    work = bench.workload
    if takes_requests(variant):
        return RequestRunner(model, bench)
    if work.kind == "generate":
        if isinstance(worker.device, Cuda):
            return QueuedGenerateRunner(model, bench, worker.device)
        return GenerateRunner(model, bench)
    if work.kind == "decode":
        return DecodeRunner(model, bench)
    return ChunkedPrefillRunner(model, bench) if work.chunk else PrefillRunner(model, bench)
