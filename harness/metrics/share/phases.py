"""A variant that says which phase it is in: the same source, imported privately, with clock readings in between.

Method. The map (`phase_map`) names the phase of every statement of the functions on a forward's path. A private import
of the variant gets, between statements of different phases, one more statement: append (phase, clock) to a list. A
call's phases are the differences of neighbouring readings, so they sum to the call, whatever it does.

Why the source and not wrappers around methods: masks, scores, softmax and residual additions are statements inside
functions, and the inlined code has one function in all, so wrappers could see neither. A reading costs a list append
and a clock; a wrapper costs a Python call, and a wrapped `nn.Module` a slower path through torch besides. And the same
map tells a profiler's lines apart, which is a check by other means. Nothing in `variants/` knows of all this.

Bias. Each reading lies inside the time it measures: one clock and one append are added to every change of phase. The
caller measures what that costs by calling the untouched variant as well.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, module_from_spec
from itertools import pairwise
from types import CodeType, ModuleType

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from llama_workbench import variants
from llama_workbench.variants import Variant
from llama_workbench.variants.phase_map import (
    ENTER,
    LIBRARY_MODEL,
    MAPS,
    MAY_RUN,
    MUST_RUN,
    OTHER,
    PHASES,
    VIEWS,
)

from ...machine.places import place

Clock = Callable[[], int]
Log = list[tuple[int, int]]
"""(index in PHASES, reading in ns): that phase begins here."""

_MARK, _CLOCK = "__phase_mark__", "__phase_clock__"


class PhaseError(Exception):
    """A variant's phases cannot be told apart. The text names the file, the line or the op, and the fix."""


# --- reading the map -----------------------------------------------------------------------------------------------


@dataclass
class Rule:
    """One line of the map: the node of this text, or one that begins with it, has this phase."""

    phase: str
    text: str
    used: bool = False

    def fits(self, text: str) -> bool:
        """True for exactly this text, or for this beginning where the rule ends with dots."""
        return text.startswith(self.text[:-3]) if self.text.endswith("...") else text == self.text


def rules_of(text: str) -> list[Rule]:
    """The rules of one function. Raises PhaseError where a phase is unknown."""
    rules = []
    for line in filter(None, map(str.strip, text.splitlines())):
        phase, _, rest = line.partition(" ")
        if phase not in (*PHASES, ENTER):
            raise PhaseError(f"phase_map.py: {line!r}: no phase {phase!r}; there are {', '.join((*PHASES, ENTER))}")
        rules.append(Rule(phase, rest.strip()))
    return rules


def map_of(variant: Variant) -> Mapping[str, Mapping[str, str]]:
    """The map of a variant: module → function → lines. Raises PhaseError where there is none."""
    if variant.compiled:
        raise PhaseError(f"{variant.name}: compiled, so that its phases run in kernels they share")
    module = str(getattr(variant.build, "module", None))
    options = getattr(variant.build, "options", {})
    key = f"{module}:{options['attention']}" if module == ".library" else module
    if key not in MAPS:
        raise PhaseError(f"{variant.name}: its source has no map of phases (phase_map.py has {', '.join(MAPS)})")
    return MAPS[key]


# --- marking the source --------------------------------------------------------------------------------------------


