"""Rounds between environments: each side computes in a process of its own, which is begun anew for every round.

Two environments need two processes, and two processes of the very same code differ in time by up to some percent: their
memory lies elsewhere, and so do the keys of their dicts. That stays as long as they live, and no number of samples
averages it out. So a round is a pair of fresh processes, and the interval over rounds holds what processes differ by.
Within a round they take turns of some milliseconds on one core; the other waits idle.
"""

from __future__ import annotations

import os
import random
import secrets
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..spec.sample import Sample
from .gating import GATE_SECONDS, INTRUDES, Gating
from .participants import ExperimentState, Group
from .processes import Answer, WorkerFailed, WorkerProcess

SAMPLING_SHARE = 0.5
"""A round samples for so many times as long as beginning its processes took, within the bounds below: beginning is what
a round mostly costs, and what processes differ by is what its value mostly varies by."""

LEAST_SECONDS, MOST_SECONDS = 0.5, 4.0
LEAST_TURNS, MOST_TURNS = 5, 201

TURN_SECONDS = 30.0
"""A side that has not answered after this long, and 20 times what its calls should take, hangs."""

GATED_INPUTS = 3
"""Inputs on which all sides must agree before anything is timed; in every round there is one more."""

SEEDS = 1 << 32


@dataclass(frozen=True)
class Crew:
    """The processes of a round by the side that each runs, and a folder for their answers."""

    members: dict[str, WorkerProcess]
    folder: Path


