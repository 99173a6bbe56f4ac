"""Measures a suite: the tests of one or two sides, each side in a fresh process, sample by sample in turns."""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llama_workbench.variants import FUNCTION_YARDSTICK

from ..measure.processes import WorkerFailed, WorkerProcess
from ..spec.sample import Round, Sample
from ..stats.confidence import LookPlan, first_interval

SAMPLE_NS, TEST_NS = 8_000_000, 50_000_000
"""Least time of a sample, and of all samples of a test in a process; one call where that takes longer."""

MOST_SAMPLES = 9
GROUP_FACTOR = 10
"""Sides that differ by more than this have different numbers of calls in a sample."""

REFERENCE_CALLS = 4
"""In the one sample of the reference benchmark, about four milliseconds."""

PROCESSES, SPARE = 20, 4
"""How many processes of each side there are, where no budget was given; more where an interval for so many tests at
once needs them, and then so many more than that."""

LOST = 3
"""So many processes may fail beside those that a test ended."""

WAITS = 1.1
"""A test whose wall time is always more than so many times its CPU time waits, or computes elsewhere: wall counts."""

LONG_NS, TOO_LONG_NS = 300_000_000, 10_000_000_000
"""Of longer calls the first is the only one before the samples; and a test of still longer ones is measured only by
itself: with others it would take all the time."""

COLLECT_SECONDS, TEST_SECONDS = 600.0, 600.0


@dataclass(frozen=True)
class Places:
    """Folders of a run's processes: for their files, the workbench's cache, and what they print."""

    scratch: Path
    cache: Path
    logs: Path

    def __str__(self) -> str:
        return f"what pytest printed is in {self.logs}"


@dataclass(frozen=True)
class Checkout:
    """A suite as it is in one checkout. name: in the run. root: the checkout; folder: where pytest is started there.
    words: of pytest's command line. python: of the environment in which it was built; empty: it was not."""

    name: str
    root: Path
    folder: Path
    words: tuple[str, ...]
    python: str = ""

    def begin(self, seed: int, places: Places) -> WorkerProcess:
        """A fresh process. seed: of its hashes, the same on all sides."""
        kept, log = places.scratch / self.name, places.logs / f"{self.name}.log"
        first = () if self.python else (self.folder, self.root, self.root / "src")  # before what a build installed
        paths = [str(path) for path in first if path.is_dir()]
        own_files = ["--basetemp", str(kept / "files"), "-o", f"cache_dir={kept / 'cache'}"]
        hello = {"folder": str(self.folder), "paths": [*dict.fromkeys(paths)], "words": [*own_files, *self.words]}
        own = {"PYTHONHASHSEED": str(seed), "PYTHONPYCACHEPREFIX": str(kept / "code"), "PYTHONDONTWRITEBYTECODE": ""}
        return WorkerProcess(
            threads=1, cache=places.cache, log=log, module="suites.process", hello=hello, own=own, variables={},
            python=self.python or sys.executable,  # as that of any environment: nothing of ours is on its path
        )  # fmt: skip


