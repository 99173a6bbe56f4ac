"""What to write in code of one's own to take a step of the ladder: by the variant that each step leads to.

The code is that of a layered model as most are written; `ladder.py` and `fast.py` have the same steps in full. Shapes:
B batch, T new tokens, H heads, D head size, E hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class CodeChange(NamedTuple):
    """What to write. told: in a few words; code: a diff, its lines marked by their first character. is_of_last_layer:
    whether it saves work in the last layer alone, which is all of a model of one layer."""

    told: str
    code: str
    is_of_last_layer: bool = False


CHANGES: Mapping[str, CodeChange] = {
    "ladder_inlined": CodeChange(
        "write the forward as one function, without Module calls",
        """\
 for layer in layers:
-    x = x + layer.attention(layer.norm(x), position)
+    y = F.rms_norm(x, shape, layer.norm_weight, eps)
+    q = F.linear(y, layer.q_weight)  # and so on: what attention's forward does stands here
""",
    ),
    "ladder_heads_first": CodeChange(
        "put heads first once, before RoPE, and let RoPE turn halves",
        """\
-q = q.view(B, T, H, D)
-q = rope_pairs(q.transpose(1, 2).contiguous()).transpose(1, 2).contiguous()  # there and back
-q = q.transpose(1, 2)
+q = q.view(B, T, H, D).transpose(1, 2)  # [B, H, T, D], a view
+left, right = q.chunk(2, dim=-1)
+q = torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)
""",
    ),
    "ladder_one_kernel": CodeChange(
        "call scaled_dot_product_attention and make no mask",
        """\
-scores = q @ k.transpose(2, 3) * D**-0.5 + mask
-y = torch.softmax(scores, dim=-1) @ v
+y = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1)  # a prompt from position 0, or one new token
""",
    ),
    "ladder_fused": CodeChange(
        "join Q, K and V in one matrix, gate and up in another",
        """\
 # once, when the model is built
+qkv_weight = torch.cat((q_weight, k_weight, v_weight))
 # in each forward
-q, k, v = F.linear(y, q_weight), F.linear(y, k_weight), F.linear(y, v_weight)
+q, k, v = F.linear(y, qkv_weight).split((H * D, kv_heads * D, kv_heads * D), dim=-1)
""",
    ),
    "ladder_transposed": CodeChange(
        "store weights as [in, out] and add the residual in the product",
        """\
 # once, when the model is built
-down_weight = weights["down"]  # [out, in]
+down_weight = weights["down"].t().contiguous()  # [in, out], and let the other go
 # in each forward, x and y as [B * T, E]
-x = x + F.linear(y, down_weight)
+x = torch.addmm(x, y, down_weight)
""",
    ),
    "fast": CodeChange(
        "in the last layer compute the last token alone",
        """\
 # in the last layer, once its keys and values are in the cache
-y = attention(q, k, v)
-logits = head(norm(mlp(x + output(y))))[:, -1]
+x, q = x[:, -1:], q[:, :, -1:]  # nothing after this reads the other tokens
+y = attention(q, k, v)
+logits = head(norm(mlp(x + output(y))))[:, -1]
""",
        is_of_last_layer=True,
    ),
    "fast_compiled": CodeChange(
        "compile the forward",
        """\
+forward = torch.compile(forward, fullgraph=True)  # once; the first call of each length takes seconds to minutes
 logits = forward(tokens, position)
""",
    ),
    "fast_rows_compiled": CodeChange(
        "keep weights [out, in], and write one token's products as sums",
        """\
 # in the compiled forward, y as [1, E], down_weight as [out, in]
-x = torch.addmm(x, y, down_weight)
+y = y.as_strided(y.shape, y.stride())  # in memory from here on, or each row would compute it anew
+x = x + (down_weight * y).sum(-1)
""",
    ),
}
