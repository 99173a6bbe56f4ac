"""The dispute's micro-benchmarks on Candle itself: the same parts, shapes and inputs as ours, on Candle's kernels.

What they timed in Rust, in the same order of operations, as far as the bindings go. Making a mask there was a compiled
loop over a new buffer; here one compiled pass fills a new buffer too, with a copy, since the bindings have no loop to
fill one. RoPE is composed, for their fused `rope_i` is not exposed; a mask is looked up in a Python dict.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import candle
import torch
from candle import functional, utils
from safetensors.torch import save_file
from torch import Tensor

from ..components import NAMES as OURS
from ..components import ROPE_ATTENTION, WORKER_LAYER, Component, Inputs
from ..config import LlamaConfig
from ..modular.rope import angle_tables
from . import files
from .candle import causal_mask
from .candle_io import Reader

NAMES = tuple(name for name in OURS if name not in (ROPE_ATTENTION, WORKER_LAYER))
"""Parts that can be measured alone on Candle."""


def to_candle(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The same tensors in Candle, by way of a file: the bindings else take nothing but nested lists."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "inputs.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
        return utils.load_safetensors(str(path))


def additive_mask(length: int) -> Any:
    """f32 [T, T]: 0, or -inf where the key must not be seen."""
    shape = (length, length)
    lowest = candle.Tensor([float("-inf")]).broadcast_as(shape)
    return causal_mask(length, length).where_cond(lowest, candle.zeros(shape))


def apply_mask(scores: Any, mask: Any) -> Any:
    """scores [1, H, T, T] plus mask [T, T], broadcast first and then added by `broadcast_add`, as they wrote it."""
    return scores.broadcast_add(mask.unsqueeze(0).unsqueeze(0).broadcast_as(scores.shape))


def rotate_pairs(x: Any, cos: Any, sin: Any) -> Any:
    """x [1, H, T, D] turned in pairs (2i, 2i + 1); cos and sin [T, D/2, 1]."""
    pairs = x.reshape((*x.shape[:3], x.shape[3] // 2, 2))
    even, odd = pairs.narrow(4, 0, 1), pairs.narrow(4, 1, 1)
    turned = [
        even.broadcast_mul(cos) - odd.broadcast_mul(sin),
        even.broadcast_mul(sin) + odd.broadcast_mul(cos),
    ]
    return candle.cat(turned, 4).flatten_from(3)


def heads_first(x: Any) -> Any:
    """[1, T, H, D] as [1, H, T, D] of its own."""
    return x.transpose(1, 2).contiguous()


def score(q: Any, k: Any, root: float) -> Any:
    """q and k [1, T, H, D] → [1, H, T, T]."""
    return heads_first(q).matmul(heads_first(k).transpose(2, 3)) / root


def build(
    name: str, config: LlamaConfig, *, tokens: int, seed: int, device: str = "cpu", fresh_masks: bool = False
) -> Component:
    """The part `name` at T = `tokens` on Candle, with the inputs that ours have.

    Masks are kept by (T, kv), as Candle's Llama does, and looked up; with `fresh_masks` made at each call. Either way
    `mask-create` makes one, and `mask-apply` has one. Raises ValueError where no part has that name, EngineError
    where the threads are not those of the run."""
    if name not in NAMES:
        raise ValueError(f"no component {name!r}; there are {', '.join(NAMES)}")
    files.check_threads()
    given = Inputs(config, tokens, seed)
    root = float(config.head_dim) ** 0.5
    to_torch = Reader()
    ready = {(tokens, tokens): additive_mask(tokens)}

    def look_up() -> Any:
        return ready[tokens, tokens]

    make = ready[tokens, tokens].copy
    mask = make if fresh_masks else look_up
    if name in ("mask-create", "mask-get"):
        return Component(make if name == "mask-create" else mask, given.additive, to_torch)
    if name in ("mask-apply", "mask-create-apply"):
        scores = to_candle({"scores": given.scores()})["scores"]
        get = look_up if name == "mask-apply" else mask
        return Component(lambda: apply_mask(scores, get()), given.masked, to_torch)
    if name == "qkv":
        # Theirs multiply by [in, out] as it lies, without a transposed view.
        weights = dict(zip("qkv", given.projections(), strict=True))
        inputs = to_candle({"x": given.x()[0], **weights})
        x, projections = inputs["x"], [inputs[part] for part in "qkv"]
        shape = (1, tokens, config.num_attention_heads, config.head_dim)

        def project() -> list[Any]:
            return [x.matmul(weight).reshape(shape) for weight in projections]

        return Component(project, given.projected, lambda out: torch.cat([to_torch(o).flatten(2) for o in out], -1))

    inputs = to_candle({"q": given.q(), "k": given.k(), "v": given.v()})
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    if name == "scores":
        return Component(lambda: score(q, k, root), given.scored, to_torch)
    if name == "rope":
        tables = dict(zip(("cos", "sin"), angle_tables(config, tokens, torch.float32), strict=True))
        angles = to_candle({key: table[..., None] for key, table in tables.items()})

        def rotate() -> Any:
            turned, _ = (heads_first(rotate_pairs(heads_first(x), angles["cos"], angles["sin"])) for x in (q, k))
            return turned

        return Component(rotate, lambda: given.rotated(True), to_torch)

    def weigh(masked: Any) -> Any:
        return functional.softmax(masked, 3).matmul(heads_first(v)).transpose(1, 2).contiguous().flatten_from(2)

    if name == "softmax-output":
        masked = to_candle({"scores": given.masked().float()})["scores"]
        return Component(lambda: weigh(masked), given.weighed, to_torch)
    return Component(lambda: weigh(apply_mask(score(q, k, root), mask())), given.attended, to_torch)
