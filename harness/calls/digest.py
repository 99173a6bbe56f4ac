"""Digests of functions: whether the code of one, and what it imports by name, is what it was; and which packages that
are. Nothing is imported."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions, version
from pathlib import Path

from llama_workbench.variants.digests import digest_of_code, names_imported

from .source import Source
from .world import INSTALLED, STANDARD


def digest_of(source: Source) -> str:
    """SHA-256 of what a source stands for: of a revision its commit; of a file or module its code, and what that
    imports by name from its folders; of an installed module the version of its package; of a command its words. Data
    files, and modules whose names are made while the code runs, are not seen. Raises OutsideVariantError."""
    if source.command:
        return hashlib.sha256(source.command.encode()).hexdigest()
    what = f"{source.function}{'()' * source.factory}"
    if source.commit:
        place = f"{source.commit} {Path(source.where).relative_to(source.folder) if source.is_file else source.where}"
        return hashlib.sha256(f"{place} {what}".encode()).hexdigest()
    if source.file is not None:
        return digest_of_code(source.file, list(map(Path, source.folders)), what)
    top = source.where.partition(".")[0]
    spec = PathFinder.find_spec(top)
    origin = Path(spec.origin) if spec and spec.origin else None
    if origin is not None and not {*INSTALLED} & {*origin.parts} and not str(origin).startswith(STANDARD):
        home = origin.parents[1] if origin.name == "__init__.py" else origin.parent
        file = Source(source.name, source.where, source.function, source.factory, str(home)).file
        if file is not None:
            return digest_of_code(file, [home], what)
    versions = [f"{name} {version(name)}" for name in sorted(set(packages_distributions().get(top, ())))]
    return hashlib.sha256(f"{source.where} {what} {' '.join(versions)}".encode()).hexdigest()


def packages_of(sources: Iterable[Source]) -> set[str]:
    """The packages that the code of these sources imports by name, in small letters and with "-" for "_". Where one
    is installed here under another name than that of its module, both."""
    modules: set[str] = set()
    for source in sources:
        if source.file is not None and not source.command:
            modules |= names_imported(source.file, *map(Path, source.folders))
        if not source.is_file and not source.command:
            modules.add(source.where.partition(".")[0])
    installed = packages_distributions()
    names = {name for module in modules for name in (module, *installed.get(module, ()))}
    return {name.lower().replace("_", "-") for name in names}
