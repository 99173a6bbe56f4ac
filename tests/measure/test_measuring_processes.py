"""Measuring processes: each is begun anew, with what a process draws once; the unit of every interval."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from llama_workbench.harness.calls.inputs import Payload
from llama_workbench.harness.judge.stopping import OpenProcesses
from llama_workbench.harness.measure.choosing import LEAST_PROCESSES, MOST_PROCESSES, set_horizons
from llama_workbench.harness.measure.groups import Group
from llama_workbench.harness.measure.measurement import Schedule
from llama_workbench.harness.measure.participants import (
    FIRST_PROCESSES,
    FIRST_SIDE_SECONDS,
    LEAST_SIDE_SECONDS,
    MOST_SIDE_SECONDS,
    ExperimentState,
    ProcessPace,
)
from llama_workbench.harness.measure.passes import Asked, ask_in_processes
from llama_workbench.harness.measure.processes import WorkerFailed, WorkerProcess
from llama_workbench.harness.plan.options import Options, Request
from llama_workbench.harness.session import run as session
from llama_workbench.harness.spec.sample import Round, Sample
from llama_workbench.harness.stats.samples import differences, log_times_of_rounds
from tests.measure.test_measure import FixedRounds
from tests.runs import Quiet, short_sessions
from tests.unchanged import SESSIONS

pytestmark = pytest.mark.covers(*SESSIONS)

SIDES = """
import os
from pathlib import Path

PROCESSES = Path(__file__).with_name("processes.txt")
with PROCESSES.open("a") as file:
    file.write(f"{os.getpid()} {hash('a text')} {len(os.environ['WORKBENCH_PROCESS'])} {__name__}\\n")
BAD = len({line.split()[0] for line in PROCESSES.read_text().splitlines()}) == 4


def numbers(seed):
    return list(range(seed % 50 + 2000))


def old(values):
    return sum(value * value for value in values)


def new(values):
    return sum([value * value for value in values])


def ends(values):
    if BAD:
        os._exit(7)
    return sum([value * value for value in values])
"""


def measured(folder: Path, variant: str, rounds: int, monkeypatch: pytest.MonkeyPatch) -> session.Result:
    """A real run of functions in real processes, with so many rounds."""
    (folder / "sides.py").write_text(SIDES)
    monkeypatch.chdir(folder)
    real = Schedule.run

    def fixed(self: Schedule, rule: Any, keep: Any, *, seconds: float) -> None:
        real(self, FixedRounds(rule, rounds), keep, seconds=seconds)

    monkeypatch.setattr(Schedule, "run", fixed)
    options = Options(run_dir=folder / "run", budget_seconds=600.0, no_causes=True)
    request = Request(compare=("sides.py:old", f"sides.py:{variant}"), calls=("sides.py:numbers",))
    with short_sessions():
        return session.Run(session.plan_run(request, options), options, Quiet()).measure()


def test_each_process_draws_its_hashes_and_gives_one_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = measured(tmp_path, "new", 6, monkeypatch)
    processes: dict[str, set[tuple[str, str]]] = {}
    for line in (tmp_path / "processes.txt").read_text().splitlines():
        process, of_text, filling, _ = line.split()
        processes.setdefault(process, set()).add((of_text, filling))
    assert len(processes) > 2 and all(len(drawn) == 1 for drawn in processes.values())
    assert len({next(iter(drawn)) for drawn in processes.values()}) == len(processes), "no two processes draw the same"
    samples, [effect] = result.folder.read_samples().frame(), result.verdicts[0].effects
    assert effect.rounds == samples["process"].nunique() > 1 and result.manifest.unit == "process"
    assert result.manifest.seed == result.folder.read_manifest()["seed"] != 0


def test_a_process_that_fails_is_lost_and_named_and_its_side_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = measured(tmp_path, "ends", 6, monkeypatch)
    [experiment] = result.manifest.experiments
    [lost] = experiment.lost_processes
    assert (lost.variant, lost.reason) == ("ends", "ends its process (exit code 7)")
    assert not experiment.excluded and lost.process not in set(result.folder.read_samples().frame()["process"])
    assert result.verdicts[0].effects[0].rounds > 1


def test_a_process_that_ends_while_it_begins_is_lost_and_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the next one, begun beside this: nobody waits for it, and nobody may draw another for it unseen."""
    monkeypatch.setitem(globals(), "SIDES", SIDES + "\nif BAD:\n    os._exit(7)\n")
    result = measured(tmp_path, "new", 6, monkeypatch)
    [experiment] = result.manifest.experiments
    [lost] = experiment.lost_processes
    assert lost.reason == "ends its process (exit code 7)" and not experiment.excluded
    assert lost.process not in set(result.folder.read_samples().frame()["process"])
    assert result.verdicts[0].effects[0].rounds > 1


