"""The file of the pass that counts instructions."""

from __future__ import annotations

from typing import Annotated

from ...store.declared import JsonFile
from ...store.forms import Amount, Count, Text, once, says
from ...store.pass_schema import OfVariant


class Instructions(OfVariant):
    """How many instructions a call of a variant executes, counted by callgrind: work, and no time."""

    instructions: Annotated[Amount | None, says("instructions of a call; null: no count")] = None
    calls: Annotated[Count, says("number of calls that were counted")] = 0
    inputs: Annotated[Count, says("different inputs that a function was called with; 0 of a model")] = 0
    again: Annotated[Amount | None, says("the same, counted a second time; null: counted once")] = None
    by: Annotated[dict[str, Amount], says("whose code they lie in → instructions of a call")] = {}
    reason: Annotated[Text | None, says("why there is no count")] = None
    capability: Annotated[
        Text | None, says("instruction set that torch's kernels chose under valgrind; null: no torch")
    ] = None
    versions: Annotated[
        dict[str, Text], says("version of torch, Python, valgrind and (of functions) numpy by name")
    ] = {}


INSTRUCTIONS = JsonFile("instructions.json", Annotated[list[Instructions], once("workload", "variant")])
