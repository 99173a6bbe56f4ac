"""Reads the names of phases in a source: which line is of which phase, and with a clock wherever the phase changes."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from llama_workbench import ROOT
from llama_workbench.variants.phase_map import ENTER, LIBRARY_FILE, LIBRARY_MODEL, MAPS, OTHER, PHASES

from ...report.phases import Lines

MARK, CLOCK = "__phase_mark__", "__phase_clock__"
"""What a marked source calls at each change: `MARK((index in PHASES, CLOCK()))`."""

COMMENT = re.compile(r"# phase: (.*)")


class PhaseError(Exception):
    """A variant's phases cannot be separated. The text names the file, the line or the op, and the fix."""


@dataclass
class Name:
    """The phase of a statement."""

    phase: str
    parts: Mapping[str, str]  # phases of parts of it: a call by the end of what it calls, or `@`, or `/`
    line: int
    used: set[str] = field(default_factory=set)

    @classmethod
    def parse(cls, words: str, line: int) -> Name:
        """`PHASE; PART: PHASE; ...`, in that line. Raises PhaseError where there is no such phase."""
        first, *rest = (word.strip() for word in words.split(";"))
        parts = {name.strip(): phase.strip() for name, _, phase in (part.partition(":") for part in rest)}
        for phase in (first, *parts.values()):
            if phase not in (*PHASES, ENTER):
                raise PhaseError(f"line {line}: no phase {phase!r}; there are {', '.join((*PHASES, ENTER))}")
        return cls(first, parts, line)

    @property
    def is_used_up(self) -> bool:
        """Whether it may name no further statement: so nothing slips into `other`, or into a statement's parts."""
        return bool(self.used) and (bool(self.parts) or self.phase in (OTHER, ENTER))

    def part(self, node: ast.expr) -> str | None:
        """The phase of an expression that is named on its own."""
        match node:
            case ast.Call():
                called = ast.unparse(node.func)
            case ast.BinOp(op=ast.MatMult()):
                called = "@"
            case ast.BinOp(op=ast.Div()):
                called = "/"
            case _:
                return None
        name = next((name for name in self.parts if f".{called}".endswith(f".{name}")), None)
        if name is None:
            return None
        self.used.add(name)
        return self.parts[name]

    def problem(self) -> str:
        """What is named and not there; empty where all is."""
        if not self.used:
            return f"line {self.line} names the phase of no statement"
        unused = sorted(set(self.parts) - self.used)
        return f"line {self.line} has no {unused[0]!r}" if unused else ""


def with_comments(source: str, functions: Mapping[str, str]) -> str:
    """A source with the names of a map (see `phase_map`) as comments behind its lines. Raises PhaseError for others."""
    lines, nodes = source.splitlines(), dict(_functions(ast.parse(source)))
    problems = [f"there is no function {name}" for name in functions if name not in nodes]
    for name in functions.keys() & nodes.keys():
        for rule in functions[name].strip().splitlines():
            words, text = re.split(r"\s{2,}", rule.strip(), maxsplit=1)
            fitting = [line for line in _lines(nodes[name]) if _begins(lines[line - 1], text)]
            problems += [] if fitting else [f"{name} has no {text!r}"]
            for line in fitting:
                lines[line - 1] += f"  # phase: {words}"
    if problems:
        raise PhaseError("; ".join(problems))
    return "\n".join(lines)


def _begins(line: str, text: str) -> bool:
    """Whether a line is the text, comments aside, or begins with it where dots follow."""
    code = line.partition("  #")[0].strip()
    return code.startswith(text[:-3]) if text.endswith("...") else code == text


