"""A fresh process that gates and times variants, one checkpoint at a time.

The parent (`processes`) sends commands and reads answers as `channel` says. Thread count and allocator are set by the
environment before torch is imported; where functions are measured that do not use torch, it is not imported. It ignores
Ctrl-C (the parent decides) and dies with its parent.

Slices have verbs here too: their module `worker` has `VERBS`, a table of functions that take the `Worker` first.
Nothing imports this module: a process begins with it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import llama_workbench

from ..slices import faces
from ..spec.sample import RoundAnswer
from . import gating, looks, rounds
from .channel import Channel, serve
from .functions import open_functions
from .state import Worker, stand_ins


def freeze(worker: Worker) -> None:
    """Imports and gates are done: later garbage collections need not walk what they left."""
    gc.collect()
    gc.freeze()


VERBS: Mapping[str, Callable[..., Any]] = {
    "open": open_functions,
    "gate": gating.gate,
    "admit": gating.admit,
    "freeze": freeze,
    "round": rounds.measure_round,
    "block": rounds.measure_block,
    "roof": looks.roof,
    "turns": looks.measure_in_turns,
    "alternate": looks.alternate,
    "line_runs": looks.line_runs,
    "loop": looks.loop,
    "peak": looks.peak,
    "answers": looks.answers,
    "differences_of_answers": looks.differences_of_answers,
}
"""Those of every process."""


def verbs_with_torch() -> dict[str, Callable[..., Any]]:
    """The verbs of a process that imports torch, those of all passes included. All are imported before any foreign
    code, as everything that measures is."""
    verbs: dict[str, Callable[..., Any]] = dict(import_module(".torch_verbs", __package__).VERBS)
    for face in faces("worker"):
        verbs |= face.VERBS
    faces("checkpoint")  # imported before any foreign code is
    return verbs


def _verbs(channel: Channel, hello: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)  # as it was before the bootstrap
    verbs = dict(VERBS)
    if hello.get("torch", True):
        verbs |= {} if hello.get("functions_only") else verbs_with_torch()
        import_module("torch")  # before any foreign code is
    worker = Worker(hello, alone=True, channel=channel)
    gc.freeze()
    if not worker.calm:
        worker.stand_ins = stand_ins(llama_workbench.BARE_OBJECTS)
    for place, command in enumerate(hello.get("prepare", ())):
        worker.mark(place)
        verbs[command["do"]](worker, **{name: value for name, value in command.items() if name != "do"})
    worker.mark(-1)

    def answered(verb: str, **arguments: Any) -> Any:
        """What a verb answers, as it is sent."""
        try:
            answer = verbs[verb](worker, **arguments)
        finally:
            worker.turn_of("")
        return answer.to_json() if isinstance(answer, RoundAnswer) else answer

    return {verb: partial(answered, verb) for verb in verbs}


if __name__ == "__main__":
    if "--help" in sys.argv[1:]:
        print(__doc__)
    else:
        serve(_verbs)
