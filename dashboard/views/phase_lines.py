"""Which line of a variant's source belongs to which phase: as a run recorded it, else as the source here says.

A run records it for the variants that a claim about shares names. For any other the source that is installed here
says it, but only where every place that the profile has in that file fits the source.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from llama_workbench import ROOT
from llama_workbench.harness.metrics.share.marking import COMMENT, Marker, PhaseError
from llama_workbench.harness.metrics.share.shares import Lines
from llama_workbench.variants.phase_map import LIBRARY_MODEL, MAPS

from . import breakdown

LIBRARY_FILE = f"site-packages/{LIBRARY_MODEL.replace('.', '/')}.py"
_PLACE = re.compile(r"(.*) \(([^()]*):(\d{1,9})\)(?: \d+)?")  # the innermost frame stands before the count
_LINES = dict[str, Sequence[Sequence[str]]]


def phase_lines(phases: breakdown.Phases, variant: str, stacks: str) -> Lines:
    """File → line → phases, for the files of a variant's profile."""
    recorded: dict[str, _LINES] = {}
    for (_, name), fact in phases.facts.items():
        for file, known in fact.lines.items():
            if name == variant or file != LIBRARY_FILE:  # the kind of attention decides what its lines are
                recorded.setdefault(file, {line: [own, called] for line, (own, called) in known.items()})
    places: dict[str, set[tuple[str, int]]] = {}
    for frame in set(re.split(r"[;\n]", stacks)):
        if parts := _PLACE.fullmatch(frame):
            function, file, line = parts.groups()
            places.setdefault(file, set()).add((function.rpartition(".")[2], int(line)))
    sources = _sources("eager" if "eager_attention_forward (" in stacks else "sdpa")
    marked = {
        file: lines for file in places.keys() - recorded.keys() if (lines := _marked(file, places[file], sources))
    }
    return {**recorded, **marked}


def _sources(attention: str) -> dict[str, tuple[Path, str]]:
    """The files that can say it, by their name in profiles: where each lies, and the key of its map in MAPS."""
    here = {f"variants/{path.relative_to(ROOT / 'variants').as_posix()}": path for path in _ours()}
    sources = {file: (path, f".{path.stem}") for file, path in here.items()}
    if (library := find_spec(LIBRARY_MODEL.partition(".")[0])) is not None and library.origin is not None:
        path = Path(library.origin).parents[1] / LIBRARY_FILE.removeprefix("site-packages/")
        sources[LIBRARY_FILE] = (path, f".library:{attention}")
    return sources


def _ours() -> Iterable[Path]:
    return (ROOT / "variants").rglob("*.py")


def _marked(file: str, places: Iterable[tuple[str, int]], sources: dict[str, tuple[Path, str]]) -> _LINES:
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
