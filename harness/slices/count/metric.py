"""What can be counted in a variant's source: lines, functions, units that a test can take on alone.

Counted are the files of `variants/` that a variant's `build` reaches by imports, without the types that all share. A
line counts if it holds code: blank lines, comments and docstrings do not.
"""

from __future__ import annotations

import ast
import io
import math
import tokenize
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

from llama_workbench import variants

from ...metrics.base import ExactMetric, PassContext
from ...spec.hypotheses import Name, Quantity, RangeHypothesis
from ...store.forms import ExactResult

SHARED = {"config", "settings"}
"""Modules of `variants/` that no variant has to itself."""


class CountError(ValueError):
    """Nothing can be counted; the text says why, and what could be."""


def sources(variant: str) -> dict[str, str]:
    """A variant's files, its own first: dotted name in `variants/` → text. Raises CountError for foreign variants."""
    start = getattr(variants.get(variant).build, "module", None)
    if start is None:
        raise CountError(f"variant {variant!r} has no source here to count")
    folder = Path(variants.__file__).parent
    texts: dict[str, str] = {}
    queue = [start.lstrip(".")]
    while queue:
        name = queue.pop(0)
        path = folder.joinpath(*name.split(".")).with_suffix(".py")
        if name not in texts and name not in SHARED and path.is_file():
            texts[name] = path.read_text(encoding="utf-8")
            queue += _imported(name, texts[name])
    return texts


def _imported(name: str, text: str) -> list[str]:
    """Names, inside `variants/`, of the modules that a file imports by relative imports."""
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = name.split(".")[: -node.level]
            module = ".".join([*above, *([node.module] if node.module else [])])
            names += [module, *(f"{module}.{alias.name}".lstrip(".") for alias in node.names)]
    return names


def lines(text: str) -> int:
    """Lines that hold code."""
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node, clean=False) is not None:  # type: ignore[arg-type]
            first = node.body[0]  # type: ignore[attr-defined]
            documentation |= set(range(first.lineno, first.end_lineno + 1))
    silent = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
        tokenize.ENDMARKER,
    }  # fmt: skip
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - documentation)


def units(text: str) -> int:
    """Functions and classes at the top of a file: what a test can import and take on by itself."""
    kinds = ast.FunctionDef | ast.ClassDef
    return sum(isinstance(node, kinds) and not node.name.startswith("_") for node in ast.parse(text).body)


QUANTITIES: Mapping[str, Callable[[Collection[str]], int]] = {
    "lines": lambda texts: sum(map(lines, texts)),
    "lines_of_the_largest_file": lambda texts: max(map(lines, texts)),
    "units": lambda texts: sum(map(units, texts)),
    "files": len,
}
"""What can be counted, by the name that a claim uses, from the texts of a variant's files."""


class CountHypothesis(RangeHypothesis):
    """`quantity` of the source of `variant`; with a `baseline`, how many times that of the baseline's source."""

    quantities = QUANTITIES

    metric: Literal["count"]
    variant: Name
    quantity: Quantity
    baseline: Name | None = None

    @property
    def unit(self) -> str:
        return "times" if self.baseline else self.quantity


class CountMetric(ExactMetric[CountHypothesis]):
    """Read off the source; nothing is executed."""

    names = ("count",)
    about = "A count of the source; nothing was timed."
    inside = "nothing"
    hypothesis = CountHypothesis
    title = "count"
    does = "what the source holds"

    def run(self, hypotheses: Sequence[CountHypothesis], context: PassContext) -> None:
        """Count for every hypothesis."""
        wanted = dict.fromkeys((each.quantity, each.variant, each.baseline or "") for each in hypotheses)
        self.store([counted(*subject) for subject in wanted], context)


def counted(quantity: str, variant: str, baseline: str = "") -> ExactResult:
    """The quantity of `variant`, over that of `baseline` where this is not empty. A fault is the result's reason."""
    subject = ("count", quantity, "", variant, baseline)
    values, details = list[int](), list[str]()
    for name in filter(None, (variant, baseline)):
        try:
            files = sources(name)
        except CountError as error:
            return ExactResult(*subject, math.nan, 0, reason=str(error))
        values.append(QUANTITIES[quantity](files.values()))
        details.append(f"{name}: {values[-1]} in {', '.join(files)}")
    return ExactResult(*subject, values[0] / values[1] if baseline else values[0], 1, detail="; ".join(details))


METRIC = CountMetric()
