"""The verbs `gate` and `admit`: right answers, the op trace, and how long a call takes; or what is learnt of that."""

from __future__ import annotations

import gc
import mmap
import resource
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from time import (  # bound before any foreign code is imported
    perf_counter_ns,  # bound before any foreign code is imported
    process_time_ns,
    thread_time_ns,
)
from typing import Any, NamedTuple

from llama_workbench.variants.outside import OutsideVariantError

from ..calls.called import PayloadError, is_beside, refused
from .channel import raised_by
from .devices import Spent
from .functions import gained_again
from .state import Bench, LogitsGate, Subject, Worker
from .watch import OWN_THREADS_SHARE, WAITING_SHARE, queued_ns, waits

# What a function does to the process that it runs in: what it leaves of the garbage collector's settings, how much of
# its time collections take, which memory it has the system hand over, and what it keeps alive.
# A program of the user's has a process to itself, with the collector and the allocator as Python and the system have
# them. Two sides of a comparison can share one as long as neither changes what the other would find there.


OBSERVED_NS, BATCH_NS, LONG_OBSERVED_NS = 100_000_000, 5_000_000, 500_000_000
"""Calls are observed for so long, in batches of so long; of a longer call than the last number, one."""

MOST_MAKING_NS = 20_000_000  # of the inputs of a batch

LEAST_SHARE = 0.02
"""A side of whose time collections take this share has a process of its own: where sides share one, what was left for
a later collection is collected before the next sample, and nobody's time."""

LEAST_FAULTS = 4
"""So has one with so many page faults a call: how the C library hands out large blocks is a state of the process. (Each
that is freed raises the size from which on the system is asked; the processes of gates hold it.) A block of 128 KiB has
32 of them, and one of many MiB few, where pages are huge."""

TRIED_BYTES = 1 << 21

LEAST_ALIVE = 20_000
"""So has one that keeps so many more objects alive: a collection would walk them in the other's time."""


class Settings(NamedTuple):
    """Of the collector, as code may leave them."""

    is_on: bool
    thresholds: tuple[int, ...]

    @classmethod
    def now(cls) -> Settings:
        return cls(gc.isenabled(), gc.get_threshold())

    def restore(self) -> None:
        gc.set_threshold(*self.thresholds)
        (gc.enable if self.is_on else gc.disable)()


def observed(worker: Worker, bench: Bench, subject: Subject) -> dict[str, Any]:
    """Call a function, with the collector on or off as it has it, and see what that does. `disturbs`: whether another
    function that shares the process would be timed with what this one did. `facts`: as in `SideFacts`."""
    collections = collecting_ns = collecting_since_ns = 0

    def note(phase: str, info: Mapping[str, int]) -> None:
        nonlocal collections, collecting_ns, collecting_since_ns
        if phase == "start":
            collecting_since_ns = perf_counter_ns()
        elif collecting_since_ns:
            collecting_ns += perf_counter_ns() - collecting_since_ns
            collections += 1

    with worker.modes_of(bench):
        gc.collect()
        alive = len(gc.get_objects())
        runner = bench.kind.runner(worker, bench, subject.variant)
        length, call_ns = bench.workload.tokens, max(subject.call_ns, 1.0)
        batch = max(1, round(min(BATCH_NS / call_ns, MOST_MAKING_NS / max(bench.make_ns, 1))))
        is_warm = call_ns > LONG_OBSERVED_NS
        calls, spent_ns, faults, begun = 0, 0, 0, perf_counter_ns()
        while not calls or perf_counter_ns() - begun < OBSERVED_NS:
            runner.prepare(length, bench.take(batch), batch)
            if not is_warm:
                is_warm = True
                runner.many(batch)
                continue
            faults -= _faults()
            gc.callbacks.append(note)
            try:
                begun_ns = perf_counter_ns()
                runner.many(batch)
                spent_ns += perf_counter_ns() - begun_ns
            finally:
                gc.callbacks.remove(note)
            faults += _faults()
            calls += batch
        runner.finish()
        gc.collect()
        alive = len(gc.get_objects()) - alive
    share = min(collecting_ns / max(spent_ns, 1), 1.0)
    facts = {"collections_per_call": collections / calls, "collection_share": share, "fault_ns": fault_ns()}
    disturbs = share >= LEAST_SHARE or faults / calls >= LEAST_FAULTS or alive >= LEAST_ALIVE
    return {"disturbs": disturbs, "facts": facts}


