"""Answers that go from one process to another in a file, and digests of inputs: plain data, arrays and tensors.

Sides in two environments compute in two processes, and nothing is ever unpickled. So a file is a zip archive of JSON
and of arrays in numpy's own format. What it gives back is plain: a dataclass becomes a dict of its fields with the
name of its class, and the same on both sides of a comparison.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

ANSWERS = "answers.json"
KIND = "kind"  # in the JSON, a value that JSON has none for is an object with its kind; so is each dict

MOST_DEPTH = 100
BITS = 13_000  # Python reads decimals of up to about so many bits; larger whole numbers are written in base 16


SIMPLE = {bool, str, int, float, type(None)}


class NotCarried(Exception):
    """A value that cannot be written; the text names where it is in the answer, and its type."""


def write(path: Path, answers: Sequence[Any]) -> None:
    """Write answers into a file. Raises NotCarried."""
    with zipfile.ZipFile(path, "w") as archive:
        writer = _Writer(archive.writestr)
        archive.writestr(ANSWERS, json.dumps([writer.plain(answer) for answer in answers]))


def read(path: Path) -> list[Any]:
    """The answers of a file, as plain values. Raises ValueError, KeyError or BadZipFile where `write` did not write
    it."""
    with zipfile.ZipFile(path) as archive:
        return [_value(each, archive.read) for each in json.loads(archive.read(ANSWERS))]


def digest(value: Any) -> str:
    """SHA-256 of a value, the same in any process that has an equal one. Of what cannot be written the name of the type
    is taken in."""
    total = hashlib.sha256()
    text = json.dumps(_Writer(lambda name, content: total.update(content), names_alone=True).plain(value))
    total.update(text.encode())
    return total.hexdigest()


class _Writer:
    """Makes plain JSON of a value. keep: takes the name and bytes of each array. names_alone: what cannot be written
    stands there by the name of its type; else it raises NotCarried."""

    def __init__(self, keep: Callable[[str, bytes], Any], *, names_alone: bool = False) -> None:
        self._keep = keep
        self._names_alone = names_alone
        self._arrays = 0

    def plain(self, value: Any, where: str = "", depth: int = 0) -> Any:
        if depth > MOST_DEPTH:
            raise NotCarried(f"{where[:MOST_DEPTH]}…: nested too deeply")
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if value.bit_length() < BITS else {KIND: "int", "hex": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {KIND: "float", "text": repr(value)}
        if kind is complex:
            return {KIND: "complex", "parts": [repr(value.real), repr(value.imag)]}
        if kind in (bytes, bytearray):
            return {KIND: kind.__name__, "base64": base64.b64encode(value).decode()}
        if torch is not None and isinstance(value, torch.Tensor):
            return self._tensor(torch, value, where)
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._array(numpy, value, where)
        return self._holding(value, where, depth + 1)

    def _holding(self, value: Any, where: str, depth: int) -> Any:
        """What holds other values."""
        kind = type(value)
        if kind in (set, frozenset):
            items = [self.plain(each, f"{where}{{}}", depth) for each in value]
            return {KIND: kind.__name__, "items": sorted(items, key=json.dumps)}
        if isinstance(value, dict):
            return {KIND: "dict", "items": self._pairs(value, where, depth)}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        elif isinstance(value, tuple) and hasattr(kind, "_fields"):
            fields = dict(zip(kind._fields, value))
        elif isinstance(value, (list, tuple)):
            if set(map(type, value)) <= SIMPLE and all(map(_is_json, value)):  # of a million numbers, in one step
                items = list(value)
            else:
                items = [self.plain(part, f"{where}[{index}]", depth) for index, part in enumerate(value)]
            return {KIND: "list" if isinstance(value, list) else "tuple", "items": items}
        else:
            return self._lost(f"a {kind.__qualname__}", where)
        return {KIND: "dict", "items": self._pairs({"class": kind.__qualname__, **fields}, where, depth)}

    def _lost(self, what: str, where: str) -> Any:
        if not self._names_alone:
            raise NotCarried(f"{where + ': ' if where else ''}{what}")
        return {KIND: "unknown", "what": what}

    def _pairs(self, table: Mapping[Any, Any], where: str, depth: int) -> list[Any]:
        return [
            [self.plain(key, f"{where} key", depth), self.plain(value, f"{where}[{key!r:.40}]", depth)]
            for key, value in table.items()
        ]

    def _tensor(self, torch: Any, value: Any, where: str) -> Any:
        if value.layout is not torch.strided or value.is_quantized:
            return self._lost("a tensor that is sparse or quantised", where)
        whole = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        content = whole.view(torch.uint8).numpy().tobytes() if whole.numel() else b""
        kept = {KIND: "tensor", "dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
        return {**kept, "bytes": self._kept(content)}

    def _array(self, numpy: Any, value: Any, where: str) -> Any:
        file = BytesIO()
        try:
            numpy.lib.format.write_array(file, numpy.asarray(value), allow_pickle=False)
        except ValueError:
            return self._lost(f"an array of {value.dtype}", where)
        return {KIND: "scalar" if isinstance(value, numpy.generic) else "array", "bytes": self._kept(file.getvalue())}

    def _kept(self, content: bytes) -> str:
        name = f"{self._arrays}.bin"
        self._arrays += 1
        self._keep(name, content)
        return name


def _is_json(value: Any) -> bool:
    if type(value) is int:
        return value.bit_length() < BITS
    return type(value) is not float or math.isfinite(value)


def _value(plain: Any, content: Callable[[str], bytes]) -> Any:
    """The value that plain JSON stands for. Raises ValueError for a kind that nobody writes."""
    if not isinstance(plain, dict):
        return plain
    kind = plain[KIND]
    if kind == "int":
        return int(plain["hex"], 16)
    if kind == "float":
        return float(plain["text"])
    if kind == "complex":
        return complex(*map(float, plain["parts"]))
    if kind in ("bytes", "bytearray"):
        return {"bytes": bytes, "bytearray": bytearray}[kind](base64.b64decode(plain["base64"]))
    if kind in ("list", "tuple", "set", "frozenset"):
        items = [_value(each, content) for each in plain["items"]]
        return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind](items)
    if kind == "dict":
        return {_value(key, content): _value(each, content) for key, each in plain["items"]}
    if kind == "tensor":
        return _tensor(plain, content(plain["bytes"]))
    if kind in ("array", "scalar"):
        import numpy

        array = numpy.lib.format.read_array(BytesIO(content(plain["bytes"])), allow_pickle=False)
        return array[()] if kind == "scalar" else array
    raise ValueError(f"no kind of value: {kind!r}")


def _tensor(plain: Mapping[str, Any], content: bytes) -> Any:
    import torch

    dtype = getattr(torch, plain["dtype"])
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no type of tensor: {plain['dtype']!r}")
    if not content:
        return torch.empty(plain["shape"], dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(dtype).reshape(plain["shape"])