class Marker:
    """Puts clock readings into one module's source.

    `phases_of_line`: line of a marked function → (phases of its own code, phases of the Python functions it calls).
    """

    def __init__(self, source: bytes, functions: Mapping[str, str], file: str) -> None:
        self.tree = ast.parse(source)
        self.lines = source.splitlines()
        self.file = file
        self.phases_of_line: dict[int, tuple[set[str], set[str]]] = {}
        self.problems: list[str] = []
        for name, text in functions.items():
            self._function(name, rules_of(text))
        if self.problems:
            raise PhaseError(f"{file}: {'; '.join(self.problems)}. Bring phase_map.py in line with the source")
        ast.fix_missing_locations(self.tree)

    def _function(self, name: str, rules: list[Rule]) -> None:
        body: Sequence[ast.stmt] = self.tree.body
        node: ast.AST | None = None
        for part in name.split("."):
            node = next((item for item in body if getattr(item, "name", None) == part), None)
            body = getattr(node, "body", [])
        if not isinstance(node, ast.FunctionDef):
            self.problems.append(f"there is no function {name}")
            return
        self.rules, self.name = rules, name
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            self.phases_of_line[line] = set(), set()
        node.body, _ = self._block(node.body, None)
        self.problems += [f"{name} has no {rule.text!r}" for rule in rules if not rule.used]

    def _note(self, node: ast.stmt | ast.expr, phase: str, *, called: bool) -> None:
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            self.phases_of_line[line][called].add(phase)

    def _text(self, node: ast.stmt | ast.expr) -> str:
        """The node's source in one line, without the white space that formatting puts into it."""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        lines = self.lines[first : last + 1]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        text = " ".join(" ".join(line.decode().partition("  #")[0].strip() for line in lines).split())
        for bracket in "([{":
            text = text.replace(f"{bracket} ", bracket) if len(lines) > 1 else text
        return text

    def _rule(self, node: ast.stmt | ast.expr) -> Rule | None:
        text = self._text(node)
        fitting = [rule for rule in self.rules if rule.fits(text)]
        for rule in fitting:
            rule.used = True
        if len({rule.phase for rule in fitting}) > 1:
            self.problems.append(f"line {node.lineno}, {text!r}, has two phases")
        return fitting[0] if fitting else None

    def _block(self, statements: Sequence[ast.stmt], current: str | None) -> tuple[list[ast.stmt], str | None]:
        """The statements with readings in between; `current`: the phase on entry, returned: on exit; None: unknown."""
        out: list[ast.stmt] = []
        for statement in statements:
            match statement:
                case ast.If():
                    statement.body, after = self._block(statement.body, current)
                    statement.orelse, other = self._block(statement.orelse, current)
                    current = after if after == other else None
                case ast.For() | ast.While() | ast.With():
                    statement.body, _ = self._block(statement.body, None)
                    if not isinstance(statement, ast.With):
                        statement.orelse, _ = self._block(statement.orelse, None)
                    current = None
                case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Expr() | ast.Return():
                    current = self._statement(statement, current, out)
                case ast.Raise() | ast.Pass() | ast.Continue() | ast.Break():
                    pass
                case _:
                    self.problems.append(
                        f"line {statement.lineno} of {self.name} is a {type(statement).__name__.lower()}: not supported"
                    )
            out.append(statement)
        return out, current

    def _statement(
        self, statement: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Return, current: str | None,
        out: list[ast.stmt],
    ) -> str | None:  # fmt: skip
        rule = self._rule(statement)
        if rule is None:
            works = (ast.Call, ast.BinOp, ast.Subscript, ast.ListComp)
            if any(isinstance(node, works) for node in ast.walk(statement)):
                self.problems.append(f"line {statement.lineno} of {self.name} has no phase: {self._text(statement)!r}")
            return current
        if rule.phase == ENTER:
            return None
        value = statement.value
        whole = isinstance(statement, ast.Return) and value is not None and self._rule(value) is not None
        if current != rule.phase and not whole:
            out.append(ast.copy_location(ast.Expr(_reading(rule.phase)), statement))
        if not whole:  # else nothing is left of the statement but to return
            self._note(statement, rule.phase, called=False)
        if value is not None:
            # At the top of an expression statement the text is that of the statement once more.
            statement.value = self._expression(value, rule.phase, top=isinstance(statement, ast.Expr))
        return rule.phase

    def _expression(self, node: ast.expr, outer: str, top: bool = False) -> ast.expr:
        rule = None if top else self._rule(node)
        phase = outer if rule is None or rule.phase == ENTER else rule.phase
        if rule is not None and rule.phase != ENTER:
            self._note(node, phase, called=_python_call(node))
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, name, self._expression(value, phase))
            elif isinstance(value, list):
                setattr(node, name, [self._expression(v, phase) if isinstance(v, ast.expr) else v for v in value])
        if rule is None:
            return node
        # `reading or node`, because a reading is None; then `(node, reading)[0]`, because arguments run left to right.
        entered = node if rule.phase == ENTER else ast.BoolOp(ast.Or(), [_reading(phase), node])
        both = ast.Tuple([entered, _reading(outer)], ast.Load())
        located = ast.copy_location(ast.Subscript(both, ast.Constant(0), ast.Load()), node)
        return ast.fix_missing_locations(located)


