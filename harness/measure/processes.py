"""Measuring processes, and the one that judges outputs, as their parent sees them; and work that waits for several.

What they do is in `worker` and `examiner`, and how they answer in `channel`.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

from llama_workbench.datasets.workloads import Workload

from ..machine.bootstrap import tied
from ..machine.environment import child_environment, granted_cores, untraced_environment
from ..worker.channel import CUT_OFF
from ..worker.watch import tree_of

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
"""Of a calm process. glibc else maps large blocks anew at every call: page faults that changed one attention block's
time by 42 %."""

AS_AT_FIRST = {"MALLOC_MMAP_THRESHOLD_": str(1 << 17)}
"""Where functions are gated that are then measured as they run: glibc goes on as it begins, and who asks for large
blocks is seen, whoever freed some before."""

START_SECONDS = 120.0
ASKING_SECONDS = 60.0
"""What a question may take beside the calls that it is about."""


class WorkerFailed(Exception):
    """A worker died, hung (`hangs`) or refused a command. `variant_index`: place of the variant that was running, if
    any."""

    def __init__(self, reason: str, variant_index: int | None = None, *, hangs: bool = False) -> None:
        self.reason = reason
        self.variant_index = variant_index
        self.hangs = hangs
        super().__init__(reason)


class WorkerProcess:
    """A measuring process and the two pipes to it. `module` runs there; `hello` is part of the first message to it.
    `python`: the interpreter of another environment. `variables`: of its environment, beside those that all have.
    `own` and `options`: variables of its environment, and words for its interpreter, that come before all others."""

    def __init__(
        self,
        *,
        threads: int,
        cache: Path,
        log: Path,
        device: str = "cpu",
        module: str = "worker.main",
        hello: Mapping[str, Any] | None = None,
        python: str = "",
        variables: Mapping[str, str] = ALLOCATOR,
        own: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        start_seconds: float = START_SECONDS,
    ) -> None:
        """Begin one; the first command waits until it is ready, `start_seconds` at most. Raises WorkerFailed."""
        self._opened = ExitStack()  # until `close`
        marker = self._opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 (it does)
        marker.truncate(8)
        self._map = self._opened.enter_context(mmap.mmap(marker.fileno(), 8))
        log_file = self._opened.enter_context(log.open("ab"))
        read, write = os.pipe()
        self._opened.callback(os.close, write)  # the lifeline
        environment = worker_environment(threads, device, elsewhere=bool(python)) | {**variables, **(own or {})}
        try:
            self._process = begin(
                module,
                log_file,
                environment,
                marker=marker.fileno(),
                lifeline=read,
                python=python or sys.executable,
                options=options,
            )
        except OSError as error:  # an environment that is gone by now
            self._opened.close()
            raise WorkerFailed(f"cannot be started ({error.strerror})") from error
        finally:
            os.close(read)
        self._buffer = b""
        self._token = ""
        self._noise: list[int | None] = []
        self.pid = self._process.pid
        first = {"threads": threads, "cache": str(cache), "inflight_fd": marker.fileno(), "device": device}
        try:
            self._write(first | dict(hello or {}))
        except BaseException:
            self.close()
            raise
        self._starting = PendingAnswer(self, "starting", start_seconds)

    def ask(self, verb: str, timeout_seconds: float, **arguments: Any) -> Any:
        """Send one command and wait for its answer.

        Raises WorkerFailed: it died, did not answer in time, or answered with an error.
        """
        return self.begin(verb, timeout_seconds, **arguments).result()

    def begin(self, verb: str, timeout_seconds: float, **arguments: Any) -> PendingAnswer:
        """Send one command and do not wait for its answer, so that others can be asked meanwhile."""
        self._starting.result()
        self._map[0] = 0
        self._write({"do": verb, **arguments})
        return PendingAnswer(self, verb, timeout_seconds)

    def ask_in_two(self, verb: str, timeout_seconds: float, **arguments: Any) -> Callable[..., Any]:
        """A command that first says it is ready; the returned function lets it go and waits for the answer.

        What the function is given is told to the command. One that has several steps is let go for each of them.
        """
        self.ask(verb, timeout_seconds, **arguments)

        def go(**said: Any) -> Any:
            self._write(said)
            return PendingAnswer(self, verb, timeout_seconds).result()

        return go

    def is_ready(self) -> bool:
        """Whether it has begun, so that a command would not wait."""
        return bool(PendingAnswer.first_of([self._starting], wait=False))

    def ready_at(self) -> float:
        """When it had begun (`time.monotonic`); waits for that. Raises WorkerFailed."""
        return float(self._starting.result())

    def alive(self) -> bool:
        """False once the process has ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process, kindly first: there are no more commands."""
        if self._process.stdin:
            with suppress(OSError):
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        self._kill()  # and what it started, which may go on without it
        if self._process.stdout:
            self._process.stdout.close()
        self._opened.close()

    def end(self) -> None:
        """End the process at once: it keeps nothing, and taking torch apart takes it a second."""
        self._kill()
        self.close()

    def _kill(self) -> None:
        """With what it started, also in a session of its own."""
        for child in tree_of(self.pid) if self.alive() else ():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _running(self) -> int | None:
        return self._map[0] - 1 if self._map[0] not in (0, 255) else None

    def _write(self, command: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._token = secrets.token_hex(16)
        try:
            self._process.stdin.write(json.dumps({**command, "token": self._token}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerFailed(self._epitaph()) from error

    def fileno(self) -> int:
        """Where answers arrive; for `select`."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def answer(self, verb: str, timeout_seconds: float, end: float) -> Any:
        """The answer to the one command that was sent; at the latest at `end`, which is `timeout_seconds` after it."""
        while (line := self._next_line()) is None:
            left = end - time.monotonic()
            ready, _, _ = select.select([self], [], [], max(left, 0))
            if not ready:
                running = self._running()
                self._kill()
                what = "its first calls" if verb == "gate" else repr(verb)
                raise WorkerFailed(f"hangs: no answer to {what} in {timeout_seconds:.0f} s", running, hangs=True)
            chunk = os.read(self.fileno(), 1 << 20)
            if not chunk:
                running = self._running()
                self._process.wait()
                raise WorkerFailed(self._epitaph(), running)
            self._buffer += chunk
        message = json.loads(line)
        if "error" in message:
            raise WorkerFailed(message["error"], self._running())
        return message.get("ok")

    def _next_line(self) -> bytes | None:
        """The next line that is an answer; None where there is no whole one yet.

        An answer begins with the command's token. Whatever else is in the pipe was written by a variant.
        """
        token = self._token.encode() + b" "
        while b"\n" in self._buffer:
            line, _, self._buffer = self._buffer.partition(b"\n")
            if line.startswith(token):
                return line.removeprefix(token)
            if line:
                self._noise.append(self._running())
        if len(self._buffer) > len(token) and not self._buffer.startswith(token):
            self._noise.append(self._running())
            self._buffer = self._buffer[-len(token) :]  # an answer has a line of its own
        return None

    def noise(self) -> list[int | None]:
        """Who was running (by place) each time something that is no answer came through the pipe, since last asked."""
        noise, self._noise = self._noise, []
        return noise

    def _epitaph(self) -> str:
        code = self._process.poll()
        if code is None:
            self._kill()
            return "stopped answering"
        if code < 0:
            name = signal.Signals(-code).name
            return f"kills its process ({name}{', out of memory?' if name == 'SIGKILL' else ''})"
        if code == CUT_OFF:
            return "closes files that it did not open, the pipe by which its process answers among them"
        return f"ends its process (exit code {code})"


