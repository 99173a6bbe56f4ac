"""A preset as one file of source to change: its modules in a row, with what its settings chose written in.

The text is edited and not printed anew, so that comments stay. Branches that the settings decide are gone, and so is
all that nothing needs any more.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from .presets import presets

HERE = Path(__file__).parent
IMPORTED = ("config", "compiling", "settings")
"""Modules of this package that are imported from it, and not copied."""

PUBLIC = {"LlamaConfig", "RopeScaling"}
"""What a user imports from `llama_workbench.variants`."""

NOTES = re.compile(r"^[ \t]*# phase: .*\n|[ \t]*# (phase|type): .*", re.MULTILINE)
"""Comments for the workbench's own tools."""


class Edit(NamedTuple):
    """Bytes `begin` to `end` of a source become `text`."""

    begin: int
    end: int
    text: bytes = b""


SPLIT_HEAD = re.compile(r"^( *def \w+\()\n +([^\n]+[^,\n])\n *(\).*:)$", re.MULTILINE)
"""The head of a function whose parameters stand on a line of their own, which they may no longer need."""


def cannot_copy(name: str) -> str:
    """Why a preset has no source that can be copied; empty where it has."""
    variant = presets()[name]
    if variant.engine is not None:
        return "it is an engine, and its source is not here"
    return f"torch.compile makes it; take {name.removesuffix('_compiled')}" if variant.compiled else ""


def one_file(name: str, function: str, header: str) -> str:
    """The source of a preset, whose build function is then called `function`. header: the file's docstring."""
    variant = presets()[name]
    build: Any = variant.build  # where its module is, and with which options it is called
    chosen: Mapping[str, Any] = build.options
    root = HERE.joinpath(*build.module.strip(".").split(".")).with_suffix(".py")
    imports: list[ast.Import | ast.ImportFrom] = []
    parts: list[bytes] = []
    for path in _modules(root):
        source = _Source(path.read_bytes())
        imports += _imports_of(source.tree)
        heading = b"" if path == root else f"# --- {path.stem} ".ljust(119, "-").encode() + b"\n\n\n"
        others = [] if path == root else [*_builds(source)]  # of a module that only lends its classes
        parts.append(heading + source.without([*source.tree.body[:1], *_imports_of(source.tree), *others]).strip())
    text = NOTES.sub("", b"\n\n\n".join(parts).decode()).encode()
    text = _with_function(text, chosen)
    chosen = _defaults(_Source(text)) | dict(chosen)
    for edits in (
        _checks,
        partial(_constants, chosen),
        partial(_parameters, chosen),
        _folds,
        _attributes,
        _folds,
        _unused,
    ):
        text = _until_still(text, edits)
    text = _named(text, function, f"A copy of {name}: {variant.description}.")
    body = SPLIT_HEAD.sub(_on_one_line, re.sub(r"\n{4,}", "\n\n\n", text.decode()).strip())
    return f'"""{header}"""\n\n{_import_lines(imports, _Source(text))}\n\n\n{body}\n'


def _on_one_line(head: re.Match[str]) -> str:
    """The head of a function on one line, where that is no longer than 120 columns."""
    joined = "".join(head.groups())
    return joined if len(joined) <= 120 else head[0]


def _imports_of(tree: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]


