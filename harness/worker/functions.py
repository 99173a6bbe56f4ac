"""Any functions as what is compared: imported for one side alone, gated by the baseline's answers, and called.

Importing this module does not import torch: where no side uses it, their process has none.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from time import perf_counter_ns, thread_time_ns  # bound before any foreign code is imported
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from llama_workbench.variants import LlamaConfig, Model, Variant

from ..calls.called import SLOW_FIRST_NS, Awaited, Call, Called, TimedPart
from ..calls.command import Command
from ..calls.inputs import CHEAP_SHARE, MOST_INPUTS, Arguments, GainAgain, InputCosts, copier
from ..calls.source import Source
from ..spec.comparison import EnteredName
from .channel import raised_by
from .state import Bench, BenchKind, LogitsGate, Runner, Subject, Worker, WorkerError, hide

if TYPE_CHECKING:
    from torch import Tensor

    from llama_workbench.datasets.workloads import Workload


def open_functions(
    worker: Worker, workload: dict[str, Any], folder: str | None, seed: int, call: dict[str, Any] | None
) -> dict[str, Any]:
    """Open a workload of functions; `call` is what `Call` holds."""
    assert call is not None
    # What the parent sends was checked there, and pydantic is half of what a process of functions would import.
    work = cast("Workload", SimpleNamespace(**workload))
    worker.benches[work.name] = Bench(work, FunctionsKind(), seed, call=Call.from_json(call))
    return {"parameters": 0, "digest": "", "synthetic": True}


class FunctionsKind(BenchKind):
    """Two functions or more, with what they are called with."""

    def variant(self, worker: Worker, bench: Bench, entered: str) -> Variant:
        """The function, from files that are imported for this side alone (see `Called`)."""
        assert bench.call is not None
        source = Source(**worker.functions[EnteredName(entered).original])
        hide(worker)

        def runs(code: Source) -> None:
            worker.turn_of(entered if code is source else code.name)

        bench.called[entered] = Called.imported(source, bench.call, worker.draw, worker.turn, runs)

        def build(config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int) -> Model:
            raise WorkerError(f"{source.shown} is any function: it builds no model")

        return Variant(entered, build, source.shown, f"outside: {source.shown}")

    def gate(self, worker: Worker, bench: Bench, subject: Subject, entered: str) -> LogitsGate:
        """The baseline's answers to a few inputs."""
        called = bench.called[entered]
        with worker.modes_of(bench):
            wrong = called.gate(worker.inputs_made)
        same = "" if called.makes_inputs else ", each of them the same: what remembers answers would look fast"
        inputs = f"{called.gated} input{'s' * (called.gated != 1)}"
        return LogitsGate(not wrong, wrong or f"{inputs}{same}", called.gated)

    def learnt(self, bench: Bench, subject: Subject, entered: str) -> dict[str, Any]:
        called = bench.called[entered]
        checks = int(not _is_shared(called, subject.call_ns))
        calls = {"warm_calls": int(not called.is_fresh), "checks": checks}
        once = {
            "first_ns": called.first_input_ns + called.first_call_ns,
            "first_check_ns": checks * called.first_check_ns,
        }
        return called.learnt() | calls | once

    def facts(self, bench: Bench, entered: str) -> dict[str, Any]:
        called = bench.called[entered]
        facts: dict[str, Any] = {"first_call_ns": called.first_call_ns, "copies_inputs": called.spoils_inputs}
        work = {what: amount for what, amount in called.work.items() if amount}
        facts |= {"is_import": called.is_import, "is_apart": called.is_apart}
        return facts | ({"work": work} if work else {})

    def admit(self, worker: Worker, bench: Bench, subject: Subject, entered: str, learnt: Mapping[str, Any]) -> None:
        bench.called[entered].learn(learnt)

    def runner(self, worker: Worker, bench: Bench, variant: Variant) -> Runner:
        bench.give_inputs(bench.way, bench.pool_size)
        called = bench.called[variant.name]
        kind = PartRunner if called.is_apart else CallRunner
        return kind(called, worker.inputs_made, partial(worker.inputs_gone, variant.name))

    def wrong(self, bench: Bench, runners: Mapping[str, Runner]) -> dict[str, str]:
        """Functions whose last timed call gave another answer than the baseline does to the same input, and where.
        Where calls take long the baseline is not called for that: its own timed call, or that of its control, had the
        same input."""
        wrong: dict[str, str] = {}
        for name in runners:
            subject, called = bench.subjects[name], bench.called[name]
            answered = (
                [
                    bench.subjects[other].last
                    for other in runners
                    if other != name
                    and bench.called[other].is_baseline
                    and bench.subjects[other].asked == subject.asked
                ]
                if _is_shared(called, subject.call_ns)
                else []
            )
            try:
                fault = called.wrong(subject.asked, subject.last, answered[:1])
            except Exception as error:
                fault = raised_by(error)
            if fault and subject.call_ns < SLOW_FIRST_NS:
                fault = called.why_unsteady(subject.asked) or fault
            if fault:
                wrong[name] = f"a timed call: {fault}"
        for name in runners:
            bench.subjects[name].last = None
        return wrong


