"""How the sides of a comparison of functions ran, in words: what a reader must know beside the number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..evidence.numbers import short_time
from ..store.gate_schema import SideFacts

LONG_FIRST_CALL, LONG_FIRST_CALL_NS = 20, 50_000_000
"""A first call that takes so many times as long as the others, and so long, is told: code was compiled or loaded."""


LEAST_SHARE = 0.05
"""Collections and page faults are told where they take this share of a call."""

CALM = (
    "Measured calm: freed memory was kept for reuse and no garbage was collected in samples, which is not how Python "
    "and the system have it."
)


def import_text(facts: Iterable[SideFacts]) -> str:
    """What the time of an import is; empty where none is timed."""
    return "Timed is the import alone: its Python had begun before." if any(each.is_import for each in facts) else ""


def side_facts_text(
    facts: Mapping[str, SideFacts], call_ns: Mapping[str, float], faults: Mapping[str, float], *, calm: bool
) -> str:
    """What is worth saying of these sides; empty where nothing is. call_ns: of each side; faults: page faults a call.
    calm: see `datasets.workloads.Workload`."""
    lines = (line for name, seen in facts.items() for line in _lines(name, seen, call_ns[name], faults[name]))
    return " ".join(filter(None, [import_text(facts.values()), *lines, CALM * calm]))


def _lines(name: str, seen: SideFacts, call_ns: float, faults: float) -> Iterator[str]:
    if (share := seen.collection_share or 0.0) >= LEAST_SHARE:
        times = f"{seen.collections_per_call or 0.0:.3g}"
        yield f"Collecting garbage takes about {share:.0%} of a call of {name} ({times} collections a call)."
    if (share := min(faults * (seen.fault_ns or 0.0) / call_ns, 1.0)) >= LEAST_SHARE:
        which = f"{name} ({faults:,.0f} page faults a call)"
        yield f"Memory that the system hands over takes about {share:.0%} of a call of {which}."
    first_ns = seen.first_call_ns or 0.0
    if first_ns >= max(LONG_FIRST_CALL * call_ns, LONG_FIRST_CALL_NS):
        yield f"The first call of {name} took {short_time(first_ns / 1e9)}; it is not in the number."