def _reading(phase: str) -> ast.Call:
    """`__phase_mark__((index, __phase_clock__()))`."""
    clock = ast.Call(ast.Name(_CLOCK, ast.Load()), [], [])
    pair = ast.Tuple([ast.Constant(PHASES.index(phase)), clock], ast.Load())
    return ast.Call(ast.Name(_MARK, ast.Load()), [pair], [])


def _python_call(node: ast.expr) -> bool:
    """True for a call of a Python function, which has a frame of its own in a profile."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = node.func.value
    return isinstance(owner, ast.Name) and (owner.id == "self" or (owner.id, node.func.attr) == ("F", "rms_norm"))


# --- the private import --------------------------------------------------------------------------------------------


@dataclass
class Instrumented:
    """A variant that fills `log` while it runs. `lines` is for `shares.sampled_phases`."""

    variant: Variant
    log: Log
    lines: dict[str, dict[str, list[list[str]]]]
    modules: list[ModuleType] = field(default_factory=list)

    def set_clock(self, clock: Clock) -> None:
        """Use this clock from the next call on."""
        for module in self.modules:
            vars(module)[_CLOCK] = clock

    def start(self, now_ns: int) -> None:
        """A call begins."""
        self.log.clear()
        self.log.append((PHASES.index(OTHER), now_ns))


def durations(log: Log, end_ns: int) -> dict[str, int]:
    """Nanoseconds in each phase that occurred, from the first reading to `end_ns`; they sum to that span."""
    spent: dict[str, int] = {}
    for (phase, start), (_, end) in pairwise([*log, (0, end_ns)]):
        name = PHASES[phase]
        spent[name] = spent.get(name, 0) + end - start
    return spent


class _Loader(SourceFileLoader):
    """Loads a source file with readings in it, and never from or into the bytecode cache."""

    def __init__(
        self, name: str, path: str, functions: Mapping[str, str], made: Instrumented, twins: Mapping[str, str]
    ):
        super().__init__(name, path)
        self.functions, self.made, self.twins = functions, made, twins

    def get_code(self, fullname: str) -> CodeType:
        marker = Marker(self.get_data(self.path), self.functions, place(self.path))
        self.made.lines[place(self.path)] = {
            str(line): [sorted(own), sorted(called)] for line, (own, called) in marker.phases_of_line.items()
        }
        tree = _FromTwins(self.twins).visit(marker.tree) if self.twins else marker.tree
        code: CodeType = compile(tree, self.path, "exec", dont_inherit=True)
        return code

    def exec_module(self, module: ModuleType) -> None:
        self.made.modules.append(module)
        vars(module).update({_MARK: self.made.log.append, _CLOCK: lambda: 0})
        super().exec_module(module)


class _FromTwins(ast.NodeTransformer):
    """`from transformers import LlamaForCausalLM` and the like, taken from a private copy of the model's module."""

    def __init__(self, twins: Mapping[str, str]) -> None:
        self.twins = twins

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for alias in node.names:
            module = self.twins.get(f"{node.module}.{alias.name}", node.module)
            out.append(ast.copy_location(ast.ImportFrom(module, [alias], node.level), node))
        return out


