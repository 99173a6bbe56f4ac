"""Engines by name, for `variants.presets`, which finds them here. Neither torch nor an engine is imported.

Nothing else names this folder. Without it the claims that name an engine cannot be planned: they go as well.
"""

from __future__ import annotations

from typing import Any

from ..presets import CANDLE_RS, WORKER, Engine, Lazy, Variant

_FRESH = {"fresh_masks": True}
CANDLE = Engine({"candle": "candle-nn"})
LLAMA_CPP = Engine({"llama_cpp": "llama-cpp-python", "gguf": "gguf"})
QUANTISED = Engine({"transformers": "transformers"})
"""Kernels of torch's that no operation of it names, on copies of the weights in a form of their own."""


def _on_candle(
    name: str, description: str, source: str, *, file: str = "candle_layers.model", **options: Any
) -> Variant:
    parts = Lazy(".engines.candle_components", _FRESH if name == "candle_worker" else {})
    has_parts = name in ("candle_worker", "candle_worker_masks")
    build = Lazy(f".engines.{file}", options)
    return Variant(name, build, description, source, engine=CANDLE, component=parts if has_parts else None)


# The dispute's own designs on the kernels that it was about. Each changes one thing of the one before it.
_THEIR_KERNELS = (
    _on_candle("candle_worker", "the worker before, on Candle's kernels: many files, a fresh mask per layer and call, "
               "zeros at decode", WORKER),
    _on_candle("candle_worker_masks", "candle_worker with a dict of masks in each Attention", WORKER,
               masks="per_layer"),
    _on_candle("candle_many_caches", "candle_worker_masks with one dict of masks for all layers", "this project, to "
               "isolate ownership", masks="per_model"),
    _on_candle("candle_many_files", "candle_many_caches with one Cache for KV, RoPE tables and masks by (T, kv)",
               "TEAM-005's analysis, its short-term step; never written", cache="unified"),
    _on_candle("candle_one_file", "candle_many_files in a single file", "TEAM-005's analysis", file="candle_one_file"),
    _on_candle("candle_rewrite_added", "candle_one_file with heads first once and RoPE inside attention: no copies "
               "there and back", "TEAM-005's analysis: an integrated pipeline", file="candle_one_file",
               integrated=True),
    _on_candle("candle_rewrite", "candle_rewrite_added with boolean masks: the rewrite as planned, on Candle's kernels",
               "TEAM-005's refactor plan; never written", file="candle_one_file", integrated=True, boolean=True),
    _on_candle("candle_worker_last", "candle_worker without zeros at decode, and with RoPE's angles computed in each "
               "layer and call; its masks are right, which theirs no longer were", "TEAM-008's last state",
               masks="prompts", inline_angles=True),
)  # fmt: skip

# Other people's engines on the same checkpoint: context for the numbers, not evidence on architecture.
PRESETS = (
    Variant("candle_engine", Lazy(".engines.candle"),
            "Candle's Llama on Candle's own kernels, called from Python", f"the candle-nn wheel; {CANDLE_RS}",
            engine=CANDLE, component=Lazy(".engines.candle_components")),
    Variant("candle_engine_fresh", Lazy(".engines.candle", _FRESH),
            "the same with a mask made by each layer at each call, as the worker did before",
            f"the candle-nn wheel; {WORKER}",
            engine=CANDLE, component=Lazy(".engines.candle_components", _FRESH)),
    *_THEIR_KERNELS,
    Variant("llama_cpp", Lazy(".engines.llama_cpp"), "llama.cpp in float32, through its C interface",
            "llama-cpp-python", engine=LLAMA_CPP),
    Variant("llama_cpp_q8", Lazy(".engines.llama_cpp", {"q8": True}), "llama_cpp with its matrices in Q8_0: int8, "
            "with a scale for 32 values", "llama-cpp-python; llama-quantize", engine=LLAMA_CPP,
            rounding="int8 weights"),
    Variant("transformers_int8", Lazy(".engines.library_int8", {"attention": "sdpa"}), "transformers_sdpa with its "
            "linear layers through torch's quantize_dynamic: int8, with a scale a row", "torch.ao.quantization",
            engine=QUANTISED, rounding="int8 products"),
)  # fmt: skip
