"""Measuring processes for tests, forked from one that has imported torch: a start takes milliseconds and not seconds.

`python -m tests.warm SOCKET` is that process. A test asks for a process by the socket, and passes the descriptors that
a process of a run has. Runs of users begin each process anew, so that its memory lies elsewhere; tests of how processes
begin and end do, too.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

from llama_workbench import ROOT
from llama_workbench.harness.machine import lifeline as lifelines
from llama_workbench.harness.measure.processes import begin, worker_environment

MODULES = ("worker.main", "examiner.main")
MOST_BYTES = 1 << 20

MALLOPT = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3}
"""Variables that glibc reads when a program begins, and what `mallopt` calls them afterwards."""


class Forked:
    """What a test has of a process: as much of `subprocess.Popen` as `WorkerProcess` needs."""

    def __init__(self, pid: int, stdin: int, stdout: int, status: int) -> None:
        self.pid = pid
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """The same, once it has ended. Raises TimeoutExpired."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            said = os.read(self._status, 16)
            self.returncode = int(said) if said else -signal.SIGKILL  # the server is gone, and its children with it
            os.close(self._status)
        return self.returncode


class Server:
    """The process that forks others, as a test sees it."""

    def __init__(self, folder: Path) -> None:
        self._place = str(folder / "warm")
        self._process = subprocess.Popen(
            lifelines.tied([sys.executable, "-P", "-m", "tests.warm", self._place]),
            cwd=ROOT,
            env=worker_environment(1, "cpu"),
            stdin=subprocess.DEVNULL,
        )

    def begin(
        self,
        module: str,
        log: IO[bytes],
        environment: Mapping[str, str],
        *,
        marker: int,
        lifeline: int,
        python: str = sys.executable,
        options: Sequence[str] = (),
    ) -> Forked | subprocess.Popen[bytes]:
        """In place of `processes.begin`, which still begins interpreters with options of their own. Threads are set
        before torch is imported, so these are those of the server. Of another environment it has the packages alone:
        they come before the server's own."""
        if options:
            tied = {"marker": marker, "lifeline": lifeline}
            return begin(module, log, environment, **tied, python=python, options=options)
        (in_read, in_write), (out_read, out_write), (status_read, status_write) = os.pipe(), os.pipe(), os.pipe()
        others = [] if python == sys.executable else [*map(str, Path(python).parents[1].glob("lib/*/site-packages"))]
        request = {"module": module, "environment": dict(environment), "marker": marker, "packages": others}
        request["folder"] = os.getcwd()
        theirs = [in_read, out_write, log.fileno(), marker, lifeline, status_write]
        with self._connected() as connection:
            socket.send_fds(connection, [json.dumps(request).encode()], theirs)
            pid = int(connection.recv(16))
        for number in (in_read, out_write, status_write):
            os.close(number)
        return Forked(pid, in_write, out_read, status_read)

    @contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as connection:
            end = time.monotonic() + 60
            while True:
                try:
                    connection.connect(self._place)
                    break
                except OSError:
                    if time.monotonic() > end or self._process.poll() is not None:
                        raise
                    time.sleep(0.05)
            yield connection

    def close(self) -> None:
        """End it, and with it what it has forked."""
        self._process.kill()
        self._process.wait()


# -- in the process that forks -----------------------------------------------------------------------------------------


def serve(place: str) -> None:
    """Fork a process for each request, and report how each of them ended."""
    for module in MODULES:
        import_module(f"llama_workbench.harness.{module}")
    from llama_workbench.harness.worker.main import verbs_with_torch

    verbs_with_torch()
    gc.collect()
    gc.freeze()
    waker, woken = socket.socketpair()
    for end in (waker, woken):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker.fileno())
    status_of: dict[int, int] = {}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        while True:
            ready, _, _ = select.select([listener, woken], [], [])
            if woken in ready:
                woken.recv(1024)
                _report(status_of)
            if listener in ready:
                connection, _ = listener.accept()
                with connection:
                    said, theirs, _, _ = socket.recv_fds(connection, MOST_BYTES, 6)
                    server, (led, leads) = os.getpid(), os.pipe()
                    if not (child := os.fork()):
                        listener.close()
                        connection.close()
                        signal.set_wakeup_fd(-1)
                        os.setsid()
                        os.close(led)
                        os.close(leads)
                        _be_child(json.loads(said), theirs, server, list(status_of.values()))
                    os.close(leads)
                    os.read(led, 1)  # nobody can end its group before there is one
                    os.close(led)
                    status_of[child] = theirs[-1]
                    for number in theirs[:-1]:
                        os.close(number)
                    connection.send(str(child).encode())


def _report(status_of: dict[int, int]) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            child, status = ended
            with suppress(OSError):  # nobody waits for it any more
                os.write(status_of[child], str(os.waitstatus_to_exitcode(status)).encode())
            os.close(status_of.pop(child))


def _be_child(request: Mapping[str, Any], theirs: Sequence[int], server: int, others: Sequence[int]) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        *kept, status = theirs
        for number in (status, *others):
            os.close(number)
        # First out of the way of the numbers that they get.
        high = [os.dup2(number, 150 + place) for place, number in enumerate(kept)]
        for number in kept:
            os.close(number)
        for number, wanted in zip(high[:4], (0, 1, 2, request["marker"]), strict=True):
            os.dup2(number, wanted)
            os.close(number)
        lifelines._tie_group(high[4])
        lifelines.end_with(server)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        for name in MALLOPT.keys() & request["environment"].keys():
            ctypes.CDLL(None).mallopt(MALLOPT[name], int(request["environment"][name]))
        sys.path[:0] = request["packages"]
        sys.argv[:] = [request["module"]]
        module = f"llama_workbench.harness.{request['module']}"
        sys.modules.pop(module, None)  # it runs as a program, as it does where it is begun anew
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


@contextmanager
def server() -> Iterator[Server]:
    """One for as long as the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        one = Server(Path(folder))
        try:
            yield one
        finally:
            one.close()


if __name__ == "__main__":
    serve(sys.argv[1])
