"""The program that runs under callgrind: it opens a checkpoint, and forks a child for each count.

The request is one JSON object on standard input (see `counting`). Importing torch and opening the checkpoint happen
while callgrind watches nothing, which is faster; then this process asks valgrind to watch it. All children are forked
at once and wait: they have the same memory at the same places, so that the same calls execute the same instructions. A
child that is let go builds its variant, makes a few calls, has the next ones counted, and ends.

On standard output stands one JSON object a line: `ready` with what the counts depend on, `begun` with a child's process
and its job, `ended` with the same and why there is no count. What variants print goes to standard error.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import torch

from llama_workbench import variants
from llama_workbench.datasets import geometries
from llama_workbench.datasets.lengths import call_lengths, warmup_length
from llama_workbench.variants import YARDSTICK, Variant

from ...machine.lifeline import tied
from ...spec.entered import EnteredName
from ...worker.gates.small import small_weights
from ...worker.opening import open_workload
from ...worker.runners import runner_of, variant_of
from ...worker.state import Bench, Worker

SMALL_CALLS, WARM_CALLS = 12, 1
"""Calls before the count. Those of a tiny model, which cost next to nothing, let Python specialise the variant's
bytecode (from the eighth call of a function on); those of the workload fill caches."""

WARM_BY = YARDSTICK
"""Its call, before the forks, lets callgrind translate what all children execute: they share that."""

ON_SECONDS = 60.0


class CannotCount(Exception):
    """Nothing can be counted in this process; the text says why."""


@dataclass(frozen=True)
class Waiting:
    """A child that waits for the number of its job at the other end of `pipe`."""

    process: int
    pipe: int


def main() -> None:
    """Count what the request asks for."""
    request = json.loads(sys.stdin.readline())
    answers = os.dup(1)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def tell(**message: Any) -> None:
        os.write(answers, json.dumps(message).encode() + b"\n")

    try:
        worker = _opened(request)
        _watch(request)
    except CannotCount as error:
        tell(failed=str(error))
        return
    for bench in worker.benches.values():
        if bench.call is None:
            _call(worker, bench, WARM_BY, counted=1, collect=False)  # children would inherit what it collects
    pool = _forked(worker, request, answers)
    versions = {"torch": torch.__version__, "python": sys.version.split()[0]}
    capability = torch.backends.cpu.get_cpu_capability()
    tell(ready={"capability": capability, "versions": versions}, numpy=version("numpy"))
    for message in _counts(request, pool):
        tell(**message)


def _opened(request: Mapping[str, Any]) -> Worker:
    """A worker with all workloads open and everything imported that children need."""
    if not torch._C._valgrind_supported_platform():
        raise CannotCount("this build of torch cannot tell callgrind what to count")
    hello = {name: request[name] for name in ("cache", "added", "functions")}
    worker = Worker(hello | {"threads": 1, "draw": f"count {request['seed']}"})
    for workload in request["workloads"]:
        call = request["called"].get(workload["name"])
        open_workload(worker, workload, None if call else request["folder"], request["seed"], call)
    named = {EnteredName(job["variant"]).original for job in request["jobs"]} | (
        {WARM_BY} if request["folder"] else set()
    )
    for name in sorted(named - worker.added.keys() - worker.functions.keys()):
        if module := getattr(variants.get(name).build, "module", None):
            import_module(module, variants.__name__)
    return worker


def _watch(request: Mapping[str, Any]) -> None:
    """Let callgrind watch from here on. Waits without sleeping: valgrind looks for messages while code runs."""
    command = [request["vgdb"], f"--vgdb-prefix={request['vgdb_prefix']}", f"--pid={os.getpid()}"]
    command += ["--max-invoke-ms=0", f"--cmd-time-out={ON_SECONDS:.0f}", "instrumentation", "on"]
    with subprocess.Popen(tied(command), stdin=subprocess.DEVNULL, stdout=2) as asked:
        while asked.poll() is None:
            pass
    if asked.returncode:
        raise CannotCount(f"vgdb could not let callgrind begin (exit code {asked.returncode})")


# -- the calls ---------------------------------------------------------------------------------------------------------


def _call(worker: Worker, bench: Bench, entered: str, *, counted: int, collect: bool = True) -> None:
    """Build a variant anew, warm it up, and call it `counted` times with callgrind collecting."""
    variant = variant_of(worker, entered, bench)
    toggle = torch._C._valgrind_toggle
    with torch.inference_mode():
        _call_small(variant, bench)
        runner = runner_of(worker, bench, variant)
        lengths = call_lengths(bench.workload, round_index=0, count=counted, seed=bench.seed)
        for length, calls, counts in _blocks(bench, lengths):
            collected = counts and collect
            runner.prepare(length, bench.take(calls), calls)
            if collected:
                toggle()
            for _ in range(calls):
                runner.call()
            if collected:
                toggle()


def _call_function(worker: Worker, bench: Bench, entered: str, *, counted: int, inputs: int) -> None:
    """Let a function answer the gate's inputs, which tells whether calls change them; then call it `counted` times, on
    `inputs` different ones in turns, with callgrind collecting. The inputs are the same for all and in every run."""
    variant_of(worker, entered, bench)
    called, toggle = bench.called[entered], torch._C._valgrind_toggle
    with worker.modes_of(bench):
        if wrong := called.gate():
            raise CannotCount(f"gives another answer: {wrong}")
        every = called.same_inputs(inputs, SMALL_CALLS + counted)
        function = called.make()
        for arguments in every[:SMALL_CALLS]:
            function(*arguments)
        rest = every[SMALL_CALLS:]
        toggle()
        for arguments in rest:
            function(*arguments)
        toggle()


def _call_small(variant: Variant, bench: Bench) -> None:
    """Calls of the variant's code on a model that is hardly there: prefills, and tokens after them."""
    config = geometries.get("tiny").config
    model = variant.build(config, small_weights(config, bench.dtype), max_length=SMALL_CALLS)
    tokens = torch.zeros(bench.workload.batch, SMALL_CALLS, dtype=torch.long)
    for step in range(1, SMALL_CALLS):
        model.reset()
        model.forward(tokens[:, :step], 0)
        model.forward(tokens[:, step : step + 1], step)


