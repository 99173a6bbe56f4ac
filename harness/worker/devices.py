"""The device that computes, with its clock and its memory: the CPU, or a CUDA device. Runs in the measuring process.

Everything that differs between devices is here: the clocks, waiting until work is done, and how much memory is taken.
On the CPU a call is over when it returns. On CUDA it returns when its work is queued. There two events, queued before
the first call and after the last, give the device's own time. Where the host cannot queue fast enough (calls of small
kernels), this time includes the gaps between kernels, as it does in a real program.
"""

from __future__ import annotations

import re
import resource
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns, process_time_ns, thread_time_ns  # bound before any code from outside is imported
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .watch import queued_ns, waits

NS_PER_MS = 1_000_000


class Callee:
    """What is timed."""

    def call(self) -> Tensor:
        """One call."""
        raise NotImplementedError

    def many(self, count: int) -> Tensor:
        """So many calls, one after another; the output of the last."""
        for _ in range(count):
            out = self.call()
        return out


class Spent(NamedTuple):
    """One sample: the output of its last call, and nanoseconds over all its calls."""

    out: Tensor
    cpu_ns: int  # CPU time of the calling thread
    wall_ns: int
    device_ns: int  # 0 on a CPU
    process_ns: int = 0  # CPU time of all threads
    others_ns: int = 0  # CPU time of all threads but the calling one
    waits: int = 0  # how often the calling thread waited
    around_ns: int = 0  # wall time around all
    queued_ns: int = 0  # of it, that in which the calling thread waited for a processor and for nothing else


def _calls(callee: Callee, count: int, kept: Sequence[Tensor]) -> Tensor:
    if not kept:
        return callee.many(count)
    for place in kept:
        place.copy_(callee.call())
    return place