class _Finder(MetaPathFinder):
    """Finds a private package's modules in the folder of the public one."""

    def __init__(self, private: str, top: str, map_: Mapping[str, Mapping[str, str]], made: Instrumented) -> None:
        self.private, self.top, self.map, self.made = private, top, map_, made

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{self.private}."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        functions = self.map.get(self.top + fullname.removeprefix(self.private))
        if spec is not None and spec.origin is not None and functions is not None:
            spec.loader = _Loader(fullname, spec.origin, functions, self.made, {})
        return spec


@contextmanager
def _finding(finder: MetaPathFinder) -> Iterator[None]:
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def instrument(variant: Variant, tag: str) -> Instrumented:
    """The variant from a private import of its marked source; `tag` (a word) makes the import its own.

    Raises:
        PhaseError: there is no map for its source, or the map and the source differ.
    """
    map_ = map_of(variant)
    made = Instrumented(variant, [], {})
    twins: dict[str, str] = {}
    if LIBRARY_MODEL in map_:
        twin = f"{LIBRARY_MODEL}__{tag}"
        _load(twin, LIBRARY_MODEL, map_[LIBRARY_MODEL], made, {})
        twins = {"transformers.LlamaForCausalLM": twin, f"{LIBRARY_MODEL}.LlamaRotaryEmbedding": twin}
    module: str = variant.build.module  # type: ignore[attr-defined]  # map_of found it
    top, _, rest = module.lstrip(".").partition(".")
    private = f"{variants.__name__}.{top}__{tag}"
    with _finding(_Finder(private, top, map_, made)):
        _load(private, f"{variants.__name__}.{top}", map_.get(top), made, twins)
        build = import_module(f"{private}.{rest}" if rest else private).build
    options = variant.build.options  # type: ignore[attr-defined]
    return replace(made, variant=replace(variant, build=partial(build, **options)))


def _load(
    private: str, public: str, functions: Mapping[str, str] | None, made: Instrumented, twins: Mapping[str, str]
) -> None:
    """Import `public`'s source once more, under the name `private`."""
    spec = find_spec(public)
    if spec is None or spec.origin is None:
        raise PhaseError(f"{public} has no source file to mark")
    loader = _Loader(private, spec.origin, functions or {}, made, twins)
    copy = ModuleSpec(private, loader, origin=spec.origin, is_package=spec.submodule_search_locations is not None)
    copy.submodule_search_locations = spec.submodule_search_locations
    copy.has_location = True
    module = module_from_spec(copy)
    sys.modules[private] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[private]
        raise


# --- does each phase run what it should? ---------------------------------------------------------------------------


class _OpsOfPhases(TorchDispatchMode):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log
        self.ops: dict[str, dict[str, int]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        ops = self.ops.setdefault(PHASES[self.log[-1][0]], {})
        name = func.overloadpacket.__name__
        ops[name] = ops.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


def ops_of_phases(made: Instrumented, call: Callable[[], Tensor]) -> tuple[dict[str, dict[str, int]], Tensor]:
    """ATen ops that `call` (of a model built outside inference mode) dispatches, and what it gives.

    The ops: phase → op → how many. Under inference mode composite ops would stay whole, and their parts not show.
    """
    made.set_clock(lambda: 0)
    made.start(0)
    recorder = _OpsOfPhases(made.log)
    with torch.inference_mode(False), torch.no_grad(), recorder:
        out = call()
    return recorder.ops, out


def check_ops(ops: Mapping[str, Mapping[str, int]]) -> None:
    """Raises PhaseError where a phase ran an op that is not its own, or lacks the one that makes it what it is."""
    problems = []
    for phase, found in ops.items():
        foreign = sorted(set(found) - VIEWS - MAY_RUN[phase])
        if foreign:
            problems.append(f"{phase} runs {', '.join(foreign)}")
    fused = "attention_fused" in ops
    for phase, wanted in MUST_RUN.items():
        if fused and phase in ("scores", "softmax", "output"):
            continue
        if not wanted & set(ops.get(phase, {})):
            problems.append(f"{phase} runs none of {', '.join(sorted(wanted))}")
    if problems:
        raise PhaseError(f"{'; '.join(problems)}: phase_map.py assigns a line to a wrong phase")