def fault_ns() -> float:
    """What it takes here to be given a page of memory by the system, when it is first written to."""
    with mmap.mmap(-1, TRIED_BYTES) as memory:
        faults, begun_ns = -_faults(), perf_counter_ns()
        for place in range(0, TRIED_BYTES, mmap.PAGESIZE):
            memory[place] = 1
        spent_ns = perf_counter_ns() - begun_ns
        return spent_ns / max(faults + _faults(), 1)


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def gate(worker: Worker, workload: str, variant: str) -> dict[str, Any]:
    """Logits gate (the small one, then this workload's own calls), op trace, and the time of a call.

    A variant that raises fails its gate; the parent sees a result, not an error. A variant also fails if it leaves
    something changed behind that others would feel. Where it imports torch and this process began without it, that is
    all that is found: torch must be there, and be watched, before foreign code is imported. Of a function that is
    measured as it runs, `disturbs` says whether another one would feel it in the same process: it may set the collector
    as it likes, which is undone here."""
    settings, frozen = Settings.now(), gc.get_freeze_count()
    result = _gated(worker, workload, variant)
    if "needs_torch" in result:
        return result
    if not worker.calm:
        # Of what is frozen some goes as it would; more of it, or none, is somebody's doing.
        set_anew = settings != Settings.now() or not 0 < gc.get_freeze_count() <= frozen
        if notes := worker.noted(variant):
            worker.turn_of("")  # which puts it back
            set_anew |= notes.found_setting_collector(variant)
        result["disturbs"] = result.get("disturbs", False) or set_anew
        settings.restore()
    if change := worker.changed(variant, files=False):
        worker.benches[workload].subjects.pop(variant, None)
        return {"gate": {**result["gate"], "passed": False, "detail": change}, "cause": "refused"}
    if not worker.is_outside(variant):
        worker.watch.accept()
    if (notes := worker.noted(variant)) and "facts" in result:
        result["facts"] |= notes.facts(variant)
    return result


def _gated(worker: Worker, workload: str, variant: str) -> dict[str, Any]:
    bench, begun = worker.benches[workload], perf_counter_ns()
    try:
        subject = Subject(bench.kind.variant(worker, bench, variant))
        import_ns = perf_counter_ns() - begun
    except OutsideVariantError as error:
        return {"gate": asdict(LogitsGate(False, str(error))), "cause": "not imported"}
    except Exception as error:
        return {"gate": asdict(LogitsGate(False, raised_by(error)))}
    try:
        if worker.torch is None and "torch" in sys.modules:
            return {"needs_torch": True}
        result = bench.kind.gate(worker, bench, subject, variant)
        if worker.torch is None and "torch" in sys.modules:  # its first call imports it, or its baseline does
            return {"needs_torch": True}
    except (OutsideVariantError, PayloadError) as error:
        return {"gate": asdict(LogitsGate(False, str(error)))}
    except Exception as error:
        return {"gate": asdict(LogitsGate(False, raised_by(error)))}
    answer: dict[str, Any] = {"gate": asdict(result)}
    if not result.passed:
        return answer | ({"cause": "refused"} if refused(bench.called, [variant]) else {})
    try:
        if trace := bench.kind.traced(bench, subject):
            answer["trace"] = trace
        answer |= calibrate(worker, bench, subject, variant)
        answer["cheap"] = subject.variant.engine is None and not subject.variant.compiled
        answer["learnt"] |= bench.kind.learnt(bench, subject, variant) | {"import_ns": import_ns}
        if bench.call is not None and not is_beside(variant):
            answer["learnt"]["again"] = gained_again(worker, bench, subject, variant)
        answer["facts"] |= bench.kind.facts(bench, variant)
        # The reference benchmark does nothing to its process, a control what its original does, and a command has
        # another one.
        if not (worker.calm or is_beside(variant) or worker.functions.get(variant, {}).get("command")):
            seen = observed(worker, bench, subject)
            answer |= {"disturbs": seen["disturbs"], "facts": answer["facts"] | seen["facts"]}
    except Exception as error:
        return {"gate": asdict(replace(result, passed=False, detail=raised_by(error)))}
    bench.subjects[variant] = subject
    return answer


def admit(worker: Worker, workload: str, variant: str, learnt: Mapping[str, Any]) -> None:
    """Take in a variant that passed its gates in an earlier process of the run; `learnt` is what that one found. What
    it answers is checked in every round, as ever. Raises where it cannot be imported or built."""
    bench = worker.benches[workload]
    subject = Subject(bench.kind.variant(worker, bench, variant), call_ns=learnt["call_ns"])
    bench.kind.admit(worker, bench, subject, variant, learnt)
    bench.subjects[variant] = subject
    if learnt["own_threads"]:
        worker.wall_variants.add(variant)
    if not worker.is_outside(variant):
        worker.watch.accept()


