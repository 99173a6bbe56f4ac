"""Parts of the measuring process that need no model: its verbs, the shape of a round, and the loop of a round."""

from __future__ import annotations

import gc
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from llama_workbench.cache import cache_directory
from llama_workbench.datasets import workloads
from llama_workbench.datasets.lengths import DECODE_ROOM
from llama_workbench.datasets.workloads import Workload
from llama_workbench.harness.worker import main
from llama_workbench.harness.worker.rounds import (
    MOST_SUB_ROUNDS,
    PART_WARM_NS,
    RoundShape,
    _call_for,
    rebuilt,
    shape_of_round,
)
from llama_workbench.harness.worker.state import Runner, Worker

MS = 1e6


@pytest.mark.whole
def test_the_metrics_bring_their_verbs() -> None:
    verbs = main.verbs_with_torch()
    passes = {"phases", "roofline", "memory", "memory_held"}
    assert passes <= verbs.keys()
    assert verbs.keys() & main.VERBS.keys() == {"open"}  # which opens more where there is torch


def shape(work: Workload, *call_ns: float, once: bool = False, rebuild_ns: float = 0.0) -> RoundShape:
    times = {f"v{index}": time for index, time in enumerate(call_ns)}
    return shape_of_round(work, times, once=once, sample_ns=200_000, rebuild_ns=rebuild_ns)


PREFILL, DECODE = workloads.get("prefill-tiny-t16"), workloads.get("decode-tiny-c16")


def test_variants_have_as_many_calls_in_a_sample_unless_they_differ_by_more_than_ten_times() -> None:
    assert shape(PREFILL, 50_000, 90_000, 500_000).repeats == {"v0": 4, "v1": 4, "v2": 4}
    assert shape(PREFILL, 50_000, 501_000, 20_000).repeats == {"v2": 10, "v0": 10, "v1": 1}
    assert shape(PREFILL, 50_000, once=True) == RoundShape(MOST_SUB_ROUNDS, {"v0": 1}, prime=False)


@pytest.mark.parametrize("function_ms", [0.001, 0.2, 5.0])
def test_the_reference_benchmark_of_functions_changes_nothing_of_the_samples_of_others(function_ms: float) -> None:
    work = Workload(name="texts", kind="call", geometry="", tokens=1, payload="mine.py:texts", description="texts")
    times = {"old": function_ms * MS, "new": 1.2 * function_ms * MS}
    alone, beside = (
        shape_of_round(work, call_ns, once=False, sample_ns=200_000, rebuild_ns=0.0)
        for call_ns in (times, times | {"function_yardstick": 0.9 * MS})
    )
    calls = beside.repeats["function_yardstick"]
    assert beside == replace(
        alone, repeats={**alone.repeats, "function_yardstick": calls}, seldom=frozenset({"function_yardstick"})
    )
    turns = [beside.takes_part("function_yardstick", number) for number in range(beside.sub_rounds)]
    spent_ns = sum(turns) * calls * 0.9 * MS
    pair_ns = beside.sub_rounds * sum(beside.repeats[name] * times[name] for name in times)
    assert any(turns) and spent_ns < 0.2 * pair_ns, "about a tenth of the time of the two"


def test_a_control_is_sampled_beside_its_original_while_both_are_given_inputs_as_often() -> None:
    work = Workload(name="texts", kind="call", geometry="", tokens=1, payload="mine.py:texts", description="texts")
    call_ns = {"old": MS, "new": MS, "old@aa": MS}
    of = shape_of_round(work, call_ns, once=False, sample_ns=200_000, rebuild_ns=0.0, least_ns=200 * MS)
    turns = [of.takes_part("old@aa", number) for number in range(of.sub_rounds)]
    assert of.sub_rounds > 8 and turns == sorted(turns, reverse=True) and sum(turns) == of.sub_rounds // 4
    assert all(of.takes_part("old", number) for number in range(of.sub_rounds))


def test_a_round_samples_for_as_long_as_rebuilding_takes_within_bounds() -> None:
    part = PREFILL.model_copy(update={"kind": "decode"})
    counts = [shape(part, 2 * MS, rebuild_ns=time).sub_rounds for time in (0, 20 * MS, 30 * MS, 900 * MS)]
    assert counts == [1 + 2, 5, 7, 11]  # 10 ms at least, 50 ms at most; a sample has an untimed call before it
    assert shape(PREFILL, 59 * MS).sub_rounds == 3
    assert shape(PREFILL, 61 * MS).sub_rounds == 1
    assert all(shape(PREFILL, time * MS).sub_rounds % 2 for time in (0.05, 1.1, 3.3, 7.7))


