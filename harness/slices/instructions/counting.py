"""Counts instructions with valgrind's callgrind: the process that counts, as its parent sees it.

    pairs of workload and variant --count--> records of instructions.json

One process counts on one checkpoint (`counter` is what runs in it). It forks a child for each pair, two at a time where
there are two cores: counts, unlike times, do not change because another process computes.

Callgrind's file has the form of valgrind's manual, "Callgrind Format Specification". Costs that a function caused in
those that it called stand after `calls=` lines; they are counted where they were spent, and left out here.
"""

from __future__ import annotations

import json
import math
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from llama_workbench import variants
from llama_workbench.datasets.workloads import Workload
from llama_workbench.variants import FUNCTION_REFERENCE

from ...calls.called import Call
from ...calls.source import Source
from ...machine.environment import usable_cores
from ...machine.lifeline import tied
from ...measure.processes import ALLOCATOR, worker_environment
from ...spec.comparison import EnteredName

# -- what callgrind wrote ----------------------------------------------------------------------------------------------

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


def read(path: Path) -> dict[str, int]:
    """Instructions that a process executed while callgrind collected, by whose code they lie in: one of GROUPS.

    Raises CallgrindError where the dump is missing, cut off or in another form.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return parse(lines)
    except OSError as error:
        raise CallgrindError(f"callgrind left no {path.name} ({error.strerror})") from error


def parse(lines: Iterable[str]) -> dict[str, int]:
    """The same from lines. Raises CallgrindError."""
    positions, column, total = 1, -1, None
    names: dict[tuple[str, str], str] = {}
    now = dict.fromkeys(_NAMED, "")
    groups: Counter[str] = Counter()
    skipped = False
    for line in map(str.rstrip, lines):
        if not line or line.startswith("#"):
            continue
        if line[0] in "0123456789+-*":
            if not skipped and column >= 0:
                groups[group_of(now["ob"], now["fn"])] += _cost(line, positions + column)
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
    if groups.total() != total:
        raise CallgrindError(f"callgrind's file is damaged: its lines add up to {groups.total()}, not {total}")
    return {group: groups[group] for group in GROUPS if groups[group]}


@cache
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


COUNTED_CALLS = 2
"""Calls of a model that a count is over. They are so alike that more would only take longer."""

INPUTS = 4
"""Different inputs that a function is counted on: the same for all, in every run. A count is over all of them, several
times where calls are short."""

COUNTED_NS, MOST_CALLS = 10_000_000, 4_000
"""A count of a function is over calls of so much time without callgrind, some 30 million instructions, but of no more
calls than that."""

CALLS_OF_REFERENCE = 2 * INPUTS
"""Of the reference benchmark of functions, whose call is some 16 million instructions: beside functions of a
microsecond it would else be called thousands of times."""

NOT_INSTALLED = "valgrind is not installed: apt-get install valgrind"

START_SECONDS, COUNT_SECONDS, END_SECONDS = 600.0, 900.0, 120.0
"""Until the process is ready (torch takes most of a minute to import), until a child has counted, and until the process
goes on after that. What takes longer hangs."""

SLOWER = 20_000
"""A child may take so many times a call's own time longer: callgrind makes code some 2,000 times slower, and a child
makes a few calls."""

LANES = 2

ABOUT_START_SECONDS, ABOUT_COUNT_SECONDS = 40.0, 15.0
"""For the progress bar until it is known."""

Step = Callable[[str, float, float], None]
"""Shows progress: a text, how far (0 to 1), and the seconds left."""

Pair = tuple[str, str]
"""(workload, variant)"""


@dataclass(frozen=True)
class Wanted:
    """What is counted in one process, in this order."""

    folder: Path | None  # of the checkpoint; None for functions
    workloads: tuple[Workload, ...]
    pairs: tuple[Pair, ...]
    added: Mapping[str, Source]  # name of an outside variant → its source
    seed: int
    functions: Mapping[str, Source] = field(default_factory=dict)  # the same of any function
    # workload → what functions are called with, and how often
    called: Mapping[str, tuple[Call, int]] = field(default_factory=dict)
    torch: bool = True  # whether anything uses it: without it the process begins many times sooner
    limits: Mapping[Pair, float] = field(default_factory=dict)  # seconds of a count, where not COUNT_SECONDS

    def calls(self, pair: Pair) -> int:
        """Calls that the count of a pair is over."""
        workload, variant = pair
        if workload not in self.called:
            return COUNTED_CALLS
        return CALLS_OF_REFERENCE if variant == FUNCTION_REFERENCE else self.called[workload][1]


def calls_of_functions(call_ns: Iterable[float]) -> int:
    """Calls that a count is over, by the times of the functions on a workload: a multiple of `INPUTS`."""
    fastest = min(call_ns, default=math.inf)
    times = math.ceil(COUNTED_NS / (INPUTS * fastest)) if fastest > 0 else MOST_CALLS
    return INPUTS * max(1, min(times, MOST_CALLS // INPUTS))


def cannot_count(workload: Workload, variant: str, added: Container[str]) -> str | None:
    """Why the calls of a variant on a workload cannot be counted; None where they can."""
    if workload.kind == "component":
        return "one part of a layer is not counted: only whole forwards are"
    if workload.kind == "generate":
        return "a generation is not counted: it is many forwards, and takes too long under callgrind"
    if workload.threads > 1:
        return "callgrind runs one thread at a time: only workloads of one thread are counted"
    name = EnteredName(variant).original
    if name in added or workload.kind == "call":
        return None
    if variants.get(name).engine is not None:
        return "an engine is not counted: it has threads and a loader of its own, which callgrind is too slow for"
    return "compiled code is not counted: it would be compiled under callgrind" if variants.get(name).compiled else None


def lacks() -> str | None:
    """Why nothing can be counted on this machine; None where it can."""
    return None if shutil.which("valgrind") and shutil.which("vgdb") else NOT_INSTALLED


def no_count(pair: Pair, reason: str) -> dict[str, Any]:
    """The record of a pair without a count."""
    return {"workload": pair[0], "variant": pair[1], "reason": reason}


def count(wanted: Wanted, *, cache: Path, log: Path, step: Step) -> list[dict[str, Any]]:
    """A record for each pair of `wanted`, in its order (see `metric.Instructions`).

    What has no count has a reason: a child that raised, died or did not end within its limit, or what became of the
    process itself. Its output goes to `log`.
    """
    if reason := lacks():
        return [no_count(pair, reason) for pair in wanted.pairs]
    with tempfile.TemporaryDirectory(prefix="workbench-count-") as scratch, _started(Path(scratch), log) as process:
        session = _Session(wanted, Path(scratch), process, step)
        try:
            end = session.run(cache)
        except OSError as error:
            end = f"the process that counts cannot be asked ({error.strerror})"
    return [session.records.get(pair) or no_count(pair, end) for pair in wanted.pairs]


@contextmanager
def _started(scratch: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process under callgrind, which ends with this block and with this process, its children too."""
    read_end, write_end = os.pipe()
    counter = [sys.executable, "-P", "-m", f"{__package__}.counter"]
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no"]
    command += [f"--vgdb-prefix={_fifo(scratch)}", f"--callgrind-out-file={scratch}/out.%p"]
    # A dict of names has the same order in every process only where their hashes are the same.
    environment = worker_environment(1, "cpu") | ALLOCATOR | {"PYTHONHASHSEED": "0"}
    try:
        with log.open("ab") as log_file:
            process = subprocess.Popen(
                tied([*command, *counter], lifeline=read_end),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                env=environment,
                pass_fds=[read_end],
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]
    finally:
        os.close(read_end)
        os.close(write_end)


