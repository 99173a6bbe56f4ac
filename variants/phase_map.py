"""The phases of a forward: what each is, which ATen ops may run in it, and how a variant's source names them.

Our variants name the phase of each statement on a forward's path by a comment beside it, `# phase: NAME`. On a line of
its own the comment names what follows in its block, up to the next one or an empty line. Parts of a statement may have
phases of their own, `# phase: NAME; PART: NAME`: a call by the end of what it calls (`linear` of `F.linear(...)`), a
product or quotient by `@` or `/`; the statement's phase holds before and after it. Such a mark, and one of `other` or
`enter`, names the next statement alone. `enter`: what is called here marks its own phases; what is called anywhere else
belongs to the line that calls it. A model's own `forward` returns in `other`, where what its caller does next belongs.

Two sources take no comments, transformers' model and the frozen yardstick. They have a map here: a line each, a name as
above and the first line of a statement, with `...` for "and so on".

Every statement that calls, computes or indexes anything must be named, and every name must fit something: `phases`
refuses a variant otherwise, so that changed code cannot slip into `other`. Which ATen ops may run in a phase is checked
on a real call before a variant is measured.

Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping

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

_YARDSTICK: dict[str, dict[str, str]] = {
    "yardstick": {
        "Yardstick.forward": """
            other         end = position + length
            embedding     x = F.embedding(tokens, w["model.embed_tokens.weight"])
            cache         self.kvs = [
            mask_create   mask = torch.full((length, end), float("-inf"), ...
            rope          cos, sin = self.cos[position:end], self.sin[position:end]
            other         p = f"model.layers.{i}."
            norm          y = F.rms_norm(x, (c.hidden_size,), w[f"{p}input_layernorm.weight"], c.rms_norm_eps)
            qkv           q = F.linear(y, w[f"{p}self_attn.q_proj.weight"]).view(...
            qkv           k = F.linear(y, w[f"{p}self_attn.k_proj.weight"]).view(...
            qkv           v = F.linear(y, w[f"{p}self_attn.v_proj.weight"]).view(...
            rope          q1, q2 = q.chunk(2, -1)
            rope          q = torch.cat((q1 * cos - q2 * sin, q2 * cos + q1 * sin), -1)
            rope          k1, k2 = k.chunk(2, -1)
            cache; cat: rope  k_all[:, :, position:end] = torch.cat((k1 * cos - k2 * sin, k2 * cos + k1 * sin), -1)
            cache         v_all[:, :, position:end] = v
            cache         k, v = k_all[:, :, :end], v_all[:, :, :end]
            scores; v.repeat_interleave: output  k, v = k.repeat_interleave(heads // groups, 1), v.repeat_interleave(...
            scores        scores = torch.matmul(q, k.transpose(2, 3)) * size**-0.5
            mask_apply    scores = scores + mask
            output; softmax: softmax  y = torch.matmul(torch.softmax(scores, -1), v).transpose(1, 2).reshape(batch, ...
            other; linear: o_proj     x = x + F.linear(y, w[f"{p}self_attn.o_proj.weight"])
            norm          y = F.rms_norm(x, (c.hidden_size,), w[f"{p}post_attention_layernorm.weight"], c.rms_norm_eps)
            mlp           y = F.silu(F.linear(y, w[f"{p}mlp.gate_proj.weight"])) * F.linear(y, ...
            other; linear: mlp        x = x + F.linear(y, w[f"{p}mlp.down_proj.weight"])
            final_norm    x = F.rms_norm(x[:, -1], (c.hidden_size,), w["model.norm.weight"], c.rms_norm_eps)
            other; linear: lm_head    return F.linear(x, w["lm_head.weight"])
        """,
    },
}

LIBRARY_MODEL = "transformers.models.llama.modeling_llama"


def _library(attention: str) -> dict[str, dict[str, str]]:
    """`attention`: the phase of the call of the attention function, which is ours to mark where it is eager."""
    return {
        LIBRARY_MODEL: {
            "LlamaForCausalLM.forward": """
                enter         outputs: BaseModelOutputWithPast = self.model(...
                lm_head       hidden_states = slice_logits_to_keep(hidden_states, logits_to_keep)
                lm_head       logits = self.lm_head(hidden_states)
                other         loss = self.loss_function(...
                other         return CausalLMOutputWithPast(...
            """,
            "LlamaModel.forward": """
                embedding     inputs_embeds: torch.Tensor = self.embed_tokens(input_ids)
                cache         past_key_values = DynamicCache(config=self.config)
                cache         past_seen_tokens = past_key_values.get_seq_length() if past_key_values is not None else 0
                cache         position_ids = torch.arange(inputs_embeds.shape[1], ...
                cache         position_ids = position_ids.unsqueeze(0)
                mask_create   causal_mask = create_causal_mask(...
                rope          position_embeddings = self.rotary_emb(hidden_states, position_ids=position_ids)
                enter         hidden_states = decoder_layer(...
                final_norm    hidden_states = self.norm(hidden_states)
                other         return BaseModelOutputWithPast(...
            """,
            "LlamaDecoderLayer.forward": """
                norm          hidden_states = self.input_layernorm(hidden_states)
                enter         hidden_states, _ = self.self_attn(...
                other         hidden_states = residual + hidden_states
                norm          hidden_states = self.post_attention_layernorm(hidden_states)
                mlp           hidden_states = self.mlp(hidden_states)
            """,
            "LlamaAttention.forward": f"""
                qkv           input_shape = hidden_states.shape[:-1]
                qkv           query_states = self.q_proj(hidden_states).view(hidden_shape).transpose(1, 2)
                qkv           key_states = self.k_proj(hidden_states).view(hidden_shape).transpose(1, 2)
                qkv           value_states = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
                rope          query_states, key_states = apply_rotary_pos_emb(query_states, key_states, cos, sin)
                cache         key_states, value_states = past_key_values.update(...
                {attention}   attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(...
                {"enter" if attention == "scores" else attention}   attn_output, attn_weights = attention_interface(...
                o_proj        attn_output = attn_output.reshape(*input_shape, -1).contiguous()
                o_proj        attn_output = self.o_proj(attn_output)
            """,
            "eager_attention_forward": """
                scores        key_states = repeat_kv(key, module.num_key_value_groups)
                output        value_states = repeat_kv(value, module.num_key_value_groups)
                scores        attn_weights = torch.matmul(query, key_states.transpose(2, 3)) * scaling
                mask_apply    attn_weights = attn_weights + attention_mask
                softmax       attn_weights = nn.functional.softmax(attn_weights, dim=-1, ...
                softmax       attn_weights = nn.functional.dropout(attn_weights, ...
                output        attn_output = torch.matmul(attn_weights, value_states)
                output        attn_output = attn_output.transpose(1, 2).contiguous()
            """,
        },
    }


MAPS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    ".yardstick": _YARDSTICK,
    ".library:eager": _library("scores"),
    ".library:sdpa": _library("attention_fused"),
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