class Marker:
    """Puts a clock between the phases of one module's source, in `tree`.

    `phases_of_line`: line of a marked function → (phases of its own code, phases of the Python functions it calls).
    """

    def __init__(self, source: bytes, functions: Mapping[str, str] | None, file: str) -> None:
        """`functions`: the map of a source that does not name its phases itself. Raises PhaseError."""
        self.phases_of_line: dict[int, tuple[set[str], set[str]]] = {}
        self.problems: list[str] = []
        try:
            text = with_comments(source.decode(), functions) if functions else source.decode()
            self.lines = text.splitlines()
            comments = ((line, COMMENT.search(text)) for line, text in enumerate(self.lines, 1))
            self.names = {line: Name.parse(comment[1], line) for line, comment in comments if comment}
        except PhaseError as error:
            self._fail(file, str(error))
        self.tree = ast.parse(text)
        for name, node in _functions(self.tree):
            if any(line in self.names for line in _lines(node)):
                self.name = name
                self.phases_of_line |= {line: (set(), set()) for line in _lines(node)}
                node.body, _ = self._block(node.body, None)
        self.problems += filter(None, (name.problem() for name in self.names.values()))
        if self.problems:
            self._fail(file, "; ".join(self.problems))
        ast.fix_missing_locations(self.tree)

    @property
    def lines_of_phases(self) -> dict[str, list[list[str]]]:
        """The same as phases.json has it: line → [phases of its own code, phases of what it calls]."""
        return {str(line): [sorted(own), sorted(called)] for line, (own, called) in self.phases_of_line.items()}

    def _fail(self, file: str, problem: str) -> NoReturn:
        raise PhaseError(f"{file}: {problem}. Bring the names of phases in line with the source") from None

    def _note(self, node: ast.stmt | ast.expr, phase: str, *, called: bool) -> None:
        for line in _lines(node):
            self.phases_of_line[line][called].add(phase)

    def _name(self, node: ast.stmt) -> Name | None:
        """The name of a statement's phase: in a comment beside it, else in one above it."""
        beside = [self.names[line] for line in _lines(node) if line in self.names]
        if len(beside) > 1:
            self.problems.append(f"line {node.lineno}, {ast.unparse(node)!r}, has two phases")
        name = beside[0] if beside else self._above(node)
        if name is not None:
            name.used.add("")
        return name

    def _above(self, node: ast.stmt) -> Name | None:
        """The comment on a line of its own that names what follows in its block, to the next one or an empty line."""
        indent = node.col_offset
        for number in range(node.lineno - 1, 0, -1):
            line = self.lines[number - 1].lstrip()
            if not line:
                return None
            column = len(self.lines[number - 1]) - len(line)
            if name := self.names.get(number):
                return name if line.startswith("#") and column <= indent and not name.is_used_up else None
            indent = min(indent, column)
        return None

    def _block(self, statements: Sequence[ast.stmt], current: str | None) -> tuple[list[ast.stmt], str | None]:
        """The statements with a clock in between; `current`: the phase on entry, returned: on exit; None: unknown."""
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
        name = self._name(statement)
        if name is None:
            works = (ast.Call, ast.BinOp, ast.Subscript, ast.ListComp)
            if any(isinstance(node, works) for node in ast.walk(statement)):
                self.problems.append(f"line {statement.lineno} of {self.name} has no phase: {ast.unparse(statement)!r}")
            return current
        if name.phase == ENTER:
            return None
        value = statement.value
        whole = isinstance(statement, ast.Return) and value is not None and name.part(value) is not None
        if current != name.phase and not whole:
            out.append(ast.copy_location(ast.Expr(_timestamp(name.phase)), statement))
        if not whole:  # else nothing is left of the statement but to return
            self._note(statement, name.phase, called=False)
        if value is not None:
            statement.value = self._expression(value, name.phase, name)
        return name.phase

    def _expression(self, node: ast.expr, outer: str, name: Name) -> ast.expr:
        part = name.part(node) or outer
        phase = outer if part == ENTER else part
        if phase != outer:
            self._note(node, phase, called=_python_call(node))
        for key, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, key, self._expression(value, phase, name))
            elif isinstance(value, list):
                setattr(node, key, [self._expression(v, phase, name) if isinstance(v, ast.expr) else v for v in value])
        if part == outer:
            return node
        # `timestamp or node`, because that is None; then `(node, timestamp)[0]`, because arguments run left to right.
        entered = node if part == ENTER else ast.BoolOp(ast.Or(), [_timestamp(phase), node])
        both = ast.Tuple([entered, _timestamp(outer)], ast.Load())
        located = ast.copy_location(ast.Subscript(both, ast.Constant(0), ast.Load()), node)
        return ast.fix_missing_locations(located)


def _functions(module: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """A module's functions and methods by name."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{each.name}", each) for each in node.body if isinstance(each, ast.FunctionDef))


def _lines(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _timestamp(phase: str) -> ast.Call:
    """`__phase_mark__((index, __phase_clock__()))`."""
    clock = ast.Call(ast.Name(CLOCK, ast.Load()), [], [])
    pair = ast.Tuple([ast.Constant(PHASES.index(phase)), clock], ast.Load())
    return ast.Call(ast.Name(MARK, ast.Load()), [pair], [])


def _python_call(node: ast.expr) -> bool:
    """True for a call of a Python function, which has a frame of its own in a profile."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = node.func.value
    return isinstance(owner, ast.Name) and (owner.id == "self" or (owner.id, node.func.attr) == ("F", "rms_norm"))


# -- the lines of sources that are installed here ----------------------------------------------------------------------


def lines_in_sources(places: Mapping[str, Collection[tuple[str, int]]], attention: str) -> Lines:
    """See `report.phases`: of those files in which every place that a profile has fits the source."""
    sources = _sources(attention)
    marked = {file: _marked(file, at, *sources[file]) for file, at in places.items() if file in sources}
    return {file: lines for file, lines in marked.items() if lines}


def _sources(attention: str) -> dict[str, tuple[Path, str]]:
    """The files that can say it, by their name in profiles: where each lies, and the key of its map in MAPS."""
    ours = (ROOT / "variants").rglob("*.py")
    here = {f"variants/{path.relative_to(ROOT / 'variants').as_posix()}": path for path in ours}
    sources = {file: (path, f".{path.stem}") for file, path in here.items()}
    if (library := find_spec(LIBRARY_MODEL.partition(".")[0])) is not None and library.origin is not None:
        path = Path(library.origin).parents[1] / LIBRARY_FILE.removeprefix("site-packages/")
        sources[LIBRARY_FILE] = (path, f".library:{attention}")
    return sources


def _marked(file: str, places: Iterable[tuple[str, int]], path: Path, key: str) -> dict[str, list[list[str]]]:
    """The lines of one file; none where its source is not here, names no phases, or is not that of the profile."""
    functions = next(iter(MAPS[key].values())) if key in MAPS else None
    try:
        source = path.read_bytes()
        if functions is None and not COMMENT.search(source.decode()):
            return {}
        marker = Marker(source, functions, file)
    except (OSError, PhaseError, SyntaxError, UnicodeDecodeError):
        return {}
    spans = [
        (node.name, node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(marker.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for function, line in places:
        fits = any(name == function and first <= line <= last for name, first, last in spans)
        if not fits and not function.startswith("<"):  # a <lambda> or <genexpr> has no name in the source
            return {}
    return marker.lines_of_phases