LONG_CALL_NS = 300_000_000
"""Of calls that take longer a round has one sample a side, and one more for a check would be a third of its time."""


def _is_shared(called: Called, call_ns: float) -> bool:
    """Whether a side's answers are compared with those that a timed call of the baseline gave."""
    return called.shares_answers and (called.is_fresh or call_ns > LONG_CALL_NS)


class CallRunner(Runner):
    """Any function, made anew where a factory makes it. What its calls are given is said in `calls.inputs`."""

    def __init__(
        self, called: Called, made: Callable[[], None] = lambda: None, gone: Callable[[], None] = lambda: None
    ) -> None:
        """made: called once the inputs of some calls are there; gone: once they are no more."""
        self.asked = []
        self.called, self.made, self.gone = called, made, gone
        self.is_fresh = called.is_fresh
        self.function = called.make()
        self.inputs: Iterator[Arguments] = iter(())

    def set_up(self, length: int, prompt: int, repeats: int) -> None:
        inputs, last = self.called.inputs(prompt, repeats)
        self.asked = [(last, length)]
        self.inputs = iter(inputs)
        self.made()

    def finish(self) -> None:
        """An input may hold what there is little of, as an open file."""
        self.inputs = iter(())
        self.gone()

    @property
    def uncounted_ns(self) -> int:  # type: ignore[override]
        return self.function.uncounted_ns if isinstance(self.function, Command) else 0

    def call(self) -> Any:
        return self.function(*next(self.inputs))

    def many(self, count: int) -> Any:
        """Here in a loop of its own: a function may take less time than a step of the other one. No answer lives while
        the next is computed: the memory that it takes would be missing there."""
        function, inputs = self.function, itertools.islice(self.inputs, count)
        if isinstance(function, Awaited):
            return function.many(inputs)
        for arguments in itertools.islice(inputs, count - 1):
            function(*arguments)
        return function(*next(inputs))


class PartRunner(CallRunner):
    """A function of whose calls a part counts."""

    function: TimedPart

    def many(self, count: int) -> Any:
        self.function.begin()
        return super().many(count)

    def counted_ns(self) -> tuple[int, int]:
        cpu_ns, wall_ns = self.function.counted_ns
        return max(cpu_ns, 1), max(wall_ns, 1)

    @property
    def uncounted_ns(self) -> int:  # type: ignore[override]
        return self.function.uncounted_ns


# What a function gains where it is given an input again: one that remembers answers, or what led to them, would look
# faster than it is wherever its inputs are other ones.


BATCH_NS, WHOLE_NS, LONGEST_NS = 10_000_000, 100_000_000, 300_000_000
"""So many inputs are tried at once as take so long, with both calls of each, and batches until the second is over.
Where LEAST_INPUTS of them would take longer than the third, nothing is tried."""

LEAST_INPUTS, LEAST_BATCHES = 3, 3


def gained_again(worker: Worker, bench: Bench, subject: Subject, entered: str) -> GainAgain | None:
    """How much less time second calls with the inputs of a batch take than first ones; None where each call is given a
    new input in any case, or calls take too long to try it."""
    called = bench.called[entered]
    call_ns, make_ns = subject.call_ns, called.make_ns
    is_dear = called.makes_inputs and make_ns > CHEAP_SHARE * call_ns
    each_ns = 2 * call_ns + make_ns
    if called.changes_inputs and not called.copy_ns:
        return None
    if worker.notes is None or called.is_fresh or called.is_apart or not is_dear or LEAST_INPUTS * each_ns > LONGEST_NS:
        return None
    count = min(max(int(BATCH_NS / each_ns), LEAST_INPUTS), MOST_INPUTS)
    firsts: list[float] = []
    gains: list[float] = []
    with worker.modes_of(bench):
        function, begun = called.make(), perf_counter_ns()
        copies = InputCosts.of(called.learnt()).is_copied(call_ns)
        while len(gains) <= LEAST_BATCHES or perf_counter_ns() - begun < WHOLE_NS:
            called.side.enter()
            inputs = called.payload.batch(bench.take(count), count)
            given = [copier(arguments) if copies else partial(tuple, arguments) for arguments in inputs]
            first, again = ([_call_ns(function, give()) for give in given] for _ in range(2))
            firsts.append(statistics.median(first))
            # The mean of the middle half: the median of short calls is a whole number of a clock's ticks, the same in
            # every batch, and would have no error.
            saved, cut = sorted(one - other for one, other in zip(first, again)), count // 4
            gains.append(statistics.fmean(saved[cut : count - cut]))
    warm = gains[1:]
    error = statistics.stdev(warm) / math.sqrt(len(warm))
    return GainAgain(statistics.fmean(firsts[1:]), statistics.fmean(warm), error, len(warm) - 1)


def _call_ns(function: Callable[..., Any], arguments: Arguments) -> int:
    begun = thread_time_ns()
    function(*arguments)
    return max(thread_time_ns() - begun, 1)
