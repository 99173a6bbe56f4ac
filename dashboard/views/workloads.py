"""Workloads in words, as pages call them: "prefill, 8 tokens, one 7B layer" for `prefill-7b-1layer-t8`; and what a
variant is, for the card of its name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from llama_workbench import variants
from llama_workbench.datasets.workloads import Workload as Shipped
from llama_workbench.datasets.workloads import workloads as shipped
from llama_workbench.harness.spec.comparison import AA, COPY, EnteredName
from llama_workbench.harness.store.schema import Workload

PARTS = {
    "mask-get": "get a mask",
    "mask-create": "make a mask",
    "mask-apply": "apply a mask",
    "mask-create-apply": "make and apply a mask",
    "rope": "RoPE",
    "qkv": "Q, K and V projection",
    "scores": "attention scores",
    "softmax-output": "softmax and output",
    "attention": "attention",
    "rope-attention": "RoPE and attention",
    "worker-layer": "projections, RoPE and attention",
}
"""Parts of a model that are timed alone."""


def named(workload: Workload | Shipped) -> str:
    """A workload in words; its own name where nothing is known of it, or it is no task for a model."""
    return ", ".join(parts_of(workload))


def parts_of(workload: Workload | Shipped) -> list[str]:
    """The same, part by part: "prefill", "8 tokens", "one 7B layer"."""
    tokens, batch = f"{workload.tokens:,}", workload.batch or 1
    plural = "s" * (workload.tokens != 1)
    match workload.kind:
        case "prefill" if workload.lengths == "trace":
            what = ["prefill", "lengths of a trace"]
        case "prefill":
            about = "about " if workload.lengths == "distinct" else ""
            many = f"{batch} × " if batch > 1 else ""
            chunks = f" in chunks of {workload.chunk}" if workload.chunk else ""
            what = ["prefill", f"{about}{many}{tokens} token{plural}{chunks}"]
            what += ["all lengths different"] if about else []
        case "decode":
            many = f"{batch} × " if batch > 1 else ""
            what = ["decode", f"{many}after {workload.context:,} token{'s' * (workload.context != 1)}"]
        case "generate" if workload.new_tokens:
            many = f"{batch} × " if batch > 1 else ""
            what = ["generate", f"{many}{workload.new_tokens:,} after {tokens}"]
        case "component" if workload.component:
            return [PARTS.get(workload.component, workload.component), f"{tokens} token{plural}"]
        case _:
            return [workload.name]
    dtype, threads = workload.dtype or "float32", workload.threads or 1
    how = (dtype * (dtype != "float32"), f"{threads} threads" * (threads > 1))
    return [*what, *filter(None, (_geometry(workload.geometry or ""), *how))]


def _geometry(geometry: str) -> str:
    """A model's shape in a word or two: "15M" for 15 million parameters, "one 7B layer" for one as wide as 7B's."""
    if re.fullmatch(r"\d+[mb]", geometry):
        return geometry.upper()
    if cut := re.fullmatch(r"(\d+b)-(\d+)layer", geometry):
        wide = cut[1].upper()
        return f"one {wide} layer" if cut[2] == "1" else f"{wide} width, {cut[2]} layers"
    return geometry.replace("width-", "width ")


def kind_and_model(workload: Workload) -> str:
    """The same without its lengths: "prefill, one 7B layer"."""
    return ", ".join(filter(None, (workload.kind, _geometry(workload.geometry or ""))))


def shipped_named(names: Iterable[str]) -> dict[str, str]:
    """Workloads in words by their names alone: those that come with the workbench."""
    known = shipped()
    return distinct({name: named(known[name]) if name in known else name for name in names})


def distinct(words: dict[str, str]) -> dict[str, str]:
    """The same, with the name behind words that stand for several."""
    several = [*words.values()]
    return {name: f"{said} ({name})" if several.count(said) > 1 else said for name, said in words.items()}


# -- variants ----------------------------------------------------------------------------------------------------------

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
