"""Workloads in words, as answers and pages call them: "prefill, 8 tokens, one 7B layer" for `prefill-7b-1layer-t8`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from llama_workbench.datasets.workloads import Workload as Shipped
from llama_workbench.datasets.workloads import workloads as shipped

from ..store.schema import Workload

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


def kind_and_model(workload: Workload | Shipped) -> str:
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


def kind_of(name: str) -> str:
    """What a workload does, "prefill" or "decode"; empty where it does not come with the workbench."""
    known = shipped().get(name)
    return known.kind if known else ""


def told_apart(names: Sequence[str]) -> list[str]:
    """Workloads by their names, in as few words as tell them apart: "prefill" and "decode", "decode, 15M" and "decode,
    one 7B layer", "8 tokens" and "128 tokens". The names themselves where one does not come with the workbench."""
    known = shipped()
    if not known.keys() >= {*names}:
        return list(names)
    rows = [parts_of(known[name]) for name in names]
    differ = [len({*column}) > 1 for column in zip(*rows, strict=False)]
    if len({*map(len, rows)}) == 1:
        rows = [[part for part, differs in zip(row, differ, strict=True) if differs] for row in rows]
    ways: tuple[Sequence[str], ...] = (
        [known[name].kind for name in names],
        [kind_and_model(known[name]) for name in names],
        [", ".join(row) for row in rows],
    )
    return next(([*texts] for texts in ways if len({*texts}) == len({*names}) and all(texts)), list(names))
