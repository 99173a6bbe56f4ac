"""Inputs that a process makes once and gives to many calls, and functions that would gain by that."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from llama_workbench.harness.calls.inputs import (
    AGAIN,
    COPIED,
    LEAST_INPUTS,
    MOST_INPUTS,
    NEW,
    GainAgain,
    InputCosts,
    Payload,
    Pool,
    copier,
    copies_are_alike,
    pool_size,
)
from llama_workbench.harness.measure.groups import gains_over, way_of
from llama_workbench.harness.plan.options import Request
from llama_workbench.harness.report.text import side_facts_text
from llama_workbench.harness.session.run import Result
from tests.measure.test_measure import run

ALIKE = GainAgain(1000, 20, 1, 9)

SIDES = """
import random
from functools import lru_cache


def words(seed):
    drawn = random.Random(seed)
    return " ".join(str(drawn.randrange(300)) for _ in range(1500))


def counted(text):
    return len(set(text.split()))


@lru_cache(maxsize=None)
def remembered(text):
    return len(set(text.split()))


def hundred(seed):
    drawn = random.Random(seed)
    return [drawn.random() for _ in range(100)]


def in_place(numbers):
    numbers.sort()
    return numbers


def also_in_place(numbers):
    numbers.sort()
    return numbers


def mean(numbers):
    return sum(numbers) / len(numbers)


def mean_too(numbers):
    total = 0.0
    for number in numbers:
        total += number
    return total / len(numbers)