class Crews(Gating):
    """Gating and rounds of experiments whose sides have environments of their own."""

    @contextmanager
    def _crew(self, group: Group, book: ExperimentState, names: Sequence[str]) -> Iterator[Crew]:
        """Fresh processes for these sides, begun at the same time, in random order."""
        group.processes = index = 1 + max(each.processes for each in self.groups)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="workbench-answers-")))
            members: dict[str, WorkerProcess] = {}
            for name in self._shuffled(names, index):
                source = self.functions[name.partition("@")[0]]
                members[name] = process = self._process(group, index, f"side-{name}.log", source.environment)
                stack.callback(process.end)
            for name, process in members.items():
                with _blamed(names, name):
                    self._open(process, book, name)
            yield Crew(members, folder)

    def _shuffled(self, names: Sequence[str], *what: object) -> list[str]:
        rng = random.Random(f"turns {self.seed} {what}")
        return rng.sample(list(names), len(names))

    def _starting_once(self, group: Group) -> Generator[Answer, None, bool]:
        """Pass the gates once, each side in a process of its own, and then all together: are their answers the same?"""
        if not group.in_environments:
            return (yield from super()._starting_once(group))
        for book in group.books:
            names = book.remaining().entered()
            begun = time.monotonic()
            try:
                with self._crew(group, book, names) as crew:
                    for name in names:
                        if not (yield from self._gating(crew.members[name], group, book, name)):
                            return False
                    if book.remaining().entered() != names:
                        return False  # begin again without those that failed
                    book.start_seconds = time.monotonic() - begun
                    found = self._compared(crew, book, names, GATED_INPUTS)
            except WorkerFailed as failure:
                if failure.variant_index is None:
                    raise
                self.exclude(names[failure.variant_index], failure.reason, book)
                return False
            for name, reason in found.wrong.items():
                book.gates[name] |= {"passed": False, "detail": reason}
                self.exclude(name, reason, book)
        self.changed()
        return True

    def in_turns(self, group: Group, book: ExperimentState, active: Sequence[str]) -> dict[str, Any]:
        """A round: begin the sides anew, gate them, compare their answers, and let them take turns.

        The answer is that of a process to `round`. Raises WorkerFailed with the place of the side in `active`.
        """
        begun = time.monotonic()
        with self._crew(group, book, active) as crew:
            gates = {name: self._begin_gate(crew.members[name], group, book, name) for name in active}
            results = {}
            for name, gate in gates.items():
                with _blamed(active, name):
                    results[name] = gate.result()["gate"]
            if failed := {name: each["detail"] for name, each in results.items() if not each["passed"]}:
                return _answer([], wrong=failed)
            found = self._compared(crew, book, active, 1)
            if found.wrong:
                return _answer([], wrong=found.wrong)
            seconds = min(max(SAMPLING_SHARE * (time.monotonic() - begun), LEAST_SECONDS), MOST_SECONDS)
            return self._take_turns(crew, group, book, active, seconds, found.make_ns)

    def _take_turns(
        self, crew: Crew, group: Group, book: ExperimentState, active: Sequence[str], seconds: float, make_ns: int
    ) -> dict[str, Any]:
        call_ns = {name: book.call_ns[name] for name in active}
        limit = TURN_SECONDS + 20 * 60 * sum(call_ns.values()) / 1e9
        what = {"workload": book.experiment.workload.name, "round_index": book.begun, "call_ns": call_ns}
        what |= {"make_ns": make_ns, "core": self._core(book, group.processes)}
        go: dict[str, Any] = {}
        order: list[list[str]] = []
        for name in active:
            with _blamed(active, name):
                go[name] = crew.members[name].ask_in_two("turns", limit, variant=name, **what)
        end = time.monotonic() + seconds
        while len(order) < LEAST_TURNS or (len(order) < MOST_TURNS and time.monotonic() < end):
            order.append(self._shuffled(active, group.processes, len(order)))
            for name in order[-1]:
                with _blamed(active, name):
                    go[name]()
        merged = _answer([])
        for name in active:
            with _blamed(active, name):
                answer = go[name](stop=True)
            for sample in (Sample(*each) for each in answer["samples"]):
                place = order[sample.sub_round].index(name)
                merged["samples"].append(sample._replace(position=place))
            for reasons in ("wrong", "changed", "elsewhere"):
                merged[reasons] |= answer[reasons]
            if crew.members[name].noise():
                merged["changed"][name] = INTRUDES
        return merged

    def _core(self, book: ExperimentState, index: int) -> int | None:
        """The core on which the sides of a round compute, another one for each; None where they may need several."""
        if not hasattr(os, "sched_getaffinity") or book.experiment.workload.threads > 1 or book.wall_variants:
            return None
        return random.Random(f"core {self.seed} {index}").choice(sorted(os.sched_getaffinity(0)))

    def _compared(self, crew: Crew, book: ExperimentState, names: Sequence[str], count: int) -> _Compared:
        """Let all sides answer so many inputs, and compare inputs and answers with the baseline's."""
        what = {"workload": book.experiment.workload.name}
        seeds = [secrets.randbelow(SEEDS) for _ in range(count)]
        files = {name: str(crew.folder / f"{place}.zip") for place, name in enumerate(names)}
        limit = GATE_SECONDS + 20 * count * sum(book.call_ns.get(name, 0.0) for name in names) / 1e9
        said = {}
        for name in names:
            with _blamed(names, name):
                said[name] = crew.members[name].ask(
                    "answers", limit, variant=name, seeds=seeds, file=files[name], **what
                )
        wrong = {name: self._refused(each["refused"]) for name, each in said.items() if each["refused"]}
        baseline = book.experiment.baseline
        if baseline in wrong or baseline not in names:
            return _Compared(wrong, 0)
        for name in names:
            if name == baseline or name in wrong:
                continue
            if said[name]["inputs"] != said[baseline]["inputs"]:
                wrong[name] = self._other_inputs(book, name)
                continue
            with _blamed(names, baseline):
                sides = {"file": files[name], "expected": files[baseline], "variant": baseline}
                found = crew.members[baseline].ask("differences_of_answers", limit, **what, **sides)
            if differing := [(text, seed) for text, seed in zip(found, seeds, strict=False) if text]:
                text, seed = differing[0]
                wrong[name] = f"{text} (input {self._payload(book)}, seed {seed})"
        return _Compared(wrong, max(each["make_ns"] for each in said.values()))

    def _payload(self, book: ExperimentState) -> str:
        return self.calls[book.experiment.workload.name].payload.shown

    def _refused(self, what: str) -> str:
        return (
            f"its answer cannot go from one process to another ({what}): give --check FILE:FUNCTION with a function of "
            "one answer, which returns what counts of it as plain data, arrays or tensors"
        )

    def _other_inputs(self, book: ExperimentState, name: str) -> str:
        baseline = book.experiment.baseline
        return (
            f"{self._payload(book)} makes other inputs there than in the environment of {baseline}, for the same seed: "
            "another version of what draws them? Make them with Python's random, or read them from a file"
        )


@dataclass(frozen=True)
class _Compared:
    """wrong: side → why it is excluded. make_ns: the time to make an input."""

    wrong: dict[str, str]
    make_ns: int


@contextmanager
def _blamed(names: Sequence[str], name: str) -> Iterator[None]:
    """Where a process fails in this block, that is the side `name`."""
    try:
        yield
    except WorkerFailed as failure:
        raise WorkerFailed(failure.reason, list(names).index(name)) from failure


def _answer(samples: list[Sample], wrong: dict[str, str] | None = None) -> dict[str, Any]:
    return {"samples": samples, "wrong": wrong or {}, "drawn": [], "changed": {}, "elsewhere": {}, "leaks": {}}
