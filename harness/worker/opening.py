"""The verb `open`: a workload with its checkpoint and its prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from llama_workbench.datasets import geometries, tokenizer
from llama_workbench.datasets.checkpoints import load
from llama_workbench.datasets.tokenizer import Prompts
from llama_workbench.datasets.workloads import Workload, longest_call

from .bench import Bench
from .state import Worker


def open_workload(worker: Worker, workload: dict[str, Any], folder: str | None, seed: int) -> dict[str, Any]:
    """Load the checkpoint (once a process) and cut the prompts of a workload; no folder for a component."""
    dtype = getattr(torch, workload["dtype"])
    if folder is None:
        work = Workload.model_validate(workload)
        worker.benches[work.name] = Bench(work, None, torch.empty(0, 0), 0, seed, dtype)
        return {"parameters": 0, "digest": "", "synthetic": True}
    source, cache, device = Path(folder), worker.cache, worker.device.kind
    key = (folder, workload["dtype"])
    if key not in worker.checkpoints:
        worker.checkpoints[key] = load(source, dtype=dtype, device=device, cache=cache)
    checkpoint = worker.checkpoints[key]
    geometry = geometries.Geometry(workload["geometry"], checkpoint.config, "", "")
    work = Workload.model_validate(workload, context={"geometries": {geometry.name: geometry}})
    longest = min(work.context + longest_call(work) + 1, checkpoint.config.max_position_embeddings)
    words = checkpoint.config.vocab_size
    ids = tokenizer.prompt_ids(source, count=work.batch, length=longest, seed=seed, vocab_size=words, cache=cache)
    text = tokenizer.text_ids(source, vocab_size=words, cache=cache)
    worker.benches[work.name] = Bench(
        work,
        checkpoint,
        torch.tensor(ids, dtype=torch.long).to(device),
        longest,
        seed,
        dtype,
        prompts=Prompts(text, batch=work.batch, draw=worker.draw, repeated=work.prompts == "repeated"),
        source=source,
    )
    return {
        "parameters": checkpoint.parameters,
        "hidden_size": checkpoint.config.hidden_size,
        "digest": checkpoint.digest,
        "synthetic": checkpoint.synthetic,
    }
