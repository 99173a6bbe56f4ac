"""The device that computes, with its clock and its memory: the CPU, or a CUDA device. Runs in the measuring process.

Everything that differs between devices is here: the clocks, waiting until work is done, and how much memory is taken.
On the CPU a call is over when it returns. On CUDA it returns when its work is queued. There two events, queued before
the first call and after the last, give the device's own time. Where the host cannot queue fast enough (calls of small
kernels), this time includes the gaps between kernels, as it does in a real program.
"""

from __future__ import annotations

import gc
import resource
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns, process_time_ns, thread_time_ns  # bound before any code from outside is imported
from typing import TYPE_CHECKING, Any, NamedTuple

from .watch import queued_ns, waits

if TYPE_CHECKING:
    from typing import TypeAlias

    from torch import Tensor

    from .cuda import Cuda


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

    out: Any
    cpu_ns: int  # CPU time of the calling thread
    wall_ns: int
    device_ns: int  # 0 on a CPU
    process_ns: int = 0  # CPU time of all threads
    others_ns: int = 0  # CPU time of all threads but the calling one
    waits: int = 0  # how often the calling thread waited
    around_ns: int = 0  # wall time around all
    queued_ns: int = 0  # of it, that in which the calling thread waited for a processor and for nothing else


def calls(callee: Callee, count: int, kept: Sequence[Tensor]) -> Tensor:
    """Call so many times; with `kept`, copy each output there before the next call. The output of the last."""
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

        The clocks that tell whether other threads computed are read outside those of the process: on a busy machine CPU
        time is charged between two readings too (half a millisecond was), and must not pass for another thread's."""
        waited, queued = waits(), queued_ns()
        around, mine = perf_counter_ns(), thread_time_ns()
        process = process_time_ns()
        wall = perf_counter_ns()
        cpu = thread_time_ns()
        out = calls(callee, count, kept)
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

    def available_bytes(self) -> int:
        """Memory that is available without swapping."""
        import psutil

        return int(psutil.virtual_memory().available)

    def peak_bytes(self, call: Callable[[], Any], *, objects: bool = False) -> int:
        """What `call` allocates above what lives, at its peak (memray). objects: small Python objects one by one, which
        else count only where Python asks the system for room for more of them."""
        import memray

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "memory.bin"
            with memray.Tracker(path, native_traces=False, trace_python_allocators=objects):
                call()
            return int(memray.FileReader(path).metadata.peak_memory)

    def kept_bytes(self, call: Callable[[], Any]) -> int:
        """What `call` allocates and leaves, its answer among it, small Python objects one by one (memray)."""
        import memray

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "memory.bin"
            with memray.Tracker(path, native_traces=False, trace_python_allocators=True):
                answer = call()
                gc.collect()
            left = sum(record.size for record in memray.FileReader(path).get_leaked_allocation_records())
            del answer
            return left

    def padding(self, size: int) -> object:
        """So many bytes, which move what is allocated after them for as long as they live."""
        return bytearray(size)

    def changed(self) -> str | None:
        """A setting of the device that a variant changed, in words; it is restored."""
        return None

    def facts(self) -> dict[str, Any]:
        """What `environment.fingerprint` does not know of the device."""
        return {"kind": self.kind}


Device: TypeAlias = "Cpu | Cuda"


def device_of(kind: str) -> Device:
    """The device of that kind ("cpu" or "cuda"), set up for this process. Ask `problem` first whether it is there."""
    if kind != "cuda":
        return Cpu()
    from .cuda import Cuda  # imports torch, which not every process has

    return Cuda()


def problem(kind: str) -> str | None:
    """Why nothing can be measured on a device of that kind here, in words; None where it can."""
    if kind != "cuda":
        return None
    from . import cuda

    return cuda.problem()
