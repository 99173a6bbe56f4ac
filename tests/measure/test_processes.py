"""Work that waits for the answers of several processes: who is begun when, and what one that fails does to the others.

Processes that answer when told to stand for real ones, which tests/measure/test_measure.py has.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from llama_workbench.harness.measure.processes import Job, PendingAnswer, WorkerFailed, WorkerProcess, side_by_side


class Told:
    """Answers what was written to its pipe, as `WorkerProcess` does."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self.asked = 0

    def fileno(self) -> int:
        return self.reader

    def answers(self, text: str) -> None:
        os.write(self.writer, text.encode())

    def answer(self, verb: str, timeout_seconds: float, end: float) -> str:
        self.asked += 1
        os.set_blocking(self.reader, False)
        try:
            return os.read(self.reader, 100).decode()
        except BlockingIOError:
            raise WorkerFailed(f"hangs: no answer to {verb!r}") from None


def asked(process: Told, seconds: float = 60.0) -> PendingAnswer:
    return PendingAnswer(process, "gate", seconds)  # type: ignore[arg-type]


def test_no_more_jobs_than_lanes_are_under_way_and_all_are_done() -> None:
    under_way: set[int] = set()
    most = 0
    done = []

    def job(number: int) -> Job:
        nonlocal most
        for step in range(3):
            process = Told()
            under_way.add(number)
            most = max(most, len(under_way))
            answer = asked(process)
            process.answers(f"{number}.{step}")
            yield answer
            assert answer.result() == f"{number}.{step}"
        under_way.discard(number)
        done.append(number)

    side_by_side([job(number) for number in range(5)], 2)
    assert sorted(done) == [0, 1, 2, 3, 4]
    assert most == 2


def test_who_has_an_answer_goes_on_while_another_waits() -> None:
    slow, quick = Told(), Told()
    quick.answers("here")
    said = []

    def waits() -> Job:
        answer = asked(slow)
        yield answer
        said.append(f"slow {answer.result()}")

    def goes_on() -> Job:
        answer = asked(quick)
        yield answer
        said.append(f"quick {answer.result()}")
        slow.answers("here too")

    side_by_side([waits(), goes_on()], 2)
    assert said == ["quick here", "slow here too"]


def test_two_jobs_may_wait_for_one_answer() -> None:
    process = Told()
    shared = asked(process)
    process.answers("once")
    said = []

    def job() -> Job:
        yield shared
        said.append(shared.result())

    side_by_side([job(), job(), job()], 2)  # the third comes when the answer has been taken
    assert said == ["once"] * 3
    assert process.asked == 1


def test_an_answer_that_does_not_come_is_given_up_in_time_and_fails_again_and_again() -> None:
    never, answer = Told(), None

    def job() -> Job:
        nonlocal answer
        answer = asked(never, 0.2)
        yield answer
        with pytest.raises(WorkerFailed, match="hangs"):
            answer.result()

    begun = time.monotonic()
    side_by_side([job()], 1)
    assert time.monotonic() - begun >= 0.2
    assert answer is not None
    with pytest.raises(WorkerFailed, match="hangs"):
        answer.result()
    assert never.asked == 1


def test_one_that_raises_ends_the_others() -> None:
    ended = []

    def waits() -> Job:
        try:
            yield asked(Told())
        finally:
            ended.append("waits")

    def raises() -> Job:
        process = Told()
        process.answers("now")
        yield asked(process)
        raise ValueError("no further")

    def never_begun() -> Job:
        ended.append("begun")
        yield asked(Told())

    with pytest.raises(ValueError, match="no further"):
        side_by_side([waits(), raises(), never_begun()], 2)
    assert ended == ["waits"]


@pytest.mark.parametrize(
    ("chunks", "noises"),
    [
        ((b"\nT 1\n",), 0),
        ((b"\nT", b" 1", b"\n"), 0),
        ((b'{"ok": 7}\n', b"\nT 1\n"), 1),
        ((b"no end of line", b"\nT 1\n"), 1),
        ((b"x" * 5_000_000, b"\nT 1\n"), 1),
        ((b"\nU 1\nT1\n\nT 1\n",), 2),
    ],
)
def test_only_what_begins_with_the_token_is_an_answer(chunks: tuple[bytes, ...], noises: int) -> None:
    process = WorkerProcess.__new__(WorkerProcess)
    process._token, process._buffer, process._noise, process._map = "T", b"", [], {0: 3}  # type: ignore[assignment]
    found = []
    for chunk in chunks:
        process._buffer += chunk
        while (line := process._next_line()) is not None:
            found.append(line)
    assert found == [b"1"]
    assert len(process._buffer) < 100
    assert (len(process.noise()) > 0) == (noises > 0)
    assert process.noise() == []


def test_an_interpreter_that_is_gone_is_told(tmp_path: Path) -> None:
    """An environment may be removed while it is measured. What was opened for the process is closed again."""
    opened = psutil.Process().num_fds()
    with pytest.raises(WorkerFailed, match=r"cannot be started \(No such file or directory\)"):
        WorkerProcess(threads=1, cache=tmp_path, log=tmp_path / "log", python=str(tmp_path / "python"))
    assert psutil.Process().num_fds() == opened