def begin(
    module: str,
    log: IO[bytes],
    environment: Mapping[str, str],
    *,
    marker: int,
    lifeline: int,
    python: str,
    options: Sequence[str],
) -> subprocess.Popen[bytes]:
    """A fresh process that runs a module of the harness, with pipes to it. `marker` and `lifeline`: descriptors that it
    gets under the same numbers. `options`: of its interpreter."""
    return subprocess.Popen(
        tied([python, *options], f"harness.{module}", lifeline=lifeline),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment,
        pass_fds=[marker, lifeline],
        start_new_session=True,
    )


def worker_environment(threads: int, device: str, *, elsewhere: bool = False) -> dict[str, str]:
    """What is set for a measuring process before it begins. elsewhere: its interpreter is that of another environment,
    in which code finds nothing of ours."""
    offline = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    one_each = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), str(threads))
    # The C++ compiler takes every core while a gate waits for it, and leaves idle threads; Triton's, for CUDA,
    # would leave processes beside the one that is measured.
    compilers = {
        "TORCHINDUCTOR_COMPILE_THREADS": str(granted_cores() if device == "cpu" else 1),
        "TORCH_WARM_POOL": "0",
    }
    quiet = {"OMP_WAIT_POLICY": "PASSIVE", "PYTHONUNBUFFERED": "1"}
    inherited = untraced_environment() if elsewhere else child_environment()
    return inherited | one_each | quiet | offline | compilers


