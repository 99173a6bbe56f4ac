"""What of a process is looked after, and who is said to have computed where no clock looks."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llama_workbench.harness.worker import devices
from llama_workbench.harness.worker.watch import OWN_THREADS_NS, Watch, queued_ns

MS = 1_000_000


def test_what_is_put_in_the_place_of_a_function_is_told_and_undone() -> None:
    watch, real = Watch(), torch.Tensor.__matmul__
    setattr(torch.Tensor, "__matmul__", lambda *_: None)  # noqa: B010
    said = watch.changes("x", trusted=False)
    assert said == "puts something else in the place of torch.Tensor.__matmul__ for everybody"
    assert torch.Tensor.__matmul__ is real
    setattr(torch.Tensor, "relu_", lambda *_: None)  # noqa: B010 (would hide the one that it inherits)
    assert "torch.Tensor.relu_" in (watch.changes("x", trusted=False) or "")
    assert "relu_" not in torch.Tensor.__dict__
    time.perf_counter_ns, clock = (lambda: 0), time.perf_counter_ns
    assert "time.perf_counter_ns" in (watch.changes("x", trusted=False) or "")
    assert time.perf_counter_ns is clock


def test_what_pybind11_keeps_for_all_its_modules_stays() -> None:
    """google-re2 is compiled with it."""
    watch = Watch()
    try:
        builtins.__pybind11_internals_v0__ = object()  # type: ignore[attr-defined]
        assert not watch.changes("theirs", trusted=False)
        assert hasattr(builtins, "__pybind11_internals_v0__")
        builtins.__pybind11_internals_v0__ = 3
        assert "__pybind11_internals_v0__" in str(watch.changes("theirs", trusted=False))
    finally:
        del builtins.__pybind11_internals_v0__  # type: ignore[attr-defined]


def hook(*_: object) -> None:
    """Does nothing."""


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("the number of torch threads", lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
        ("whether tiny numbers count as 0", lambda: torch.set_flush_denormal(True)),
        ("the precision of matrix products", lambda: torch.set_float32_matmul_precision("medium")),
        ("torch's hooks for all modules", lambda: torch.nn.modules.module.register_module_forward_hook(hook)),
        ("torch's default dtype", lambda: torch.set_default_dtype(torch.float64)),
        ("which fused attention is allowed", lambda: torch.backends.cuda.enable_flash_sdp(False)),
        ("on which cores it may run", lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})),
        ("the working directory", lambda: os.chdir("/")),
        ("the profiler (sys.setprofile)", lambda: sys.setprofile(hook)),
        ("the interval between threads", lambda: sys.setswitchinterval(0.02)),
    ],
)
def test_settings_are_put_back(what: str, change: Callable[[], Any]) -> None:
    watch = Watch()
    if what == "on which cores it may run" and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("there is one core")
    change()
    said = watch.changes("x", trusted=True)
    assert said is not None and said.startswith(f"changes {what} for everybody, from ")
    assert watch.changes("x", trusted=True) is None


def test_who_opened_a_file_may_close_it_and_nobody_else(tmp_path: Path) -> None:
    watch = Watch()
    for closes, said in (("x", None), ("y", "closes files that it did not open")):
        with (tmp_path / "weights").open("w"):
            assert watch.changes("x", trusted=False, files=False) is None
        assert watch.changes(closes, trusted=False) == said


def test_code_of_ours_may_open_files_and_foreign_code_may_while_it_is_built(tmp_path) -> None:
    watch = Watch()
    with (tmp_path / "one").open("w"):
        assert watch.changes("ours", trusted=True) is None
        assert watch.changes("x", trusted=False) is None
    watch.accept()
    with (tmp_path / "one").open(), (tmp_path / "two").open("w"):
        assert watch.changes("x", trusted=False, files=False) is None
    watch.accept()
    with (tmp_path / "one").open():
        assert watch.changes("x", trusted=False) == "leaves 1 more file open after a call"


def test_weights_that_somebody_wrote_into() -> None:
    watch, weights = Watch(), {"a": torch.ones(10_000), "b": torch.ones(4, 4)}
    assert not watch.weights_changed(weights)
    assert not watch.weights_changed(weights)
    with torch.inference_mode():
        weights["b"].mul_(2)
    assert watch.weights_changed(weights)


def test_computing_in_another_thread_is_told_once_there_is_enough_to_go_by() -> None:
    watch = Watch()
    watch.spent("x", calls=1, process_ns=3 * MS, others_ns=2 * MS, wall_ns=3 * MS, waits=1)
    assert watch.elsewhere(frozenset()) == {
        "x": "computes in threads of its own since it passed its gate (67% of the processor time)"
    }
    watch.spent("y", calls=1, process_ns=3 * MS, others_ns=0, wall_ns=3 * MS, waits=0)
    assert watch.elsewhere(frozenset()) == {}, "told once: told in each later round, none would ever count again"
    watch = Watch()
    for _ in range(30):  # each too short to tell
        watch.spent(
            "x", calls=1, waits=1, **dict.fromkeys(("process_ns", "others_ns", "wall_ns"), OWN_THREADS_NS // 10)
        )
        if found := watch.elsewhere(frozenset()):
            break
    assert "threads of its own" in found["x"]


def test_time_charged_between_two_readings_of_the_clocks_is_no_other_thread_s(monkeypatch) -> None:
    """As on a busy machine: here every reading of a clock of this process costs it two milliseconds."""
    spent_ns = 0

    def reading() -> int:
        nonlocal spent_ns
        spent_ns += 2 * MS
        return spent_ns

    class Callee(devices.Callee):
        def call(self) -> torch.Tensor:
            nonlocal spent_ns
            spent_ns += MS
            return torch.zeros(1)

    for clock in ("process_time_ns", "thread_time_ns", "perf_counter_ns"):
        monkeypatch.setattr(devices, clock, reading)
    spent = devices.Cpu().sample(Callee(), 1)
    assert spent.others_ns == 0 and spent.process_ns <= spent.around_ns


def test_time_of_another_thread_is_seen() -> None:
    class Callee(devices.Callee):
        def call(self) -> torch.Tensor:
            begin = time.process_time_ns()
            thread = threading.Thread(
                target=lambda: [None for _ in iter(lambda: time.process_time_ns() < begin + 5 * MS, False)]
            )
            thread.start()
            thread.join()
            return torch.zeros(1)

    spent = devices.Cpu().sample(Callee(), 1)
    assert spent.process_ns >= spent.others_ns > MS


def test_who_is_timed_by_wall_may_have_threads_but_not_more_cores() -> None:
    watch = Watch()
    watch.spent("x", calls=9, process_ns=30 * MS, others_ns=29 * MS, wall_ns=31 * MS, waits=9)
    assert watch.elsewhere(frozenset({"x"})) == {}
    watch.spent("x", calls=9, process_ns=60 * MS, others_ns=59 * MS, wall_ns=31 * MS, waits=9)
    assert watch.elsewhere(frozenset({"x"})) == {"x": "computes on 1.9 cores at once, and the workload gives it one"}


def test_waiting_in_every_call_is_told_and_a_busy_machine_is_not_taken_for_it() -> None:
    watch = Watch()
    watch.spent("waits", calls=10, process_ns=2 * MS, others_ns=0, wall_ns=30 * MS, waits=10)
    watch.spent("preempted", calls=10, process_ns=10 * MS, others_ns=0, wall_ns=30 * MS, waits=1)
    # In a block of three, with a wait for the disk in each call.
    watch.spent("queued", calls=4, process_ns=10 * MS, others_ns=0, wall_ns=32 * MS, waits=4, queued_ns=20 * MS)
    assert watch.elsewhere(frozenset()) == {
        "waits": "waits for 93% of its time, in every call: something else computes for it"
    }


def test_a_thread_that_burns_while_another_is_timed_is_its_owner_s() -> None:
    watch = Watch()
    over = threading.Event()
    thread = threading.Thread(target=over.wait, daemon=True)
    thread.start()
    assert watch.changes("burner", trusted=False) is None  # a thread is no fault by itself
    watch.spent("other", calls=1, process_ns=30 * MS, others_ns=15 * MS, wall_ns=30 * MS, waits=0)
    assert watch.elsewhere(frozenset()) == {"burner": "has threads of its own that compute while other is timed"}
    over.set()
    thread.join()


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="this system does not count it")
def test_time_without_a_processor_is_no_waiting() -> None:
    """Two processes on one core: half of the time of each is the other's."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            before, end = queued_ns(), time.monotonic() + 60
            while queued_ns() - before < 20 * MS:
                assert time.monotonic() < end
        finally:
            other.kill()
            other.wait()
    finally:
        os.sched_setaffinity(0, cores)
