"""What a sample calls: something built on a workload, split into what is timed and what is not."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, Optional

import llama_workbench
from llama_workbench import variants
from llama_workbench.variants import Variant

from .devices import Callee
from .state import Bench, Worker

if TYPE_CHECKING:
    from torch import Tensor


class Runner(Callee):
    """What a sample calls, for one built variant. Only `call` is timed.

    `prepare` gets everything ready for `repeats` calls of `length` tokens. They use prompts from number `prompt` on: a
    prefill takes one for each call. `asked` then has (number of the prompt, all tokens so far) for each of these calls.
    One call does the work of `counts_as` calls of other variants. Of the last call's wall time `uncounted_ns` do not
    count. `enter` lets imports find the variant's own modules, where it has some. is_fresh: each call begins a process
    of its own, so that one before it leaves nothing warm in this one.
    """

    counts_as = 1
    uncounted_ns = 0
    is_fresh = False
    enter: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, model: Any, bench: Bench) -> None:
        self.model = model
        self.bench = bench
        self.asked: list[tuple[int, int]] = []
        self.calls: deque[Tensor] = deque()

    def prepare(self, length: int, prompt: int, repeats: int) -> None:
        """Get ready, in the variant's own world."""
        self.enter()
        self.set_up(length, prompt, repeats)

    def set_up(self, length: int, prompt: int, repeats: int) -> None:
        """Here: whole prompts of `length` tokens, one for each call."""
        self.asked = [(number, length) for number in range(prompt, prompt + repeats)]
        self.calls = deque(self.bench.tokens(number, length) for number, _ in self.asked)

    def finish(self) -> None:
        """Let go of what the calls were given."""

    def counted_ns(self) -> Optional[tuple[int, int]]:
        """CPU time of the thread and wall time of the last calls, where they count in part; None: as they took."""
        return None

    def left_behind(self) -> dict[str, Tensor]:
        """What the last call left behind that the examiner must see beside its output, by part."""
        return {}

    def first_ns(self) -> tuple[int, int, int]:
        """CPU, wall and device time until the last call's first token was there; 0 for what there is none of."""
        return 0, 0, 0


class PlainRunner(Runner):
    """A call that needs nothing: of one part of a layer, or of a kernel."""

    def __init__(self, call: Callable[[], Tensor]) -> None:
        self.asked = []
        self.call = call  # type: ignore[method-assign]

    def set_up(self, length: int, prompt: int, repeats: int) -> None:
        pass


def variant_of(worker: Worker, entered: str, bench: Bench) -> Variant:
    """A variant by the name it was entered under, for this workload. A control (`NAME@aa`, `NAME@copy`) is NAME once
    more."""
    return bench.kind.variant(worker, bench, entered)


def runner_of(worker: Worker, bench: Bench, variant: Variant) -> Runner:
    """The variant built anew, with what a sample calls on this workload."""
    return bench.kind.runner(worker, bench, variant)


def hide(worker: Worker) -> None:
    """Remove what measures and judges, and our variants, from `sys.modules` before foreign code is imported.

    What foreign code then imports under these names are copies of its own. Code that searches the stack or the heap
    still finds the originals.
    """
    if not worker.alone:
        return
    packages = ("llama_workbench.harness", "llama_workbench.datasets")
    private = [name for name in sys.modules if name.startswith(f"{variants.__name__}.") and "__" in name]
    gone = [name for name in sys.modules if name.startswith(packages)]
    worker.hidden += [sys.modules.pop(name) for name in (*gone, *private, "__main__")]
    sys.modules["__main__"] = ModuleType("__main__")
    for package in packages:
        with suppress(AttributeError):
            delattr(llama_workbench, package.rpartition(".")[2])


def takes_requests(variant: Variant) -> bool:
    """Whether it is an engine that answers requests with tokens, in threads of its own."""
    return variant.engine is not None and variant.engine.outputs == "log-probabilities"
