"""The file of the memory pass."""

from __future__ import annotations

from typing import Annotated

from ...store.declared import JsonFile
from ...store.forms import Count, Shape, Size, Text, says
from ...store.pass_schema import OfVariant


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
