"""The verb `phases`: calls of every variant with its phases marked, beside calls of the plain one.

A marked variant says which phase it is in: the same source, imported once more, with a clock between its statements.
The source names the phase of every statement on a forward's path, by comments (`phase_map` describes them, and has the
names for the two sources that take none). A private import gets one more statement wherever the phase changes: append
(phase, time) to a list. The phases of a call are the differences of neighbouring timestamps, so they sum to the call.

Why the source and not wrappers around methods: masks, scores, softmax and residual additions are statements inside
functions. A timestamp costs a list append and a clock; a wrapper costs a Python call, and a wrapped `nn.Module` a
slower path through torch. Each timestamp lies inside the time it measures: the plain variant is called as well.
"""

from __future__ import annotations

import ast
import gc
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns, thread_time_ns  # bound before any foreign code is imported
from timeit import timeit
from types import CodeType, ModuleType
from typing import Any

import torch
from torch import Tensor

from llama_workbench import variants
from llama_workbench.datasets.lengths import call_lengths, warmup_length
from llama_workbench.variants import Variant
from llama_workbench.variants.outside import import_copy, with_private_source
from llama_workbench.variants.phase_map import LIBRARY_MODEL, MAPS, MAY_RUN, MUST_RUN, OTHER, PHASES, VIEWS

from ...machine.places import place
from ...spec.comparison import EnteredName
from ...worker.channel import in_one_line
from ...worker.correctness import noting
from ...worker.model_gating import own_case
from ...worker.rounds import SHORT_SAMPLE_NS, is_primed, rebuilt
from ...worker.state import Bench, Runner, Worker, WorkerError
from .lines import CLOCK, COMMENT, MARK, Marker, PhaseError

Clock = Callable[[], int]
Log = list[tuple[int, int]]
"""(index in PHASES, nanoseconds): that phase begins here."""


def names_of(variant: Variant) -> Mapping[str, Mapping[str, str]]:
    """A variant's map (module → function → names); empty where its own source has the names. Raises PhaseError."""
    if variant.compiled:
        raise PhaseError(f"{variant.name}: compiled, so that its phases run in kernels they share")
    module = str(getattr(variant.build, "module", None))
    options = getattr(variant.build, "options", {})
    key = f"{module}:{options['attention']}" if module == ".library" else module
    if key in MAPS:
        return MAPS[key]
    spec = find_spec(f"{variants.__name__}{module}") if module.startswith(".") else None
    if spec is None or spec.origin is None or not COMMENT.search(Path(spec.origin).read_text(encoding="utf-8")):
        raise PhaseError(f"{variant.name}: its source names no phases (comments like '# phase: {PHASES[1]}')")
    return {}


@dataclass
class Instrumented:
    """A variant that fills `log` while it runs. `lines` is for `report.phases.phases_of_stack`."""

    variant: Variant
    log: Log
    lines: dict[str, dict[str, list[list[str]]]]
    modules: list[ModuleType] = field(default_factory=list)

    def set_clock(self, clock: Clock) -> None:
        """Use this clock from the next call on."""
        for module in self.modules:
            vars(module)[CLOCK] = clock

    def start(self, now_ns: int) -> None:
        """A call begins."""
        self.log.clear()
        self.log.append((PHASES.index(OTHER), now_ns))


def durations(log: Log, end_ns: int) -> dict[str, int]:
    """Nanoseconds in each phase that occurred, from the first timestamp to `end_ns`; they sum to that span."""
    spent: Counter[str] = Counter()
    for (phase, start), (_, end) in pairwise([*log, (0, end_ns)]):
        spent[PHASES[phase]] += end - start
    return spent


class _Loader(SourceFileLoader):
    """Loads a source file with a clock in it, and never from or into the bytecode cache."""

    def __init__(
        self, name: str, path: str, functions: Mapping[str, str] | None, made: Instrumented, twins: Mapping[str, str]
    ):
        super().__init__(name, path)
        self.functions, self.made, self.twins = functions, made, twins

    def get_code(self, fullname: str) -> CodeType:
        marker = Marker(self.get_data(self.path), self.functions, place(self.path))
        if lines := marker.lines_of_phases:
            self.made.lines[place(self.path)] = lines
        tree = _FromTwins(self.twins).visit(marker.tree) if self.twins else marker.tree
        code: CodeType = compile(tree, self.path, "exec", dont_inherit=True)
        return code

    def exec_module(self, module: ModuleType) -> None:
        self.made.modules.append(module)
        vars(module).update({MARK: self.made.log.append, CLOCK: lambda: 0})
        super().exec_module(module)


class _FromTwins(ast.NodeTransformer):
    """`from transformers import LlamaForCausalLM` and the like, taken from a private copy of the model's module."""

    def __init__(self, twins: Mapping[str, str]) -> None:
        self.twins = twins

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        modules = {alias: self.twins.get(f"{node.module}.{alias.name}", node.module) for alias in node.names}
        return [ast.copy_location(ast.ImportFrom(modules[alias], [alias], node.level), node) for alias in node.names]


