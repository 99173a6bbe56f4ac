"""The verbs of a process that has torch: for models, parts of a layer, and profilers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from llama_workbench.datasets import geometries, tokenizer
from llama_workbench.datasets.checkpoints import load
from llama_workbench.datasets.lengths import longest_call
from llama_workbench.datasets.tokenizer import Prompts
from llama_workbench.datasets.workloads import Workload

from . import model_gating
from .functions import open_functions
from .model_gating import ComponentsKind, ModelsKind
from .state import Bench, Worker

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


VERBS: Mapping[str, Callable[..., Any]] = {
    "device": lambda worker: worker.device.facts(),
    "open": open_workload,
    "differences": model_gating.differences,
}
