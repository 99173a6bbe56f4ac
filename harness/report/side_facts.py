"""How the sides of a comparison of functions ran, in words: what a reader must know beside the number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..evidence.numbers import short_time
from ..store.gate_schema import SideFacts

LONG_FIRST_CALL, LONG_FIRST_CALL_NS = 20, 50_000_000
"""A first call that takes so many times as long as the others, and so long, is told: code was compiled or loaded."""


def side_facts_text(facts: Mapping[str, SideFacts], call_ns: Mapping[str, float]) -> str:
    """What is worth saying of these sides; empty where nothing is. call_ns: of each side."""
    lines = [line for name, seen in facts.items() for line in _lines(name, seen, call_ns[name])]
    return " ".join(filter(None, [import_text(facts.values()), *lines]))


def import_text(facts: Iterable[SideFacts]) -> str:
    """What the time of an import is; empty where none is timed."""
    return "Timed is the import alone: its Python had begun before." if any(each.is_import for each in facts) else ""


def _lines(name: str, seen: SideFacts, call_ns: float) -> Iterator[str]:
    first_ns = seen.first_call_ns or 0.0
    if first_ns >= max(LONG_FIRST_CALL * call_ns, LONG_FIRST_CALL_NS):
        yield f"The first call of {name} took {short_time(first_ns / 1e9)}; it is not in the number."
