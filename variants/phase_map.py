"""The phases of a forward: what each is, which ATen ops may run in it, and how a variant's source names them.

Our variants name the phase of each statement on a forward's path by a comment beside it, `# phase: NAME`. On a line of
its own the comment names what follows in its block, up to the next one or an empty line. Parts of a statement may have
phases of their own, `# phase: NAME; PART: NAME`: a call by the end of what it calls (`linear` of `F.linear(...)`), a
product or quotient by `@` or `/`; the statement's phase holds before and after it. Such a mark, and one of `other` or
`enter`, names the next statement alone. `enter`: what is called here marks its own phases; what is called anywhere else
belongs to the line that calls it. A model's own `forward` returns in `other`, where what its caller does next belongs.

Two sources take no comments, transformers' model and the frozen yardstick. They have a map in phase_map.toml: a line
each, a name as above and the first line of a statement, with `...` for "and so on".

Every statement that calls, computes or indexes anything must be named, and every name must fit something: `phases`
refuses a variant otherwise, so that changed code cannot slip into `other`. Which ATen ops may run in a phase is checked
on a real call before a variant is measured.

Nothing here imports torch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

OTHER = "other"
ENTER = "enter"

MEANING = {
    "embedding": "token ids to vectors",
    "norm": "the two RMSNorms of a layer",
    "qkv": "projections to queries, keys and values",
    "rope": "rotary embedding of queries and keys: tables, kernel, and the copies around it",
    "cache": "keys and values written and read back, sequence forgotten, positions kept",
    "mask_create": "causal mask built or looked up",
    "mask_apply": "causal mask put on the scores",
    "scores": "queries times keys, scaled; keys repeated for grouped queries",
    "softmax": "softmax alone",
    "output": "probabilities times values; values repeated for grouped queries",
    "attention_fused": "mask application, scores, softmax and output in one kernel",
    "o_proj": "output projection, with the heads put side by side",
    "mlp": "feed-forward part",
    "final_norm": "the RMSNorm before the LM head",
    "lm_head": "logits",
    OTHER: "residual additions, calls between the parts, what no line above names",
}
"""Every phase and what it holds. A call's phases sum to the call."""

PHASES = tuple(MEANING)

_ATTENTION = (
    "qkv", "rope", "cache", "mask_create", "mask_apply", "scores", "softmax", "output", "attention_fused", "o_proj",
)  # fmt: skip
FUSED_PARTS = frozenset({"mask_apply", "scores", "softmax", "output"})
"""What `attention_fused` does in one."""

DENOMINATORS: Mapping[str, tuple[str, ...]] = {
    "forward": PHASES,
    "layer": tuple(phase for phase in PHASES if phase not in ("embedding", "final_norm", "lm_head")),
    "attention": _ATTENTION,
    "attention-subset": tuple(phase for phase in _ATTENTION if phase not in ("cache", "o_proj")),
}
"""What a share is a share of.

forward: the whole call. layer: the decoder layers; the norm before the head is a phase of its own and stays out;
`other` counts in, for the residual additions are most of it. attention: the attention block with its output
projection and its part of the KV cache. attention-subset: the five lines of the dispute's table (QKV, RoPE, scores,
causal mask, softmax and output), which summed one layer's micro-benchmarks: no output projection, no KV cache, no
feed-forward part, no norms, no LM head.
"""

# --- sources without marks -----------------------------------------------------------------------------------

LIBRARY_MODEL = "transformers.models.llama.modeling_llama"
_LINES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _library(attention: str, call: str) -> dict[str, dict[str, str]]:
    """`attention`: the phase of the attention function; `call`: that of its call, ours to mark where it is eager."""
    return {
        LIBRARY_MODEL: {
            function: lines.replace("{attention}", attention).replace("{call}", call)
            for function, lines in _LINES["library"].items()
        }
    }


MAPS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    ".yardstick": {"yardstick": _LINES["yardstick"]},
    ".library:eager": _library("scores", "enter"),
    ".library:sdpa": _library("attention_fused", "attention_fused"),
}
"""How a variant is built (its module, and the library's kind of attention) → module → function → its lines."""

# --- what a profile's frames say ------------------------------------------------------------------------------------

_LINEAR = ("qkv", "o_proj", "mlp", "lm_head")
_NORM = ("norm", "final_norm")

FRAMES: Mapping[str, tuple[str, ...]] = {
    "Linear.forward": _LINEAR,
    "RMSNorm.forward": _NORM,
    "FusedRMSNorm.forward": _NORM,
    "CompositeRMSNorm.forward": _NORM,
    "rms_norm": _NORM,
    "SwiGLU.forward": ("mlp",),
    "silu": ("mlp",),
    "composite_softmax": ("softmax",),
    "fused_softmax": ("softmax",),
}
"""Python functions that serve these phases alone: they tell phases apart that share the line which calls them."""

# --- what may run in a phase ---------------------------------------------------------------------------------------

_VIEWS = (
    "_reshape_alias _unsafe_view alias as_strided detach expand narrow permute select slice split split_with_sizes "
    "squeeze t transpose unbind unsqueeze view view_as_complex view_as_real"
)
VIEWS = frozenset(_VIEWS.split())
"""Ops that compute nothing: any phase may run them."""

_COPIES = "clone copy_ empty empty_like"
_MAY: dict[str, str] = {
    "embedding": "embedding",
    "norm": "_fused_rms_norm pow mean add add_ rsqrt mul _to_copy",
    "qkv": "mm",
    "rope": f"mul sub add neg cat stack roll cos sin complex index _to_copy {_COPIES}",
    "cache": "cat index_copy_ index_put_ new_zeros add add_ arange new_empty zeros zeros_like fill_ zero_ lift_fresh "
    f"{_COPIES}",
    "mask_create": "full ones zeros triu_ tril_ arange add le ge eq all where new_ones bitwise_and zeros_like "
    f"scalar_tensor _to_copy _local_scalar_dense masked_fill index full_like {_COPIES}",
    "mask_apply": "add masked_fill",
    "scores": f"bmm mul {_COPIES}",
    "softmax": "amax sub exp sum div _softmax _to_copy",
    "output": f"bmm {_COPIES}",
    "attention_fused": "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention bmm mul _softmax _safe_softmax add "
    f"masked_fill where eq any all full_like zeros_like logical_not constant_pad_nd ones tril scalar_tensor {_COPIES}",
    "o_proj": f"mm addmm {_COPIES}",
    "mlp": "mm addmm silu mul",
    "lm_head": f"mm {_COPIES}",
    OTHER: "add",
}
MAY_RUN: Mapping[str, frozenset[str]] = {phase: frozenset(_MAY.get(phase, _MAY["norm"]).split()) for phase in PHASES}
"""Ops that each phase may run beside views; `final_norm` runs what `norm` does."""

MUST_RUN: Mapping[str, frozenset[str]] = {
    "embedding": frozenset({"embedding"}),
    "norm": frozenset({"_fused_rms_norm", "rsqrt"}),
    "qkv": frozenset({"mm"}),
    "rope": frozenset({"mul"}),
    "o_proj": frozenset({"mm", "addmm"}),
    "mlp": frozenset({"silu"}),
    "final_norm": frozenset({"_fused_rms_norm", "rsqrt"}),
    "lm_head": frozenset({"mm"}),
    "scores": frozenset({"bmm"}),
    "softmax": frozenset({"exp", "_softmax"}),
    "output": frozenset({"bmm"}),
}
"""At least one of these shows in a phase that is what it says; the last three may be missing with fused attention."""
