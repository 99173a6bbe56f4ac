"""What run.json keeps so that a run can go on later: when it was measured, by which code, and how its pairs."""

from __future__ import annotations

from typing import Annotated

from pydantic import StrictBool

from ..spec.comparison import Metric
from .forms import MAYBE, Amount, Shape, Text, says


class Sitting(Shape):
    """A stretch of time in which the run was measured."""

    started: Annotated[Text, says("its start, ISO 8601, UTC")]
    budget_seconds: Annotated[Amount, says("time that it was given, seconds")]


class Source(Shape):
    """The code of a variant."""

    digest: Annotated[Text, says("SHA-256 of its source, and of the files that it imports by name")]
    file: Annotated[Text | None, MAYBE, says("name of the file, of a variant that --add-variant brought")] = None


class Sources(Shape):
    """The code that was measured, and the code that measured it."""

    variants: Annotated[dict[str, Source], says("by variant")]
    harness: Annotated[Text, says("SHA-256 of the source of the measuring processes, and of what they are told")]


class SideEnvironment(Shape):
    """What a function ran in, where --env named an environment for it."""

    python: Annotated[Text, says("version of Python")]
    packages: Annotated[dict[str, Text | None], says("version by package; null: not installed")] = {}
    differs: Annotated[list[Text], says("packages whose versions the environments do not share")] = []


class Apart(Shape):
    """A pair that is measured in rounds of its own."""

    variant: Annotated[Text, says("one side")]
    baseline: Annotated[Text, says("the other side")]
    metric: Annotated[Metric, says("what of the calls is compared")]
    blocks: Annotated[StrictBool | None, MAYBE, says("whether its rounds are blocks; null before the first")] = None
