"""The variants by name: the dispute's history, the grid, the library's model, and ours. Only `build` imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from .config import LlamaConfig
from .memory_policy import Policy, policy_of
from .settings import Cache, Layout, Mask, Ops, Settings

if TYPE_CHECKING:
    from torch import Tensor

    from .components import Component


class Model(Protocol):
    """What a variant builds."""

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        """[B, T] tokens that start at `position` → [B, V] logits of the last one."""

    def reset(self) -> None:
        """Forget the sequence, keep what a new one may reuse."""


class Build(Protocol):
    """How a variant is built: weights carry Hugging Face names and may be repacked once, here."""

    def __call__(self, config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int) -> Model: ...


@dataclass(frozen=True)
class Engine:
    """What the workbench must know of an engine before it builds a model with it.

    `modules` maps each module that must be there to the distribution that brings it."""

    modules: Mapping[str, str]

    def missing(self) -> str | None:
        """What to install, in one line; None where all is there."""
        gone = [distribution for module, distribution in self.modules.items() if find_spec(module) is None]
        return f"not installed: pip install {' '.join(gone)}" if gone else None


@dataclass(frozen=True)
class Variant:
    """A named architecture.

    `factors` maps axis → level (empty where the axes do not apply); `source` says which system does it so; `settings`
    is None for code that is not ours to configure. `engine` is there for what runs outside torch. Where there are no
    settings and parts can be measured alone, `component(name, config, *, tokens, seed, device)` makes one as
    `components.build` does.
    `compiled`: its operations are torch.compile's own, which no op trace and no names of phases can see.
    `memory`: what it must hold, where that is known. `no_chunks`: why it does not do a prompt in chunks rightly; empty
    where it does. The gates leave those cases out and say so, and no workload that has them is measured.
    `rounding`: "bfloat16" or "int8" where keys and values are kept so; its logits are held to a reference that
    rounds its own in the same way. "int8 weights" or "int8 products" where its matrices are int8, or what they are
    multiplied with too: held to the plain reference within a wider tolerance (`worker.correctness`)."""

    name: str
    build: Build
    description: str
    source: str
    factors: Mapping[str, str] = field(default_factory=dict)
    settings: Settings | None = None
    engine: Engine | None = None
    compiled: bool = False
    component: Callable[..., Component] | None = None
    memory: Policy | None = None
    no_chunks: str = ""
    rounding: str = ""


@dataclass(frozen=True)
class Lazy:
    """`build` of a module, imported when it is called (torch takes a second to import)."""

    module: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return import_module(self.module, __package__).build(*args, **kwargs, **self.options)


def _ours(name: str, settings: Settings, description: str, source: str, **more: Any) -> Variant:
    module = ".modular.model" if settings.layout == "modular" else ".single_file"
    build = Lazy(module, {"settings": settings})
    if settings.granularity == "inline":
        build = Lazy(".inline", {"boundary": settings.boundary})
    return Variant(name, build, description, source, settings.factors(), settings, memory=policy_of(settings), **more)


def _plain(name: str, module: str, memory: Policy, description: str, source: str, **options: Any) -> Variant:
    """Code of torch's that no settings describe."""
    more: Any = {"compiled": bool(options.get("compiled")), "rounding": memory.rounding}
    return Variant(name, Lazy(module, options), description, source, memory=memory, **more)


_BEFORE = Settings()
_AFTER = replace(_BEFORE, mask="per_layer")
_HYBRID = replace(_BEFORE, cache="unified", mask="per_model")
_PROPOSAL = replace(_HYBRID, layout="single_file")
_INTEGRATED = replace(_PROPOSAL, boundary="within")
_PLANNED = replace(_INTEGRATED, mask_application="masked_fill")
_CANDLE = replace(_PROPOSAL, mask_application="masked_fill", kv="cat", boundary="within", softmax="fused")
WORKER, CANDLE_RS = "the Rust/Candle worker of the dispute", "candle models/llama.rs"

