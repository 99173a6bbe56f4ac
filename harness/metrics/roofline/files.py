"""The file of the roofline pass."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from ...store.declared import JsonFile
from ...store.forms import MOST, Count, Shape, Some, Text, once, says

_Tokens = Annotated[int, Field(ge=0, le=MOST)]


class Roof(Shape):
    """A peak kernel that was timed."""

    kernel: Annotated[Text, says("which kernel")]
    amount: Annotated[Some, says("operations, or bytes that it reads, of a call")]


class RoofEntry(Shape):
    """A variant of the roofline pass."""

    clock: Annotated[Literal["cpu", "wall"], says("which of its times counts")] = "cpu"
    reason: Annotated[Text | None, says("why it has no samples")] = None


class RoofSample(NamedTuple):
    """`calls` calls of a peak kernel, one after another: a list of these values."""

    roof: Literal["matmul", "memory"]
    round: Count
    sub_round: Count
    calls: Count
    cpu_ns: Count
    wall_ns: Count


class CallSample(NamedTuple):
    """Calls of a variant worth `calls` calls of `tokens` tokens, one after another: a list of these values."""

    variant: Text
    round: Count
    sub_round: Count
    tokens: Count
    calls: Count
    cpu_ns: Count
    wall_ns: Count


class Roofline(Shape):
    """Variants beside peak kernels on one workload."""

    workload: Annotated[Text, says("on which workload")]
    reason: Annotated[Text | None, says("why there is nothing else")] = None
    variants: Annotated[dict[str, RoofEntry], says("the variants that were asked for")] = {}
    rounds: Annotated[Count, says("number of rounds")] = 0
    roofs: Annotated[dict[Literal["matmul", "memory"], Roof], says("the peak kernels")] = {}
    weight_bytes: Annotated[Count, says("what each forward reads beside keys and values")] = 0
    cache_bytes: Annotated[Some | None, says("size of the last-level cache; null: unknown")] = None
    work: Annotated[
        dict[_Tokens, Annotated[list[tuple[Some, Some]], Field(min_length=1)]],
        says("tokens of a call → [operations, bytes] of each of its forwards"),
    ] = {}
    roof_samples: Annotated[list[RoofSample], says("times of the peak kernels")] = []
    samples: Annotated[list[CallSample], says("times of the variants")] = []


ROOFLINE = JsonFile("roofline.json", Annotated[list[Roofline], once("workload")])
