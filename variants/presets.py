"""The variants by name: the dispute's history, the grid, the library's model, and ours.

Nothing here imports torch; `Variant.build` does when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from . import engines
from .config import LlamaConfig
from .engines import Engine
from .memory_policy import Policy, policy_of
from .settings import Settings

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
class Variant:
    """A named architecture.

    `factors` maps axis → level (empty where the axes do not apply); `source` says which system does it so; `settings`
    is None for code that is not ours to configure. `engine` is there for what runs outside torch; of an engine whose
    parts can be measured alone, `component(name, config, *, tokens, seed)` makes one as `components.build` does.
    `compiled`: its operations are torch.compile's own, which no op trace and no names of phases can see.
    `memory`: what it must hold, where that is known.
    """

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


@dataclass(frozen=True)
class _LazyBuild:
    """Imports the module that builds only when a model is asked for (torch takes a second to import)."""

    module: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int) -> Model:
        build: Callable[..., Model] = import_module(self.module, __package__).build
        return build(config, weights, max_length=max_length, **self.options)


def _ours(name: str, settings: Settings, description: str, source: str) -> Variant:
    if settings.granularity == "inline":
        build = _LazyBuild(".inline")
    else:
        module = ".modular.model" if settings.layout == "modular" else ".single_file"
        build = _LazyBuild(module, {"settings": settings})
    return Variant(name, build, description, source, settings.factors(), settings, memory=policy_of(settings))


_TEAM006_BEFORE = Settings()
_TEAM006_AFTER = replace(_TEAM006_BEFORE, mask="per_layer")
_TEAM005_HYBRID = replace(_TEAM006_BEFORE, cache="unified", mask="per_model")
_TEAM005_PROPOSAL = replace(_TEAM005_HYBRID, layout="single_file")
_CANDLE = replace(
    _TEAM005_PROPOSAL, mask_application="masked_fill", kv="cat", rope="rotate_half", boundary="bhtd", softmax="fused"
)


def _history() -> list[Variant]:
    """The ladder: each preset changes one axis of the one before (the last changes several, as Candle does)."""
    worker = "the Rust/Candle worker of the dispute"
    return [
        _ours(
            "team003",
            replace(_TEAM006_BEFORE, rope="narrow_cat"),
            "the layered worker with its oldest RoPE: pair by pair",
            worker,
        ),
        _ours("team006_before", _TEAM006_BEFORE, "the layered worker: a fresh mask per layer and call", worker),
        _ours("team006_after", _TEAM006_AFTER, "the same with a dict of masks in each Attention", worker),
        _ours(
            "team005_hybrid",
            _TEAM005_HYBRID,
            "layered files, but one Cache for KV, RoPE tables and masks by (T, kv)",
            "TEAM-005's analysis names it; never written",
        ),
        _ours(
            "team005_proposal",
            _TEAM005_PROPOSAL,
            "TEAM-005's rewrite: team005_hybrid in a single file",
            "TEAM-005's refactor plan",
        ),
        _ours("candle", _CANDLE, "Candle's Llama: single file, cat KV, half-split RoPE", "candle models/llama.rs"),
    ]


def _steps() -> list[Variant]:
    """Variants that isolate one axis the ladder does not step along."""
    return [
        _ours(
            "team005_split",
            replace(_TEAM005_HYBRID, cache="split"),
            "team005_hybrid with its caches apart (axis C alone)",
            "this project, to isolate ownership",
        ),
        _ours(
            "modular_rope_unified",
            replace(_TEAM005_HYBRID, cache="rope_unified"),
            "team005_split, but the RoPE tables live in a shared Cache (axis C, RoPE alone)",
            "this project, to isolate ownership of the RoPE tables",
        ),
        _ours(
            "modular_per_forward",
            replace(_TEAM006_BEFORE, mask="per_forward"),
            "team006_before with one mask per forward, shared by the layers, not kept",
            "meta llama/model.py, mistral.rs",
        ),
        _ours(
            "modular_kv_cat",
            replace(_TEAM006_AFTER, kv="cat"),
            "team006_after with a KV cache that grows by concatenation (axis F alone)",
            "candle models/llama.rs, transformers DynamicCache",
        ),
        _ours(
            "single_file_inline",
            replace(_TEAM005_PROPOSAL, granularity="inline"),
            "team005_proposal as one function without module calls (axis B alone)",
            "llama2.c in spirit",
        ),
    ]


def _grid() -> list[Variant]:
    """Layout × cache ownership × mask {fresh, per_model} × ops {composite, fused}: 16 cells, one set of logits."""
    cells = []
    for layout in ("modular", "single_file"):
        for cache in ("split", "unified"):
            for mask in ("fresh", "per_model"):
                for ops in ("composite", "fused"):
                    fused = ops == "fused"
                    settings = replace(
                        _TEAM006_BEFORE,
                        layout=layout,
                        cache=cache,
                        mask=mask,
                        norm=ops,
                        softmax=ops,
                        attention="sdpa" if fused else "manual",
                        mask_application="in_sdpa" if fused else "additive",
                    )
                    cells.append(
                        _ours(
                            f"grid_{layout}_{cache}_{mask}_{ops}",
                            settings,
                            f"grid cell: {layout}, {cache} caches, {mask} masks, {ops} norm, softmax and attention",
                            "full factorial of the dispute's axes",
                        )
                    )
    return cells


def grid_cells() -> tuple[str, ...]:
    """Names of the 16 cells, the one with all the old levels first."""
    return tuple(cell.name for cell in _grid())


def _plain(name: str, module: str, memory: Policy, description: str, source: str, **options: Any) -> Variant:
    """Code of torch's that no settings describe."""
    compiled = bool(options.get("compiled"))
    return Variant(name, _LazyBuild(module, options), description, source, compiled=compiled, memory=memory)


