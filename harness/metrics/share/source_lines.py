"""Which line of a source that is installed here belongs to which phase: only where every place that a profile has in
that file fits the source."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from llama_workbench import ROOT
from llama_workbench.variants.phase_map import LIBRARY_MODEL, MAPS

from .marking import COMMENT, Marker, PhaseError
from .shares import Lines

LIBRARY_FILE = f"site-packages/{LIBRARY_MODEL.replace('.', '/')}.py"

LinesOfFile = dict[str, Sequence[Sequence[str]]]
"""Line → [phases of its own code, phases of what it calls]."""


def lines_in_sources(places: Mapping[str, Collection[tuple[str, int]]], attention: str = "sdpa") -> Lines:
    """File → line → phases. places: file → the functions and lines that a profile has there. attention: the kind that
    the library's model computes, which decides what its lines are."""
    sources = _sources(attention)
    marked = {file: _marked(file, places[file], sources) for file in places}
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


def _marked(file: str, places: Iterable[tuple[str, int]], sources: Mapping[str, tuple[Path, str]]) -> LinesOfFile:
    """The lines of one file; none where its source is not here, names no phases, or is not that of the profile."""
    if file not in sources:
        return {}
    path, key = sources[file]
    functions = next(iter(MAPS[key].values())) if key in MAPS else None
    try:
        source = path.read_bytes()
        if functions is None and not COMMENT.search(source.decode()):
            return {}
        spans = [
            (node.name, node.lineno, node.end_lineno or node.lineno)
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        marker = Marker(source, functions, file)
    except (OSError, PhaseError, SyntaxError, UnicodeDecodeError):
        return {}
    for function, line in places:
        fits = any(name == function and first <= line <= last for name, first, last in spans)
        if not fits and not function.startswith("<"):  # a <lambda> or <genexpr> has no name in the source
            return {}
    return {str(line): [sorted(own), sorted(called)] for line, (own, called) in marker.phases_of_line.items()}
