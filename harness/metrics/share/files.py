"""The files of the phase pass: times of phases, and how they were taken."""

from __future__ import annotations

from typing import Annotated

from ...spec.sample import PhaseTime
from ...spec.table import Table
from ...store.declared import JsonFile, TableFile
from ...store.forms import Amount, Count, Text, says
from ...store.parquet import repeated
from ...store.pass_schema import OfVariant


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