def test_processes_are_forgiven_to_whoever_was_timed_in_them() -> None:
    """A tenth of its own: the processes of other models and workloads are none of its processes."""
    state = ExperimentState(cast(Any, None), None)
    for process, names in ((3, "a"), (3, "a"), (4, "ab"), (9, "b")):
        state.note_process(Round("w", process, 0, tuple(Sample(name, 0, 0, 1, 1, 1, 1, 0) for name in names)))
    assert [state.processes_of(name) for name in ("a", "b", "c", None)] == [2, 2, 0, 3]


GIVEN = """
import os
from pathlib import Path

GIVEN = Path(__file__).with_name("given.txt")


def numbers(seed):
    return [seed]


def noted(side, values):
    with GIVEN.open("a") as given:
        given.write(f"{os.getpid()} {side} {values[0]}\\n")
    return values[0]


def old(values):
    return noted("old", values)


def new(values):
    return noted("new", values)
"""


def test_both_sides_of_a_round_are_given_the_same_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs may differ by more than the sides do."""
    monkeypatch.setitem(globals(), "SIDES", GIVEN)
    measured(tmp_path, "new", 6, monkeypatch)
    given: dict[str, dict[str, list[str]]] = {}
    for line in (tmp_path / "given.txt").read_text().splitlines():
        process, side, seed = line.split()
        given.setdefault(process, {}).setdefault(side, []).append(seed)
    # the first process has the gates, and the last was begun and not needed
    timed = [[*map(set, sides.values())] for sides in given.values() if min(map(len, sides.values())) > 9][1:]
    assert len(timed) >= 2
    for one, other in timed:
        assert len(one & other) > 0.9 * min(len(one), len(other))


@pytest.mark.long
def test_a_side_that_imports_torch_has_it_before_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gate begins again with torch, which is watched from then on; later processes have it from the start."""
    begun: list[bool] = []
    init = WorkerProcess.__init__

    def spy(self: WorkerProcess, **given: Any) -> None:
        begun.append((given.get("hello") or {}).get("torch", True))
        init(self, **given)

    monkeypatch.setattr(WorkerProcess, "__init__", spy)
    monkeypatch.setitem(globals(), "SIDES", SIDES + "\nimport torch\n")
    result = measured(tmp_path, "new", 2, monkeypatch)
    assert begun[0] is False and all(begun[1:]) and result.verdicts[0].effects[0].rounds >= 1


@pytest.mark.parametrize(
    ("make", "used"),
    [
        (lambda seed: random.Random(seed).random(), ()),
        (lambda: random.random(), ("random",)),
        (lambda: np.random.rand(), ("numpy",)),
        (lambda: (random.random(), np.random.rand()), ("random", "numpy")),
    ],
)
def test_only_generators_that_inputs_draw_from_are_seeded(make: Any, used: tuple[str, ...]) -> None:
    payload = Payload(make, "a draw")
    payload.generators = payload.used((-1, -2, -3))
    assert payload.generators == used
    assert payload.arguments(5) == payload.arguments(5) != payload.arguments(6)
    assert Payload(make, "a draw").arguments(5) == payload.arguments(5), "both sides are given the same"


def round_of(process: int, number: int, slower: float) -> Round:
    times = {"old": 1000, "new": round(1000 / slower)}
    samples = tuple(Sample(name, 0, place, 1, 1, ns, ns, 0) for place, (name, ns) in enumerate(times.items()))
    return Round("w", process, number, samples)


def test_a_process_counts_once_it_is_over() -> None:
    processes = OpenProcesses()
    first, second, third = round_of(1, 0, 1.1), round_of(1, 1, 1.2), round_of(2, 2, 1.3)
    assert [*processes.add(first), *processes.add(second)] == []
    assert list(processes.add(third)) == [[first, second]]
    assert list(processes.end(1)) == [] and list(processes.end(2)) == [[third]] and list(processes.end()) == []


def test_rounds_of_a_process_give_one_value() -> None:
    rounds = [round_of(1, 0, 1.1), round_of(1, 1, 1.2), round_of(1, 2, 1.6), round_of(2, 3, 1.0)]
    found = differences(log_times_of_rounds(rounds, clock="cpu"), baseline="old", variant="new")
    assert np.exp(found.values) == pytest.approx([1.2, 1.0], rel=1e-3), "the median of its rounds"


def test_the_horizon_is_known_by_costs_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sides.py").write_text(SIDES)
    monkeypatch.chdir(tmp_path)
    request = Request(compare=("sides.py:old", "sides.py:new"), calls=("sides.py:numbers",))
    plan = session.plan_run(request, Options())
    horizons = []
    for seconds in (1.0, 20.0, 60.0, 3600.0):
        state = ExperimentState(plan.experiments[0], None, call_ns={"old": 1e5, "new": 1e5})
        group = Group(None, 0, 1, [state], torch=False)
        set_horizons([group], seconds)
        assert state.horizon is not None
        horizons.append(state.horizon)
        set_horizons([group], 2 * seconds)
        assert state.horizon == horizons[-1], "a run that goes on keeps it"
    assert horizons == sorted(horizons) and (horizons[0], horizons[-1]) == (LEAST_PROCESSES, MOST_PROCESSES)
    assert len(set(horizons)) > 2


