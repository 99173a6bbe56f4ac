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
import mmap
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from llama_workbench import variants
from llama_workbench.datasets import geometries
from llama_workbench.datasets.checkpoints import Checkpoint, check, load, synthesize, write_gguf
from llama_workbench.datasets.gguf import files as gguf_files
from llama_workbench.datasets.gguf.metadata import is_gguf
from llama_workbench.variants import LlamaConfig
from llama_workbench.variants.generation import generate

from ...machine.lifeline import end_with
from ...worker.channel import in_one_line, raised_by
from ...worker.state import Worker

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
    for name, loader in loaders().items():
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

    Without `first_token`: `open_ns` until the loader returned, `touched_ns` until every byte had been read once too (a
    mapped file is read only then), `peak_bytes` of resident memory above what there was before, `private_bytes` of it
    at the end in memory of its own and `mapped_bytes` in pages of the file, which other processes share and the kernel
    may drop, and `major_faults` that waited for the disk.

    With `first_token`: `open_ns`, then `build_ns` of a variant and `first_ns` until its first token after a prompt of
    `tokens`; and `build_again_ns`, `first_again_ns` of the same once all weights are in memory.

    Only `reason` where the page cache cannot be brought into the wanted state, or the load fails.
    """
    chosen = loaders()[loader]
    path = Path(scratch) / f"weights{chosen.suffix}"
    config = check(folder, cache=worker.cache)
    if reason := (evict(path) if cold else warm(path)):
        return {"reason": reason}

    def work() -> dict[str, Any]:
        # A fork finds the pages of the libraries unmapped; each would cost a fault (11 MB of them for a small file).
        small = chosen.load(Path(scratch) / f"small{chosen.suffix}")
        _read(small)
        _first_token(variant, geometries.get(SMALL).config, small, SMALL_PROMPT)
        del small
        with contextlib.suppress(AttributeError):  # not in every C library
            ctypes.CDLL(None).malloc_trim(0)  # freed heap that is filled again would not show as memory of the load
        return _until_first_token(chosen, path, config, variant, tokens) if first_token else _touched(chosen, path)

    return forked(work)


def _touched(loader: Loader, path: Path) -> dict[str, Any]:
    before, faults_before = _memory(), resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    start = time.perf_counter_ns()
    weights = loader.load(path)
    opened = time.perf_counter_ns()
    _read(weights)
    touched = time.perf_counter_ns()
    after = _memory()
    return {
        "open_ns": opened - start,
        "touched_ns": touched - start,
        "peak_bytes": after["VmHWM"] - before["VmRSS"],
        "private_bytes": after["RssAnon"] - before["RssAnon"],
        "mapped_bytes": after["RssFile"] - before["RssFile"],
        "major_faults": resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults_before,
    }


def _read(weights: Mapping[str, Tensor]) -> None:
    """Read every byte once. A sum, because it makes no temporary: that would count as memory of the load."""
    for tensor in weights.values():
        tensor.sum()


def _until_first_token(loader: Loader, path: Path, config: LlamaConfig, variant: str, tokens: int) -> dict[str, Any]:
    start = time.perf_counter_ns()
    weights = loader.load(path)
    opened = time.perf_counter_ns()
    once = _first_token(variant, config, weights, tokens)
    # The first model lives on: in memory that it gave back the second would find pages that need no fault any more,
    # or not, as malloc pleases, and what building costs would count as loading.
    again = _first_token(variant, config, weights, tokens)
    times = {"build_ns": once[1], "first_ns": once[2], "build_again_ns": again[1], "first_again_ns": again[2]}
    return {"open_ns": opened - start, **times}


def _first_token(
    variant: str, config: LlamaConfig, weights: Mapping[str, Tensor], tokens: int
) -> tuple[variants.Model, int, int]:
    """The model; nanoseconds to build it, and from then to its first token after a prompt of so many."""
    prompt = torch.arange(tokens)[None] % config.vocab_size
    start = time.perf_counter_ns()
    named = {"lm_head.weight": weights["model.embed_tokens.weight"], **weights}
    with torch.inference_mode():
        model = variants.get(variant).build(config, named, max_length=tokens + 1)
        built = time.perf_counter_ns()
        next(generate(model, prompt, 1)).tolist()
        return model, built - start, time.perf_counter_ns() - built


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
        end_with(parent)
        try:
            answer = work()
        except BaseException as error:
            answer = {"reason": raised_by(error)}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)  # and nothing of the parent's: no exit handlers, no buffers written twice
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"reason": f"kills its process ({signal.Signals(os.WTERMSIG(status)).name})"}
    answer = json.loads(text or '{"reason": "ends its process"}')
    return answer


COLD_SHARE, WARM_SHARE = 0.01, 0.99
"""A file counts as cold while at most this share of it is in the page cache, and as warm from this share on."""

EVICTIONS = 5
"""Pages that are just being written or read survive the first try."""


@dataclass(frozen=True)
class Loader:
    """One file format and one way to read it."""

    suffix: str  # loaders with the same one share a file
    # makes the file from a checkpoint's folder, in float32; last argument: cache of `checkpoints.load`
    write: Callable[[Path, Path, Path], None]
    # gives the weights under their Hugging Face names, with their shapes (checked); a tied head may be left out
    load: Callable[[Path], Mapping[str, Tensor]]
    exact: bool = True  # they come back bit for bit (checked); not where the format has fewer bits


def loaders() -> dict[str, Loader]:
    """All loaders by name; the first is what the others are compared with. Another format is another line here."""

    def write_torch(folder: Path, path: Path, cache: Path) -> None:
        torch.save(stored(load(folder, cache=cache)), path)

    return {
        "safetensors-mmap": Loader(
            ".safetensors", lambda folder, path, cache: save_file(stored(load(folder, cache=cache)), path), load_file
        ),
        "torch-load": Loader(".pt", write_torch, lambda path: torch.load(path, weights_only=True, mmap=False)),
        "torch-load-mmap": Loader(".pt", write_torch, lambda path: torch.load(path, weights_only=True, mmap=True)),
        "gguf": Loader(".gguf", _write_gguf, _load_gguf),
    }


def stored(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """What a file holds: a tied head is not stored twice."""
    tied = checkpoint.config.tie_word_embeddings
    return {name: tensor for name, tensor in checkpoint.weights.items() if not (tied and name == "lm_head.weight")}


def _write_gguf(folder: Path, path: Path, cache: Path) -> None:
    if is_gguf(folder):
        shutil.copyfile(folder, path)
    else:
        write_gguf(folder, path, cache=cache)


def _load_gguf(path: Path) -> Mapping[str, Tensor]:
    model = gguf_files.opened(path)
    return {name: model.tensor(name) for name in model.entries}


def cached_share(path: Path) -> float:
    """Share of a file's pages (0 to 1) that this machine holds in its page cache. OSError where it cannot be asked.

    The kernel says it only of files that this user owns or may write; of others it says that all pages are there.
    """
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    flags = np.zeros(pages, dtype=np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = np.frombuffer(mapped, dtype=np.uint8)
        address, vector = ctypes.c_void_p(view.ctypes.data), ctypes.c_void_p(flags.ctypes.data)
        failed = libc.mincore(address, ctypes.c_size_t(size), vector)
        del view  # or the mapping could not be closed
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return float((flags & 1).mean())


def evict(path: Path) -> str | None:
    """Put a file out of the page cache; None once its pages are seen to be gone, else why they are not.

    A cache behind the file system (the disk's, or the host's of a virtual machine) is out of reach and may still help.
    """
    try:
        with path.open("rb") as file:
            os.fsync(file.fileno())  # pages that are not written yet would stay
            for _ in range(EVICTIONS):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                if (share := cached_share(path)) <= COLD_SHARE:
                    return None
                time.sleep(0.02)
    except (OSError, AttributeError) as error:  # no such call on this system
        return f"the page cache cannot be emptied here ({error})"
    return f"{share:.0%} of the file stay in the page cache (a file system in memory, or another process maps the file)"


def warm(path: Path) -> str | None:
    """Read a file into the page cache; None once it is there, else why it is not."""
    try:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 22):
                pass
        share = cached_share(path)
    except (OSError, AttributeError) as error:
        return f"the page cache cannot be looked at here ({error})"
    return None if share >= WARM_SHARE else f"only {share:.0%} of the file stay in the page cache: too little memory"


VERBS = {"prepare_loads": prepare_loads, "load": measure_load}
