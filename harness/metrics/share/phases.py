"""A variant that says which phase it is in: the same source, imported once more, with a clock between its statements.

The source names the phase of every statement on a forward's path, by comments (`phase_map` describes them, and has the
names for the two sources that take none). A private import gets one more statement wherever the phase changes: append
(phase, time) to a list. The phases of a call are the differences of neighbouring timestamps, so they sum to the call.

Why the source and not wrappers around methods: masks, scores, softmax and residual additions are statements inside
functions. A timestamp costs a list append and a clock; a wrapper costs a Python call, and a wrapped `nn.Module` a
slower path through torch. Each timestamp lies inside the time it measures: the worker calls the plain variant as well.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch
from torch import Tensor

from llama_workbench import variants
from llama_workbench.variants import Variant
from llama_workbench.variants.outside import import_copy, with_private_source
from llama_workbench.variants.phase_map import LIBRARY_MODEL, MAPS, MAY_RUN, MUST_RUN, OTHER, PHASES, VIEWS

from ...machine.places import place
from ...worker.correctness import noting
from .marking import CLOCK, COMMENT, MARK, Marker, PhaseError

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
    """A variant that fills `log` while it runs. `lines` is for `shares.phases_of_stack`."""

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
        if marker.phases_of_line:
            self.made.lines[place(self.path)] = {
                str(line): [sorted(own), sorted(called)] for line, (own, called) in marker.phases_of_line.items()
            }
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