"""


def costs(make: float, copy: float = 0.0, **more: Any) -> InputCosts:
    known: dict[str, Any] = {"changes": False, "is_plain": False, "again": ALIKE}
    return InputCosts(make, copy, **known | more)


@pytest.mark.parametrize(
    ("sides", "way"),
    [
        ([costs(50), costs(99)], NEW),  # making an input costs nothing beside a call
        ([costs(5000, is_plain=True)] * 2, AGAIN),  # numbers remember nothing
        ([costs(5000, 200)] * 2, COPIED),  # a copy costs little
        ([costs(5000, 900)] * 2, AGAIN),  # a copy costs as much as a call: nobody gains without
        ([costs(5000, 900), costs(5000, 900, changes=True)], COPIED),
        ([costs(5000), costs(5000, changes=True)], NEW),  # nothing is known to copy it
        ([costs(5000, 900), costs(5000, 900, again=ALIKE._replace(gain_ns=200))], NEW),  # the second remembers
        ([costs(5000, 900), costs(5000, 900, again=ALIKE._replace(gain_ns=60, error_ns=20))], AGAIN),  # by two errors
        ([costs(5000, 900), costs(5000, 900, again=GainAgain(1000, 120, 15, 2))], AGAIN),  # by six, of three batches
        ([costs(5000, 900), costs(5000, 900, again=ALIKE._replace(gain_ns=45))], AGAIN),  # so much a cache may save
        ([costs(5000, 900), costs(5000, 900, again=GainAgain(9000, 45, 1, 9))], AGAIN),  # as much, of a longer call
        ([costs(5000, 900), costs(5000, 900, again=None)], NEW),  # nobody knows
    ],
)
def test_how_calls_are_given_inputs_is_one_way_for_all_sides(sides: Sequence[InputCosts], way: str) -> None:
    assert way_of(sides, 1000.0) == way


def test_what_a_side_gains_is_told_of_its_own_call() -> None:
    remembers = costs(5000, again=GainAgain(1000, 520, 1, 9))
    assert gains_over(remembers, costs(5000), 1000.0) == pytest.approx(math.log(2))
    assert gains_over(costs(5000), remembers, 1000.0) == pytest.approx(-math.log(2))
    assert gains_over(costs(5000, again=None), remembers, 1000.0) == 0
    whole = costs(5000, again=GainAgain(1000, 1400, 1, 9))
    assert gains_over(whole, costs(5000), 1000.0) == pytest.approx(math.log(1000)), "more than all is a thousandth"


def test_a_process_makes_inputs_for_a_quarter_of_its_time_and_eight_at_least() -> None:
    assert pool_size(1e6, 200e6) == 50
    assert pool_size(1e9, 200e6) == LEAST_INPUTS and pool_size(1.0, 200e6) == MOST_INPUTS


def numbers(seed: int) -> tuple[int, list[int]]:
    drawn = random.Random(seed)
    return seed, [drawn.randrange(1000) for _ in range(5)]


def test_a_pool_makes_so_many_inputs_and_gives_them_again_the_same_on_both_sides() -> None:
    made: list[int] = []

    def noted(seed: int) -> tuple[int, list[int]]:
        made.append(seed)
        return numbers(seed)

    sides = [Pool(Payload(noted, "draw"), 10, copies=False) for _ in range(2)]
    given = [[pool.given(number, 4) for number in range(0, 40, 4)] for pool in sides]
    assert given[0] == given[1]
    assert len(made) == 20 and all(map(len, sides)) and all(pool.is_full for pool in sides)
    whole = [arguments for batch, _ in given[0] for arguments in batch]
    assert len(whole) == 40 and len({id(each[1]) for each in whole}) == 10
    for batch, last in given[0]:
        assert len(batch) == 4 and batch[-1] == Payload(numbers, "draw").arguments(last)


def test_calls_that_are_given_copies_do_not_see_each_other() -> None:
    pool = Pool(Payload(numbers, ""), 8, copies=True)
    for number in range(0, 60, 3):
        arguments, last = pool.given(number, 3)
        for _, values in arguments:
            assert len(values) == 5
            values.append(0)
        assert Payload(numbers, "").arguments(last) == (arguments[-1][0], arguments[-1][1][:-1])


@pytest.mark.parametrize(
    "arguments",
    [
        (1, 2.5, None, True),
        ("text", b"bytes", ["a", ["b"]], {"a": {1, 2}}, frozenset({3})),
        (np.arange(6.0).reshape(2, 3), 1),
        (SimpleNamespace(a=[1]),),
    ],
)
def test_a_copy_is_like_what_it_was_made_of_and_shares_nothing_that_changes(arguments: tuple[Any, ...]) -> None:
    assert copies_are_alike(arguments)
    copy = copier(arguments)()
    for one, other in zip(arguments, copy, strict=True):
        assert type(one) is type(other)
        assert one is not other or isinstance(one, (int, float, str, type(None)))


class FreesWhatItHolds:
    def __del__(self) -> None:
        pass


class Unseen:
    """Nothing is given away of it, and yet it can be copied."""

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError

    def __deepcopy__(self, memo: object) -> Unseen:
        return Unseen()


@pytest.mark.parametrize("value", [bytearray(b"abc"), FreesWhatItHolds(), Unseen()])
def test_what_would_be_another_type_frees_what_it_holds_or_cannot_be_seen_is_not_copied(value: object) -> None:
    assert not copies_are_alike((value,))


def measured(folder: Path, monkeypatch: pytest.MonkeyPatch, sides: tuple[str, str], call: str) -> Result:
    monkeypatch.chdir(folder)
    (folder / "sides.py").write_text(SIDES)
    compare = (f"sides.py:{sides[0]}", f"sides.py:{sides[1]}")
    result, _ = run(folder, Request(compare=compare, calls=(f"sides.py:{call}",)), rounds=3)
    return result


def test_the_screen_says_how_many_inputs_were_given_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = measured(tmp_path, monkeypatch, ("mean", "mean_too"), "hundred")
    [experiment] = result.manifest.experiments
    inputs = experiment.facts["mean"].inputs
    assert inputs is not None and inputs > LEAST_INPUTS, "more than a processor learns by heart"
    assert f"{inputs:,} inputs" in side_facts_text(experiment.facts, ["mean", "mean_too"])
    assert not experiment.excluded


def test_who_remembers_answers_is_given_new_inputs_and_gains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = measured(tmp_path, monkeypatch, ("counted", "remembered"), "words")
    [experiment] = result.manifest.experiments
    assert experiment.facts["counted"].inputs is None and experiment.facts["remembered"].inputs is None
    frame = result.folder.read_samples().frame()
    ns = frame.cpu_ns / frame.repeats
    of = {name: ns[frame.variant == name].median() for name in ("counted", "remembered")}
    assert of["counted"] < 3 * of["remembered"], "what is given again takes a hundredth"
    assert "when an input is repeated, as code with a cache does" in side_facts_text(
        experiment.facts, ["counted", "remembered"]
    )


def test_calls_that_change_their_inputs_are_given_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = measured(tmp_path, monkeypatch, ("in_place", "also_in_place"), "hundred")
    [experiment] = result.manifest.experiments
    assert not experiment.excluded
    given = {name: facts.inputs for name, facts in experiment.facts.items() if "yardstick" not in name}
    assert all(given.values()), given
