"""Checkpoints in GGUF files: opened, checked, loaded, and written from a Hugging Face folder."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import torch

from .. import tokenizer
from ..cache import cache_directory
from ..files import TOKENIZER_BYTES, read_bytes, short
from ..geometries import parameter_count
from ..gguf import files as gguf_files
from ..gguf.metadata import GGUFError
from .common import (
    CONFIG,
    Checkpoint,
    CheckpointError,
    Facts,
    by_size,
    check_finite,
    converted,
    fail,
    shapes,
    with_head,
)
from .config_json import COPY, read_json
from .huggingface import load


def write_gguf(folder: Path, file: Path, *, format: gguf_files.Format = "F32", cache: Path | None = None) -> Path:
    """The GGUF file of a Hugging Face folder, tokenizer and all. Returns `file`.

    Raises `CheckpointError` if the folder cannot be used (see `load`) or the tokenizer cannot be said in GGUF.
    """
    checkpoint, raw = load(folder, torch.float32, torch.device("cpu"), cache), read_json(folder / CONFIG)

    def end(key: str) -> int | None:
        found = raw.get(key)
        found = found[0] if isinstance(found, list) and found else found  # of several, the first is the one to write
        if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
            fail(folder / CONFIG, f"{key} = {short(found)}, expected an id", COPY)
        return found

    try:
        content = read_bytes(folder / tokenizer.FILE, at_most=TOKENIZER_BYTES).decode("utf-8")
    except OSError as error:
        fail(folder / tokenizer.FILE, f"cannot be read ({error.strerror})", "copy it from the checkpoint's source")
    except UnicodeDecodeError as error:
        fail(folder / tokenizer.FILE, f"not UTF-8 ({error})", "copy it from the checkpoint's source again")
    with _as_checkpoint_error(folder):
        return gguf_files.write(
            file,
            checkpoint.config,
            checkpoint.weights,
            content,
            format=format,
            bos=end("bos_token_id"),
            eos=end("eos_token_id"),
            name=checkpoint.name,
        )


def load_gguf(path: Path, dtype: torch.dtype, device: torch.device, cache: Path | None) -> Checkpoint:
    """See `load` of the package."""
    model = _checked(path, cache)
    weights = {name: converted(model.tensor(name), dtype, device, path, name) for name in model.entries}
    digest = hashlib.sha256(f"{path.stat().st_size}\0".encode() + model.header)
    for entry in model.entries.values():
        digest.update(entry.data.reshape(-1).view("uint8")[:4096].tobytes())
    return Checkpoint(
        name=model.name,
        config=model.config,
        weights=with_head(weights, model.config),
        digest=digest.hexdigest(),
        parameters=parameter_count(model.config),
        synthetic=False,
    )


def gguf_facts(path: Path, cache: Path | None) -> Facts:
    """See `facts` of the package."""
    model = _checked(path, cache)
    sizes = [(entry.tensor_type.name, int(entry.n_bytes)) for entry in model.entries.values()]
    return Facts(model.config, by_size(sizes), model.tokenizer)


def open_gguf(path: Path) -> gguf_files.GGUFModel:
    """A GGUF file of a Llama, none of its weights read or checked yet. Raises `CheckpointError` as `load` does."""
    with _as_checkpoint_error():
        return gguf_files.opened(path, shapes)


def _checked(path: Path, cache: Path | None) -> gguf_files.GGUFModel:
    model = open_gguf(path)
    tensors = ((name, model.tensor(name)) for name in model.entries)
    check_finite(path, tensors, cache=cache or cache_directory())
    return model


@contextlib.contextmanager
def _as_checkpoint_error(folder: Path | None = None) -> Iterator[None]:
    try:
        yield
    except GGUFError as error:
        raise CheckpointError(f"{folder / str(error)}" if folder else str(error)) from error
