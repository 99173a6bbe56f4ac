"""What run.json keeps so that a run can go on later: when it was measured, by which code, and how its pairs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StrictBool

from ..spec.comparison import Metric
from .forms import ABSENT, Amount, Count, Shape, Text, says


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
