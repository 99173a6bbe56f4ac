"""Nobody is faster than the machine: answers from memory are refused where the work of a call is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from llama_workbench import ROOT
from llama_workbench.harness.metrics import roof
from llama_workbench.harness.metrics.roof import ForwardWork
from llama_workbench.harness.plan.options import Request
from llama_workbench.harness.spec.words import Cause
from llama_workbench.harness.worker.looks import roof as measured
from tests.measure.test_measure import run
from tests.tables import table_of
from tests.unchanged import SESSIONS

pytestmark = pytest.mark.covers("tests/cheats.py", *SESSIONS)

CHEATS = ROOT / "tests" / "cheats.py"

WORKLOAD = """\
[[workload]]
name = "the-same-prompt"
kind = "prefill"
geometry = "tiny"
tokens = 100
batch = 8
prompts = "repeated"
description = "where remembered answers are right"
"""


@pytest.mark.usefixtures("warm")
def test_a_model_that_remembers_answers_is_refused_and_an_honest_one_is_not(tmp_path: Path) -> None:
    """With one prompt for all calls an answer from memory is right."""
    file = tmp_path / "mine.toml"
    file.write_text(WORKLOAD, encoding="utf-8")
    names = ("honest", "remembers_in_process")
    added = tuple(f"{CHEATS}:{name}" for name in names)
    request = Request(variants=("fast", *names), added=added, workloads=("the-same-prompt",), workloads_file=file)
    result, notes = run(tmp_path, request, rounds=6)
    [out] = result.manifest.excluded
    assert out.variant == "remembers_in_process"
    assert out.reason.startswith("faster than this machine can be: reports "), out
    assert "million operations cannot be done in less than" in out.reason
    assert f"{out.variant} is left out" in notes
    of = {verdict.title: verdict.effects[0] for verdict in result.verdicts}
    refused, held = of["remembers_in_process against fast"], of["honest against fast"]
    assert (refused.verdict, refused.cause) == ("not evidence", Cause.BEYOND_ROOF)
    assert held.verdict != "not evidence"


def test_without_flops_and_bytes_nothing_is_asked() -> None:
    state: Any = SimpleNamespace(
        experiment=SimpleNamespace(workload=SimpleNamespace(kind="call", threads=1)), learnt={"a": {"flops": 0.0}}
    )
    assert roof._work(state, {}) is None


def samples(*times_ns: int) -> pd.DataFrame:
    return pd.DataFrame({"cpu_ns": times_ns, "repeats": 2, "tokens": 8})


@pytest.mark.parametrize(
    ("work", "times", "told"),
    [
        (ForwardWork(1000, 0), [1000, 1000, 9000], "reports 500 ns a call; 0.001 million operations cannot be done"),
        (ForwardWork(0, 5000), [1000, 1000, 1000], "0.005 MB beyond what its caches hold cannot be read in less than"),
        (ForwardWork(1000, 0), [10, 4000, 4000], ""),  # one sample is too good, the side is not
        (ForwardWork(1000, 0), [0, 0, 4000], ""),  # the clock stood still
        (ForwardWork(0, 0), [10, 10, 10], ""),
    ],
)
def test_the_median_of_a_side_is_asked(work: ForwardWork, times: list[int], told: str) -> None:
    def of_call(tokens: int) -> ForwardWork:
        return work

    found = roof.beyond(table_of(samples(*times)), of_call, (1e9, 1e9), "cpu_ns", 1)
    assert found.startswith(told) if told.startswith("reports") else told in found
    assert bool(found) == bool(told)


def test_a_machine_has_two_rates() -> None:
    worker: Any = None
    assert all(rate > 1e8 for rate in measured(worker).values())


@pytest.mark.parametrize(("cache", "counted"), [(40_000_000, 20_000_000), (80_000_000, 0), (None, 0)])
def test_only_what_no_cache_can_hold_must_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: int | None, counted: int
) -> None:
    """Of a function that says so; weights are counted alike."""
    monkeypatch.setattr(roof, "last_level_cache_bytes", lambda: cache)
    state: Any = SimpleNamespace(
        experiment=SimpleNamespace(workload=SimpleNamespace(kind="call", threads=1)), learnt={"a": {"bytes": 6e7}}
    )
    work: Callable[[int], ForwardWork] | None = roof._work(state, {})
    assert work is not None and work(1) == (0, counted)
