"""The verbs `stretch` and `stretch_outputs`: calls that the parent times from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llama_workbench.datasets.lengths import DECODE_ROOM

from .outputs import Drawn
from .rounds import output_places
from .runners import Runner, runner_of
from .state import Worker


def _stretch_of(worker: Worker, workload: str, variant: str) -> tuple[Runner, list[Tensor]]:
    """The variant's runner for all stretches, and the outputs of the last one."""
    bench = worker.benches[workload]
    key = ("stretch", workload, variant)
    return worker.once(key, lambda: (runner_of(worker, bench, bench.subjects[variant].variant), []))


def stretch(worker: Worker, workload: str, variant: str, seconds: float) -> dict[str, Any]:
    """As many calls as take about `seconds`, once the parent says to go on.

    With 0 seconds there are none: that measures what the asking costs.
    """
    bench = worker.benches[workload]
    subject = bench.subjects[variant]
    assert subject.output is not None
    with torch.inference_mode():
        runner, kept = _stretch_of(worker, workload, variant)
        count = max(round(seconds * 1e9 / subject.call_ns / runner.counts_as), seconds > 0)
        if count and (bench.once or bench.workload.kind == "generate" or runner.counts_as > 1):
            count = 1
        elif bench.workload.kind == "decode":
            count = min(count, DECODE_ROOM // 2)
        kept[:] = output_places({}, subject.output, count)
        runner.prepare(bench.workload.tokens, bench.take(count), count)
        worker.wait()
        for place in kept:
            place.copy_(runner.call())
    return {"calls": count * runner.counts_as}


def stretch_outputs(worker: Worker, workload: str, variant: str, outputs: str) -> dict[str, Any]:
    """Leave an output of the last stretch in a file for the examiner."""
    runner, kept = _stretch_of(worker, workload, variant)
    drawn = Drawn(1)
    drawn.keep(variant, runner.asked, kept)
    drawn.end_sub_round()
    return {"drawn": drawn.write(Path(outputs)), "changed": worker.changed(variant, files=False)}