def _blocks(bench: Bench, lengths: Sequence[int]) -> Iterator[tuple[int, int, bool]]:
    """Calls that one `prepare` serves: (tokens of each, how many, whether they are counted)."""
    warm_length = warmup_length(bench.workload, lengths=lengths)
    if bench.once:
        yield from ((warm_length, 1, False) for _ in range(WARM_CALLS))
        yield from ((length, 1, True) for length in lengths)
    else:
        yield warm_length, WARM_CALLS, False
        yield lengths[0], len(lengths), True


# -- the children ------------------------------------------------------------------------------------------------------


def _forked(worker: Worker, request: Mapping[str, Any], answers: int) -> list[Waiting]:
    """A child for each job, and one more for each workload, all waiting. Between two forks next to nothing happens."""
    count = len(request["jobs"]) + len(request["workloads"])
    pipes = [os.pipe() for _ in range(count)]
    processes = [0] * count
    gc.collect()
    gc.freeze()
    gc.disable()
    for index in range(count):
        processes[index] = os.fork()
        if processes[index] == 0:
            os.close(answers)
            _be_child(worker, request, pipes[index][0])
    return [Waiting(process, pipe[1]) for process, pipe in zip(processes, pipes, strict=True)]


def _counts(request: Mapping[str, Any], pool: Sequence[Waiting]) -> Iterator[dict[str, Any]]:
    """Let children go, some at a time, and say what becomes of each.

    Of each workload the first job that has a count is done a second time: both counts should be the same.
    """
    jobs = deque(enumerate(request["jobs"]))
    waiting = deque(pool)
    running: dict[int, tuple[int, dict[str, Any]]] = {}
    to_repeat: dict[str, list[int]] = {}  # by workload, jobs that may be done again, in order
    for number, job in jobs:
        to_repeat.setdefault(job["workload"], []).append(number)
    counted: set[int] = set()
    while jobs or running:
        while jobs and waiting and len(running) < request["lanes"]:
            number, job = jobs.popleft()
            child = waiting.popleft()
            os.write(child.pipe, number.to_bytes(2, "little"))
            running[child.process] = number, job
            yield {"begun": child.process, "job": job}
        if not running:
            break  # no child is left for the other jobs
        process, status = os.wait()
        if process not in running:
            waiting = deque(child for child in waiting if child.process != process)
            continue
        number, job = running.pop(process)
        reason = _reason(status, Path(request["scratch"], f"reason.{process}"))
        yield {"ended": process, "job": job, "reason": reason}
        candidates = to_repeat.get(job["workload"], [])
        if reason is None:
            counted.add(number)
        elif number in candidates:
            candidates.remove(number)
        if candidates and candidates[0] in counted:
            jobs.appendleft((candidates[0], request["jobs"][candidates[0]]))
            to_repeat[job["workload"]] = []
    for child in waiting:
        os.kill(child.process, signal.SIGKILL)


def _be_child(worker: Worker, request: Mapping[str, Any], pipe: int) -> NoReturn:
    """Wait for a job, count its variant, and end without any of the parent's clean-up."""
    job = request["jobs"][int.from_bytes(os.read(pipe, 2), "little")]
    reason = ""
    try:
        bench = worker.benches[job["workload"]]
        if bench.call is None:
            _call(worker, bench, job["variant"], counted=job["calls"])
        else:
            _call_function(worker, bench, job["variant"], counted=job["calls"], inputs=request["inputs"])
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
    with open(os.path.join(request["scratch"], f"reason.{os.getpid()}"), "w", encoding="utf-8") as file:
        file.write(reason)
    os._exit(0)


def _reason(status: int, left: Path) -> str | None:
    """Why a child has no count, by its exit status and the text that it left; None where it has one."""
    if os.WIFSIGNALED(status):
        return f"kills its process ({signal.Signals(os.WTERMSIG(status)).name})"
    if not left.is_file() or os.WEXITSTATUS(status):
        return f"ends its process (exit code {os.WEXITSTATUS(status)})"
    return left.read_text(encoding="utf-8") or None


if __name__ == "__main__":
    main()
    os._exit(0)  # the interpreter's clean-up takes four seconds under callgrind
