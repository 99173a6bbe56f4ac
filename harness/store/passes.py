"""The files of passes whose content is shown or judged outside of the slice that writes them too."""

from __future__ import annotations

from typing import Annotated

from ..spec.sample import PhaseTime
from ..spec.table import Table
from .forms import Amount, Count, JsonFile, Nanoseconds, OfVariant, Shape, Size, TableFile, Text, says
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


# -- profiles and memory -----------------------------------------------------------------------------------------------


class Profile(OfVariant):
    """A sampling profile of a variant."""

    path: Annotated[Text | None, says("its stacks, a file in the run folder")] = None
    rate_hz: Annotated[Amount | None, says("samples a second")] = None
    samples: Annotated[Count, says("number of samples")] = 0
    median_ns: Annotated[Nanoseconds | None, says("time of a call meanwhile, nanoseconds")] = None
    median_error_ns: Annotated[Amount | None, says("standard error of that, nanoseconds")] = None
    reason: Annotated[Text | None, says("why there is no profile")] = None


PROFILES = JsonFile("profiles.json", list[Profile])


class Memory(OfVariant):
    """The memory of a variant on a workload."""

    peak_transient_bytes: Annotated[Amount | None, says("most bytes that a call had allocated at a time")] = None
    parameter_bytes: Annotated[Amount | None, says("bytes of weights")] = None
    cache_bytes: Annotated[Amount | None, says("bytes of caches, and of copies of weights")] = None
    kept_bytes: Annotated[
        Amount | None,
        says("of a function: bytes that importing it and a first call allocated and left: answer, caches, globals"),
    ] = None
    reason: Annotated[Text | None, says("why there are no values")] = None

    @property
    def held_bytes(self) -> float | None:
        """What a variant keeps beside the weights that it was given, once a call is over; None where nobody looked."""
        return self.cache_bytes if self.parameter_bytes else self.kept_bytes


MEMORY = JsonFile("memory.json", list[Memory])


# -- where the time goes, line by line ---------------------------------------------------------------------------------

SIDES = ("baseline", "variant")


class SampledLine(Shape):
    """A line of a function as it was reached, with the samples that one side has there."""

    side: Annotated[Text, says("baseline or variant")]
    function: Annotated[Text, says("with its class, as in its file")]
    file: Annotated[Text, says("where it stands")]
    line: Annotated[Count, says("the line that was executed; 0: not known")]
    text: Annotated[Text, says("what stands in that line")]
    way: Annotated[list[Text], says("frames on the way to it, FUNCTION (FILE:LINE), outermost first")] = []
    below: Annotated[list[Text], says("frames of libraries that it called")] = []
    samples: Annotated[list[Count], says("in each process")]
    runs: Annotated[Count | None, says("how often the line runs in one call; null: not counted")] = None


class FunctionCode(Shape):
    """The code of a function that a side ran, other than of libraries."""

    side: Annotated[Text, says("baseline or variant")]
    function: Annotated[Text, says("with its class, as in its file")]
    file: Annotated[Text, says("where it stands")]
    line: Annotated[Count, says("its first line")]
    code: Annotated[list[Text], says("its lines")]


class SampledPair(Shape):
    """Where both sides of a comparison spend their time."""

    workload: Annotated[Text, says("on which workload")]
    variant: Annotated[Text, says("of which variant")]
    baseline: Annotated[Text, says("against which variant")]
    call_ns: Annotated[dict[Text, Nanoseconds], says("side → time of a call in the rounds")] = {}
    roots: Annotated[dict[Text, Text], says("side → the function that is compared")] = {}
    samples: Annotated[dict[Text, list[Count]], says("side → all of its samples, in each process")] = {}
    lines: Annotated[list[SampledLine], says("lines with samples")] = []
    code: Annotated[list[FunctionCode], says("of the functions that have samples or call one that has")] = []
    seconds: Annotated[Amount, says("that looking took")] = 0.0
    reason: Annotated[Text | None, says("why there are none")] = None


CAUSES = JsonFile("causes.json", list[SampledPair])
