"""Calls of which a part is timed: between `setup` and `teardown` of the input generator, or inside of `timed`."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import llama_workbench as wb
from llama_workbench.harness.calls.called import Call, Called, Function, PayloadError, TimedPart
from llama_workbench.harness.calls.inputs import Payload
from llama_workbench.harness.calls.source import parse
from llama_workbench.harness.calls.world import modules_kept
from llama_workbench.harness.plan.options import Request
from llama_workbench.harness.report.text import import_text
from llama_workbench.harness.session.run import Result
from llama_workbench.harness.worker.functions import CallRunner, PartRunner
from tests.measure.test_measure import run

AROUND = """
import time

OPEN = []


def rows(seed):
    return ([seed, *range(1000)],)


def opened(values):
    time.sleep(0.004)
    OPEN.append(values)


def closed(values):
    time.sleep(0.004)
    assert OPEN.pop() is values


rows.setup, rows.teardown = opened, closed


def total(values):
    assert len(OPEN) == 1 and OPEN[0] is values
    return sum(values)


def twice(values):
    assert len(OPEN) == 1 and OPEN[0] is values
    sum(values)
    return sum(values)
"""

PARTS = """
import asyncio
import llama_workbench as wb


def number(seed):
    return seed % 7


async def quick(x):
    await asyncio.sleep(0.006)
    with wb.timed():
        answer = sum(range(x, 1000))
    await asyncio.sleep(0.006)
    return answer


async def waits(x):
    with wb.timed():
        await asyncio.sleep(0.003)
    await asyncio.sleep(0.009)
    with wb.timed():
        return sum(range(x, 1000))


async def whole(x):
    await asyncio.sleep(0.001)
    return sum(range(x, 1000))
"""


def measured(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, *sides: str, call: str) -> Result:
    monkeypatch.chdir(folder)
    (folder / "mine.py").write_text(code)
    compared = (f"mine.py:{sides[0]}", f"mine.py:{sides[1]}")
    result, _ = run(folder, Request(compare=compared, calls=(f"mine.py:{call}",)), rounds=2)
    return result


def least_ms(result: Result, side: str, clock: str = "wall_ns") -> float:
    samples = result.folder.read_samples().frame()
    of = samples[samples["variant"] == side]
    return float((of[clock] / of["repeats"]).min()) / 1e6


@pytest.mark.usefixtures("warm")
def test_what_setup_and_teardown_do_around_each_call_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = measured(tmp_path, monkeypatch, AROUND, "total", "twice", call="rows")
    assert not result.manifest.excluded
    [experiment] = result.manifest.experiments
    for side in ("total", "twice"):
        assert experiment.facts[side].is_apart
        assert 0 < least_ms(result, side) < 3 and 0 < least_ms(result, side, "cpu_ns") < 3, (
            "around each call it is 8 ms"
        )
    assert import_text(experiment.facts.values()) == "Only a part of each call is timed."


@pytest.mark.usefixtures("warm")
def test_what_a_coroutine_does_outside_of_timed_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = measured(tmp_path, monkeypatch, PARTS, "quick", "waits", call="number")
    assert not result.manifest.excluded
    assert 0 < least_ms(result, "quick") < 3 <= least_ms(result, "waits") < 9
    [experiment] = result.manifest.experiments
    assert experiment.facts["quick"].is_apart and experiment.facts["waits"].is_apart


def test_a_part_is_not_held_against_a_whole_call(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PARTS)
    quick, whole, number = (
        parse(f"mine.py:{name}", option="x", folder=tmp_path) for name in ("quick", "whole", "number")
    )
    with modules_kept() as turn:
        called = Called.imported(quick, Call(whole, number), "", turn)
        assert (
            called.gate() == "a part of its call counts, and all of the baseline's: use llama_workbench.timed in both"
        )
        assert called.is_refused
        called = Called.imported(quick, Call(quick, number), "", turn)
        assert called.gate() == "" and called.is_apart and called.is_awaited
        assert called.beside_ns > 10_000_000 and called.untimed_ns > 10_000_000
        later = Called.imported(quick, Call(quick, number), "", turn)
        assert not later.is_apart
        later.learn(called.learnt())
        assert isinstance(later.make(), TimedPart)


def test_functions_without_either_are_called_as_ever() -> None:
    def given(seed: int) -> list[int]:
        return [seed]

    payload = Payload(given, "d")
    called = Called(Function(lambda: sorted, payload), lambda: Function(lambda: sorted, payload), "given")
    assert called.gate() == "" and not called.is_apart and called.beside_ns == 0
    assert called.make() is sorted
    assert CallRunner(called).counted_ns() is None
    assert payload.around() == (None, None)
    given.setup = 3  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="setup = 3: expected a function"):
        payload.around()
    assert issubclass(PayloadError, Exception)


def test_what_is_wrong_with_setup_names_the_input_generator(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{AROUND}\n\ndef words(seed):\n    return seed\n\n\nwords.setup = 3\n")
    total, rows, words = (parse(f"mine.py:{name}", option="x", folder=tmp_path) for name in ("total", "rows", "words"))
    command = parse("cmd:echo", option="x", folder=tmp_path)
    with modules_kept() as turn:
        with pytest.raises(TypeError, match=r"mine\.py:words: setup = 3: expected a function"):
            Called.imported(total, Call(total, words), "", turn)
        with pytest.raises(TypeError, match=r"mine\.py:rows: setup and teardown are for functions; .*--prepare"):
            Called.imported(command, Call(command, rows), "", turn)


def test_parts_are_added_up_and_the_last_call_says_what_did_not_count() -> None:
    called: list[object] = []

    def work(seconds: float) -> float:
        for _ in range(2):
            time.sleep(0.002)
            with wb.timed(), wb.timed():
                time.sleep(seconds)
        return seconds

    apart = TimedPart(work, called.append, lambda seconds: called.append(-seconds))
    apart(0.001)
    apart.begin()
    assert apart(0.003) == apart(0.003) == 0.003
    assert called == [0.001, -0.001, 0.003, -0.003, 0.003, -0.003]
    cpu_ns, wall_ns = apart.counted_ns
    assert 12e6 <= wall_ns < 100e6 and 0 < cpu_ns < 12e6
    assert 4e6 <= apart.uncounted_ns < 50e6


def test_blocks_of_tasks_that_run_at_once_count_once() -> None:
    async def part() -> None:
        with wb.timed():
            await asyncio.sleep(0.01)

    async def both() -> None:
        await asyncio.gather(part(), part(), part())

    before = wb.timed.blocks, wb.timed.wall_ns
    asyncio.run(both())
    assert wb.timed.blocks == before[0] + 1
    assert 10e6 <= wb.timed.wall_ns - before[1] < 25e6
    with pytest.raises(ValueError), wb.timed():
        raise ValueError
    assert wb.timed.blocks == before[0] + 2


def test_primed_calls_are_not_among_those_that_count() -> None:
    payload = Payload(lambda: [1], "d")
    made = TimedPart(lambda values: time.sleep(0.001), lambda values: None)
    side = Function(lambda: made, payload, is_apart=True)
    runner = PartRunner(Called(side, lambda: side, "given"))
    runner.set_up(1, 0, 3)
    runner.call()
    runner.many(2)
    counted_ns = runner.counted_ns()
    assert 2e6 <= counted_ns[1] < 3e6 + 50e6 and runner.uncounted_ns >= 0
