"""Which line of which variant belongs to which phase of a forward: data, to be read beside the source.

Each text below is a function's own statements with a phase in front, in the order of the source. A statement or an
expression is named by its text in one line; `...` at the end means "and so on". An expression inside a statement takes
its own phase, and the statement's phase holds before and after it. `enter` means that what is called here marks its
own phases; what is called anywhere else belongs to the line that calls it. Every statement that calls, computes or
indexes anything must be named, and every name must be found: `phases` refuses a variant otherwise, so that changed
code cannot slip into `other`. A model's own `forward` returns in `other`, where what its caller does next belongs.

Which ATen ops may run in a phase is written here too. It is checked on a real call before a variant is measured.

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

# --- ours ----------------------------------------------------------------------------------------------------------

_MODULAR: dict[str, dict[str, str]] = {
    "modular.model": {
        "Llama.forward": """
            other         length = tokens.shape[1]
            embedding     x = self.embedding(tokens)
            mask_create   self.masks.begin(length, position + length)
            enter         x = block(x, position)
            other         return self.head(self.norm(x)[:, -1])
            lm_head       self.head(self.norm(x)[:, -1])
            final_norm    self.norm(x)
        """,
        "Llama.reset": """
            cache         kv.reset()
        """,
        "Block.forward": """
            other         x = x + self.attention(self.attention_norm(x), position)
            enter         self.attention(self.attention_norm(x), position)
            norm          self.attention_norm(x)
            other         return x + self.mlp(self.mlp_norm(x))
            mlp           self.mlp(self.mlp_norm(x))
            norm          self.mlp_norm(x)
        """,
    },
    "modular.attention": {
        "Attention.forward": """
            qkv           length = x.shape[1]
            qkv           q = self.q_proj(x).unflatten(-1, (-1, self.head_dim))
            qkv           k = self.k_proj(x).unflatten(-1, (-1, self.head_dim))
            qkv           v = self.v_proj(x).unflatten(-1, (-1, self.head_dim))
            rope          q, k = self.rotary(q.transpose(1, 2), k.transpose(1, 2), position)
            rope          q, k = self.rotary(q, k, position)
            rope          q, k = q.transpose(1, 2), k.transpose(1, 2)
            cache         k, v = self.kv.append(k, v.transpose(1, 2), position)
            mask_create   mask = self.masks.get(length, position + length)
            enter         y = self.attend(q, k, v, mask, self.scale)
            o_proj        return self.o_proj(y.transpose(1, 2).flatten(2))
        """,
        "ManualAttention.__call__": """
            scores        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
            output        v = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
            scores        scores = torch.matmul(q, k.transpose(2, 3)) * scale
            mask_apply    scores = apply_mask(scores, mask, self.application)
            output        return torch.matmul(self.softmax(scores), v)
            softmax       self.softmax(scores)
        """,
        "SdpaAttention.__call__": """
            attention_fused  grouped = k.shape[1] != q.shape[1]
            attention_fused  return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, ...
        """,
    },
}

_SINGLE_FILE: dict[str, dict[str, str]] = {
    "single_file": {
        "Llama.forward": """
            embedding     x = self.embedding(tokens)
            enter         x = block(x, position)
            other         return self.head(self.norm(x)[:, -1])
            lm_head       self.head(self.norm(x)[:, -1])
            final_norm    self.norm(x)
        """,
        "Llama.reset": """
            cache         kv.reset()
        """,
        "Block.forward": """
            other         x = x + self.attention(self.attention_norm(x), position)
            enter         self.attention(self.attention_norm(x), position)
            norm          self.attention_norm(x)
            other         return x + self.mlp(self.mlp_norm(x))
            mlp           self.mlp(self.mlp_norm(x))
            norm          self.mlp_norm(x)
        """,
        "Attention.forward": """
            qkv           length = x.shape[1]
            qkv           q = self.q_proj(x).unflatten(-1, (-1, self.head_dim))
            qkv           k = self.k_proj(x).unflatten(-1, (-1, self.head_dim))
            qkv           v = self.v_proj(x).unflatten(-1, (-1, self.head_dim))
            rope          q, k = self.rotary(q.transpose(1, 2), k.transpose(1, 2), position)
            rope          q, k = self.rotary(q, k, position)
            rope          q, k = q.transpose(1, 2), k.transpose(1, 2)
            cache         k, v = self.kv.append(k, v.transpose(1, 2), position)
            mask_create   mask = self.masks.get(length, position + length)
            attention_fused  grouped = k.shape[1] != q.shape[1]
            attention_fused  y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, ...
            scores        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
            output        v = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
            scores        scores = torch.matmul(q, k.transpose(2, 3)) * self.scale
            mask_apply    scores = scores.masked_fill(mask, float("-inf")) if self.fill else scores + mask
            softmax       shares = torch.softmax(scores, dim=-1)
            softmax       shifted = torch.exp(scores - scores.amax(-1, keepdim=True))
            softmax       shares = shifted / shifted.sum(-1, keepdim=True)
            output        y = torch.matmul(shares, v)
            o_proj        return self.o_proj(y.transpose(1, 2).flatten(2))
        """,
    },
}

_INLINE: dict[str, dict[str, str]] = {
    "inline": {
        "InlineLlama.forward": """
            other         batch, length = tokens.shape
            other         end = position + length
            other         head_dim, eps = self.config.head_dim, self.config.rms_norm_eps
            other         heads, kv_heads = self.config.num_attention_heads, self.config.num_key_value_heads
            other         scale = head_dim**-0.5
            embedding     x = F.embedding(tokens, self.embedding)
            other         shape = (x.shape[-1],)
            cache         size = (batch, kv_heads, self.max_length, head_dim)
            cache         self.kvs = [(torch.empty(size, ...
            norm          y = F.rms_norm(x, shape, layer.attention_norm, eps)
            qkv           q = F.linear(y, layer.q).unflatten(-1, (-1, head_dim))
            qkv           k = F.linear(y, layer.k).unflatten(-1, (-1, head_dim))
            qkv           v = F.linear(y, layer.v).unflatten(-1, (-1, head_dim))
            rope          q = q.transpose(1, 2).contiguous()
            rope          k = k.transpose(1, 2).contiguous()
            rope          cos = self.cos.narrow(0, position, length)
            rope          sin = self.sin.narrow(0, position, length)
            rope          even, odd = q.unflatten(-1, (-1, 2)).unbind(-1)
            rope          q = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
            rope          even, odd = k.unflatten(-1, (-1, 2)).unbind(-1)
            rope          k = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
            rope          q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            cache         k_all.narrow(2, position, length).copy_(k)
            cache         v_all.narrow(2, position, length).copy_(v)
            cache         k, v = k_all.narrow(2, 0, end), v_all.narrow(2, 0, end)
            mask_create   mask = None
            mask_create   mask = self.masks.get((length, end))
            mask_create   mask = torch.full((length, end), float("-inf"), ...
            mask_create   self.masks[length, end] = mask
            scores        k = k.repeat_interleave(heads // kv_heads, dim=1)
            output        v = v.repeat_interleave(heads // kv_heads, dim=1)
            scores        scores = torch.matmul(q, k.transpose(2, 3)) * scale
            mask_apply    scores = scores + mask
            softmax       shifted = torch.exp(scores - scores.amax(-1, keepdim=True))
            output        y = torch.matmul(shifted / shifted.sum(-1, keepdim=True), v)
            softmax       shifted / shifted.sum(-1, keepdim=True)
            other         x = x + F.linear(y.transpose(1, 2).flatten(2), layer.o)
            o_proj        F.linear(y.transpose(1, 2).flatten(2), layer.o)
            norm          y = F.rms_norm(x, shape, layer.mlp_norm, eps)
            other         x = x + F.linear(F.silu(F.linear(y, layer.gate)) * F.linear(y, layer.up), layer.down)
            mlp           F.linear(F.silu(F.linear(y, layer.gate)) * F.linear(y, layer.up), layer.down)
            other         return F.linear(F.rms_norm(x, shape, self.norm, eps)[:, -1], self.head)
            lm_head       F.linear(F.rms_norm(x, shape, self.norm, eps)[:, -1], self.head)
            final_norm    F.rms_norm(x, shape, self.norm, eps)
        """,
    },
}

_FAST: dict[str, dict[str, str]] = {
    "fast": {
        "FastLlama.forward": """
            other         batch, length = tokens.shape
            cache         size = (batch, c.num_key_value_heads, self.max_length, c.head_dim)
            cache         new = self.parts.embedding.new_empty
            cache         self.kvs = tuple(...
            enter         return self._forward(c, self.parts, self.layers, self.kvs, tokens, ...
        """,
        "forward": """
            other         batch, length = tokens.shape
            other         end = position + length
            other         heads, kv_heads, head_dim = config.num_attention_heads, ...
            embedding     x = F.embedding(tokens, parts.embedding).flatten(0, 1)
            other         shape = (x.shape[-1],)
            rope          cos, sin = parts.cos[position:end], parts.sin[position:end]
            mask_create   mask = None
            mask_create   mask = torch.ones(length, end, dtype=torch.bool, device=x.device).tril_(position)
            qkv           y = F.rms_norm(x, shape, layer.attention_norm, config.rms_norm_eps) @ layer.qkv
            norm          F.rms_norm(x, shape, layer.attention_norm, config.rms_norm_eps)
            qkv           y = y.view(batch, length, heads + 2 * kv_heads, head_dim)
            rope          qk = y[:, :, : heads + kv_heads]
            rope          qk = qk * cos + qk.roll(head_dim // 2, -1) * sin
            cache         k_all[:, :, position:end] = qk[:, :, heads:].transpose(1, 2)
            cache         v_all[:, :, position:end] = y[:, :, heads + kv_heads :].transpose(1, 2)
            attention_fused  q = qk[:, :, :heads].transpose(1, 2)
            attention_fused  x, q, mask, causal = x[length - 1 :: length], q[:, :, -1:], None, False
            attention_fused  y = F.scaled_dot_product_attention(...
            o_proj        x = torch.addmm(x, y.transpose(1, 2).reshape(...
            mlp           gate, up = (F.rms_norm(x, shape, layer.mlp_norm, config.rms_norm_eps) @ layer.gate_up)...
            norm          F.rms_norm(x, shape, layer.mlp_norm, config.rms_norm_eps)
            mlp           x = torch.addmm(x, F.silu(gate) * up, layer.down)
            other         return F.rms_norm(x, shape, parts.norm, config.rms_norm_eps) @ parts.head
            lm_head       F.rms_norm(x, shape, parts.norm, config.rms_norm_eps) @ parts.head
            final_norm    F.rms_norm(x, shape, parts.norm, config.rms_norm_eps)
        """,
    },
}

_GPT_FAST: dict[str, dict[str, str]] = {
    "gpt_fast": {
        "GptFast.forward": """
            other         batch, length = tokens.shape
            cache         size = (batch, c.num_key_value_heads, self.max_length, c.head_dim)
            cache         new = self.parts.embedding.new_zeros
            cache         self.kvs = tuple(...
            cache         input_pos = torch.arange(position, position + length, device=tokens.device)
            enter         return self._forward(c, self.parts, self.layers, self.kvs, tokens, input_pos)
        """,
        "forward": """
            other         batch, length = tokens.shape
            other         heads, kv_heads, head_dim = config.num_attention_heads, ...
            mask_create   mask = parts.mask[None, None, input_pos]
            rope          frequencies = parts.frequencies[input_pos]
            embedding     x = F.embedding(tokens, parts.embedding)
            qkv           y = F.linear(_norm(x, layer.attention_norm, config.rms_norm_eps), layer.wqkv)
            norm          _norm(x, layer.attention_norm, config.rms_norm_eps)
            qkv           q, k, v = y.split(...
            rope          q = _rotate(q.view(batch, length, heads, head_dim), frequencies).transpose(1, 2)
            rope          k = _rotate(k.view(batch, length, kv_heads, head_dim), frequencies).transpose(1, 2)
            cache         v = v.view(batch, length, kv_heads, head_dim).transpose(1, 2)
            cache         k_cache[:, :, input_pos] = k
            cache         v_cache[:, :, input_pos] = v
            attention_fused  y = F.scaled_dot_product_attention(q, k_cache, v_cache, attn_mask=mask, ...
            other         x = x + F.linear(y.transpose(1, 2).reshape(batch, length, heads * head_dim), layer.wo)
            o_proj        F.linear(y.transpose(1, 2).reshape(batch, length, heads * head_dim), layer.wo)
            norm          y = _norm(x, layer.ffn_norm, config.rms_norm_eps)
            other         x = x + F.linear(F.silu(F.linear(y, layer.w1)) * F.linear(y, layer.w3), layer.w2)
            mlp           F.linear(F.silu(F.linear(y, layer.w1)) * F.linear(y, layer.w3), layer.w2)
            other         return F.linear(_norm(x[:, -1], parts.norm, config.rms_norm_eps), parts.output)
            lm_head       F.linear(_norm(x[:, -1], parts.norm, config.rms_norm_eps), parts.output)
            final_norm    _norm(x[:, -1], parts.norm, config.rms_norm_eps)
        """,
    },
}

_YARDSTICK: dict[str, dict[str, str]] = {
    "yardstick": {
        "Yardstick.forward": """
            other         batch, length = tokens.shape
            other         end = position + length
            other         heads, groups, size = c.num_attention_heads, c.num_key_value_heads, c.head_dim
            embedding     x = F.embedding(tokens, w["model.embed_tokens.weight"])
            cache         self.kvs = [(x.new_empty(batch, groups, ...
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
            cache         k_all[:, :, position:end] = torch.cat((k1 * cos - k2 * sin, k2 * cos + k1 * sin), -1)
            rope          torch.cat((k1 * cos - k2 * sin, k2 * cos + k1 * sin), -1)
            cache         v_all[:, :, position:end] = v
            cache         k, v = k_all[:, :, :end], v_all[:, :, :end]
            scores        k, v = k.repeat_interleave(heads // groups, 1), v.repeat_interleave(heads // groups, 1)
            output        v.repeat_interleave(heads // groups, 1)
            scores        scores = torch.matmul(q, k.transpose(2, 3)) * size**-0.5
            mask_apply    scores = scores + mask
            output        y = torch.matmul(torch.softmax(scores, -1), v).transpose(1, 2).reshape(batch, length, -1)
            softmax       torch.softmax(scores, -1)
            other         x = x + F.linear(y, w[f"{p}self_attn.o_proj.weight"])
            o_proj        F.linear(y, w[f"{p}self_attn.o_proj.weight"])
            norm          y = F.rms_norm(x, (c.hidden_size,), w[f"{p}post_attention_layernorm.weight"], c.rms_norm_eps)
            mlp           y = F.silu(F.linear(y, w[f"{p}mlp.gate_proj.weight"])) * F.linear(y, ...
            other         x = x + F.linear(y, w[f"{p}mlp.down_proj.weight"])
            mlp           F.linear(y, w[f"{p}mlp.down_proj.weight"])
            final_norm    x = F.rms_norm(x[:, -1], (c.hidden_size,), w["model.norm.weight"], c.rms_norm_eps)
            other         return F.linear(x, w["lm_head.weight"])
            lm_head       F.linear(x, w["lm_head.weight"])
        """,
    },
}

# --- the library's -------------------------------------------------------------------------------------------------

LIBRARY_MODEL = "transformers.models.llama.modeling_llama"


def _library(attention: str) -> dict[str, dict[str, str]]:
    """`attention`: the phase of the call of the attention function, which is ours to mark where it is eager."""
    return {
        "library": {
            "LibraryLlama.forward": """
                cache         self.batch = tokens.shape[0]
                cache         self.cache = (self._static_cache(...
                enter         out = self.model(input_ids=tokens, past_key_values=self.cache, ...
                other         return out.logits[:, -1]
            """,
            "LibraryLlama.reset": """
                cache         self.cache.reset()
                cache         self.cache = None
            """,
        },
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
    ".modular.model": _MODULAR,
    ".single_file": _SINGLE_FILE,
    ".inline": _INLINE,
    ".fast": _FAST,
    ".gpt_fast": _GPT_FAST,
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
