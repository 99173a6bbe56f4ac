"""The verbs `stretch` and `stretch_outputs`: calls that the parent times from outside."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llama_workbench.datasets.workloads import DECODE_ROOM

from .building import runner_of
from .drawn import Drawn
from .rounds import output_places
from .runners import Runner
from .state import Worker


@dataclass
class _Stretch:
    """A variant's runner, and the outputs of its last stretch."""

    runner: Runner
    kept: list[Tensor] = field(default_factory=list)


def _stretch_of(worker: Worker, workload: str, variant: str) -> _Stretch:
    bench = worker.benches[workload]
    return worker.once(
        ("stretch", workload, variant), lambda: _Stretch(runner_of(worker, bench, bench.subjects[variant].variant))
    )


def stretch(worker: Worker, workload: str, variant: str, seconds: float) -> dict[str, Any]:
    """As many calls as take about `seconds`, once the parent says to go on.

    With 0 seconds there are none: that measures what the asking costs.
    """
    bench = worker.benches[workload]
    subject = bench.subjects[variant]
    assert subject.output is not None
    with torch.inference_mode():
        this = _stretch_of(worker, workload, variant)
        runner = this.runner
        count = max(round(seconds * 1e9 / subject.call_ns / runner.counts_as), seconds > 0)
        if count and (bench.once or bench.workload.kind == "generate" or runner.counts_as > 1):
            count = 1
        elif bench.workload.kind == "decode":
            count = min(count, DECODE_ROOM // 2)
        this.kept = output_places({}, subject.output, count)
        runner.prepare(bench.workload.tokens, bench.take(count), count)
        worker.wait()
        for place in this.kept:
            place.copy_(runner.call())
    return {"calls": count * runner.counts_as}


def stretch_outputs(worker: Worker, workload: str, variant: str, outputs: str) -> dict[str, Any]:
    """Leave an output of the last stretch in a file for the examiner."""
    this = _stretch_of(worker, workload, variant)
    drawn = Drawn(1)
    drawn.keep(variant, this.runner.asked, this.kept)
    drawn.end_sub_round()
    return {"drawn": drawn.write(Path(outputs)), "changed": worker.changed(variant, files=False)}
