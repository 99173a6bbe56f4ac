"""What a claim may ask of GGUF (`metric = "check"`). The cases import torch: they are imported when they are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path


def _tried(function: str) -> Callable[[Path, int, str], Iterator[tuple[str, bool, str]]]:
    return lambda cache, seed, _: getattr(import_module(".cases", __package__), function)(cache, seed)


CHECKS: Mapping[str, Callable[[Path, int, str], Iterator[tuple[str, bool, str]]]] = {
    "gguf-loads": _tried("check_gguf_loads"),
    "tokenizer-matches": _tried("check_tokenizer_matches"),
}