class _Finder(MetaPathFinder):
    """Finds a private package's modules (by its tag) in the public one's folder; comments in them name their phases."""

    def __init__(self, tag: str, made: Instrumented) -> None:
        self.tag, self.made = tag, made

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if f"__{self.tag}." not in fullname:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, None, self.made, {})
        return spec


def instrument(variant: Variant, tag: str) -> Instrumented:
    """The variant from a private import of its marked source; `tag` (a word) makes the import its own.

    Raises PhaseError where its source names no phases, or the names and the source differ.
    """
    map_ = names_of(variant)
    made = Instrumented(variant, [], {})
    twins: dict[str, str] = {}

    def load(private: str, public: str) -> None:
        functions = map_.get(public.removeprefix(f"{variants.__name__}."))
        import_copy(private, public, lambda name, path: _Loader(name, path, functions, made, twins))

    if LIBRARY_MODEL in map_:
        twin = f"{LIBRARY_MODEL}__{tag}"
        load(twin, LIBRARY_MODEL)
        twins |= {"transformers.LlamaForCausalLM": twin, f"{LIBRARY_MODEL}.LlamaRotaryEmbedding": twin}
    finder = _Finder(tag, made)
    sys.meta_path.insert(0, finder)
    try:
        return replace(made, variant=with_private_source(variant, tag, load))
    finally:
        sys.meta_path.remove(finder)


def ops_of_phases(made: Instrumented, call: Callable[[], Tensor]) -> tuple[Mapping[str, Mapping[str, int]], Tensor]:
    """ATen ops that `call` (of a model built outside inference mode) dispatches, and what it gives.

    The ops: phase → op → how many. Under inference mode composite ops would stay whole, and their parts not show.
    """
    made.set_clock(lambda: 0)
    made.start(0)
    ops: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def note(func: Any, *_: object) -> None:
        ops[PHASES[made.log[-1][0]]][func.overloadpacket.__name__] += 1

    with torch.inference_mode(False), torch.no_grad(), noting(note):
        out = call()
    return dict(ops), out


def check_ops(ops: Mapping[str, Mapping[str, int]]) -> None:
    """Raises PhaseError where a phase ran an op that is not its own, or lacks the one that makes it what it is."""
    problems = [
        f"{phase} runs {', '.join(foreign)}"
        for phase, ran in ops.items()
        if (foreign := sorted(set(ran) - VIEWS - MAY_RUN[phase]))
    ]
    in_one_kernel = ("scores", "softmax", "output") if "attention_fused" in ops else ()
    problems += [
        f"{phase} runs none of {', '.join(sorted(wanted))}"
        for phase, wanted in MUST_RUN.items()
        if phase not in in_one_kernel and not wanted & set(ops.get(phase, {}))
    ]
    if problems:
        raise PhaseError(f"{'; '.join(problems)}: a line has the name of a wrong phase")


# -- the verb ----------------------------------------------------------------------------------------------------------

ROUND_NS, MOST_CALLS = 40_000_000, 9
"""A round calls each variant this long, marked and plain together, within one and so many calls."""

TIMESTAMP_SHARE = 0.02
"""Phases are timed by thread CPU time, unless its timestamps (0.2-0.7 µs, a system call; wall time: 0.05) cost more."""

PREEMPTED_SHARE, PREEMPTED_NS, RETAKES = 0.02, 20_000, 5
"""By wall time, a call that waited longer than this for its processor is taken again, up to so many times."""


@dataclass(frozen=True)
class _Pass:
    """What all rounds of a workload have in common."""

    worker: Worker
    bench: Bench
    marked: dict[str, Instrumented]
    clock: Callable[[], int]
    retakes: int  # how often a call that was held up is taken again


def phases(worker: Worker, workload: str, variants: Sequence[str], rounds: int, wall: bool) -> dict[str, Any]:
    """Time by phase: rows [variant, round, call, tokens, plain_ns, {phase: ns}]; facts or a reason by variant.

    `wall`: something computes in other threads, so that the thread's CPU time does not tell.
    """
    bench = worker.benches[workload]
    if bench.checkpoint is None:
        raise WorkerError("a component has no phases: it is one part of a forward, timed alone")
    facts: dict[str, dict[str, Any]] = {}
    marked: dict[str, Instrumented] = {}
    for index, name in enumerate(variants):
        worker.mark(index)
        try:
            made = instrumented(worker, name)
            timestamps = _check(worker, bench, name, made)
        except Exception as error:
            reason = str(error) if isinstance(error, PhaseError) else f"raises {in_one_line(error)}"
            facts[name] = {"reason": reason, "clock": None, "timestamps": 0, "lines": {}}
            continue
        marked[name] = made
        facts[name] = {"reason": None, "timestamps": timestamps, "lines": made.lines}
    worker.mark(-1)
    cost_ns = timeit(thread_time_ns, number=1000) * 1e6  # of one timestamp
    costly = any(
        facts[name]["timestamps"] * cost_ns > TIMESTAMP_SHARE * bench.subjects[name].call_ns for name in marked
    )
    clock = perf_counter_ns if wall or costly else thread_time_ns
    for name, made in marked.items():
        made.set_clock(clock)
        facts[name]["clock"] = "thread CPU" if clock is thread_time_ns else "wall"
    retakes = RETAKES if costly and not wall and bench.workload.lengths == "repeated" else 0
    this = _Pass(worker, bench, marked, clock, retakes)
    rows = [row for round_index in range(rounds if marked else 0) for row in _round(this, round_index)]
    return {"rows": rows, "facts": facts}