def _fifo(scratch: Path) -> str:
    return f"{scratch}/vgdb"


class _Session:
    """One process that counts: what it says becomes `records`, and what hangs is killed."""

    def __init__(self, wanted: Wanted, scratch: Path, process: subprocess.Popen[bytes], step: Step) -> None:
        self.wanted, self.scratch, self.process, self.step = wanted, scratch, process, step
        self.records: dict[Pair, dict[str, Any]] = {}
        self.running: dict[int, tuple[Pair, float]] = {}  # child → what it counts, and until when
        self.hung: set[int] = set()
        self.facts: dict[str, Any] = {}
        self.deadline = self.begun = time.monotonic()
        self.forks = len(wanted.pairs) + len(wanted.workloads)
        self.done = 0

    def run(self, cache: Path) -> str:
        """Ask for everything, and take what comes until the process ends: why nothing more is counted."""
        self._ask(cache)
        self.deadline = time.monotonic() + START_SECONDS
        self._show("starting")
        buffer = b""
        assert self.process.stdout is not None
        while True:
            due = min((end for _, end in self.running.values()), default=self.deadline)
            if not select.select([self.process.stdout], [], [], max(due - time.monotonic(), 0))[0]:
                if not self.running:
                    return "the process that counts hangs"
                self._kill_overdue()
                continue
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            if not chunk:
                return f"the process that counts ended (exit code {self.process.wait()}; see its log)"
            *lines, buffer = (buffer + chunk).split(b"\n")
            for message in map(json.loads, lines):
                if "failed" in message:
                    return str(message["failed"])
                self._take(message)

    def _ask(self, cache: Path) -> None:
        wanted = self.wanted
        request = {
            "folder": None if wanted.folder is None else str(wanted.folder),
            "cache": str(cache),
            "seed": wanted.seed,
            "added": {name: asdict(source) for name, source in wanted.added.items()},
            "functions": {name: asdict(source) for name, source in wanted.functions.items()},
            "called": {name: asdict(call) for name, (call, _) in wanted.called.items()},
            "inputs": INPUTS,
            "torch": wanted.torch,
            "lanes": min(LANES, usable_cores()),
            "scratch": str(self.scratch),
            "vgdb": shutil.which("vgdb"),
            "vgdb_prefix": _fifo(self.scratch),
            "workloads": [workload.model_dump() for workload in wanted.workloads],
            "jobs": [
                {"workload": workload, "variant": variant, "calls": wanted.calls((workload, variant))}
                for workload, variant in wanted.pairs
            ],
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def _take(self, message: Mapping[str, Any]) -> None:
        """One line of what the process says."""
        now = time.monotonic()
        self.deadline = now + END_SECONDS
        if "ready" in message:
            asked = subprocess.run(tied(["valgrind", "--version"]), capture_output=True, text=True, check=False)
            valgrind = {"valgrind": asked.stdout.strip().removeprefix("valgrind-")}
            self.facts = message["ready"] | {"versions": message["ready"]["versions"] | valgrind}
            self.begun = now
            return
        pair = message["job"]["workload"], message["job"]["variant"]
        if "begun" in message:
            self.running[message["begun"]] = pair, now + self.wanted.limits.get(pair, COUNT_SECONDS)
        else:
            self.running.pop(message["ended"], None)
            self.done += 1
            self._counted(pair, message["ended"], message["reason"])
        self._show(f"{pair[0]}: {pair[1]}")

    def _counted(self, pair: Pair, child: int, reason: str | None) -> None:
        """Put what a child left into its record; a second count of the same beside the first."""
        calls, by = self.wanted.calls(pair), dict[str, int]()
        if child in self.hung:
            reason = f"hangs: no count in {self.wanted.limits.get(pair, COUNT_SECONDS):.0f} s"
        try:
            by = {} if reason else read(self.scratch / f"out.{child}")
            reason = reason or (None if by else "callgrind counted nothing")
        except CallgrindError as error:
            reason = str(error)
        instructions = sum(by.values()) / calls
        if pair in self.records:
            self.records[pair]["again"] = instructions or None
        elif reason:
            self.records[pair] = no_count(pair, reason)
        else:
            self.records[pair] = {
                "workload": pair[0],
                "variant": pair[1],
                "instructions": instructions,
                "calls": calls,
                "again": None,
                "inputs": INPUTS if pair[0] in self.wanted.called else 0,
                "by": {group: spent / calls for group, spent in by.items()},
                **self.facts,
                "reason": None,
            }

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for child, (pair, end) in list(self.running.items()):
            if end <= now:
                self.hung.add(child)
                self.running[child] = pair, now + END_SECONDS
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    def _show(self, text: str) -> None:
        lanes = min(LANES, usable_cores())
        seconds = (time.monotonic() - self.begun) / self.done if self.done else ABOUT_COUNT_SECONDS / lanes
        left = (self.forks - self.done) * seconds + (0.0 if self.facts else ABOUT_START_SECONDS)
        self.step(f"instructions {text}", self.done / self.forks, left)