# The ladder: each preset changes one axis of the one before (the last changes several, as Candle does).
_HISTORY = (
    _ours("team003", replace(_BEFORE, rope="gathered"),
          "the layered worker with its oldest RoPE, which gathers columns; its scores, masks and softmax, which came "
          "later, are those of team006_before", WORKER),
    _ours("team006_before", _BEFORE, "the layered worker: a fresh mask per layer and call, zeros at decode", WORKER),
    _ours("team006_after", _AFTER, "the same with a dict of masks in each Attention", WORKER),
    _ours("team005_hybrid", _HYBRID, "layered files, but one Cache for KV, RoPE tables and masks by (T, kv)",
          "TEAM-005's analysis, its short-term step; never written"),
    _ours("team005_proposal", _PROPOSAL, "team005_hybrid in a single file: the layout alone of TEAM-005's rewrite",
          "TEAM-005's analysis"),
    _ours("team005_integrated", _INTEGRATED, "the same with RoPE inside attention: heads first once, no copies there "
          "and back", "TEAM-005's analysis: an integrated pipeline"),
    _ours("team005_planned", _PLANNED, "TEAM-005's rewrite as planned: one file, one Cache, heads first once, boolean "
          "masks; RoPE in one pass stands for the library's `rope`", "TEAM-005's refactor plan; never written"),
    _ours("candle", _CANDLE, "Candle's Llama: single file, cat KV; RoPE in one pass stands for its fused one",
          CANDLE_RS),
)  # fmt: skip

_COMPILED = tuple(
    Variant(f"{name}_compiled", Lazy(".compiled", {"settings": settings}), f"{name} through torch.compile, whole",
            "this project", compiled=True, memory=policy_of(settings))
    for name, settings in (("team006_after", _AFTER), ("team005_planned", _PLANNED))
)  # fmt: skip

# The worker's own rules for masks, to the letter: no model of theirs ran a prompt in chunks, where they are wrong.
_NO_MASK_LATER = "its rule masks nothing where a prompt goes on after earlier tokens"
_TO_THE_LETTER = (
    _ours("team006_before_literal", replace(_BEFORE, mask="fresh_or_zeros"),
          "team006_before by its own rule: zeros are made and added in later chunks of a prompt too",
          WORKER, no_chunks=_NO_MASK_LATER),
    _ours("team006_after_literal", replace(_BEFORE, mask="per_layer_by_length"),
          "team006_after by its own rule: a dict by T in each Attention, and no mask where T differs from the keys",
          WORKER, no_chunks=_NO_MASK_LATER),
    _ours("team008_cache_literal", replace(_HYBRID, mask="per_model_by_length"),
          "TEAM-008's unified cache by its own rule: masks by T, and none where T differs from the keys",
          "TEAM-008's migration plan; deleted before it was committed", no_chunks=_NO_MASK_LATER),
)  # fmt: skip

_AS_WRITTEN = (
    Variant("team006_after_in_out", Lazy(".as_written", {"settings": _AFTER, "part": "in_out"}),
            "team006_after with its Q, K and V weights as [in, out], as the worker had them", WORKER,
            memory=replace(policy_of(_AFTER), repacked="qkv")),
    Variant("team008_last", Lazy(".as_written", {"settings": _BEFORE, "part": "inline"}),
            "TEAM-008's last state, its mask mended: makes RoPE's tables at every call, masks at every prompt", WORKER,
            memory=replace(policy_of(_BEFORE), rope="inline")),
)  # fmt: skip

# Variants that isolate one axis the ladder does not step along.
_STEPS = (
    _ours("team005_split", replace(_HYBRID, cache="split"),
          "team005_hybrid with its caches apart (axis C alone)", "this project, to isolate ownership"),
    _ours("modular_rope_unified", replace(_HYBRID, cache="rope_unified"),
          "team005_split, but the RoPE tables live in a shared Cache (axis C, RoPE alone)",
          "this project, to isolate ownership of the RoPE tables"),
    _ours("modular_per_forward", replace(_BEFORE, mask="per_forward"),
          "team006_before with one mask per forward, shared by the layers, not kept",
          "meta llama/model.py, mistral.rs"),
    _ours("modular_fused_softmax", replace(_AFTER, softmax="fused"),
          "team006_after with its softmax in one call, which its library had (axis K, softmax alone)",
          "candle_nn::ops::softmax_last_dim"),
    _ours("modular_kv_cat", replace(_AFTER, kv="cat"),
          "team006_after with a KV cache that grows by concatenation (axis F alone)",
          f"{CANDLE_RS}, transformers DynamicCache"),
    _ours("single_file_inline", replace(_PROPOSAL, granularity="inline"),
          "team005_proposal as one function without module calls (axis B alone)", "llama2.c in spirit"),
)  # fmt: skip

_OPS: dict[str, Settings] = {
    "composite": _BEFORE,
    "fused": replace(_BEFORE, boundary="bhtd", softmax="fused", attention="sdpa", mask_application="in_sdpa"),
}
"""The worker's own, with its copies around RoPE; and heads first once, with one kernel for attention. RoPE is a Module
in both layouts."""


