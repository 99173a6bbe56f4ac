"""Private imports of a variant's source: other code objects, same text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location

from .presets import Variant


def import_copy(private: str, public: str, loader_of: Callable[[str, str], Loader] = SourceFileLoader) -> None:
    """Import the source of the module `public` once more, under the name `private`; `loader_of` takes name and path."""
    source = find_spec(public)
    assert source is not None and source.origin is not None
    loader, folders = loader_of(private, source.origin), source.submodule_search_locations
    spec = spec_from_file_location(private, source.origin, loader=loader, submodule_search_locations=folders)
    assert spec is not None
    sys.modules[private] = module = module_from_spec(spec)
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[private]
        raise


def with_private_source(variant: Variant, tag: str, load: Callable[[str, str], None] = import_copy) -> Variant:
    """The variant from a private import of its own, which `tag` (a word) names. `load` imports it, once.

    Variants that share code warm it for each other, in the processor's caches and in the interpreter's inline caches:
    with a shared import, a second copy of a layered model was 4 % slower at 0.4 ms a call than the first, whose code
    two more variants used. Code from outside the package stays as it is.
    """
    module = getattr(variant.build, "module", None)
    if module is None:
        return variant
    top, _, rest = module.lstrip(".").partition(".")
    private = f"{__package__}.{top}__{tag}"
    if private not in sys.modules:
        load(private, f"{__package__}.{top}")
    build = import_module(f"{private}.{rest}" if rest else private).build
    return replace(variant, build=partial(build, **variant.build.options))  # type: ignore[attr-defined]
