"""Files that anybody may have written: opened only where they are plain ones of a likely size, read within bounds.

A named pipe may never answer, a device may never end, a text may be gigabytes long, nested thousands deep or hold a
number of a million digits. Each of these becomes an error with a short text.
"""

from __future__ import annotations

import errno
import json
import os
import re
import reprlib
import stat
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from llama_workbench import ROOT
from llama_workbench.variants.spelling import did_you_mean

from .texts import shortened

SMALL_BYTES = 1 << 18
"""A claim, or a file of workloads or geometries. The largest that ship have 8 KB."""

CONFIG_BYTES = 1 << 23
"""A config.json, an index of shards, the header of a safetensors file."""

TOKENIZER_BYTES = 1 << 26
"""A tokenizer.json; the largest of Llamas have 17 MB."""

MOST_DEPTH = 50
"""Tables within tables."""

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip

# A chain of keys with dots between: tomllib takes time and memory in the square of its length.
_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*"""
_CHAIN = re.compile(rf"(?<![A-Za-z0-9_-])(?:{_PART}){{{MOST_DEPTH}}}")


def open_regular(path: Path) -> BinaryIO:
    """A file opened for reading its bytes, if it is a regular one. Never waits. Raises OSError as `open` does, and for
    a folder, a named pipe, a socket or a device; its `strerror` can be shown."""
    try:
        _demand_regular(os.stat(path))  # before it is opened: a device may do something already when it is
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError as error:  # a zero byte in the path
        raise OSError(errno.EINVAL, "no path of a file") from error
    try:
        _demand_regular(os.fstat(descriptor))  # another one may have taken its place
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _demand_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if kind := _KINDS.get(stat.S_IFMT(status.st_mode)):
        raise OSError(errno.EINVAL, f"is {kind}, expected a file")


def read_bytes(path: Path, *, at_most: int) -> bytes:
    """The content of a regular file. Raises OSError as `open_regular` does, and where there is more than `at_most`."""
    with open_regular(path) as file:
        content = file.read(at_most + 1)
        if len(content) > at_most:
            size = max(os.fstat(file.fileno()).st_size, len(content))
            raise OSError(errno.EFBIG, f"has {size:,} bytes, expected at most {at_most:,}")
    return content


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; unlike the library's, every fault is a TOMLDecodeError with a short text."""
    if chain := _CHAIN.search(text):
        line, column = text.count("\n", 0, chain.start()) + 1, chain.start() - text.rfind("\n", 0, chain.start())
        raise tomllib.TOMLDecodeError(f"a key of more than {MOST_DEPTH} parts (at line {line}, column {column})")
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem, at, place = str(error).rpartition(" (at ")
        raise tomllib.TOMLDecodeError(f"{shortened(problem)}{at}{place}" if at else shortened(place)) from None
    except RecursionError:
        raise tomllib.TOMLDecodeError("nested too deeply") from None
    except ValueError:  # Python's own limit: mistakes in the text are TOMLDecodeErrors
        raise tomllib.TOMLDecodeError("a number of too many digits") from None
    if _is_deep(tables):
        raise tomllib.TOMLDecodeError("nested too deeply")
    return tables


def parse_json(content: bytes | str) -> Any:
    """The value of a JSON text; unlike the library's, every fault is a ValueError with a short text."""
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(shortened(str(error))) from None
    if _is_deep(value):
        raise ValueError("nested too deeply")
    return value


def _is_deep(value: Any) -> bool:
    """Whether tables and lists are nested more than `MOST_DEPTH` deep; level by level, as recursion has a limit too."""
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        tables = [each for each in level if isinstance(each, dict | list)]
        level = [inner for table in tables for inner in (table.values() if isinstance(table, dict) else table)]
    return any(isinstance(each, dict | list) for each in level)


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist, self.maxtuple = 3, 3, 6, 6
        self.maxstring = self.maxother = self.maxlong = 60

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() < 1000 else f"a number of {x.bit_length():,} bits"


def short(value: object) -> str:
    """`repr` of a value out of a file, in one line of about a hundred letters, whatever it is."""
    return shortened(_Short().repr(value), 100)


def nearest(name: str, choices: Iterable[str]) -> str:
    """ "did you mean 'x'?", or all known names where none is near."""
    names = list(choices)
    return did_you_mean(name, names, "there are " + ", ".join(map(repr, names)))


def shown(path: Path) -> str:
    """A path as errors show it: within the workbench relative to its root, so that the text is the same everywhere."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
