"""Workloads in words, as pages call them: "prefill, 8 tokens, one 7B layer" for `prefill-7b-1layer-t8`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from llama_workbench.datasets.workloads import Workload as Shipped
from llama_workbench.datasets.workloads import workloads as shipped
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

KINDS = {
    "prefill": "A prompt is read: all its tokens at once, until the logits of the last one are there.",
    "decode": "One further token is computed, after others that are in the cache.",
    "generate": "A prompt is read, then tokens are generated one by one. A call is all of it.",
    "component": "One part of a layer, called alone, without a model around it.",
    "call": "A call of the two functions, with arguments from the function named below.",
}
"""What a call does, by kind."""


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
    return [*what, *filter(None, (_geometry(workload.geometry or "")[0], *how))]


def _geometry(geometry: str) -> tuple[str, str]:
    """A model's shape in a word or two: "15M" for 15 million parameters, "one 7B layer" for one as wide as 7B's; and
    what that shape is, as far as its name says it."""
    if size := re.fullmatch(r"(\d+)([mb])", geometry):
        return geometry.upper(), f": {size[1]} {'million' if size[2] == 'm' else 'billion'} parameters"
    if cut := re.fullmatch(r"(\d+b)-(\d+)layer", geometry):
        wide, single = cut[1].upper(), cut[2] == "1"
        layers = "one layer" if single else f"{cut[2]} layers"
        return (
            f"one {wide} layer" if single else f"{wide} width, {layers}",
            f": {layers} of the width of Llama-2-{wide}",
        )
    like = re.fullmatch(r"width-(\d+)", geometry)
    return geometry.replace("width-", "width "), f": one layer that is {like[1]} wide" if like else ""


def kind_and_model(workload: Workload) -> str:
    """The same without its lengths: "prefill, one 7B layer"."""
    return ", ".join(filter(None, (workload.kind, _geometry(workload.geometry or "")[0])))


def shipped_named(names: Iterable[str]) -> dict[str, str]:
    """Workloads in words by their names alone: those that come with the workbench."""
    known = shipped()
    return distinct({name: named(known[name]) if name in known else name for name in names})


def distinct(words: dict[str, str]) -> dict[str, str]:
    """The same, with the name behind words that stand for several."""
    several = [*words.values()]
    return {name: f"{said} ({name})" if several.count(said) > 1 else said for name, said in words.items()}


def facts(workload: Workload | Shipped) -> list[str]:
    """What a workload is, in sentences without the values of its defaults."""
    sentences = [KINDS.get(workload.kind or "", "")]
    if workload.kind == "component":
        sentences.append(f"Its input is as long as {workload.tokens:,} tokens.")
    elif workload.kind != "call":
        sentences += _sizes(workload)
    if workload.payload:
        sentences.append(f"The arguments come from {workload.payload}.")
    if workload.check:
        sentences.append(f"Both answers are compared by {workload.check}.")
    if workload.dtype and workload.dtype != "float32":
        sentences.append(f"Its numbers are {workload.dtype}.")
    if workload.threads and workload.threads > 1:
        sentences.append(f"It runs on {workload.threads} threads.")
    return [line for line in sentences if line]


def _sizes(workload: Workload | Shipped) -> Iterable[str]:
    """Of a task for a model."""
    lengths = {
        "trace": f"Lengths are drawn from a trace of real requests; their mean is {workload.tokens:,} tokens.",
        "distinct": f"No two prompts have the same length; they have about {workload.tokens:,} tokens.",
    }
    if workload.kind == "decode":
        yield f"In the cache before it: {workload.context:,} token{'s' * (workload.context != 1)}."
    else:
        yield lengths.get(
            workload.lengths or "", f"The prompt has {workload.tokens:,} token{'s' * (workload.tokens != 1)}."
        )
    if workload.chunk:
        yield f"The prompt is read in chunks of {workload.chunk:,} tokens."
    if workload.new_tokens:
        yield f"It generates {workload.new_tokens:,} tokens."
    if workload.batch and workload.batch > 1:
        yield f"{workload.batch} sequences share each call."
    if workload.geometry:
        yield f"The model has the shape {workload.geometry}{_geometry(workload.geometry)[1]}."
