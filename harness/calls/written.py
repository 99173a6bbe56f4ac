"""Functions from a notebook's cells, written into a file, so that another process can import them."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .source import SourceError

PLAIN = (int, float, complex, str, bytes, bool, type(None))


def in_no_file(function: Any) -> bool:
    """Whether a function was defined in a notebook or at a prompt. Jupyter's kernel calls its cells after `.py` files,
    which there are none of."""
    if not isinstance(function, FunctionType):
        return False
    file = inspect.getfile(function)
    return not (file.endswith(".py") and Path(file).is_file())


def written(functions: list[Callable[..., Any]]) -> str:
    """Python that defines these functions, and what they use: imports, other functions, classes and constants.

    Raises SourceError, which names what cannot be written.
    """
    text = _Text()
    for function in functions:
        text.add(function.__name__, function, function.__name__)
    return "\n".join([*text.imports, "", *text.definitions])


@dataclass
class _Text:
    imports: list[str] = field(default_factory=list)
    definitions: list[str] = field(default_factory=list)
    done: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, value: Any, function: str) -> None:
        """Define `name`, which `function` uses. What the definition itself uses comes first."""
        if self.done.get(name, self) is value:
            return
        self.done[name] = value
        if isinstance(value, ModuleType):
            self.imports.append(f"import {value.__name__}" + (f" as {name}" if name != value.__name__ else ""))
        elif isinstance(value, (FunctionType, type)) and not _is_local(value):
            self.imports.append(f"from {value.__module__} import {value.__qualname__} as {name}")
        elif isinstance(value, (FunctionType, type)):
            self._add_source(name, value)
        elif _is_plain(value):
            self.definitions.append(f"{name} = {value!r}")
        elif (module := getattr(value, "__module__", None)) and module != "__main__" and callable(value):
            self.imports.append(f"from {module} import {value.__name__} as {name}")
        else:
            kind = type(value).__name__
            raise SourceError(
                f"{function} uses {name}, a {kind}, which another process does not have: make it in the payload "
                "function, or write both into a file and give FILE:FUNCTION"
            )

    def _add_source(self, name: str, value: Any) -> None:
        if isinstance(value, FunctionType) and value.__closure__:
            raise SourceError(f"{name} is defined within another function: define it at the top")
        if not (source := _source(value)):
            raise SourceError(f"{name}: its source is not known: write it into a file and give FILE:FUNCTION")
        for used, held in _used_by(value):
            self.add(used, held, name)
        self.definitions += [source, ""]


def _source(value: Any) -> str:
    """The text of a function or class that was defined at the top of a cell; empty where it is not known."""
    held = [value] if isinstance(value, FunctionType) else vars(value).values()
    files = [each.__code__.co_filename for each in held if isinstance(each, FunctionType)]
    text = "".join(linecache.getlines(files[0])) if files else ""
    try:
        nodes = ast.parse(text).body
    except SyntaxError:
        return ""
    for node in reversed(nodes):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == value.__name__:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    return ""


def _is_local(value: Any) -> bool:
    return getattr(value, "__module__", None) in (None, "__main__")


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(each) for key, each in value.items())
    if type(value) in (list, tuple, set, frozenset):
        return all(map(_is_plain, value))
    return type(value) in PLAIN


def _used_by(value: Any) -> Iterator[tuple[str, Any]]:
    """Global names that a function or class uses, as far as they are defined."""
    functions = (
        [value] if isinstance(value, FunctionType) else [f for f in vars(value).values() if inspect.isfunction(f)]
    )
    for base in getattr(value, "__bases__", ()):
        if base is not object:
            yield base.__name__, base
    for function in functions:
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__ and not hasattr(builtins, name):
                yield name, function.__globals__[name]


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names}.union(*map(_names, inner))