class PendingAnswer:
    """The answer to a command, which the process may still owe; its time limit runs from here on."""

    def __init__(self, process: WorkerProcess, verb: str, timeout_seconds: float) -> None:
        self._process = process
        self._verb = verb
        self._timeout_seconds = timeout_seconds
        self._end = time.monotonic() + timeout_seconds
        self._result: Future[Any] = Future()

    def result(self) -> Any:
        """Wait for it; the same at each call. Raises WorkerFailed as `WorkerProcess.ask` does."""
        if not self._result.done():
            try:
                self._result.set_result(self._process.answer(self._verb, self._timeout_seconds, self._end))
            except WorkerFailed as failure:
                self._result.set_exception(failure)
        return self._result.result()

    @staticmethod
    def first_of(answers: Sequence[PendingAnswer], *, wait: bool = True) -> list[PendingAnswer]:
        """Wait until some have come, or their time is over: those whose `result` need not be waited for. `wait`: else
        those that are there now."""
        if done := [answer for answer in answers if answer._result.done()]:
            return done
        left = min(answer._end for answer in answers) - time.monotonic() if wait else 0.0
        readable, _, _ = select.select([answer._process for answer in answers], [], [], max(left, 0))
        now = time.monotonic()
        return [answer for answer in answers if answer._process in readable or answer._end <= now]


Job = Generator[PendingAnswer, None, None]
"""Work that gives each answer it waits for, and is resumed once that has come."""


def side_by_side(jobs: Sequence[Job], lanes: int) -> None:
    """Do all jobs, begun in their order, up to `lanes` of them at a time. One that raises ends the others."""
    queue = deque(jobs)
    waiting: dict[Job, PendingAnswer] = {}

    def resume(job: Job) -> None:
        waiting.pop(job, None)
        with suppress(StopIteration):
            waiting[job] = next(job)

    try:
        while queue or waiting:
            while queue and len(waiting) < lanes:
                resume(queue.popleft())
            if waiting:
                ready = PendingAnswer.first_of(list(waiting.values()))
                for job in [job for job, answer in waiting.items() if answer in ready]:
                    resume(job)
    finally:
        for job in jobs:
            job.close()


JUDGE_SECONDS = 600.0
"""Long prompts of a large model take the reference minutes."""


class Examination:
    """A process for judging, and a folder in which outputs of timed calls lie until they are judged."""

    def __init__(self, *, cache: Path, log: Path) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="workbench-outputs-")
        # Between rounds nothing else computes: all cores are free.
        self._process = WorkerProcess(threads=granted_cores(), cache=cache, log=log, module="examiner.main")

    @property
    def file(self) -> Path:
        """Where a measuring process leaves the outputs of a round."""
        return Path(self._scratch.name) / "outputs.safetensors"

    def judge(self, folder: Path, workload: Workload, draw: str, drawn: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Variant → what is wrong with its outputs, which lie in `file`; only those with wrong outputs.

        Raises WorkerFailed where nothing can be judged.
        """
        where = {"folder": str(folder), "file": str(self.file), "workload": workload.model_dump()}
        return self._process.ask("judge", JUDGE_SECONDS, **where, draw=draw, outputs=list(drawn))

    def close(self) -> None:
        """End the process and remove the folder."""
        self._process.end()
        self._scratch.cleanup()