def test_a_part_of_a_layer_is_called_until_it_is_warm_and_all_else_once() -> None:
    warm = {kind: shape(PREFILL.model_copy(update={"kind": kind}), 1 * MS).warm_ns for kind in ("component", "decode")}
    assert warm == {"component": PART_WARM_NS, "decode": 0}
    calls: list[int] = []
    runner: Any = SimpleNamespace(call=lambda: calls.append(perf_counter_ns()))
    _call_for(runner, 0)
    assert len(calls) == 1
    begun_ns = perf_counter_ns()
    _call_for(runner, 2 * MS)
    assert perf_counter_ns() - begun_ns >= 2 * MS and len(calls) > 2


@pytest.mark.parametrize("kind", ["component", "decode", "prefill", "generate"])
@pytest.mark.parametrize("parameter_bytes", [0, 1 << 20, 8 << 20, (8 << 20) + 1])
def test_whether_a_model_is_primed_hangs_neither_on_who_takes_part_nor_on_how_busy_the_machine_is(
    kind: Any, parameter_bytes: int
) -> None:
    work, primed = (
        PREFILL.model_copy(update={"kind": kind}),
        kind in ("component", "decode") or 0 < parameter_bytes <= 8 << 20,
    )
    how: Any = {"sample_ns": 200_000, "rebuild_ns": 0.0, "parameter_bytes": parameter_bytes}
    for times in ({"short": 0.4 * MS}, {"short": 0.4 * MS, "long": 5.2 * MS}, {"short": 0.4 * MS, "engine": 90 * MS}):
        assert shape_of_round(work, times, once=False, **how).prime == primed
        assert not shape_of_round(work, times, once=True, **how).prime


@pytest.mark.parametrize("call_ns", [1_000, 30_000, 1 * MS, 40 * MS])
def test_the_samples_of_a_decode_fit_into_its_positions(call_ns: float) -> None:
    found = shape(DECODE, call_ns, rebuild_ns=50 * MS)
    assert found.sub_rounds * (found.repeats["v0"] + 1) <= DECODE_ROOM
    assert found.sub_rounds % 2


def test_a_generation_is_a_sample_of_its_own_and_of_functions_only_short_calls_are_primed() -> None:
    functions = PREFILL.model_copy(update={"kind": "call"})
    assert shape(functions, 4.9 * MS, 1 * MS).prime and not shape(functions, 5 * MS, 1 * MS).prime
    assert shape(workloads.get("generate-tiny-t8-n6-b1"), 10_000).repeats == {"v0": 1}


class Nothing(Runner):
    """A side that computes nothing."""

    def __init__(self) -> None:
        """No model."""


def test_sides_are_rebuilt_and_take_turns_in_random_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker({"cache": str(tmp_path), "threads": torch.get_num_threads()})
    marks: list[int] = []
    monkeypatch.setattr(worker, "mark", marks.append)
    places = {"a": 0, "b": 1, "kernel": -1}
    built: list[str] = []
    orders: Counter[tuple[str, ...]] = Counter()

    def build(side: str) -> Runner:
        assert gc.isenabled() and torch.is_inference_mode_enabled()
        built.append(side)
        return Nothing()

    for number in range(30):
        with rebuilt(worker, random.Random(number), places, build) as round_:
            assert not gc.isenabled()
            for _ in range(2):
                turns = list(round_.turns())
                assert [position for position, _, _ in turns] == [0, 1, 2]
                assert all(round_.runners[side] is runner for _, side, runner in turns)
                orders[tuple(side for _, side, _ in turns)] += 1
        assert gc.isenabled() and not round_.runners and marks[-1] == -1
        assert Counter(built) == dict.fromkeys(places, number + 1)
        assert marks[:3] == [places[side] for side in built[:3]]
    assert len(orders) == 6 and max(orders.values()) < 25
    with pytest.raises(ZeroDivisionError), rebuilt(worker, random.Random(0), {"a": 0}, lambda side: Nothing()):
        raise ZeroDivisionError
    assert gc.isenabled() and not torch.is_inference_mode_enabled()


def test_cuda_is_begun_before_settings_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[bool] = []
    stand_ins = {
        "is_available": lambda: True,
        "init": lambda: begun.append(True),
        "is_initialized": lambda: bool(begun),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    made = Worker({"process": 0, "added": {}, "cache": str(cache_directory()), "threads": 1, "device": "cuda"})
    assert begun and made.watch.changes("fast", trusted=True) is None
