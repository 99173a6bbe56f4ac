"""The files of passes whose content is shown or judged outside of the slice that writes them too."""

from __future__ import annotations

from typing import Annotated

from ..spec.sample import PhaseTime
from ..spec.table import Table
from .forms import Amount, Count, JsonFile, OfVariant, Shape, Size, TableFile, Text, says
from .tables import repeated

# -- the memory that caches hold, over lengths -------------------------------------------------------------------------


class Held(Shape):
    """Bytes of live tensors by kind."""

    held: Annotated[dict[str, Count], says("after the calls")] = {}
    kept: Annotated[dict[str, Count], says("after a reset")] = {}


class SweepStep(Held):
    """The live tensors after calls of some lengths."""

    lengths: Annotated[list[Count], says("the lengths so far")]
    computed: Annotated[Held | None, says("the memory that the variant's policies expect")] = None


class Fill(Shape):
    """Keys and values after one sequence alone."""

    part: Annotated[Count, says("the longest length by the sequence's")]
    kv: Annotated[Count, says("bytes of keys and values")]


class Sweep(OfVariant):
    """Live tensors of a variant over lengths."""

    reason: Annotated[Text | None, says("why there are no steps")] = None
    steps: Annotated[list[SweepStep], says("before the first call, and after each")] = []
    fills: Annotated[list[Fill], says("keys and values, by how much of the room is used")] = []
    served: Annotated[list[Size] | None, says("lengths that were called")] = None
    weights_bytes: Annotated[Count | None, says("bytes of weights")] = None


MEMORY_SWEEP = JsonFile("memory_sweep.json", list[Sweep])


# -- the time breakdown ------------------------------------------------------------------------------------------------


class PhaseFacts(OfVariant):
    """How the phases of a variant were timed; the times are in phases.parquet."""

    rounds: Annotated[Count, says("number of rounds")] = 0
    reason: Annotated[Text | None, says("why there are no phases")] = None
    clock: Annotated[Text | None, says("the clock, in words")] = None
    busy: Annotated[Amount | None, says("share of the machine that other programs used meanwhile, median")] = None
    lines: Annotated[
        dict[str, dict[str, tuple[list[Text], list[Text]]]],
        says("file → line → [phases of its own code, phases of what it calls]"),
    ] = {}


def _fault(table: Table) -> str:
    if (table["ns"] < 0).any() or (table["plain_ns"] <= 0).any():
        return "holds a phase or a call with no time"
    if repeated(table, *(name for name in PhaseTime._fields if name not in ("ns", "plain_ns"))) is not None:
        return "holds a phase of a call twice"
    return ""


PHASE_FACTS = JsonFile("phases.json", list[PhaseFacts])
PHASES = TableFile("phases.parquet", PhaseTime, _fault)
