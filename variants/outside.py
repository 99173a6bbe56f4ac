"""Variants from outside: a function in a file (`path/to/file.py:build`), or an entry point."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from importlib.metadata import entry_points
from pathlib import Path

from .presets import Variant

ENTRY_POINTS = "llama_workbench.variants"  # the group in which an installed package names its `build` functions


class OutsideVariantError(ValueError):
    """An outside variant that cannot be had: the message names the file, what is wrong and the fix."""


def parse(text: str) -> tuple[Path, str]:
    """`path/to/file.py:function` → (path, function). Raises OutsideVariantError where either is missing."""
    file, separator, function = text.rpartition(":")
    if not separator or not function.isidentifier() or not file:
        example = "for example path/to/mine.py:build_mine"
        raise OutsideVariantError(f"--add-variant {text!r}: expected FILE:FUNCTION, {example}")
    path = Path(file)
    if not path.is_file():
        raise OutsideVariantError(f"--add-variant {text!r}: there is no file {file!r} (looked in {Path.cwd().name}/)")
    return path, function


def load(path: Path, function: str) -> Variant:
    """Import the file (its own folder on the import path, last) and wrap its function; the variant has its name. The
    file's code runs here: measuring does this in worker processes only. Raises OutsideVariantError where the import
    raises, or the function is missing or not callable."""
    # A name of its own for each import: two entries of one file must not share code (see `source`).
    names = (f"_outside_{path.stem}_{number}" for number in itertools.count())
    name = next(name for name in names if name not in sys.modules)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise OutsideVariantError(f"{path.name}: not a Python file")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(spec.name, None)
        raise OutsideVariantError(f"{path.name}: importing it raised {type(error).__name__}: {error}") from error
    build = getattr(module, function, None)
    if not callable(build):
        offered = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        defined = ", ".join(offered) or "no function"
        raise OutsideVariantError(f"{path.name}: no function {function!r}; it defines {defined}")
    summary = (build.__doc__ or "").strip().splitlines()
    return Variant(function, build, summary[0] if summary else f"{path.name}:{function}", f"outside: {path.name}")


def installed() -> dict[str, Variant]:
    """Variants that installed packages offer; each is imported only when it is built."""
    found = {}
    for point in entry_points(group=ENTRY_POINTS):

        def build(config, weights, *, max_length, _point=point):  # type: ignore[no-untyped-def]
            return _point.load()(config, weights, max_length=max_length)

        found[point.name] = Variant(point.name, build, f"entry point {point.value}", f"outside: {point.value}")
    return found
