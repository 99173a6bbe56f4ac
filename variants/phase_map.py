"""The phases of a forward: what each is, which ATen ops may run in it, and how a variant's source names them.

Our variants name the phase of each statement on a forward's path by a comment beside it, `# phase: NAME`. On a line of
its own the comment names what follows in its block, up to the next one or an empty line. Parts of a statement may have
phases of their own, `# phase: NAME; PART: NAME`: a call by the end of what it calls (`linear` of `F.linear(...)`), a
product or quotient by `@` or `/`; the statement's phase holds before and after it. Such a mark, and one of `other` or
`enter`, names the next statement alone. `enter`: what is called here marks its own phases; what is called anywhere else
belongs to the line that calls it. A model's own `forward` returns in `other`, where what its caller does next belongs.

Two sources take no comments, transformers' model and the frozen reference benchmark. They have a map in
phase_map.toml: a line each, a name as above and the first line of a statement, with `...` for "and so on".

Every statement that calls, computes or indexes anything must be named, and every name must fit something: `phases`
refuses a variant otherwise, so that changed code cannot slip into `other`. Which ATen ops may run in a phase is checked
on a real call before a variant is measured.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OTHER = "other"
ENTER = "enter"

_DATA: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_PHASES: dict[str, dict[str, str]] = _DATA["phase"]

MEANING = {phase: data["meaning"] for phase, data in _PHASES.items()}
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

forward: the whole call. layer: the decoder layers, with `other`, which is mostly residual additions, and without the
norm before the head. attention: the attention block with its output projection and its part of the KV cache.
attention-subset: the five lines of the dispute's table (QKV, RoPE, scores, causal mask, softmax and output), which
summed one layer's micro-benchmarks: no output projection, KV cache, feed-forward part, norms or LM head.
"""

# --- sources without marks -----------------------------------------------------------------------------------

LIBRARY_MODEL = "transformers.models.llama.modeling_llama"
LIBRARY_FILE = f"site-packages/{LIBRARY_MODEL.replace('.', '/')}.py"
"""As profiles name it."""


def _library(attention: str, call: str) -> dict[str, dict[str, str]]:
    """`attention`: the phase of the attention function; `call`: that of its call, ours to mark where it is eager."""
    return {
        LIBRARY_MODEL: {
            function: lines.replace("{attention}", attention).replace("{call}", call)
            for function, lines in _DATA["library"].items()
        }
    }


MAPS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    ".yardstick": {"yardstick": _DATA["yardstick"]},
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

MAY_RUN = {
    phase: frozenset(data["may_run"].replace("COPIES", "clone copy_ empty empty_like").split())
    for phase, data in _PHASES.items()
}
"""Ops that each phase may run beside views."""

MUST_RUN = {phase: frozenset(data["must_run"].split()) for phase, data in _PHASES.items() if "must_run" in data}
"""At least one of these shows in a phase that is what it says; scores, softmax and output may be missing with fused
attention."""
