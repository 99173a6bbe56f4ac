"""What a variant is, for the card of its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_workbench import variants

COPIES = {
    "aa": "The same once more: a control. It shows by how much identical code seems to differ.",
    "copy": "A copy of its source, imported under another name: a control.",
}
"""What the part of a name behind "@" stands for."""

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


def card(name: str) -> Card:
    """The card of a variant or function by its name, whether or not this version knows it."""
    original, _, copy = name.partition("@")
    known = variants.get(original) if original in variants.names() else None
    if known is None:
        return Card(name, COPIES.get(copy, "Named on the command line of the run; not part of the workbench."))
    axes = ", ".join(f"{AXES.get(axis, axis)}: {level.replace('_', ' ')}" for axis, level in known.factors.items())
    told = f"{known.description[:1].upper()}{known.description[1:]}."
    return Card(name, f"{told} {COPIES[copy]}" if copy in COPIES else told, axes, known.source)


def are_models(names: Sequence[str]) -> bool:
    """Whether one of these is a variant of a Llama that this version knows."""
    return any(name.partition("@")[0] in variants.names() for name in names)
