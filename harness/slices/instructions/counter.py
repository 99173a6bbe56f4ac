"""The program that runs under callgrind: it opens a checkpoint, and forks a child for each count.

The request is one JSON object on standard input (see `counting`). Importing, of torch too where anything uses it, and
opening the checkpoint happen while callgrind watches nothing, which is faster; then this process asks valgrind to watch
it. All children are forked at once and wait: they have the same memory at the same places, so that the same calls
execute the same instructions. A child that is let go builds its variant, makes a few calls, has the next ones counted,
and ends.

On standard output stands one JSON object a line: `ready` with what the counts depend on, `begun` with a child's process
and its job, `ended` with the same and why there is no count. What variants print goes to standard error.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import platform
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from ...machine.lifeline import tied
from ...spec.comparison import EnteredName
from ...worker.functions import open_functions
from ...worker.state import Bench, Worker

SMALL_CALLS = 12
"""Calls of a function before the count: Python specialises bytecode from the eighth on."""

ON_SECONDS = 60.0


Toggle = Callable[[], object]
"""Lets callgrind begin to collect, and end."""


class CannotCount(Exception):
    """Nothing can be counted in this process; the text says why."""


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
        toggle = _toggle(worker)
        _watch(request)
    except CannotCount as error:
        tell(failed=str(error))
        return
    if request["folder"]:
        from .models import WARM_BY, call_model, nothing

        for bench in worker.benches.values():
            if bench.call is None:
                call_model(worker, bench, WARM_BY, nothing, counted=1)
    pool = _forked(worker, request, toggle, answers)
    versions = ({"torch": worker.torch.__version__} if worker.torch else {}) | {"python": sys.version.split()[0]}
    versions |= {} if request["folder"] else {"numpy": version("numpy")}
    capability = worker.torch.backends.cpu.get_cpu_capability() if worker.torch else None
    tell(ready={"capability": capability, "versions": versions})
    for message in _counts(request, pool):
        tell(**message)


def _opened(request: Mapping[str, Any]) -> Worker:
    """A worker with all workloads open and everything imported that children need."""
    if request["torch"]:
        import_module("torch")  # before the worker looks whether it is there
    hello = {name: request[name] for name in ("cache", "added", "functions")}
    worker = Worker(hello | {"threads": 1, "draw": f"count {request['seed']}"})
    for workload in request["workloads"]:
        if call := request["called"].get(workload["name"]):
            open_functions(worker, workload, None, request["seed"], call)
        else:
            from ...worker.torch_verbs import open_workload

            open_workload(worker, workload, request["folder"], request["seed"], None)
    if request["folder"]:
        from .models import import_variants

        named = {EnteredName(job["variant"]).original for job in request["jobs"]}
        import_variants(named - worker.added.keys() - worker.functions.keys())
    return worker


def _toggle(worker: Worker) -> Toggle:
    """What tells callgrind to begin and to end collecting. Raises CannotCount."""
    if worker.torch is not None and worker.torch._C._valgrind_supported_platform():
        toggle: Toggle = worker.torch._C._valgrind_toggle
        return toggle
    if own := toggle_of_valgrind():
        return own
    raise CannotCount(
        "this build of torch cannot tell callgrind what to count"
        if worker.torch is not None
        else "here only torch can tell callgrind what to count: pip install 'path/to/llama-workbench[models]'"
    )


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


def _call_function(worker: Worker, bench: Bench, entered: str, toggle: Toggle, *, counted: int, inputs: int) -> None:
    """Let a function answer the gate's inputs, which tells whether calls change them; then call it `counted` times, on
    `inputs` different ones in turns, with callgrind collecting. The inputs are the same for all and in every run."""
    bench.kind.variant(worker, bench, entered)
    called = bench.called[entered]
    with worker.modes_of(bench):
        if wrong := called.gate():
            raise CannotCount(f"gives another answer: {wrong}")
        if called.is_apart:
            raise CannotCount("only a part of each call is timed, and instructions are counted of whole calls")
        every = called.same_inputs(inputs, SMALL_CALLS + counted)
        function = called.make()
        for arguments in every[:SMALL_CALLS]:
            function(*arguments)
        rest = every[SMALL_CALLS:]
        toggle()
        for arguments in rest:
            function(*arguments)
        toggle()


# -- the children ------------------------------------------------------------------------------------------------------


def _forked(worker: Worker, request: Mapping[str, Any], toggle: Toggle, answers: int) -> dict[int, int]:
    """A child for each job, and one more for each workload: process → the pipe at whose other end it waits for the
    number of its job. Between two forks next to nothing happens."""
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
            _be_child(worker, request, toggle, pipes[index][0])
    return {process: pipe for process, (_, pipe) in zip(processes, pipes, strict=True)}


def _counts(request: Mapping[str, Any], waiting: dict[int, int]) -> Iterator[dict[str, Any]]:
    """Let children go, some at a time, and say what becomes of each.

    Of each workload the first job that has a count is done a second time: both counts should be the same.
    """
    jobs = deque(enumerate(request["jobs"]))
    running: dict[int, tuple[int, dict[str, Any]]] = {}
    to_repeat: dict[str, list[int]] = {}  # by workload, jobs that may be done again, in order
    for number, job in jobs:
        to_repeat.setdefault(job["workload"], []).append(number)
    counted: set[int] = set()
    while jobs or running:
        while jobs and waiting and len(running) < request["lanes"]:
            number, job = jobs.popleft()
            child = next(iter(waiting))
            os.write(waiting.pop(child), number.to_bytes(2, "little"))
            running[child] = number, job
            yield {"begun": child, "job": job}
        if not running:
            break  # no child is left for the other jobs
        process, status = os.wait()
        if process not in running:
            waiting.pop(process, None)
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
        os.kill(child, signal.SIGKILL)


def _be_child(worker: Worker, request: Mapping[str, Any], toggle: Toggle, pipe: int) -> NoReturn:
    """Wait for a job, count its variant, and end without any of the parent's clean-up."""
    job = request["jobs"][int.from_bytes(os.read(pipe, 2), "little")]
    reason = ""
    try:
        bench = worker.benches[job["workload"]]
        if bench.call is None:
            from .models import call_model

            call_model(worker, bench, job["variant"], toggle, counted=job["calls"])
        else:
            _call_function(worker, bench, job["variant"], toggle, counted=job["calls"], inputs=request["inputs"])
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


