"""The verbs of a process that has torch: for models, parts of a layer, and profilers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llama_workbench.datasets import geometries, tokenizer
from llama_workbench.datasets.checkpoints import load
from llama_workbench.datasets.lengths import DECODE_ROOM, longest_call
from llama_workbench.datasets.tokenizer import Prompts
from llama_workbench.datasets.workloads import Workload

from . import model_gating
from .functions import open_functions
from .model_gating import ComponentsKind, Drawn, ModelsKind
from .rounds import output_places
from .state import Bench, Runner, Worker

# -- the verb `open` for models and parts of a layer -------------------------------------------------------------------


def open_workload(
    worker: Worker, workload: dict[str, Any], folder: str | None, seed: int, call: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Load the checkpoint (once a process) and cut the prompts of a workload; no folder for a component, nor for any
    function, of which `call` is what `Call` holds."""
    if call is not None:
        return open_functions(worker, workload, folder, seed, call)
    if folder is None:
        work = Workload.model_validate(workload)
        worker.benches[work.name] = Bench(work, ComponentsKind(), seed)
        return {"parameters": 0, "digest": "", "synthetic": True}
    dtype = getattr(torch, workload["dtype"])
    source, cache, device = Path(folder), worker.cache, worker.device.kind
    key = (folder, workload["dtype"])
    if key not in worker.checkpoints:
        worker.checkpoints[key] = load(source, dtype=dtype, device=device, cache=cache)
    checkpoint = worker.checkpoints[key]
    geometry = geometries.Geometry(workload["geometry"], checkpoint.config, "", "")
    work = Workload.model_validate(workload, context={"geometries": {geometry.name: geometry}})
    longest = min(work.context + longest_call(work) + 1, checkpoint.config.max_position_embeddings)
    words = checkpoint.config.vocab_size
    text = tokenizer.text_ids(source, vocab_size=words, cache=cache)
    prompt = torch.from_numpy(Prompts(text, batch=work.batch, draw="gate").tokens(0, longest)).to(device)
    prompts = Prompts(text, batch=work.batch, draw=worker.draw, repeated=work.prompts == "repeated")
    worker.benches[work.name] = Bench(
        work, ModelsKind(), seed, checkpoint, prompt, longest, prompts=prompts, source=source
    )
    return {
        "hidden_size": checkpoint.config.hidden_size,
        "layers": checkpoint.config.num_hidden_layers,
        "parameters": checkpoint.parameters,
        "digest": checkpoint.digest,
        "synthetic": checkpoint.synthetic,
    }


# -- the verbs `stretch` and `stretch_outputs` -------------------------------------------------------------------------


def _stretch_of(worker: Worker, workload: str, variant: str) -> tuple[Runner, list[Tensor]]:
    """The variant's runner for all stretches, and the outputs of the last one."""
    bench = worker.benches[workload]
    key = ("stretch", workload, variant)
    return worker.once(key, lambda: (bench.kind.runner(worker, bench, bench.subjects[variant].variant), []))


def stretch(worker: Worker, workload: str, variant: str, seconds: float) -> dict[str, Any]:
    """As many calls as take about `seconds`, once the parent says to go on. With 0 seconds there are none: that
    measures what the asking costs."""
    bench = worker.benches[workload]
    subject = bench.subjects[variant]
    assert subject.output is not None
    with torch.inference_mode():
        runner, kept = _stretch_of(worker, workload, variant)
        count = max(round(seconds * 1e9 / subject.call_ns), seconds > 0)
        if count and (bench.once or bench.workload.kind == "generate"):
            count = 1
        elif bench.workload.kind == "decode":
            count = min(count, DECODE_ROOM // 2)
        kept[:] = output_places({}, subject.output, count)
        runner.prepare(bench.workload.tokens, bench.take(count), count)
        worker.wait()
        for place in kept:
            place.copy_(runner.call())
    return {"calls": count}


def stretch_outputs(worker: Worker, workload: str, variant: str, outputs: str) -> dict[str, Any]:
    """Leave an output of the last stretch in a file for the examiner."""
    runner, kept = _stretch_of(worker, workload, variant)
    drawn = Drawn(1)
    drawn.keep(variant, runner.asked, kept)
    drawn.end_sub_round()
    return {"drawn": drawn.write(Path(outputs)), "changed": worker.changed(variant, files=False)}


VERBS: Mapping[str, Callable[..., Any]] = {
    "device": lambda worker: worker.device.facts(),
    "open": open_workload,
    "differences": model_gating.differences,
    "stretch": stretch,
    "stretch_outputs": stretch_outputs,
}