@dataclass
class Test:
    """What is known of one test of all sides so far. left_out: side → why it has no number there. waits: the least
    share of wall time over CPU time. rounds: how many it has; seconds: what they took. group, extra: what it
    says of itself."""

    left_out: dict[str, str] = field(default_factory=dict)
    waits: float = math.inf
    rounds: int = 0
    seconds: float = 0.0
    sampled: float = 0.0
    group: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Collected:
    """The suite as its sides have it: test → the sides, in the order in which the last side has its tests. errors:
    (side, where) → why that could not be collected. left_out: what the project's settings ask for and is not done.
    skipped: test → side → why it is no benchmark there. files: file of tests → side → its digest."""

    tests: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[tuple[str, str], str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    skipped: dict[str, dict[str, str]] = field(default_factory=dict)
    files: dict[str, dict[str, str]] = field(default_factory=dict)

    def problems(self) -> list[str]:
        """What could not be collected, with the tracebacks: once, where it is the same on all sides."""
        sides: dict[tuple[str, str], list[str]] = {}
        for (side, where), text in self.errors.items():
            sides.setdefault((where or "the suite", text), []).append(side)
        return [f"{where} cannot be collected in {', '.join(at)}:\n{text}" for (where, text), at in sides.items()]


class Pairs:
    """Pairs of processes, one of each side, until every test has its number of rounds."""

    def __init__(self, sides: Sequence[Checkout], seed: int) -> None:
        self.sides = sides
        self.rng = random.Random(f"suite {seed}")
        self.collected = Collected()
        self.tests: dict[str, Test] = {}
        self.number = 0  # of the pair of processes

    @contextmanager
    def processes(self, places: Places) -> Iterator[dict[str, WorkerProcess]]:
        """A fresh process of each side, with its tests collected. Raises WorkerFailed."""
        self.number += 1
        seed = self.rng.randrange(2**32)
        with ExitStack() as opened:
            begun = {}
            for side in self.rng.sample(self.sides, len(self.sides)):
                begun[side.name] = side.begin(seed, places)
                opened.callback(begun[side.name].close)
            asked = {name: each.begin("collect", COLLECT_SECONDS) for name, each in begun.items()}
            answers = {name: answer.result() for name, answer in asked.items()}
            if self.number == 1:
                self._collect(answers)
            yield begun

    def _collect(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        suite = self.collected
        for side in reversed(self.sides):
            answer = answers[side.name]
            if "ended" in answer:
                suite.errors[side.name, ""] = f"pytest ended with exit code {answer['ended']}"
            for where, text in answer.get("errors", {}).items():
                suite.errors[side.name, where] = text
            suite.left_out += [line for line in answer.get("left_out", ()) if line not in suite.left_out]
            for file, digest in answer.get("files", {}).items():
                suite.files.setdefault(file, {})[side.name] = digest
            for test in answer.get("tests", ()):
                suite.tests.setdefault(test, []).append(side.name)

    def take(self, tests: Sequence[str]) -> None:
        """Measure these, which all sides have."""
        self.tests = {test: Test() for test in tests}

    def open(self, horizon: float) -> list[str]:
        """The tests that need more rounds, in a fresh order: file by file, so that fixtures of a file can be shared."""
        files: dict[str, list[str]] = {}
        for test, state in self.tests.items():
            if state.rounds < horizon and not state.left_out and test not in self.collected.skipped:
                files.setdefault(test.partition("::")[0], []).append(test)
        order = self.rng.sample([*files.values()], len(files))
        return [test for of_file in order for test in self.rng.sample(of_file, len(of_file))]

    def rounds(
        self, processes: Mapping[str, WorkerProcess], order: Sequence[str]
    ) -> Iterator[tuple[str, Round | None]]:
        """Every test of the order in these processes, and its round, where it has a number. One that ends a process
        ends the pair."""
        for test, following in zip(order, [*order[1:], ""], strict=True):
            try:
                turn = _Turn(processes, test, following, self.rng, TOO_LONG_NS if len(self.tests) > 1 else math.inf)
                samples = turn.samples()
                ended = turn.finish()
            except WorkerFailed as failure:
                gone = [name for name, process in processes.items() if not process.alive()]
                self.tests[test].left_out |= dict.fromkeys(gone or [*processes], failure.reason)
                yield test, None
                return
            state = self.tests[test]
            if turn.too_long:
                self.collected.skipped[test] = turn.too_long
                yield test, None
                continue
            for side, outcome in ended.items():
                if outcome["is"] == "failed":
                    state.left_out[side] = outcome["why"]
                elif outcome["is"] != "passed":
                    self.collected.skipped.setdefault(test, {})[side] = outcome["why"]
            if any(outcome["is"] != "passed" for outcome in ended.values()):
                yield test, None
                continue
            state.group, state.extra = turn.about
            state.rounds += 1
            state.waits = min(state.waits, turn.waits())
            state.sampled += sum(each.wall_ns for each in samples) / 1e9
            yield test, Round(test, self.number, state.rounds - 1, tuple(samples))


class _Turn:
    """One test in one process of each side. too_long: side → how long a call takes, where that is more than `most_ns`:
    then the other side has not begun."""

    def __init__(
        self, processes: Mapping[str, WorkerProcess], test: str, following: str, rng: random.Random, most_ns: float
    ) -> None:
        self.processes = processes
        self.too_long: dict[str, str] = {}
        self.rng = rng
        self.ended: dict[str, dict[str, str]] = {}
        self.about: tuple[str | None, Mapping[str, Any]] = None, {}
        self.ready: dict[str, dict[str, float]] = {}
        self.shares: dict[str, list[float]] = {}
        for name in self._order():
            answer = self._ask(name, "test", test=test, following=following)
            if answer is None:
                continue
            self.ready[name] = answer
            if answer["whole_ns"] > most_ns:
                self.too_long[name] = f"a call takes {answer['whole_ns'] / 1e9:.3g} s: measure this test by itself"
                break

    def _order(self) -> list[str]:
        return self.rng.sample([*self.processes], len(self.processes))

    def _ask(self, name: str, verb: str, **arguments: Any) -> Any:
        """The answer; None where the test has ended instead, now or before."""
        if name in self.ended:
            return None
        answer = self.processes[name].ask(verb, TEST_SECONDS, **arguments)
        if isinstance(answer, dict) and "outcome" in answer:
            self.ended[name], self.about = answer["outcome"], (answer["group"], answer["extra"])
            return None
        return answer

    def samples(self) -> list[Sample]:
        """All samples of the sides in turns, and one of the reference benchmark; fewer where a test ends early."""
        if self.ended or self.too_long:
            return []
        calls = self._calls()
        if any(each["whole_ns"] <= LONG_NS for each in self.ready.values()):
            for name in self._order():  # what else the machine did may have made the first calls seem long
                times = self._ask(name, "sample", calls=calls[name])
                if times is None:
                    return []
                taken_ns = max(times[1] if times[3] else times[0], 1) / calls[name]
                self.ready[name]["call_ns"] = min(self.ready[name]["call_ns"], taken_ns)
            calls = self._calls()
        longest = max(calls[name] * each["whole_ns"] for name, each in self.ready.items())
        count = min(MOST_SAMPLES, max(1, round(TEST_NS / longest)))
        taken: list[Sample] = []
        for number in range(count):
            order = [*self._order(), *[FUNCTION_YARDSTICK] * (number == count // 2)]
            for position, name in enumerate(order):
                verb, process = ("reference", order[-2]) if name == FUNCTION_YARDSTICK else ("sample", name)
                times = self._ask(process, verb, calls=calls[name])
                if times is None:
                    return []
                taken.append(Sample(name, number, position, 1, calls[name], *times[:3]))
                self.shares.setdefault(name, []).append(times[1] / max(times[0], 1) if times[3] else 1.0)
        return taken

    def waits(self) -> float:
        """The typical share of wall time over CPU time, of the side that waits more. Where a process never gives its
        core up, others take it away."""
        return max(statistics.median(self.shares[name]) for name in self.processes)

    def _calls(self) -> dict[str, int]:
        """In a sample, by side: the same number, so that the loop costs all the same."""
        most = {
            name: max(1, min(math.ceil(SAMPLE_NS / times["call_ns"]), int(4 * SAMPLE_NS / times["whole_ns"])))
            for name, times in self.ready.items()
        }
        call_ns = [times["call_ns"] for times in self.ready.values()]
        if max(call_ns) <= GROUP_FACTOR * min(call_ns):
            most = dict.fromkeys(most, min(most.values()))
        return {**most, FUNCTION_YARDSTICK: REFERENCE_CALLS}

    def finish(self) -> dict[str, dict[str, str]]:
        """Let the tests end: what became of each."""
        for name in self.ready:
            self._ask(name, "finish")
        return self.ended


def processes_needed(tests: int, alpha: float) -> int:
    """With how many processes of each side so many tests have intervals that hold all at once."""
    least = 12
    while first_interval(LookPlan(alpha / max(tests, 1), least, one_sided=True)) > least:
        least += 1
    return least