def _modules(root: Path) -> list[Path]:
    """The modules that are copied, each after those that it imports."""
    found: list[Path] = []
    for node in _imports_of(ast.parse(root.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.level and (path := _file_of(root, node)):
            found += [each for each in _modules(path) if each not in found]
    return [*found, root]


def _file_of(importer: Path, node: ast.ImportFrom) -> Path | None:
    """The file that a relative import names; None for a module that is not copied."""
    folder, module = importer.parents[node.level - 1], node.module or ""
    return None if folder == HERE and module in IMPORTED else folder.joinpath(*module.split(".")).with_suffix(".py")


# -- text --------------------------------------------------------------------------------------------------------------


class _Source:
    """Source as bytes, in which `ast` counts columns."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def begin(self, node: Any) -> int:
        return int(self.starts[node.lineno - 1] + node.col_offset)

    def end(self, node: Any) -> int:
        return int(self.starts[node.end_lineno - 1] + node.end_col_offset)

    def of(self, node: Any) -> bytes:
        return self.text[self.begin(node) : self.end(node)]

    def lines(self, node: Any) -> Edit:
        """Take out a statement with its lines."""
        decorators = getattr(node, "decorator_list", None) or [node]
        return Edit(self.starts[min(each.lineno for each in decorators) - 1], self.starts[node.end_lineno])

    def without(self, nodes: list[ast.stmt]) -> bytes:
        return self.edited([self.lines(node) for node in nodes])

    def edited(self, edits: list[Edit]) -> bytes:
        """With all edits, but for those that lie in another."""
        text, before = self.text, len(self.text) + 1
        outer: list[Edit] = []
        for edit in sorted(set(edits), key=lambda each: (each.begin, -each.end)):
            if not outer or edit.begin >= outer[-1].end:
                outer.append(edit)
        for edit in reversed(outer):
            assert edit.end <= before
            text, before = text[: edit.begin] + edit.text + text[edit.end :], edit.begin
        return text


def _until_still(text: bytes, edits: Callable[[_Source], Iterator[Edit]]) -> bytes:
    while True:
        source = _Source(text)
        changed = source.edited(list(edits(source)))
        if changed == text:
            return text
        text = changed


# -- what the settings chose -------------------------------------------------------------------------------------------


def _builds(source: _Source) -> Iterator[ast.FunctionDef]:
    return (node for node in source.tree.body if isinstance(node, ast.FunctionDef) and node.name == "build")


def _with_function(text: bytes, chosen: Mapping[str, Any]) -> bytes:
    """A build function where the module calls a class its build function."""
    source = _Source(text)
    for node in source.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="build")], value=ast.Name(id=name)):
                options = "".join(f", {key}={_literal(value).decode()}" for key, value in chosen.items())
                lines = (
                    "def build(config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int) -> {name}:",
                    '    """..."""',
                    "    return {name}(config, weights, max_length=max_length{options})\n",
                )
                new = "\n".join(lines).format(name=name, options=options)
                return source.edited([source.lines(node)._replace(text=new.encode())])
    return text


def _defaults(source: _Source) -> dict[str, Any]:
    """Options of the build function that have a value where none is given."""
    [build] = _builds(source)
    given = zip(build.args.kwonlyargs, build.args.kw_defaults, strict=True)
    return {each.arg: ast.literal_eval(default) for each, default in given if default is not None}


def _checks(source: _Source) -> Iterator[Edit]:
    """Loops that raise where the settings are not on offer."""
    for build in _builds(source):
        for node in build.body:
            raises = any(isinstance(each, ast.Raise) for each in ast.walk(node))
            if isinstance(node, ast.For) and raises and "settings" in _names(node):
                yield source.lines(node)


def _constants(chosen: Mapping[str, Any], source: _Source) -> Iterator[Edit]:
    """Every `settings.AXIS`, and every option of the build function, as its value."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Attribute(value=ast.Name(id="settings")) if "settings" in chosen:
                yield Edit(source.begin(node), source.end(node), _literal(getattr(chosen["settings"], node.attr)))
    for build in _builds(source):
        for node in ast.walk(build):
            match node:
                case ast.Name(id=name, ctx=ast.Load()) if name in chosen and name != "settings":
                    yield Edit(source.begin(node), source.end(node), _literal(chosen[name]))


def _literal(value: Any) -> bytes:
    return (f'"{value}"' if isinstance(value, str) else repr(value)).encode()


def _parameters(chosen: Mapping[str, Any], source: _Source) -> Iterator[Edit]:
    """The settings are no parameter any more, nor are options of the build function."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef):
            gone = {"settings", *(chosen if node.name == "build" else ())}
            defaults = dict(zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True))
            parameters = (*node.args.args, *node.args.kwonlyargs)
            items = [_Item(each, defaults.get(each) or each, each.arg) for each in parameters]
            yield from _dropped(source, items, gone)
        elif isinstance(node, ast.Call):
            values = [*node.args, *node.keywords]
            items = [_Item(each, each, getattr(getattr(each, "value", each), "id", "")) for each in values]
            yield from _dropped(source, items, {"settings"})


class _Item(NamedTuple):
    """An item of a list with commas: where it begins and ends, and the name that it is known by."""

    first: Any
    last: Any
    name: str


def _dropped(source: _Source, items: list[_Item], gone: set[str]) -> Iterator[Edit]:
    """Take items out of a list with commas."""
    for index, item in enumerate(items):
        if item.name in gone:
            begin = source.end(items[index - 1].last) if index else source.begin(item.first)
            is_first_of_several = not index and len(items) > 1
            yield Edit(begin, source.begin(items[1].first) if is_first_of_several else source.end(item.last))


def _attributes(source: _Source) -> Iterator[Edit]:
    """What an object is told once by a constant, and no one else asks it for, as that constant."""
    others = Counter(
        node.attr for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    )  # fmt: skip
    for owner in (node for node in source.tree.body if isinstance(node, ast.ClassDef)):
        known: dict[str, ast.Constant] = {}
        for node in ast.walk(owner):
            match node:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Constant() as value
                ):
                    if isinstance(value.value, bool | str) and not others[name] and name not in known:
                        known[name] = value
                        yield source.lines(node)
        for node in ast.walk(owner):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Load()) if name in known:
                    yield Edit(source.begin(node), source.end(node), source.of(known[name]))


def _folds(source: _Source) -> Iterator[Edit]:
    """Comparisons of constants as what they come to, and of each branch that is decided the side that is taken."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Compare(left=ast.Constant(value=left), ops=[operator], comparators=[right]):
                with_value = _compared(left, operator, right)
                if with_value is not None:
                    yield Edit(source.begin(node), source.end(node), repr(with_value).encode())
            case ast.UnaryOp(op=ast.Not(), operand=ast.Constant(value=value)):
                yield Edit(source.begin(node), source.end(node), repr(not value).encode())
            case ast.BoolOp(op=ast.And(), values=[ast.Constant(value=True), *rest]):
                yield Edit(source.begin(node), source.end(node), source.text[source.begin(rest[0]) : source.end(node)])
            case ast.BoolOp(op=ast.And(), values=[ast.Constant(value=False), *_]):
                yield Edit(source.begin(node), source.end(node), b"False")
            case ast.IfExp(test=ast.Constant(value=value)):
                yield Edit(source.begin(node), source.end(node), source.of(node.body if value else node.orelse))
            case ast.If(test=ast.Constant(value=value)):
                yield _taken(source, node, bool(value))


def _compared(left: Any, operator: ast.cmpop, right: ast.expr) -> bool | None:
    try:
        value = ast.literal_eval(right)
    except ValueError:
        return None
    match operator:
        case ast.Eq():
            return bool(left == value)
        case ast.NotEq():
            return bool(left != value)
        case ast.In():
            return left in value
    return None


def _taken(source: _Source, node: ast.If, value: bool) -> Edit:
    """The side of a branch that is taken, in the place of the branch."""
    whole = source.lines(node)
    side = node.body if value else node.orelse
    if not side:
        return whole
    if not value and source.of(side[0]).startswith(b"if") and source.text[source.begin(side[0]) - 2 :][:2] == b"el":
        return Edit(source.begin(node), source.begin(side[0]))
    first = node.test.end_lineno if value else source.text[: source.begin(side[0])].rstrip().count(b"\n") + 1
    assert first is not None and side[-1].end_lineno is not None
    text = source.text[source.starts[first] : source.starts[side[-1].end_lineno]].decode()
    return whole._replace(text=textwrap.indent(textwrap.dedent(text), " " * node.col_offset).encode())


# -- what nothing needs ------------------------------------------------------------------------------------------------


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _defined(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def _unused(source: _Source) -> Iterator[Edit]:
    """Tables that are made for nothing, and what `build` does not reach."""
    for function in ast.walk(source.tree):
        if isinstance(function, ast.FunctionDef):
            loaded = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            for node in function.body:
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and not _defined(node) & loaded:
                    yield source.lines(node)
    owner = {name: node for node in source.tree.body for name in _defined(node)}
    reached, todo = set[str](), ["build"]
    while todo:
        if (name := todo.pop()) not in reached and name in owner:
            reached.add(name)
            todo += _names(owner[name])
    text_of: ast.stmt | None = None
    for node in source.tree.body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if (_defined(node) and not _defined(node) & reached) or (is_text and text_of is not None):
            yield source.lines(node)
            text_of = node if isinstance(node, ast.Assign | ast.AnnAssign) else None
        else:
            text_of = None


# -- how it begins -----------------------------------------------------------------------------------------------------


def _named(text: bytes, function: str, about: str) -> bytes:
    """The build function under the user's name, with what it is as its docstring, at the place where it stood."""
    source = _Source(text)
    [build] = _builds(source)
    name = source.begin(build) + len(b"def ")
    edits = [Edit(name, name + len(b"build"), function.encode())]
    if ast.get_docstring(build):
        edits.append(Edit(source.begin(build.body[0]), source.end(build.body[0]), f'"""{about}"""'.encode()))
    return source.edited(edits)


def _import_lines(imports: list[ast.Import | ast.ImportFrom], body: _Source) -> str:
    """The imports that the body needs, once each: Python's own, installed ones, the workbench's."""
    used = _names(body.tree)
    modules: dict[tuple[int, str], set[str]] = {}
    for node in imports:
        for alias in node.names:
            if (alias.asname or alias.name).partition(".")[0] not in used:
                continue
            said = alias.name + (f" as {alias.asname}" if alias.asname else "")
            if isinstance(node, ast.Import):
                modules.setdefault((_group(alias.name), f"import {said}"), set())
            elif node.module and not node.level:
                modules.setdefault((_group(node.module), node.module), set()).add(said)
            elif node.module in IMPORTED:
                inner = "" if alias.name in PUBLIC else f".{node.module}"
                modules.setdefault((2, f"llama_workbench.variants{inner}"), set()).add(said)
    lines = sorted(
        (group, bool(names), f"from {module} import {', '.join(sorted(names))}" if names else module)
        for (group, module), names in modules.items()
    )
    groups = ["\n".join(line for each, _, line in lines if each == group) for group in range(3)]
    return "\n\n".join(["from __future__ import annotations", *filter(None, groups)])


def _group(module: str) -> int:
    return 0 if module.partition(".")[0] in sys.stdlib_module_names else 1