def instrumented(worker: Worker, entered: str) -> Instrumented:
    """The marked twin of a variant, imported once a process. Raises PhaseError where it cannot be marked."""
    name = EnteredName(entered).original
    if name in worker.added:
        raise PhaseError(f"{name}: code from outside names no phases (comments in ours do)")
    tag = f"phases_{EnteredName(entered).identifier}"
    return worker.once(("phases", entered), lambda: instrument(variants.get(name), tag))


def _check(worker: Worker, bench: Bench, name: str, made: Instrumented) -> int:
    """Same logits to the bit as the plain variant, and every op in its phase; → timestamps in a timed call."""
    assert bench.checkpoint is not None
    case = own_case(worker, bench)
    build = bench.subjects[name].variant.build
    with torch.no_grad():
        plain, twin = (
            make(bench.checkpoint.config, bench.checkpoint.weights, max_length=bench.max_length)
            for make in (build, made.variant.build)
        )
        for model in (plain, twin):
            model.reset()
        for tokens, position in case.steps:
            ops, logits = ops_of_phases(made, partial(twin.forward, tokens, position))
            check_ops(ops)
            if not torch.equal(logits, plain.forward(tokens, position)):
                raise PhaseError(f"{name}: the marked variant gives other logits than the plain one")
    with torch.inference_mode():
        runner = bench.kind.runner(worker, bench, made.variant)
        runner.prepare(bench.workload.tokens, bench.take(), 1)
        made.start(0)
        runner.call()
    return len(made.log)


def _round(this: _Pass, round_index: int) -> list[list[Any]]:
    """All variants rebuilt, each marked and plain; calls of all of them in random order."""
    bench, marked, work = this.bench, this.marked, this.bench.workload
    rng = random.Random(f"phases {bench.seed} {work.name} {this.worker.process} {round_index}")
    slowest_ns = max(bench.subjects[name].call_ns for name in marked)
    count = round(min(max(ROUND_NS / 2 / slowest_ns, 1), MOST_CALLS))
    if slowest_ns < SHORT_SAMPLE_NS:
        count = max(count, 3)
    prime = is_primed(work, once=bench.once, slowest_ns=slowest_ns, parameter_bytes=bench.parameter_bytes)
    lengths = call_lengths(work, round_index=round_index, count=count, seed=bench.seed)
    warm_length = warmup_length(work, lengths=lengths)

    def build(side: tuple[str, bool]) -> Runner:
        name, with_marks = side
        source = marked[name] if with_marks else bench.subjects[name]
        runner = bench.kind.runner(this.worker, bench, source.variant)
        runner.prepare(warm_length, bench.take(), 1)
        runner.call()
        return runner

    def prepare(runner: Runner, length: int) -> None:
        runner.prepare(length, bench.take(1 + prime), 1 + prime)
        if prime:
            runner.call()

    rows: list[list[Any]] = []
    sides = {(name, with_marks): index for index, name in enumerate(marked) for with_marks in (False, True)}
    with rebuilt(this.worker, rng, sides, build) as built:
        gc.collect()
        for call, length in enumerate(lengths):
            spent = {}
            for _, (name, with_marks), runner in built.turns():
                ready = partial(prepare, runner, length)
                spent[name, with_marks] = _timed_call(this, runner, marked[name] if with_marks else None, ready)
            for name in marked:
                plain_ns = sum(spent[name, False].values())
                rows.append([name, round_index, call, length, plain_ns, spent[name, True]])
    return rows


def _timed_call(this: _Pass, runner: Runner, made: Instrumented | None, prepare: Callable[[], None]) -> dict[str, int]:
    """Nanoseconds by phase of one call, all under "" where it is not marked; taken again where it had to wait."""
    taken: list[tuple[int, dict[str, int]]] = []
    for _ in range(1 + this.retakes):
        prepare()
        cpu_start = thread_time_ns()
        start = this.clock()
        if made is not None:
            made.start(start)
        runner.call()
        end = this.clock()
        waited = end - start - (thread_time_ns() - cpu_start)
        taken.append((waited, {"": end - start} if made is None else durations(made.log, end)))
        if waited <= PREEMPTED_NS + PREEMPTED_SHARE * (end - start):
            break
    return min(taken, key=lambda call: call[0])[1]


VERBS = {"phases": phases}