# -- telling callgrind to begin or to end, from inside of a program that has no compiled code of ours ------------------

TOGGLE_COLLECT = (ord("C") << 24) + (ord("T") << 16) + 2
RUNNING_ON_VALGRIND = 0x1001

CODE = {
    "x86_64": bytes.fromhex(
        "4889f8"  # mov rax, rdi: where the request and its five arguments lie
        "31d2"  # xor edx, edx: the answer where nobody takes the request
        "48c1c703 48c1c70d 48c1c73d 48c1c733"  # rol rdi, 3, 13, 61, 51: 128 places, and so none
        "4887db"  # xchg rbx, rbx: take it
        "4889d0 c3"  # mov rax, rdx; ret
    )
}
"""By machine: a function of the address of a request, whose answer is valgrind's: it takes one where it sees these
instructions, which otherwise do nothing ("client requests" in `valgrind/valgrind.h`; `callgrind.h` has the numbers)."""


def toggle_of_valgrind() -> Callable[[], object] | None:
    """What toggles collecting when it is called; None where this machine has no code for it, forbids it, or the
    program does not run under valgrind."""
    code = CODE.get(platform.machine())
    if code is None:
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return None
    page.write(code)
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    ask = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(start)
    running, toggle = ((ctypes.c_uint64 * 6)(number) for number in (RUNNING_ON_VALGRIND, TOGGLE_COLLECT))
    if not ask(ctypes.addressof(running)):
        return None
    where = ctypes.addressof(toggle)
    kept = page, toggle  # for as long as it can be called

    def toggle_collecting() -> object:
        return ask(where) and kept

    return toggle_collecting


if __name__ == "__main__":
    main()
    os._exit(0)  # the interpreter's clean-up takes four seconds under callgrind
