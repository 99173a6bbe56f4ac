"""The verbs of the loading pass: `prepare_loads` once, then `load` for each measured load.

Each load happens in a fork of this process, which has torch imported and has loaded nothing: every load finds the same
state, its resident memory is its own, and nothing that another left behind helps it. Peak memory is the kernel's
high-water mark of resident memory: an allocation profiler would see a mapped file at its full length at once or not at
all.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from llama_workbench import variants
from llama_workbench.datasets import geometries
from llama_workbench.datasets.checkpoints import check, load, synthesize
from llama_workbench.variants import LlamaConfig
from llama_workbench.variants.generation import generate

from ...machine.lifeline import end_with
from ...worker.channel import in_one_line
from ...worker.state import Worker
from . import loaders
from .loaders import Loader, evict, stored, warm

SMALL, SMALL_PROMPT = "tiny-gqa", 4
"""Geometry, and tokens of the prompt, that a process is made ready with."""


def prepare_loads(worker: Worker, folder: str, scratch: str, variant: str) -> dict[str, Any]:
    """Write the files of every loader to `scratch`, check what comes back, and do all that is done once a process.

    Returns the bytes of each loader's file by name, or the reason where a loader fails.
    """
    small = geometries.get(SMALL)
    small_folder = synthesize(small, cache=worker.cache)
    files = Path(scratch)
    facts: dict[str, Any] = {}
    for name, loader in loaders.loaders().items():
        try:
            # Imports and first-time work of every loader and of the model, so that no measured load pays for them.
            path = files / f"small{loader.suffix}"
            loader.write(small_folder, path, worker.cache)
            _first_token(variant, small.config, loader.load(path), SMALL_PROMPT)
            facts[name] = forked(partial(_written, loader, Path(folder), files, worker.cache))
        except Exception as error:
            facts[name] = {"reason": in_one_line(error)}
    return facts


def _written(loader: Loader, folder: Path, scratch: Path, cache: Path) -> dict[str, Any]:
    checkpoint = load(folder, cache=cache)
    path = scratch / f"weights{loader.suffix}"
    if not path.exists():
        loader.write(folder, path, cache)
    weights = loader.load(path)
    for name, expected in stored(checkpoint).items():
        got = weights.get(name)
        if got is None or got.shape != expected.shape or (loader.exact and not torch.equal(got, expected)):
            return {"reason": f"{name} does not come back from {path.name} as it was written"}
    return {"bytes": path.stat().st_size, "checkpoint": checkpoint.name}


def measure_load(
    worker: Worker, scratch: str, folder: str, loader: str, cold: bool, first_token: bool, variant: str, tokens: int
) -> dict[str, Any]:
    """One load in a process of its own, by wall time (a load waits for its disk, which CPU time does not show).

    Without `first_token`: `open_ns` until the loader returned, and `touched_ns` until every byte had been read once as
    well, because a mapped file is read only then. `peak_bytes` is resident memory above what there was before. At the
    end `private_bytes` of it are in memory of its own and `mapped_bytes` in pages of the file, which other processes
    share and which the kernel may drop. `major_faults` waited for the disk.

    With `first_token`: `open_ns`, then `build_ns` of a variant and `first_ns` until its first token after a prompt of
    `tokens`; and `build_again_ns`, `first_again_ns` of the same once all weights are in memory.

    Only `reason` where the page cache cannot be brought into the wanted state, or the load fails.
    """
    chosen = loaders.loaders()[loader]
    path = Path(scratch) / f"weights{chosen.suffix}"
    config = check(folder, cache=worker.cache)
    if reason := (evict(path) if cold else warm(path)):
        return {"reason": reason}

    def ready() -> None:
        # A fork finds the pages of the libraries unmapped; each would cost a fault (11 MB of them for a small file).
        small = chosen.load(Path(scratch) / f"small{chosen.suffix}")
        _read(small)
        _first_token(variant, geometries.get(SMALL).config, small, SMALL_PROMPT)
        del small
        with contextlib.suppress(AttributeError):  # not in every C library
            ctypes.CDLL(None).malloc_trim(0)  # freed heap that is filled again would not show as memory of the load

    def work() -> dict[str, Any]:
        ready()
        return _until_first_token(chosen, path, config, variant, tokens) if first_token else _touched(chosen, path)

    return forked(work)


def _touched(loader: Loader, path: Path) -> dict[str, Any]:
    before, faults = _memory(), resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    start = time.perf_counter_ns()
    weights = loader.load(path)
    opened = time.perf_counter_ns()
    _read(weights)
    touched = time.perf_counter_ns()
    after = _memory()
    private_bytes, mapped_bytes = (after[kind] - before[kind] for kind in ("RssAnon", "RssFile"))
    held = {"private_bytes": private_bytes, "mapped_bytes": mapped_bytes}
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults
    times = {"open_ns": opened - start, "touched_ns": touched - start}
    return {**times, "peak_bytes": after["VmHWM"] - before["VmRSS"], **held, "major_faults": faults}


def _read(weights: Mapping[str, Tensor]) -> None:
    """Read every byte once. A sum, because it makes no temporary: that would count as memory of the load."""
    for tensor in weights.values():
        tensor.sum()


def _until_first_token(loader: Loader, path: Path, config: LlamaConfig, variant: str, tokens: int) -> dict[str, Any]:
    start = time.perf_counter_ns()
    weights = loader.load(path)
    opened = time.perf_counter_ns()
    build, first = _first_token(variant, config, weights, tokens)
    build_again, first_again = _first_token(variant, config, weights, tokens)
    again = {"build_again_ns": build_again, "first_again_ns": first_again}
    return {"open_ns": opened - start, "build_ns": build, "first_ns": first, **again}


def _first_token(variant: str, config: LlamaConfig, weights: Mapping[str, Tensor], tokens: int) -> tuple[int, int]:
    """Nanoseconds to build the model, and from then to its first token after a prompt of so many."""
    prompt = torch.arange(tokens)[None] % config.vocab_size
    start = time.perf_counter_ns()
    named = {"lm_head.weight": weights["model.embed_tokens.weight"], **weights}
    with torch.inference_mode():
        model = variants.get(variant).build(config, named, max_length=tokens + 1)
        built = time.perf_counter_ns()
        next(generate(model, prompt, 1)).tolist()
        return built - start, time.perf_counter_ns() - built


def _memory() -> dict[str, int]:
    """Bytes of this process's resident memory, by the kernel's names; VmHWM is the most there ever was."""
    wanted = ("VmHWM", "VmRSS", "RssAnon", "RssFile")
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    fields = (line.split() for line in lines)
    return {field[0][:-1]: int(field[1]) * 1024 for field in fields if field and field[0][:-1] in wanted}


def forked(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `work` returns, done in a fork of this process; `reason` instead where it raises or dies."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _in_child(work, writer, parent)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"reason": f"kills its process ({signal.Signals(os.WTERMSIG(status)).name})"}
    found: dict[str, Any] = json.loads(text or '{"reason": "ends its process"}')
    return found


def _in_child(work: Callable[[], dict[str, Any]], writer: int, parent: int) -> NoReturn:
    end_with(parent)
    try:
        found = work()
    except BaseException as error:
        found = {"reason": f"raises {in_one_line(error)}"}
    os.write(writer, json.dumps(found).encode())
    os._exit(0)  # and nothing of the parent's: no exit handlers, no buffers written twice


VERBS = {"prepare_loads": prepare_loads, "load": measure_load}