CALIBRATION_NS, LONG_CALL_NS, LONG_FIRST_NS = 50_000_000, 500_000_000, 10_000_000_000
"""Calls are timed for so long after a first one. Where the first takes longer than the second number, it is enough; of
functions, whose first call may compile code, where it takes longer than the third."""

MOST_CALLS = 20
OWN_THREADS_NS = 5_000_000  # with less CPU time than this, other threads are not judged


def calibrate(worker: Worker, bench: Bench, subject: Subject, entered: str) -> dict[str, Any]:
    """Fill in the subject's `call_ns` and `output`; the answer is what `admit` must know in later processes."""
    worker.turn_of("")
    with worker.modes_of(bench):
        runner = bench.kind.runner(worker, bench, subject.variant)
        length = bench.workload.tokens
        calls_ns: list[int] = []
        waited_ns: list[int] = []

        def take() -> None:
            runner.prepare(length, bench.take(), 1)
            call_clocks = ClockReadings()  # without its input, whose making may wait too
            calls_ns.append(worker.device.call_ns(runner) - runner.uncounted_ns)
            waited_ns.append(call_clocks.waited_ns(1)[0])
            if worker.notes is not None and bench.call is not None:
                worker.notes.end(1, Spent(None, 0, 0, 0, around_ns=calls_ns[-1]))
            runner.finish()

        clocks = ClockReadings()
        take()
        # The first of short calls says how long it takes to make caches, not more.
        if calls_ns[0] < (LONG_CALL_NS if bench.call is None else LONG_FIRST_NS):
            calls_ns.clear()
            waited_ns.clear()
            clocks = ClockReadings()
            while not calls_ns or (len(calls_ns) < MOST_CALLS and perf_counter_ns() - clocks.wall_ns < CALIBRATION_NS):
                take()
        elsewhere = clocks.elsewhere(len(calls_ns), waiting=bench.call is not None)
        if notes := worker.noted(entered):
            elsewhere |= notes.needs_wall(entered)
        subject.call_ns = max(min(calls_ns), 1)
        bench.kind.called_once(bench, subject, runner)
        if worker.device.kind == "cuda" and bench.checkpoint is None:
            # Of one of so many calls that they fill a sample: the events around one short call cost more than it.
            count, spent = 0, 0
            while spent < worker.device.sample_ns and count < 1 << 16:
                count = 4 * count or 1
                runner.prepare(length, bench.take(count), count)
                spent = worker.device.sample(runner, count).device_ns
            subject.call_ns = max(spent, 1) / count
    alone = worker.device.kind == "cpu" and worker.threads == 1
    is_awaited = entered in bench.called and bench.called[entered].is_awaited
    own_threads = is_awaited or (alone and elsewhere)
    if own_threads:
        worker.wall_variants.add(entered)
    facts = {}
    if entered in bench.called:
        # Of the fastest call: beside other programs the others wait for what is not theirs.
        facts["wall_ns"], waited = min(zip(calls_ns, waited_ns))
        # Of a command and of an import all is another process's.
        if not bench.called[entered].is_fresh and not bench.called[entered].is_import:
            facts["waited_ns"] = min(waited, facts["wall_ns"])
    return {"learnt": {"call_ns": subject.call_ns, "own_threads": own_threads}, "facts": facts}


class ClockReadings:
    """The clocks at the beginning of some calls. The process's is read first and last, as in `Cpu.sample`."""

    def __init__(self) -> None:
        self.wall_ns, self._waits, self._queued_ns = perf_counter_ns(), waits(), queued_ns()
        self._thread_ns = thread_time_ns()
        self._process_ns = process_time_ns()

    def elsewhere(self, calls: int, *, waiting: bool) -> bool:
        """Whether these calls computed in other threads since; `waiting`: or waited for something else, all of them."""
        process_ns = process_time_ns() - self._process_ns
        thread_ns = thread_time_ns() - self._thread_ns
        if process_ns > OWN_THREADS_NS and process_ns - thread_ns > OWN_THREADS_SHARE * process_ns:
            return True
        waited_ns, wall_ns = self.waited_ns(calls)
        return waiting and waited_ns > WAITING_SHARE * wall_ns

    def waited_ns(self, calls: int) -> tuple[int, int]:
        """How long these calls waited for something else than a processor, all together, and how long they took. The
        first is 0 where not each of them waited."""
        wall_ns, process_ns = perf_counter_ns() - self.wall_ns, process_time_ns() - self._process_ns
        waited_ns = wall_ns - process_ns - (queued_ns() - self._queued_ns)
        return (max(waited_ns, 0) if waits() - self._waits >= calls else 0), wall_ns
