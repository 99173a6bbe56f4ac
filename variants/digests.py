"""Digests of source: whether the code of a variant is what it was, without importing it.

A digest is over the files that code is written in: its own, and those that it imports by name from the same place,
wherever in a file the import stands. Installed libraries are not among them; their versions say what they are.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from .outside import ENTRY_POINTS, OutsideVariantError
from .presets import presets

HERE = Path(__file__).parent
OURS = "llama_workbench.variants"


def digest(name: str) -> str:
    """SHA-256 of the source of a variant that ships, or that an installed package offers.

    Raises OutsideVariantError where a file cannot be read."""
    if variant := presets().get(name):
        module, options = getattr(variant.build, "module", ""), getattr(variant.build, "options", {})
        roots = [module, *([".components"] if variant.settings is not None else [])]
        ours = [file for root in roots for file in _files(HERE, root.lstrip(".").split("."))]
        return _sum(HERE, {each for file in ours for each in written_in(file, HERE)}, repr(sorted(options.items())))
    [point] = entry_points(group=ENTRY_POINTS, name=name)
    spec = find_spec(point.module.partition(".")[0])  # imports nothing
    said = f"{point.value} {point.dist.version if point.dist else ''}"
    if spec is None or spec.origin is None:
        return _sum(HERE, (), said)
    home = Path(spec.origin).parent.parent if spec.submodule_search_locations else Path(spec.origin).parent
    files = _files(home, point.module.split("."))
    return _sum(home, {each for file in files for each in written_in(file, home)}, said)


def digest_of_code(file: Path, homes: Sequence[Path], more: str) -> str:
    """SHA-256 of the code in a file, of what it imports by name that lies beside it or in `homes`, and of `more`.

    Raises OutsideVariantError where a file cannot be read."""
    return _sum(homes, written_in(file, *homes), more)


def digest_of_folders(folders: Iterable[Path], endings: tuple[str, ...] = (".py",)) -> str:
    """SHA-256 of all files below these folders whose names end so."""
    every = sorted(folders)
    home = every[0].parent
    return _sum(home, {path for folder in every for path in folder.rglob("*") if path.suffix in endings}, "")


def written_in(path: Path, *homes: Path) -> set[Path]:
    """The files of the code in `path`: itself, and what it imports that lies in its package, in `homes`, or here."""
    found: set[Path] = set()
    todo = [path]
    while todo:
        if (file := todo.pop()) not in found:
            found.add(file)
            todo += _imported(file, homes)
    return found


def names_imported(path: Path, *homes: Path) -> set[str]:
    """The first part of each name that the code in `path` imports, and of those that what `written_in` finds imports.

    Raises OutsideVariantError where a file cannot be read."""
    return {name.partition(".")[0] for file in written_in(path, *homes) for name, level in _imports(file) if not level}


def _imports(path: Path) -> tuple[tuple[str, int], ...]:
    """Each name that a file imports, and how many packages further up it is looked for; 0: it is absolute."""
    try:
        return _imported_by(path.read_bytes())
    except OSError as error:
        raise OutsideVariantError(f"{path.name}: cannot be read ({error.strerror})") from error


@lru_cache(maxsize=256)  # presets share their files
def _imported_by(source: bytes) -> tuple[tuple[str, int], ...]:
    try:
        nodes = [*ast.walk(ast.parse(source))]
    except (SyntaxError, ValueError):
        return ()  # whoever imports it will say so
    absolute = [(alias.name, 0) for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    relative = [
        (".".join(filter(None, (node.module, alias.name))), node.level)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    return (*absolute, *relative)


def _imported(path: Path, homes: Sequence[Path]) -> Iterator[Path]:
    for name, level in _imports(path):
        if level:
            yield from _files(path.parents[level - 1], name.split("."))
        else:
            yield from _absolute(name, homes)


def _absolute(name: str, homes: Sequence[Path]) -> Iterator[Path]:
    if name == OURS or name.startswith(f"{OURS}."):
        return _files(HERE, name.removeprefix(OURS).lstrip(".").split("."))
    for home in homes:  # where the first of them has it, Python looks no further
        if found := list(_files(home, name.split("."))):
            return iter(found)
    return iter(())


def _files(folder: Path, parts: Iterable[str]) -> Iterator[Path]:
    """The files of a module below a folder, as far as there are any: the packages on the way, and its own."""
    for part in parts:
        if not part:
            continue
        module, folder = folder / f"{part}.py", folder / part
        for file in (folder / "__init__.py", module):
            if file.is_file():
                yield file
        if not folder.is_dir():
            return


def _sum(homes: Path | Sequence[Path], files: Iterable[Path], more: str) -> str:
    """SHA-256 of the files, by their names below `homes` or here, and of `more`: not of where these folders lie."""
    homes = [HERE, *([homes] if isinstance(homes, Path) else homes)]
    named = []
    for file in files:
        home = next((home for home in homes if file.is_relative_to(home)), file.parent)
        named.append((file.relative_to(home).as_posix(), file.read_bytes()))
    whole = hashlib.sha256(f"{more}\0".encode())
    for name, content in sorted(named):
        whole.update(f"{name} {len(content)}\0".encode() + content)
    return whole.hexdigest()
