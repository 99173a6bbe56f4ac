"""The tensors of a checkpoint's files, whatever their format, and whether they are those of a usable Llama."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from llama_workbench.cache import keep
from llama_workbench.variants.config import LlamaConfig

from ..files import TOKENIZER_BYTES, open_regular, parse_json, read_bytes, short
from ..geometries import fail, stored_shapes
from ..texts import shortened

AGAIN = "fetch the checkpoint again"
NO_VARIANT = "no variant computes this; take another checkpoint"

PASSED_OVER = (".bias", ".rotary_emb.inv_freq", "lm_head.weight")
"""Ends of the names of what may be there beside the weights: zero biases, an old buffer, a head that is tied."""


@dataclass(frozen=True)
class Stored:
    """One tensor of a file. `read` gives its values on the CPU: a view of the file, where type and order allow one."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], Tensor]


@dataclass(frozen=True)
class Source:
    """A checkpoint's files; no weight is read yet. `tensors` are by Hugging Face name. `identity` tells its files from
    others, together with the beginnings of the weights."""

    path: Path
    name: str
    config: LlamaConfig
    tensors: Mapping[str, Stored]
    identity: bytes
    has_tokenizer: bool
    synthetic: bool = False

    def biases(self) -> list[str]:
        return [name for name in self.tensors if name.endswith(".bias")]

    def check(self, cache: Path) -> None:
        """Raises `CheckpointError` for a weight that is missing, unknown, of another shape or not finite, and for a
        bias or a tied head that changes what is computed."""
        expected = stored_shapes(self.config)
        for name, shape in expected.items():
            if (stored := self.tensors.get(name)) is None:
                tied = 'if the embeddings are tied, set "tie_word_embeddings": true in config.json'
                fix = tied if name == "lm_head.weight" else AGAIN
                fail(self.path, f"missing tensor {name} of shape {list(shape)}", fix)
            if stored.shape != shape:
                problem = f"shape {short(list(stored.shape))}, expected {list(shape)} by the model's numbers"
                fail(f"{stored.file}: {name}", problem, "numbers and weights are of different models; fetch both again")
        for name in self.tensors.keys() - expected.keys():
            if not name.endswith(PASSED_OVER):
                problem = f"unexpected tensor for {self.config.num_hidden_layers} layers of plain weights"
                fail(f"{self.tensors[name].file}: {shortened(name)}", problem, NO_VARIANT)
        for file in {stored.file for stored in self.tensors.values()}:
            weights = ((name, self.tensors[name]) for name in expected if self.tensors[name].file == file)
            _check_finite(file, weights, cache)
        for name in self.biases():
            if self.tensors[name].read().any():
                fix = "take a checkpoint without biases, or one in which all are zero"
                fail(
                    f"{self.tensors[name].file}: {shortened(name)}",
                    "a bias that is not zero, and no variant adds one",
                    fix,
                )
        head, embeddings = self.tensors.get("lm_head.weight"), self.tensors["model.embed_tokens.weight"]
        if self.config.tie_word_embeddings and head and not torch.equal(head.read(), embeddings.read()):
            problem = "tie_word_embeddings = True, but lm_head.weight differs from model.embed_tokens.weight"
            fail(self.path, problem, "set it to false, or write the checkpoint anew without lm_head.weight")


def open_weights(path: Path) -> BinaryIO:
    """A file of weights, opened. Raises `CheckpointError` where it cannot be, or is no more than a pointer to one."""
    try:
        file = open_regular(path)
    except OSError as error:
        fail(path, f"cannot be read ({error.strerror})", AGAIN)
    if file.read(8) == b"version ":
        file.close()
        fail(path, "a Git LFS pointer, not the file", "run: git lfs pull")
    file.seek(0)
    return file


def is_finite(tensor: Tensor) -> bool:
    low, high = tensor.aminmax()  # NaN comes through; no temporary of the tensor's size as isfinite needs
    return math.isfinite(low.item()) and math.isfinite(high.item())


def _check_finite(path: Path, weights: Iterable[tuple[str, Stored]], cache: Path) -> None:
    """Every value of a file is finite; skipped for one that was found so and has the same path, size and time."""
    memory = cache / "finite.json"
    key, status = str(path.resolve()), path.stat()
    stamp = [status.st_size, status.st_mtime_ns]
    if _remembered(memory).get(key) == stamp:
        return
    for name, stored in weights:
        tensor = stored.read()
        if not is_finite(tensor):
            places = (~torch.isfinite(tensor)).nonzero()
            count = f"{len(places)} of {tensor.numel()} values are NaN or infinite"
            problem = f"{count}, the first at {places[0].tolist()}; expected finite ones"
            fail(f"{path}: {name}", problem, "fetch or train the checkpoint again")
    keep(memory, json.dumps(_remembered(memory) | {key: stamp}, indent=0).encode())


def _remembered(memory: Path) -> dict[str, Any]:
    try:
        stamps = parse_json(read_bytes(memory, at_most=TOKENIZER_BYTES).decode("utf-8"))
    except (OSError, ValueError):  # none yet, or damaged: check again
        return {}
    return stamps if isinstance(stamps, dict) else {}
