"""The same work in other clothes: a file written anew with other names, in another order, with other words in it.

What is computed stays the same to the last operation: the byte code of each function differs in names alone. All that
a program draws for life (hashes of names, sizes and places of dicts and objects) is another draw all the same.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import random
import re
import string
from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter

KEYS, ATTRIBUTES, GLOBALS = "keys", "attributes", "globals"
ORDER, IMPORT, DOCS = "order", "unused import", "docs"

CLOTHES = (KEYS, ATTRIBUTES, GLOBALS, ORDER, IMPORT, DOCS)
"""Renamed keys of dicts, attributes and methods, functions, classes and constants; definitions and imports in another
order; an unused import; other docstrings and comments."""

UNUSED = ("bisect", "calendar", "colorsys", "heapq", "html", "netrc", "sched", "stringprep", "textwrap", "uuid")
"""Modules of the standard library that no case imports."""

MOST_LETTERS, MOST_WORDS = 24, 30


def plain(tree: ast.Module) -> str:
    """The text of a file without comments, which both sides of a comparison are written as."""
    return ast.unparse(tree) + "\n"


def repeating(text: str, repeats: int) -> str:
    """The file with another `REPEATS`."""
    tree = ast.parse(text)
    [assignment] = [node for node in tree.body if isinstance(node, ast.Assign) and _targets(node) == ["REPEATS"]]
    assignment.value = ast.Constant(repeats)
    return plain(tree)


def offered(text: str, kept: Collection[str]) -> tuple[str, ...]:
    """The clothes that change something of a file. kept: functions that are asked for by their names."""
    tree = ast.parse(text)
    named = {KEYS: _keys(tree), ATTRIBUTES: _attributes(tree), GLOBALS: _globals(tree, kept)}
    return tuple(each for each in CLOTHES if named.get(each, True))


def dressed(text: str, clothes: Collection[str], draw: random.Random, kept: Collection[str]) -> str:
    """The file in these clothes, with names, order and words that `draw` gives."""
    tree = ast.parse(text)
    taken = _all_names(tree)
    named = {KEYS: _keys(tree), ATTRIBUTES: _attributes(tree), GLOBALS: _globals(tree, kept)}
    names = {
        kind: {old: _name(draw, taken) for old in sorted(olds)} if kind in clothes else {}
        for kind, olds in named.items()
    }
    tree = _Renamed(names).visit(tree)
    if IMPORT in clothes:
        tree.body.insert(_first_import(tree), ast.Import([ast.alias(draw.choice(UNUSED))]))
    if ORDER in clothes:
        _reorder(tree, draw)
    if DOCS in clothes:
        _reword(tree, draw)
        return _commented(plain(tree), draw)
    return plain(tree)


# -- names -------------------------------------------------------------------------------------------------------------


class _Renamed(ast.NodeTransformer):
    """With other names, by kind of clothes: old → new."""

    def __init__(self, names: Mapping[str, Mapping[str, str]]) -> None:
        self.keys, self.attributes, self.globals = (names[kind] for kind in (KEYS, ATTRIBUTES, GLOBALS))
        self.methods: set[ast.stmt] = set()

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(self.keys.get(str(node.value), node.value)) if _is_name(node) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.attr = self.attributes.get(node.attr, node.attr)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.globals.get(node.id, node.id)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.globals.get(node.name, node.name)
        self.methods |= set(node.body)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        names = self.attributes if node in self.methods else self.globals
        node.name = names.get(node.name, node.name)
        return self.generic_visit(node)


def _is_name(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier()


def _keys(tree: ast.Module) -> set[str]:
    """Keys of the dicts that the file writes down."""
    dicts = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    return {str(key.value) for node in dicts for key in node.keys if isinstance(key, ast.Constant) and _is_name(key)}


def _attributes(tree: ast.Module) -> set[str]:
    """Attributes and methods that the file's own classes have, and that are used through `self` alone: others may
    belong to something else as well."""
    bound, own, others = set[str](), set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bound |= {child.name for child in node.body if isinstance(child, ast.FunctionDef)}
        elif isinstance(node, ast.Attribute):
            through_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            (own if through_self else others).add(node.attr)
            if through_self and isinstance(node.ctx, ast.Store):
                bound.add(node.attr)
    return {name for name in bound & own - others if not name.startswith("__")}


def _globals(tree: ast.Module, kept: Collection[str]) -> set[str]:
    """What the file defines at its top, but for names that an argument has, too."""
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, (ast.arg, ast.keyword))}
    return {name for node in tree.body for name in _targets(node)} - {*kept, *arguments}


def _targets(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def _all_names(tree: ast.Module) -> set[str]:
    """Every word of the file that a new name must not be."""
    return {*dir(builtins), *keyword.kwlist, *re.findall(r"\w+", ast.unparse(tree))}


def _name(draw: random.Random, taken: set[str]) -> str:
    """A new name of drawn length."""
    while (name := word(draw)) in taken:
        pass
    taken.add(name)
    return name


def word(draw: random.Random) -> str:
    """Letters, of drawn length."""
    return "".join(draw.choices(string.ascii_lowercase, k=draw.randint(2, MOST_LETTERS)))


# -- order and words ---------------------------------------------------------------------------------------------------


def _first_import(tree: ast.Module) -> int:
    """Where imports begin, behind the docstring and what must stand first."""
    places = [place for place, node in enumerate(tree.body) if isinstance(node, ast.ImportFrom)]
    return 1 + next(place for place in places if getattr(tree.body[place], "module", "") == "__future__")


def _reorder(tree: ast.Module, draw: random.Random) -> None:
    first = _first_import(tree)
    imports = [node for node in tree.body[first:] if isinstance(node, (ast.Import, ast.ImportFrom))]
    others = [node for node in tree.body[first:] if node not in imports]
    for node in others:
        if isinstance(node, ast.ClassDef):
            methods = [child for child in node.body if isinstance(child, ast.FunctionDef)]
            fields = [child for child in node.body if child not in methods]  # their order may be what they mean
            node.body = [*fields, *_shuffled(methods, draw)]
    tree.body = [*tree.body[:first], *draw.sample(imports, len(imports)), *_shuffled(others, draw)]


def _shuffled(statements: Sequence[ast.stmt], draw: random.Random) -> list[ast.stmt]:
    """In random order, each after those that it needs while it is executed."""
    places = {name: place for place, node in enumerate(statements) for name in _targets(node)}
    needs = {
        place: {places[name] for name in _needed(node) if places.get(name, place) != place}
        for place, node in enumerate(statements)
    }
    sorter = TopologicalSorter(needs)
    sorter.prepare()
    ready, order = list[int](), list[int]()
    while sorter.is_active():
        ready += sorter.get_ready()
        order.append(ready.pop(draw.randrange(len(ready))))
        sorter.done(order[-1])
    return [statements[place] for place in order]


def _needed(node: ast.AST) -> Iterator[str]:
    """Names that are read when a statement is executed: not those in the bodies of functions, nor in annotations."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        parts: list[ast.AST | None] = [
            *getattr(node, "decorator_list", ()),
            *node.args.defaults,
            *node.args.kw_defaults,
        ]
    elif isinstance(node, ast.AnnAssign):
        parts = [node.value]
    else:
        parts = [*ast.iter_child_nodes(node)]
    for part in parts:
        if part is not None:
            yield from _needed(part)


def _reword(tree: ast.Module, draw: random.Random) -> None:
    """Another text for each docstring."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Expr(ast.Constant(_words(draw)))


def _commented(text: str, draw: random.Random) -> str:
    """With comments before some of the definitions."""
    lines = list[str]()
    for line in text.splitlines():
        if line.startswith(("def ", "class ")) and draw.random() < 0.5:
            lines += [f"# {_words(draw)}" for _ in range(draw.randint(1, 3))]
        lines.append(line)
    return "\n".join(lines) + "\n"


def _words(draw: random.Random) -> str:
    return " ".join(word(draw) for _ in range(draw.randint(1, MOST_WORDS)))