# -- passes ------------------------------------------------------------------------------------------------------------


class ProcessesOfGroups:
    """In place of processes, which cannot be made to fail in one process alone: notes what they are asked."""

    def __init__(self, groups: list[str], fails: tuple[str, int] | None = None) -> None:
        states = {group: [self.state(f"{group} {name}") for name in ("short", "long")] for group in groups}
        self.groups = [SimpleNamespace(states=states[group], name=group, used={}) for group in groups]
        self.asked: list[tuple[str, int, tuple[str, ...]]] = []
        self.fails, self.number, self.ended = fails, 0, 0

    @staticmethod
    def state(name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name)

    def next_process(self, group: Any) -> SimpleNamespace:
        self.number += 1
        return SimpleNamespace(number=self.number, worker=SimpleNamespace(ask=self.ask))

    def take_in(self, group: Any, state: Any, names: list[str]) -> None:
        self.turn = group.name

    def begin_ahead(self, group: Any) -> None:
        pass

    def end(self, group: Any) -> None:
        self.ended += 1

    def ask(self, verb: str, seconds: float, *, workload: str, variants: list[str]) -> dict[str, Any]:
        self.asked.append((workload, self.number, tuple(variants)))
        if self.fails == (workload, self.number):
            raise WorkerFailed("it died", variant_index=1)
        return {}


def asked_in_processes(processes: ProcessesOfGroups, times: int) -> tuple[dict[str, Asked], list[float]]:
    measurement = SimpleNamespace(processes=processes, setting=SimpleNamespace(seed=3))
    told: list[tuple[dict[str, Asked], float]] = []
    wanted = {state.name: ["a", "b"] for group in processes.groups for state in group.states}
    ask_in_processes(cast(Any, measurement), wanted, "phases", times, lambda asked: {}, lambda *now: told.append(now))
    return told[-1][0], [done for _, done in told]


def test_processes_of_a_pass_take_turns_so_that_each_workload_has_the_whole_time() -> None:
    processes = ProcessesOfGroups(["15m", "7b"])
    asked, done = asked_in_processes(processes, times=3)
    turns = [workload.split()[0] for workload, _, _ in processes.asked]
    assert turns == ["15m", "15m", "7b", "7b"] * 3, "one process of every group, then the next of every group"
    assert all(len(of.answers) == 3 and not of.lost for of in asked.values())
    assert done == sorted(done) and done[0] == 0 and done[-1] == 1
    assert processes.number == 6, "a process asks about all workloads of its checkpoint"


def test_who_fails_in_a_process_of_a_pass_is_left_out_and_the_others_have_all_their_processes() -> None:
    asked, _ = asked_in_processes(processes := ProcessesOfGroups(["15m"], fails=("15m long", 2)), times=3)
    assert asked["15m long"].lost == {"b": "it died"} and not asked["15m short"].lost
    assert [len(of.answers) for of in asked.values()] == [3, 3]
    assert processes.asked[-1][2] in (("a",), ("a", "b")) and processes.ended


def test_a_process_of_functions_samples_for_what_is_left_beside_all_else_that_it_takes() -> None:
    pace = ProcessPace(process_seconds=0.5, sides=2, processes=FIRST_PROCESSES)
    assert pace.side_seconds == pytest.approx(0.125)
    pace.note(0.1)
    assert pace.side_seconds == pytest.approx(0.2)
    pace.note(0.5)
    assert pace.side_seconds == pytest.approx(0.1), "one process that took long moves it half of the way"
    assert ProcessPace(0.1, 2, beside_seconds=0.4).side_seconds == LEAST_SIDE_SECONDS
    assert ProcessPace(9.0, 2, beside_seconds=0.4, processes=FIRST_PROCESSES).side_seconds == MOST_SIDE_SECONDS


def test_the_first_processes_of_functions_are_short_so_that_a_large_difference_is_seen_soon() -> None:
    pace, seconds = ProcessPace(process_seconds=9.0, sides=2, beside_seconds=0.4), []
    saved = pace.saved(12)
    for _ in range(6):
        seconds.append(pace.side_seconds)
        pace.note(0.4)
    assert seconds == [FIRST_SIDE_SECONDS] * FIRST_PROCESSES + [MOST_SIDE_SECONDS] * 2
    assert saved == pytest.approx(FIRST_PROCESSES * (MOST_SIDE_SECONDS - FIRST_SIDE_SECONDS)) and pace.saved(12) == 0
