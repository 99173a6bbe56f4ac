"""What a variant is, for the card of its name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from llama_workbench import variants
from llama_workbench.harness.spec.comparison import AA, COPY, EnteredName

COPIES = {
    AA: "The same once more: an A/A check. It shows by how much identical code seems to differ.",
    COPY: "A copy of its source, imported under another name: an A/A check.",
}
"""What the controls of a variant are."""

AXES = {
    "layout": "files",
    "granularity": "calls",
    "cache": "cache",
    "mask": "mask",
    "mask_application": "mask is",
    "kv": "keys and values",
    "rope": "RoPE",
    "boundary": "tensors",
    "norm": "norm",
    "softmax": "softmax",
    "attention": "attention",
}


@dataclass(frozen=True)
class Card:
    """What a reader is told of a name. `axes`: how it is built, by axis; empty where the axes do not apply."""

    name: str
    told: str
    axes: str = ""
    source: str = ""


def differing(names: Sequence[str]) -> Collection[str]:
    """The axes on which these variants differ, of those that have axes; all of them where that are fewer than two."""
    known = [variants.get(name).factors for name in names if name in variants.names()]
    known = [factors for factors in known if factors]
    return [axis for axis in AXES if len(known) < 2 or len({factors.get(axis) for factors in known}) > 1]


def card(name: str, shown: Collection[str] = tuple(AXES)) -> Card:
    """The card of a variant or function by its name, whether or not this version knows it. `shown`: which axes."""
    entered = EnteredName(name)
    original, copy = entered.original, entered.control
    known = variants.get(original) if original in variants.names() else None
    if known is None:
        return Card(name, COPIES.get(copy, "Named on the command line of the run; not part of the workbench."))
    levels = {axis: level.replace("_", " ") for axis, level in known.factors.items() if axis in shown}
    axes = ", ".join(f"{AXES.get(axis, axis)}: {level}" for axis, level in levels.items())
    description = f"{known.description[:1].upper()}{known.description[1:]}."
    return Card(name, f"{description} {COPIES[copy]}" if copy in COPIES else description, axes, known.source)
