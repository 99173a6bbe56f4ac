"""A function of whose calls a part counts: what stands before and after them, or outside of `timed`, does not."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns, thread_time_ns  # bound before any foreign code is imported
from typing import Any, Optional

from llama_workbench import timed


class TimedPart:
    """Calls a function between `before` and `after`, which are given the same arguments. Where the function has blocks
    `with timed()`, these alone count.

    counted_ns: CPU time of the thread and wall time that count, of all calls since `begin`. uncounted_ns: wall time of
    the last call that does not count.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        before: Optional[Callable[..., Any]] = None,
        after: Optional[Callable[..., Any]] = None,
    ) -> None:
        self.function, self._before, self._after = function, before, after
        self.uncounted_ns = 0
        self.begin()

    def begin(self) -> None:
        """Count from here on."""
        self.counted_ns = 0, 0

    def __call__(self, *arguments: Any) -> Any:
        begun_ns = perf_counter_ns()
        if self._before is not None:
            self._before(*arguments)
        blocks, block_cpu_ns, block_wall_ns = timed.blocks, timed.cpu_ns, timed.wall_ns
        wall_ns, cpu_ns = perf_counter_ns(), thread_time_ns()
        answer = self.function(*arguments)
        cpu_ns, wall_ns = thread_time_ns() - cpu_ns, perf_counter_ns() - wall_ns
        if timed.blocks != blocks:
            cpu_ns, wall_ns = timed.cpu_ns - block_cpu_ns, timed.wall_ns - block_wall_ns
        if self._after is not None:
            self._after(*arguments)
        self.counted_ns = self.counted_ns[0] + cpu_ns, self.counted_ns[1] + wall_ns
        self.uncounted_ns = perf_counter_ns() - begun_ns - wall_ns
        return answer
