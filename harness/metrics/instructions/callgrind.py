"""Reads what callgrind wrote: how many instructions, and in whose code they lie. Pure, but for reading one file.

The form is that of valgrind's manual, "Callgrind Format Specification". Costs that a function caused in those that it
called stand after `calls=` lines; they are counted where they were spent, and left out here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

EVENT = "Ir"

PYTHON, BINDING, DISPATCH, KERNELS, LIBC, ALLOCATORS, OTHERS = GROUPS = (
    "Python", "torch's Python binding", "torch's dispatch", "torch's kernels", "C library", "allocators", "others",
)  # fmt: skip
"""Whose code an instruction lies in. Allocators: the bookkeeping inside malloc and Python's own, which depends on where
blocks of memory happen to lie. How often memory is asked for shows in all other groups."""

_OBJECTS = (
    (re.compile(r"libpython|python3?(\.\d+)?$"), PYTHON),
    (re.compile(r"libtorch_python|_C\."), BINDING),
    (re.compile(r"libc10"), DISPATCH),
    (re.compile(r"libtorch|libmkl|libopenblas|libdnnl|lib[gi]?omp"), KERNELS),
    (re.compile(r"(libc|libm|libmvec|libpthread|ld-linux[\w-]*|libstdc\+\+|libgcc_s)[-.]"), LIBC),
)

_KERNEL = re.compile(
    r"mkl_|MKL|dnnl|oneapi|Sleef|gemm|gemv|cblas|xnn_|fbgemm|at::vec::|CPU_CAPABILITY|kernel"
    r"|at::native::(AVX2|AVX512|DEFAULT)|at::native::\(anonymous namespace\)|cpublas|_omp_"
)
"""Names of functions that compute on numbers. What else lies in torch decides which of them to call, and on what."""

_ALLOCATOR = re.compile(
    r"_int_(malloc|free|realloc|memalign)|malloc_consolidate|unlink_chunk|alloc_perturb|sysmalloc|systrim"
    r"|_PyObject_(Malloc|Free|Realloc)|new_arena"
)

_NAMED = {"ob": "ob", "fn": "fn", "cob": "ob", "cfn": "fn"}
"""Keys of object files and functions, also called ones → whose numbers their names are compressed with."""


class CallgrindError(ValueError):
    """A file of callgrind's that cannot be read: the text says what is wrong."""


@dataclass(frozen=True)
class InstructionCount:
    """Instructions that a process executed while callgrind collected, and of these those in each of GROUPS."""

    instructions: int
    by_group: dict[str, int]


def read(path: Path) -> InstructionCount:
    """What a dump says. Raises CallgrindError where it is missing, cut off or in another form."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return parse(lines)
    except OSError as error:
        raise CallgrindError(f"callgrind left no {path.name} ({error.strerror})") from error


def parse(lines: Iterable[str]) -> InstructionCount:
    """The same from lines. Raises CallgrindError."""
    positions, column, total = 1, -1, None
    names: dict[tuple[str, str], str] = {}
    now = dict.fromkeys(_NAMED, "")
    spent: Counter[tuple[str, str]] = Counter()
    skipped = False
    for line in lines:
        line = line.rstrip()
        if not line or line.startswith("#"):
            continue
        if line[0] in "0123456789+-*":
            if not skipped and column >= 0:
                spent[now["ob"], now["fn"]] += _cost(line, positions + column)
            skipped = False
        elif "=" in line and ":" not in line.partition("=")[0]:
            key, _, value = line.partition("=")
            skipped = key in ("calls", "jump", "jcnd")
            if key in _NAMED:
                now[key] = _named(names, _NAMED[key], value)
        else:
            key, _, value = line.partition(":")
            if key == "positions":
                positions = len(value.split())
            elif key == "events":
                column = value.split().index(EVENT) if EVENT in value.split() else -1
            elif key == "totals":
                total = _cost(value, max(column, 0))
    if column < 0 or total is None:
        raise CallgrindError(f"callgrind's file is cut off or does not count {EVENT}")
    if sum(spent.values()) != total:
        raise CallgrindError(f"callgrind's file is damaged: its lines add up to {sum(spent.values())}, not {total}")
    groups: Counter[str] = Counter()
    for (of, function), cost in spent.items():
        groups[group_of(of, function)] += cost
    return InstructionCount(total, {group: groups[group] for group in GROUPS if groups[group]})


def group_of(of: str, function: str) -> str:
    """Which of GROUPS a function belongs to, by the path of its object file and its name."""
    file = of.rpartition("/")[2]
    group = next((group for pattern, group in _OBJECTS if pattern.match(file)), OTHERS)
    if group in (LIBC, PYTHON) and _ALLOCATOR.match(function):
        return ALLOCATORS
    return DISPATCH if group == KERNELS and not _KERNEL.search(function) else group


def _named(names: dict[tuple[str, str], str], kind: str, value: str) -> str:
    """A name that may be compressed: `(1) name` the first time, `(1)` from then on."""
    if not (compressed := re.match(r"\((\d+)\)(?: (.*))?$", value)):
        return value
    number, name = compressed.groups()
    if name is not None:
        names[kind, number] = name
    return names.get((kind, number), "")


def _cost(line: str, column: int) -> int:
    words = line.split()
    try:
        return int(words[column]) if column < len(words) else 0
    except ValueError as error:
        raise CallgrindError(f"callgrind's file has {words[column]!r} where a count should stand") from error
