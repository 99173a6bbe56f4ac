"""What run.json keeps of the checks of variants: gates, operations, ratios measured again, and who was excluded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool

from ..spec.comparison import Metric
from ..spec.words import Cause
from .forms import ABSENT, Amount, Count, Log, Number, Ratio, Shape, Text, says

AnyNumber = Annotated[float, Field(strict=True)]
"""A number that may be infinite in memory; in a file that is null."""


class Excluded(Shape):
    """A variant that was excluded."""

    variant: Annotated[Text, says("its name")]
    reason: Annotated[Text, says("why the run went on without it")]
    cause: Annotated[Cause, says("the kind of that reason")] = Cause.EXCLUDED


class Gate(Shape):
    """What the logits gate says of a variant."""

    passed: Annotated[StrictBool, says("whether its outputs agree with the reference")]
    detail: Annotated[Text | None, says("the largest difference, in words")] = None
    cases: Annotated[Count | None, says("number of inputs that were compared")] = None
    max_error: Annotated[AnyNumber | None, says("largest difference; null: beyond all numbers")] = None
    tolerance: Annotated[Number | None, says("how large it may be")] = None
    unable: Annotated[StrictBool, says("whether an engine says that it cannot do this workload: no failure")] = False


class ChangedSetting(Shape):
    """What a function changed for its whole process."""

    what: Annotated[Text, says("the setting")]
    felt: Annotated[StrictBool, says("whether others feel it; else it is undone until the function's next turn")] = (
        False
    )


class SideFacts(Shape):
    """How a function ran, by what its gate and its rounds saw: what a reader must know beside the number. A field that
    is null was not seen."""

    first_call_ns: Annotated[Amount | None, says("time of its first call, with what its factory took, nanoseconds")] = (
        None
    )
    wall_ns: Annotated[
        Amount | None, says("time of a call in its gate after its first, by the wall clock, nanoseconds")
    ] = None
    waited_ns: Annotated[
        Amount | None, says("of that, how long it waited and no thread of it computed, nanoseconds")
    ] = None
    is_import: Annotated[StrictBool, says("whether it is an import, in a Python that had begun before")] = False
    is_apart: Annotated[StrictBool, says("whether only a part of each of its calls counts")] = False
    work: Annotated[dict[Text, Amount], says("what a call does by its input generator: items, bytes, flops")] = {}
    collections_per_call: Annotated[Amount | None, says("collections of garbage in a call, of all generations")] = None
    collection_share: Annotated[Amount | None, says("of a call's time, what they take")] = None
    fault_ns: Annotated[Amount | None, says("what a page fault takes there, nanoseconds")] = None
    copies_inputs: Annotated[
        StrictBool | None, says("whether its calls were given copies, because they change what is handed out again")
    ] = None
    inputs: Annotated[
        Count | None,
        says("how many inputs a process made that were given to several calls each, or copies of them; null: none"),
    ] = None
    gains_again: Annotated[
        Log | None,
        says("log units by which it gains more than the baseline where an input is given again, so that none was"),
    ] = None
    children_share: Annotated[
        Amount | None, says("CPU time of the processes that it starts, by its wall time; null: it starts none")
    ] = None
    threads_share: Annotated[
        Amount | None, says("CPU time of its threads beside the calling one, by its wall time; null: they do little")
    ] = None
    sets_collector: Annotated[
        StrictBool | None, says("whether it sets the garbage collector, which is left to it in a process of its own")
    ] = None
    files_left: Annotated[Amount | None, says("files that a call leaves open, on average")] = None
    changes: Annotated[list[ChangedSetting], says("what it changed for its whole process")] = []


class Trace(Shape):
    """The operations of a variant."""

    digest: Annotated[Text, says("SHA-256 of their list; equal lists are equal operations")]
    ops: Annotated[Count, says("number of operations in a forward")]
    attention_kernels: Annotated[list[Text] | None, says("its fused attention kernels")] = None
    counts: Annotated[dict[str, Count] | None, says("how often each of them runs")] = None


class TraceDifference(Shape):
    """How the operations of two variants differ."""

    baseline: Annotated[Text, says("one variant")]
    variant: Annotated[Text, says("the other variant")]
    same: Annotated[StrictBool, says("whether both do the same operations")]
    detail: Annotated[Text | None, says("where they differ, in words")] = None
    counts: Annotated[list[tuple[Text, Count, Count]], says("[operation, baseline's calls, variant's]")] = []


class Confirmed(Shape):
    """A ratio that was measured again in fresh processes, timed from outside."""

    variant: Annotated[Text, says("the faster or slower side")]
    baseline: Annotated[Text, says("what it is compared with")]
    ratio: Annotated[Ratio, says("t_baseline / t_variant, timed from outside")]
    inside: Annotated[Ratio, says("the same by the rounds")]
    calls: Annotated[Count, says("number of calls that were timed")]


# What run.json keeps so that a run can go on later: when it was measured, by which code, and how its pairs.


class Sitting(Shape):
    """A stretch of time in which the run was measured."""

    started: Annotated[Text, says("its start, ISO 8601, UTC")]
    budget_seconds: Annotated[Amount, says("time that it was given, seconds")]
    others: Annotated[
        Amount | None, ABSENT, says("share of the machine that other programs used meanwhile; absent: not known")
    ] = None


class SourceRecord(Shape):
    """The code of a variant, or of a function."""

    digest: Annotated[
        Text, says("SHA-256 of its source, and of the files that it imports by name; of a revision, of its commit")
    ]
    file: Annotated[Text | None, says("name of the file, where the user brought one")] = None
    given: Annotated[
        Text | None, says("what the user brought, as it is given again: NAME=FILE:FUNCTION@COMMIT, no folders")
    ] = None
    commit: Annotated[Text | None, says("full name of the commit, where the code is of a revision")] = None


class CommandsRecord(Shape):
    """How the commands of a comparison were run."""

    ignore_failure: Annotated[Literal["any"] | list[int], says("exit codes that are no failure; any: all of them")] = []
    prepare: Annotated[Text, says("what ran before each call, untimed; empty: nothing")] = ""
    conclude: Annotated[Text, says("what ran after each call, untimed; empty: nothing")] = ""
    input: Annotated[Text, says("name of the file that was standard input, without folders; empty: nothing was")] = ""
    input_digest: Annotated[Text, says("SHA-256 of that file")] = ""


class CallSources(Shape):
    """The code that makes what functions are called with, and that compares their answers."""

    payload: Annotated[SourceRecord, says("makes the arguments of a call")]
    check: Annotated[SourceRecord | None, says("compares two answers; null: as the workbench does")] = None
    commands: Annotated[
        CommandsRecord | None, ABSENT, says("how commands were run, where that was said; absent: by their words alone")
    ] = None


class LostLife(Shape):
    """A process that failed while it measured; the rounds that it had finished count."""

    process: Annotated[Count, says("its number")]
    variant: Annotated[Text | None, says("the side that ran; null: none")] = None
    reason: Annotated[Text, says("how it failed")]


class Sources(Shape):
    """The code that was measured, and the code that measured it."""

    variants: Annotated[dict[str, SourceRecord], says("by variant")]
    calls: Annotated[dict[str, CallSources], says("by workload, where functions are compared")] = {}
    harness: Annotated[Text, says("SHA-256 of the source of the measuring processes, and of what they are told")]


class SideEnvironment(Shape):
    """What a function ran in, where it had an environment, variables or interpreter options of its own."""

    python: Annotated[Text | None, says("version of Python, where --env named an environment; null: as the run")] = None
    packages: Annotated[dict[str, Text | None], says("version by package; null: not installed")] = {}
    differs: Annotated[list[Text], says("packages whose versions the environments do not share")] = []
    variables: Annotated[dict[str, Text], says("variables of its environment that were its own, without folders")] = {}
    options: Annotated[Text, says("options of its interpreter that were its own")] = ""


class Apart(Shape):
    """A pair that is measured in rounds of its own."""

    variant: Annotated[Text, says("one side")]
    baseline: Annotated[Text, says("the other side")]
    metric: Annotated[Metric, says("what of the calls is compared")]
    blocks: Annotated[StrictBool | None, says("whether its rounds are blocks; null before the first")] = None