def _cell(layout: Layout, cache: Cache, mask: Mask, ops: Ops) -> Variant:
    settings = replace(_OPS[ops], layout=layout, cache=cache, mask=mask)
    description = f"grid cell: {layout}, {cache} caches, {mask} masks, {ops} softmax and attention"
    return _ours(f"grid_{layout}_{cache}_{mask}_{ops}", settings, description, "full factorial of the dispute's axes")


_GRID = tuple(
    _cell(layout, cache, mask, ops)
    for layout in ("modular", "single_file") for cache in ("split", "unified")
    for mask in ("fresh", "per_model") for ops in ("composite", "fused")
)  # fmt: skip
"""Layout × cache ownership × mask {fresh, per_model} × ops: 16 cells, one set of logits; first team006_before's."""


GRID_NAME = "grid"
GRID_AXES: tuple[tuple[str, str, str, Literal["architecture", "operations"]], ...] = (
    ("layout", "modular", "single_file", "architecture"),
    ("cache", "split", "unified", "architecture"),
    ("mask", "fresh", "per_model", "operations"),
    ("ops", "composite", "fused", "operations"),
)
"""Of the cells: axis, old level, new level, and what it changes. File layout and cache ownership against mask policy
and fused operations."""


def grid_cells() -> tuple[str, ...]:
    """Names of the 16 cells, the one with all the old levels first."""
    return tuple(cell.name for cell in _GRID)


_PATH = tuple(
    _ours(f"path_{settings.boundary}_{settings.granularity}", settings,
          f"a pair of factors: one file, RoPE takes {settings.boundary}, calls {settings.granularity}",
          "the dispute's integrated pipeline, taken apart")
    for outer in (_PROPOSAL, replace(_PROPOSAL, boundary="bhtd"))
    for settings in (outer, replace(outer, granularity="inline"))
)  # fmt: skip
"""Boundary of RoPE × granularity of calls: 4 cells, one set of logits. With the others they would be 64."""


_LADDER_STEPS = (
    ("ladder_inlined", "", Policy(mask="per_layer", kv="preallocated", rope="complex", repacked="qk"),
     "team006_after as one function, without calls of Modules"),
    ("ladder_heads_first", "heads_first", Policy(mask="per_layer", kv="preallocated", rope="half", repacked="none"),
     "ladder_inlined with heads first before RoPE, which turns halves: no copies there and back"),
    ("ladder_one_kernel", "one_kernel", Policy(mask="none", kv="preallocated", rope="half", repacked="none"),
     "ladder_heads_first with one kernel for scores, mask, softmax and output"),
    ("ladder_fused", "fused", Policy(mask="none", kv="preallocated", rope="full", repacked="joined"),
     "ladder_one_kernel with one product for Q, K and V, and one for gate and up"),
    ("ladder_transposed", "transposed", Policy(mask="none", kv="preallocated", rope="full", repacked="matrices"),
     "ladder_fused with weights [in, out] and residuals added by the product; fast leaves out what only the last "
     "position does not need"),
)  # fmt: skip


def _ladder() -> Iterator[Variant]:
    """From team006_after to fast, each with the steps of those before it."""
    taken: dict[str, bool] = {}
    for name, step, memory, description in _LADDER_STEPS:
        taken |= {step: True} if step else {}
        factors = {} if taken else replace(_AFTER, granularity="inline").factors()
        part = Lazy(".ladder_components") if step == "transposed" else None
        yield Variant(
            name, Lazy(".ladder", dict(taken)), description, "this project", factors, memory=memory, component=part
        )


_ONE_KERNEL = {"heads_first": True, "one_kernel": True}
_OFF_THE_LADDER = (
    Variant("sdpa_explicit_mask", Lazy(".ladder", {**_ONE_KERNEL, "explicit_mask": True}),
            "ladder_one_kernel with a cached mask handed to SDPA, which could be told is_causal", "many models' code",
            memory=Policy(mask="per_model", kv="preallocated", rope="half", repacked="none")),
    Variant("sdpa_repeated_heads", Lazy(".ladder", {**_ONE_KERNEL, "repeated": True}),
            "ladder_one_kernel with keys and values repeated for grouped queries, which SDPA can group itself",
            "transformers' repeat_kv",
            memory=Policy(mask="none", kv="preallocated", rope="half", repacked="none")),
)  # fmt: skip


