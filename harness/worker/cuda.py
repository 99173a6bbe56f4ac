"""A CUDA device of torch: its own clock, and its caching allocator. Runs in the measuring process."""

from __future__ import annotations

import gc
import re
import subprocess
from collections.abc import Callable, Sequence
from time import perf_counter_ns, thread_time_ns  # bound before any code from outside is imported
from typing import Any

import torch
from torch import Tensor

from .devices import Callee, Cpu, Spent, calls

NS_PER_MS = 1_000_000


class Cuda:
    """The current CUDA device of torch, its own clock and its caching allocator. float32 is computed in full precision:
    with TensorFloat-32, logits would be off by more than the gates allow."""

    kind = "cuda"

    sample_ns = 2_000_000
    """A sample lasts at least this long where possible: queueing two events costs some microseconds."""

    def __init__(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.init()  # or the first variant that computes would have changed "whether CUDA is used"
        self._in_full_precision()

    def _in_full_precision(self) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")

    def sample(self, callee: Callee, count: int, kept: Sequence[Tensor] = ()) -> Spent:
        """Call `count` times between two events. The queue is empty before the first and after the second. `kept` as on
        a CPU: the copies are part of what is queued."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        wall = perf_counter_ns()
        cpu = thread_time_ns()
        start.record()
        out = calls(callee, count, kept)
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

    def available_bytes(self) -> int:
        """Memory of the device that is available: what is free, and what the allocator keeps for reuse."""
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()

    def peak_bytes(self, call: Callable[[], Any], *, objects: bool = False) -> int:
        """What `call` allocates on the device above what lives, at its peak, by the caching allocator's count, which
        knows no Python `objects`."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    def kept_bytes(self, call: Callable[[], Any]) -> int:
        """What `call` allocates on the device and leaves, its answer among it."""
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        answer = call()
        torch.cuda.synchronize()
        gc.collect()
        left = torch.cuda.memory_allocated() - before
        del answer
        return left

    def padding(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self.kind)

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


def problem() -> str | None:
    """Why nothing can be measured on a CUDA device here, in words; None where it can."""
    if torch.cuda.is_available():
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
