"""Code from outside: files that are imported for one variant alone, and variants that installed packages offer.

Also private imports of our own variants' source: other code objects, same text.
"""

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .presets import Variant

if TYPE_CHECKING:
    from importlib.abc import Loader

ENTRY_POINTS = "llama_workbench.variants"  # the group in which an installed package names its `build` functions


class OutsideVariantError(ValueError):
    """An outside variant that cannot be had: the message names the file, what is wrong and the fix."""


def look_for(path: Path, function: str) -> None:
    """Look for the function in the file's text, without running it. Raises OutsideVariantError where Python cannot read
    the file, or nothing in it could make that name."""
    try:
        tree = ast.parse(path.read_bytes(), path.name)
    except (SyntaxError, ValueError) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise OutsideVariantError(f"{path.name}{line}: not Python: {getattr(error, 'msg', error)}") from error
    except OSError as error:
        raise OutsideVariantError(f"{path.name}: cannot be read ({error.strerror})") from error
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    defined = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    if not {function, "*", "__getattr__"} & names_in(tree) and not words & MAKES_NAMES:
        offered = ", ".join(name for name in defined if not name.startswith("_")) or "no function"
        raise OutsideVariantError(f"{path.name}: no function {function!r}; it defines {offered}")


MAKES_NAMES = frozenset(("exec", "globals", "setattr", "vars"))
"""Code with these may make any name."""


def names_in(tree: ast.AST) -> set[str]:
    """All names that code may bind, in whatever scope."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def described(variant: Variant, function: Callable[..., Any]) -> Variant:
    """The variant with the first line of the function's docstring, where it has one."""
    summary = (function.__doc__ or "").strip().splitlines()
    return replace(variant, description=summary[0]) if summary else variant


def function_of(module: ModuleType, function: str, where: str) -> Callable[..., Any]:
    """What the module has under that name. Raises OutsideVariantError where that is nothing that can be called."""
    found = getattr(module, function, None)
    if callable(found):
        return found
    offered = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    defined = ", ".join(offered) or "no function"
    raise OutsideVariantError(f"{where}: no function {function!r}; it defines {defined}")


def import_file(path: Path) -> ModuleType:
    """Import a file once more; its folder is put on the import path, last. Raises OutsideVariantError if it raises.

    Its module is called as `import` calls it where that finds this file, so that a process which the code starts finds
    its functions, too. Else (Python has a module of that name, or knows one) it gets a name of its own: two entries of
    one file must not share code (see `with_private_source`)."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    names = (f"{path.stem}_{number}" for number in itertools.count(2))
    name = path.stem
    found = find_spec(name) if name not in sys.modules and "." not in name else None
    if found is None or found.origin is None or Path(found.origin).resolve() != path.resolve():
        name = next(name for name in names if name not in sys.modules)
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise OutsideVariantError(f"{path.name}: not a Python file")
    try:
        return _imported(spec, spec.loader)
    except Exception as error:
        raise OutsideVariantError(f"{path.name}: importing it raised {type(error).__name__}: {error}") from error


def installed() -> dict[str, Variant]:
    """Variants that installed packages offer; each is imported only when it is built."""
    from importlib.metadata import entry_points  # slow to import, and no process of functions needs it

    found = {}
    for point in entry_points(group=ENTRY_POINTS):

        def build(config, weights, *, max_length, _point=point):  # type: ignore[no-untyped-def]
            return _point.load()(config, weights, max_length=max_length)

        found[point.name] = Variant(point.name, build, f"entry point {point.value}", f"outside: {point.value}")
    return found


def import_copy(private: str, public: str, loader_of: Callable[[str, str], Loader] = SourceFileLoader) -> None:
    """Import the source of the module `public` once more, under the name `private`; `loader_of` takes name and path."""
    source = find_spec(public)
    assert source is not None and source.origin is not None
    loader, folders = loader_of(private, source.origin), source.submodule_search_locations
    spec = spec_from_file_location(private, source.origin, loader=loader, submodule_search_locations=folders)
    assert spec is not None
    _imported(spec, loader)


def _imported(spec: ModuleSpec, loader: Loader) -> ModuleType:
    """The module, known by the name of `spec`, unless its code raises."""
    sys.modules[spec.name] = module = module_from_spec(spec)
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def with_private_source(variant: Variant, tag: str, load: Callable[[str, str], None] = import_copy) -> Variant:
    """The variant from a private import of its own, which `tag` (a word) names. `load` imports it, once.

    Variants that share code warm it for each other, in the processor's caches and in the interpreter's inline caches:
    with a shared import, a second copy of a layered model was 4 % slower at 0.4 ms a call than the first, whose code
    two more variants used. Code from outside the package stays as it is."""
    module = getattr(variant.build, "module", None)
    if module is None:
        return variant
    top, _, rest = module.lstrip(".").partition(".")
    private = f"{__package__}.{top}__{tag}"
    if private not in sys.modules:
        load(private, f"{__package__}.{top}")
    build = import_module(f"{private}.{rest}" if rest else private).build
    return replace(variant, build=partial(build, **variant.build.options))  # type: ignore[attr-defined]