class Cpu:
    """Where models compute in the calling thread: a call is over when it returns."""

    kind = "cpu"

    sample_ns = 200_000
    """A sample lasts at least this long: reading the clock (some 0.3 µs) is then negligible."""

    def sample(self, callee: Callee, count: int, kept: Sequence[Tensor] = ()) -> Spent:
        """Call `count` times (1 or more) and read the clocks around all calls.

        With `kept`, one tensor for each call, each output is copied before the next call: a copy needs real values.

        The clocks that tell whether other threads computed are read outside those of the process: on a busy machine
        CPU time is charged between two readings too (half a millisecond was), and must not pass for another thread's.
        """
        waited, queued = waits(), queued_ns()
        around, mine = perf_counter_ns(), thread_time_ns()
        process = process_time_ns()
        wall = perf_counter_ns()
        cpu = thread_time_ns()
        out = _calls(callee, count, kept)
        cpu = thread_time_ns() - cpu
        wall = perf_counter_ns() - wall
        process = process_time_ns() - process
        mine, around = thread_time_ns() - mine, perf_counter_ns() - around
        others = max(process - mine, 0)
        return Spent(out, cpu, wall, 0, process, others, waits() - waited, around, queued_ns() - queued)

    def call_ns(self, callee: Callee) -> int:
        """Wall time of one call."""
        start = perf_counter_ns()
        callee.call()
        return perf_counter_ns() - start

    def synchronise(self) -> None:
        """Nothing to wait for: a call is over when it returns."""

    def held_bytes(self) -> int:
        """Memory that this process takes now."""
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()

    def most_held_bytes(self) -> int:
        """The most it ever took: VmHWM, which starts anew with each program (`ru_maxrss` may be that of the parent)."""
        with open("/proc/self/status", encoding="ascii") as status:
            line = next(line for line in status if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024

    def available_bytes(self) -> int:
        """Memory that is available without swapping."""
        import psutil

        return int(psutil.virtual_memory().available)

    def peak_bytes(self, call: Callable[[], Any]) -> int:
        """What `call` allocates above what lives, at its peak (memray: Python's and native allocations)."""
        import memray

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "memory.bin"
            with memray.Tracker(path, native_traces=False):
                call()
            return int(memray.FileReader(path).metadata.peak_memory)

    def changed(self) -> str | None:
        """A setting of the device that a variant changed, in words; it is restored."""
        return None

    def facts(self) -> dict[str, Any]:
        """What `environment.fingerprint` does not know of the device."""
        return {"kind": self.kind}


class Cuda:
    """The current CUDA device of torch, its own clock and its caching allocator.

    float32 is computed in full precision: with TensorFloat-32, logits would be off by more than the gates allow.
    """

    kind = "cuda"

    sample_ns = 2_000_000
    """A sample lasts at least this long where possible: queueing two events costs some microseconds."""

    def __init__(self) -> None:
        self._in_full_precision()

    def _in_full_precision(self) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")

    def sample(self, callee: Callee, count: int, kept: Sequence[Tensor] = ()) -> Spent:
        """Call `count` times between two events. The queue is empty before the first and after the second.

        `kept` as on a CPU: the copies are part of what is queued.
        """
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        wall = perf_counter_ns()
        cpu = thread_time_ns()
        start.record()
        out = _calls(callee, count, kept)
        end.record()
        cpu = thread_time_ns() - cpu
        end.synchronize()
        wall = perf_counter_ns() - wall
        return Spent(out, cpu, wall, self.between_ns(start, end))

    def call_ns(self, callee: Callee) -> int:
        return self.sample(callee, 1).device_ns

    def mark(self) -> torch.cuda.Event:
        """A point in the work that is queued, for `between_ns`."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_ns(self, start: torch.cuda.Event, end: torch.cuda.Event) -> int:
        """The device's time between two events that it has passed (its clock has steps of about 500 ns)."""
        return round(start.elapsed_time(end) * NS_PER_MS)

    def synchronise(self) -> None:
        torch.cuda.synchronize()

    def held_bytes(self) -> int:
        """Memory that this process takes now, on the host, and of tensors on the device."""
        return Cpu().held_bytes() + torch.cuda.memory_allocated()

    def most_held_bytes(self) -> int:
        """The most memory that tensors ever took on the device (work space of its libraries included)."""
        return torch.cuda.max_memory_allocated()

    def available_bytes(self) -> int:
        """Memory of the device that is available: what is free, and what the allocator keeps for reuse."""
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()

    def peak_bytes(self, call: Callable[[], Any]) -> int:
        """What `call` allocates on the device above what lives, at its peak, by the caching allocator's own count."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    def changed(self) -> str | None:
        if self._precision() == FULL_PRECISION:
            return None
        self._in_full_precision()
        return "turns TensorFloat-32 on for everybody"

    def facts(self) -> dict[str, Any]:
        """Name, size, versions and settings of the device."""
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        return {
            "kind": self.kind,
            "name": properties.name,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "driver": _driver(),
            **self._precision(),
        }

    def _precision(self) -> dict[str, Any]:
        return {
            "matmul_allow_tf32": torch.backends.cuda.matmul.allow_tf32,
            "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
        }


FULL_PRECISION = {"matmul_allow_tf32": False, "cudnn_allow_tf32": False, "float32_matmul_precision": "highest"}

Device = Cpu | Cuda


def device_of(kind: str) -> Device:
    """The device of that kind ("cpu" or "cuda"), set up for this process. Ask `problem` first whether it is there."""
    return Cuda() if kind == "cuda" else Cpu()


def problem(kind: str) -> str | None:
    """Why nothing can be measured on a device of that kind here, in words; None where it can."""
    if kind != "cuda" or torch.cuda.is_available():
        return None
    if not torch.backends.cuda.is_built():
        return f"this torch ({torch.__version__}) is built without CUDA: install one with it"
    return "torch finds no CUDA device here (is there a driver? does CUDA_VISIBLE_DEVICES hide it?)"


def _driver() -> str | None:
    """Version of the NVIDIA driver; None where it is unknown."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.match(r"\s*([\d.]+)\s*$", (output.splitlines() or [""])[0])
    return version[1] if version else None