_LIBRARY, _GPT_FAST = "transformers modeling_llama.py", "pytorch-labs/gpt-fast model.py"
_DYNAMIC = Policy(mask="none", kv="cat", rope="frequencies", repacked="none")
_FAST = Policy(mask="none", kv="preallocated", rope="full", repacked="matrices")
_STATIC = Policy(mask="static", kv="static", rope="half", repacked="qkv", boolean_mask=True)
_OTHERS = (
    _plain("transformers_eager", ".library", _DYNAMIC,
           "the library's LlamaForCausalLM, eager attention, dynamic cache", _LIBRARY, attention="eager"),
    _plain("transformers_sdpa", ".library", _DYNAMIC,
           "the library's LlamaForCausalLM, SDPA, dynamic cache (its default)", _LIBRARY, attention="sdpa"),
    _plain("transformers_static", ".library", replace(_DYNAMIC, kv="static", counters=True),
           "the library's LlamaForCausalLM, SDPA, static cache of exactly the workload's length", _LIBRARY,
           attention="sdpa", static=True),
    Variant("transformers_static_compiled", Lazy(".library_compiled", {"attention": "sdpa", "static": True}),
            "transformers_static through torch.compile, as its documentation has it", _LIBRARY, compiled=True,
            memory=replace(_DYNAMIC, kv="static", counters=True)),
    _plain("fast", ".fast", _FAST, "our best eager code: fused projections, transposed weights, SDPA, KV in place",
           "gpt-fast's recipe, litgpt's sliced KV"),
    _plain("fast_compiled", ".fast", _FAST, "our best code, compiled by torch.compile", "this project", compiled=True),
    Variant("fast_rows_compiled", Lazy(".fast_rows"),
            "fast_compiled with weights [out, in], whose products with one token the compiler writes itself",
            "this project", compiled=True, memory=replace(_FAST, repacked="joined")),
    _plain("fast_in_place", ".caches", _FAST,
           "fast with its KV cache behind the calls that the other ways to keep one need", "this project"),
    *(
        _plain(f"fast_paged_{page}", ".caches", replace(_FAST, kv="paged", page=page),
               f"fast_in_place with pages of {page} tokens and a block table, gathered by index for attention",
               "vLLM's paged KV cache", page=page)
        for page in (16, 64, 256)
    ),
    *(
        _plain(f"fast_kv_{rounding}", ".caches", replace(_FAST, rounding=rounding),
               f"fast_in_place with its keys and values in {what}, and everything computed as ever", source,
               rounding=rounding)
        for rounding, what, source in (
            ("bfloat16", "bfloat16", "llama.cpp's --cache-type-k and --cache-type-v"),
            ("int8", "int8 with a scale for each token and head", "vLLM's and LMDeploy's int8 KV cache"),
        )
    ),
    _plain("gpt_fast", ".gpt_fast", _STATIC,
           "gpt-fast's recipe, eager: static KV written by index, all of it attended under a mask", _GPT_FAST),
    _plain("gpt_fast_compiled", ".gpt_fast", _STATIC,
           "gpt-fast's recipe through torch.compile, as it is meant to be used", f"{_GPT_FAST} and generate.py",
           compiled=True),
    _plain("yardstick", ".yardstick", Policy(mask="fresh", kv="preallocated", rope="half", repacked="none"),
           "frozen code that saved runs are compared by; never edited", "this project"),
)  # fmt: skip

USUAL_BASELINE, USUAL_COPY, MODULAR = "team006_before", "team005_proposal", "team005_hybrid"
"""What a variant is compared with where nobody says with what; of what a copy rides along where it is there; and what
stands for our modular code where something is checked on it."""

GENERATING = ("team006_before", "team006_after", "team005_hybrid", "team005_proposal", "candle", "fast")
"""Those whose generation is checked token by token."""


def _of_folders() -> Iterator[Variant]:
    """Those of folders beside this file that can be taken away: PRESETS of their `presets.py`."""
    for path in sorted(Path(__file__).parent.glob("*/presets.py")):
        yield from import_module(f".{path.parent.name}.presets", __package__).PRESETS


@lru_cache
def presets() -> Mapping[str, Variant]:
    """Every variant that ships with the workbench, by name, in the order of the story."""
    return {
        variant.name: variant
        for variant in (
            *_HISTORY,
            *_COMPILED,
            *_TO_THE_LETTER,
            *_AS_WRITTEN,
            *_STEPS,
            *_GRID,
            *_PATH,
            *_ladder(),
            *_OFF_THE_LADDER,
            *_OTHERS,
            *_of_folders(),
        )
    }
