"""Ways to get weights from a file into memory, and the page cache. Needs torch."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from llama_workbench.datasets.checkpoints import Checkpoint, load, write_gguf
from llama_workbench.datasets.gguf import files as gguf_files
from llama_workbench.datasets.gguf.metadata import is_gguf

COLD_SHARE, WARM_SHARE = 0.01, 0.99
"""A file counts as cold while at most this share of it is in the page cache, and as warm from this share on."""

EVICTIONS = 5
"""Pages that are just being written or read survive the first try."""


@dataclass(frozen=True)
class Loader:
    """One file format and one way to read it.

    `write` makes the file from a checkpoint's folder, in float32 (its last argument: cache of `checkpoints.load`);
    loaders with the same `suffix` share one. `load` gives the weights under their Hugging Face names (a tied head may
    be left out). That they come back with their shapes is checked, and where `exact` (no format with fewer bits) that
    they do so bit for bit.
    """

    suffix: str
    write: Callable[[Path, Path, Path], None]
    load: Callable[[Path], Mapping[str, Tensor]]
    exact: bool = True


def loaders() -> dict[str, Loader]:
    """All loaders by name; the first is what the others are compared with. Another format is another line here."""
    return {
        "safetensors-mmap": Loader(".safetensors", _write_safetensors, _load_safetensors),
        "torch-load": Loader(".pt", _write_torch, lambda path: _load_torch(path, mapped=False)),
        "torch-load-mmap": Loader(".pt", _write_torch, lambda path: _load_torch(path, mapped=True)),
        "gguf": Loader(".gguf", _write_gguf, _load_gguf),
    }


def stored(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """What a file holds: a tied head is not stored twice."""
    tied = checkpoint.config.tie_word_embeddings
    return {name: tensor for name, tensor in checkpoint.weights.items() if not (tied and name == "lm_head.weight")}


def _write_safetensors(folder: Path, path: Path, cache: Path) -> None:
    from safetensors.torch import save_file

    save_file(stored(load(folder, cache=cache)), path)


def _load_safetensors(path: Path) -> Mapping[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


def _write_torch(folder: Path, path: Path, cache: Path) -> None:
    torch.save(stored(load(folder, cache=cache)), path)


def _load_torch(path: Path, *, mapped: bool) -> Mapping[str, Tensor]:
    weights: Mapping[str, Tensor] = torch.load(path, weights_only=True, mmap=mapped)
    return weights


def _write_gguf(folder: Path, path: Path, cache: Path) -> None:
    if is_gguf(folder):
        shutil.copyfile(folder, path)
    else:
        write_gguf(folder, path, cache=cache)


def _load_gguf(path: Path) -> Mapping[str, Tensor]:
    model = gguf_files.opened(path)
    return {name: model.tensor(name) for name in model.entries}


# -- the page cache ----------------------------------------------------------------------------------------------------


def cached_share(path: Path) -> float:
    """Share of a file's pages (0 to 1) that this machine holds in its page cache. OSError where it cannot be asked.

    The kernel tells it only of files that this user owns or may write; of others it says that all pages are there.
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
