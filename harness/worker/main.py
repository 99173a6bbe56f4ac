"""A fresh process that gates and times variants, one checkpoint at a time.

The parent (`processes`) sends commands and reads answers as `channel` says. Thread count and allocator are set by the
environment before torch is imported. The process ignores Ctrl-C (the parent decides) and dies with its parent.

The passes of the metrics are verbs of this process too: each package below `harness/metrics` may have a module `worker`
with `VERBS`, a table of functions that take the `Worker` first.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from ..spec.answer import RoundAnswer
from . import blocks, checking, gating, loops, rounds, turns
from .channel import Channel, serve
from .state import Worker, open_workload

METRICS = Path(__file__).resolve().parents[1] / "metrics"


def freeze(worker: Worker) -> None:
    """Imports and gates are done: later garbage collections need not walk what they left."""
    gc.collect()
    gc.freeze()


VERBS: Mapping[str, Callable[..., Any]] = {
    "device": lambda worker: worker.device.facts(),
    "open": open_workload,
    "gate": gating.gate,
    "check": checking.check,
    "differences": gating.differences,
    "freeze": freeze,
    "round": rounds.measure_round,
    "block": blocks.measure_block,
    "turns": turns.measure_in_turns,
    "answers": turns.answers,
    "differences_of_answers": turns.differences_of_answers,
    "loop": loops.loop,
    "stretch": loops.stretch,
    "stretch_outputs": loops.stretch_outputs,
}


def verbs_of_metrics() -> dict[str, Callable[..., Any]]:
    """The verbs of all passes. They are imported before any foreign code, as everything that measures is."""
    package = f"{__package__.rpartition('.')[0]}.metrics"
    verbs: dict[str, Callable[..., Any]] = {}
    for metric in iter_modules([str(METRICS)]):
        module = f"{package}.{metric.name}.worker"
        if metric.ispkg and find_spec(module) is not None:
            verbs |= import_module(module).VERBS
    return verbs


def _verbs(channel: Channel, hello: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    verbs = {**VERBS, **verbs_of_metrics()}
    worker = Worker(hello, alone=True, channel=channel)
    gc.freeze()
    return {verb: partial(_answered, function, worker) for verb, function in verbs.items()}


def _answered(function: Callable[..., Any], worker: Worker, **arguments: Any) -> Any:
    """What a verb answers, as it is sent."""
    answer = function(worker, **arguments)
    return answer.to_json() if isinstance(answer, RoundAnswer) else answer


if __name__ == "__main__":
    if "--help" in sys.argv[1:]:
        print(__doc__)
    else:
        serve(_verbs)
