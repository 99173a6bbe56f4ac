"""What the verbs of a measuring process share."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from llama_workbench.datasets.checkpoints import Checkpoint
from llama_workbench.variants import Model
from llama_workbench.variants.presets import presets

from .bench import Bench
from .channel import CUT_OFF, Channel
from .devices import Device, device_of
from .watch import CLOSED, Watch

OURS = frozenset(presets())
"""Names of the variants that ship with the workbench; all others are foreign code."""

Made = TypeVar("Made")


class WorkerError(Exception):
    """A command cannot be carried out; the text goes to the parent."""


class Worker:
    """The state of a measuring process: what it was told at its start, and what its verbs keep from each other's calls.

    process: its number in the run. added: name of an added variant → FILE:FUNCTION. draw: decides which prompts are
    timed. benches: by workload. engines: (entered name, id of the checkpoint) → longest sequence and model of an
    engine that is loaded once. wall_variants: variants that compute in threads of their own and are timed by wall
    time. hidden: modules that were removed from `sys.modules`, so that they stay alive.
    """

    def __init__(self, hello: Mapping[str, Any], *, alone: bool = False, channel: Channel | None = None) -> None:
        """`hello` is the parent's first message. `alone`: nothing else runs in this process."""
        self.alone = alone
        self.channel = channel
        self.process: int = hello.get("process", 0)
        self.added: dict[str, str] = hello.get("added", {})
        self.cache = Path(hello["cache"])
        self.threads: int = hello["threads"]
        self.draw: str = hello.get("draw", "")
        self.device: Device = device_of(hello.get("device", "cpu"))
        self.checkpoints: dict[tuple[str, str], Checkpoint] = {}
        self.benches: dict[str, Bench] = {}
        self.engines: dict[tuple[str, int], tuple[int, Model]] = {}
        self.wall_variants: set[str] = set()
        self.hidden: list[ModuleType] = []
        self._made: dict[Hashable, Any] = {}
        self._running = mmap.mmap(hello["inflight_fd"], 8) if hello.get("inflight_fd") is not None else None
        torch.set_num_threads(self.threads)
        torch.manual_seed(0)
        torch.set_grad_enabled(False)
        self.watch = Watch()

    def mark(self, index: int) -> None:
        """Tell the parent which variant is running (-1: none), in case this process dies or hangs."""
        if self._running is not None:
            self._running[0] = index + 1

    def wait(self) -> None:
        """Answer that all is ready, and return when the parent says to go on."""
        assert self.channel is not None
        self.channel.answer({"ready": True})
        self.channel.receive()

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` gave at the first call with this key."""
        if key not in self._made:
            self._made[key] = make()
        return cast(Made, self._made[key])

    def is_outside(self, entered: str) -> bool:
        """Whether a variant is foreign code."""
        name = entered.partition("@")[0]
        return name in self.added or name not in OURS

    def weights(self) -> list[dict[str, Tensor]]:
        """The weights of every checkpoint that was opened."""
        return [checkpoint.weights for checkpoint in self.checkpoints.values()]

    def changed(self, entered: str, *, files: bool = True) -> str | None:
        """What a variant changed for everybody in the turn that ends here, in words; undone where that is possible.

        `files`: files that it left open count as well.
        """
        foreign = self.is_outside(entered)
        change = self.device.changed() or self.watch.changes(entered, trusted=not foreign, files=files)
        if change == CLOSED and self.channel is not None and not self.channel.is_open():
            os._exit(CUT_OFF)  # while the parent still sees whose turn it is
        if not change and foreign and any(map(self.watch.weights_changed, self.weights())):
            change = "writes into the weights that everybody is given"
        return change