def _others() -> list[Variant]:
    library = "transformers modeling_llama.py"
    gpt_fast = "pytorch-labs/gpt-fast model.py"
    dynamic = Policy(mask="none", kv="cat", rope="frequencies", repacked="none")
    fast = Policy(mask="none", kv="preallocated", rope="full", repacked="matrices")
    static = Policy(mask="static", kv="static", rope="half", repacked="qkv", boolean_mask=True)
    return [
        _plain(
            "transformers_eager", ".library", dynamic,
            "the library's LlamaForCausalLM, eager attention, dynamic cache", library, attention="eager",
        ),
        _plain(
            "transformers_sdpa", ".library", dynamic,
            "the library's LlamaForCausalLM, SDPA, dynamic cache (its default)", library, attention="sdpa",
        ),
        _plain(
            "transformers_static", ".library", replace(dynamic, kv="static", counters=True),
            "the library's LlamaForCausalLM, SDPA, static cache of exactly the workload's length", library,
            attention="sdpa", static=True,
        ),
        _plain(
            "fast", ".fast", fast,
            "our best eager code: fused projections, transposed weights, SDPA, KV in place",
            "gpt-fast's recipe, litgpt's sliced KV",
        ),
        _plain("fast_compiled", ".fast", fast, "fast through torch.compile", "this project", compiled=True),
        _plain(
            "gpt_fast", ".gpt_fast", static,
            "gpt-fast's recipe, eager: static KV written by index, all of it attended under a mask", gpt_fast,
        ),
        _plain(
            "gpt_fast_compiled", ".gpt_fast", static,
            "gpt-fast's recipe through torch.compile, as it is meant to be used", f"{gpt_fast} and generate.py",
            compiled=True,
        ),
        _plain(
            "yardstick", ".yardstick", Policy(mask="fresh", kv="preallocated", rope="half", repacked="none"),
            "frozen code that saved runs are compared by; never edited", "this project",
        ),
    ]  # fmt: skip


def _candle_component(
    name: str, config: LlamaConfig, *, tokens: int, seed: int, fresh_masks: bool = False
) -> Component:
    build: Callable[..., Component] = import_module(".engines.candle_components", __package__).build
    return build(name, config, tokens=tokens, seed=seed, fresh_masks=fresh_masks)


def _engines() -> list[Variant]:
    """Other people's engines on the same checkpoint: context for the numbers, not evidence on architecture."""
    return [
        Variant(
            "candle_engine",
            _LazyBuild(".engines.candle"),
            "Candle's Llama on Candle's own kernels, called from Python",
            "the candle-nn wheel; candle models/llama.rs",
            engine=engines.CANDLE,
            component=_candle_component,
        ),
        Variant(
            "candle_engine_fresh",
            _LazyBuild(".engines.candle", {"fresh_masks": True}),
            "the same with a mask made by each layer at each call, as the worker did before",
            "the candle-nn wheel; the Rust/Candle worker of the dispute",
            engine=engines.CANDLE,
            component=partial(_candle_component, fresh_masks=True),
        ),
        Variant(
            "mistralrs",
            _LazyBuild(".engines.mistral_rs"),
            "mistral.rs: requests for tokens to an engine with threads of its own",
            "the mistralrs wheel",
            engine=engines.MISTRAL_RS,
        ),
        Variant(
            "llama_cpp",
            _LazyBuild(".engines.llama_cpp"),
            "llama.cpp in float32, through its C interface",
            "llama-cpp-python",
            engine=engines.LLAMA_CPP,
        ),
    ]


@lru_cache
def presets() -> Mapping[str, Variant]:
    """Every variant that ships with the workbench, by name, in the order of the story."""
    return {variant.name: variant for variant in (*_history(), *_steps(), *_grid(), *_others(), *_engines())}
