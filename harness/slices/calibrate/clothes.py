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
from collections.abc import Collection, Mapping
from itertools import groupby

from .cases import defined_by

KEYS, ATTRIBUTES, GLOBALS = "keys", "attributes", "globals"
ORDER, IMPORT, DOCS = "order", "unused import", "docs"

CLOTHES = (KEYS, ATTRIBUTES, GLOBALS, ORDER, IMPORT, DOCS)
"""Renamed keys of dicts, attributes and methods, functions, classes and constants; functions and imports in another
order; an unused import; other docstrings."""

UNUSED = ("bisect", "calendar", "colorsys", "heapq", "html", "netrc", "sched", "stringprep", "textwrap", "uuid")
"""Modules of the standard library that no case imports."""

MOST_LETTERS, MOST_WORDS = 24, 30


def plain(tree: ast.Module) -> str:
    """The text of a file without comments, which both sides of a comparison are written as."""
    return ast.unparse(tree) + "\n"


def repeating(text: str, repeats: int) -> str:
    """The file with another `REPEATS`."""
    tree = ast.parse(text)
    [assignment] = [node for node in tree.body if isinstance(node, ast.Assign) and defined_by(node) == ["REPEATS"]]
    assignment.value = ast.Constant(repeats)
    return plain(tree)


def offered(text: str, kept: Collection[str]) -> tuple[str, ...]:
    """The clothes that change something of a file. kept: functions that are asked for by their names."""
    named = _changeable(ast.parse(text), kept)
    return tuple(each for each in CLOTHES if named.get(each, True))


def dressed(text: str, clothes: Collection[str], draw: random.Random, kept: Collection[str]) -> str:
    """The file in these clothes, with names, order and words that `draw` gives."""
    tree = ast.parse(text)
    taken = {*dir(builtins), *keyword.kwlist, *re.findall(r"\w+", ast.unparse(tree))}
    tree = _Renamed(
        {
            kind: {old: _name(draw, taken) for old in sorted(olds)} if kind in clothes else {}
            for kind, olds in _changeable(tree, kept).items()
        }
    ).visit(tree)
    if IMPORT in clothes:
        place = next(place for place, node in enumerate(tree.body) if _is_of_the_future(node))
        tree.body.insert(place + 1, ast.Import([ast.alias(draw.choice(UNUSED))]))
    for node in ast.walk(tree):
        if ORDER in clothes and isinstance(node, ast.Module | ast.ClassDef):
            node.body = _reordered(node.body, draw)
        if (
            DOCS in clothes
            and isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
            and ast.get_docstring(node)
        ):
            words = [word(draw) for _ in range(draw.randint(1, MOST_WORDS))]
            node.body[0] = ast.Expr(ast.Constant(" ".join(words)))
    return plain(tree)


def _reordered(body: list[ast.stmt], draw: random.Random) -> list[ast.stmt]:
    """Functions that stand side by side in random order, for a definition executes nothing, and so with imports.
    Whatever is executed (decorators, constants) stays where it is."""

    def movable(node: ast.stmt) -> str:
        if isinstance(node, ast.Import | ast.ImportFrom) and not _is_of_the_future(node):
            return "import"
        return "function" if isinstance(node, ast.FunctionDef) and not node.decorator_list else ""

    runs = [(kind, list(nodes)) for kind, nodes in groupby(body, movable)]
    return [node for kind, nodes in runs for node in (draw.sample(nodes, len(nodes)) if kind else nodes)]


def _is_of_the_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


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


def _changeable(tree: ast.Module, kept: Collection[str]) -> dict[str, set[str]]:
    """Names that may be others, by kind of clothes.

    Keys: of the dicts that the file writes down. Attributes: those and methods that the file's own classes have, and
    that are used through `self` alone, for others may belong to something else as well. Globals: what the file defines
    at its top, but for names that an argument has, too.
    """
    keys, bound, own, others, arguments = set[str](), set[str](), set[str](), set[str](), {*kept}
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            keys |= {str(key.value) for key in node.keys if isinstance(key, ast.Constant) and _is_name(key)}
        elif isinstance(node, ast.ClassDef):
            bound |= {child.name for child in node.body if isinstance(child, ast.FunctionDef)}
        elif isinstance(node, ast.Attribute):
            through_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            (own if through_self else others).add(node.attr)
            if through_self and isinstance(node.ctx, ast.Store):
                bound.add(node.attr)
        elif isinstance(node, ast.arg | ast.keyword):
            arguments.add(node.arg or "")
    defining = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    return {
        KEYS: keys,
        ATTRIBUTES: {name for name in bound & own - others if not name.startswith("__")},
        GLOBALS: {name for node in defining for name in defined_by(node)} - arguments,
    }


def _name(draw: random.Random, taken: set[str]) -> str:
    """A new name of drawn length."""
    while (name := word(draw)) in taken:
        pass
    taken.add(name)
    return name


def word(draw: random.Random) -> str:
    """Letters, of drawn length."""
    return "".join(draw.choices(string.ascii_lowercase, k=draw.randint(2, MOST_LETTERS)))
