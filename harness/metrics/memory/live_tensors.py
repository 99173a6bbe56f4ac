"""The tensors of a running model: every one that came into the process with it, counted once, by kind.

The garbage collector knows every live tensor, wherever the reference is. Tensors from before the model was built (above
all the checkpoint) are left out, and so are their views. Those that only native code refers to are not found; they show
in resident memory. The kind depends on values and shape, not on a name, so that it is right in variants of any make.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter

from llama_workbench.variants import LlamaConfig
from llama_workbench.variants.memory_policy import KINDS

FORBIDDEN = -1e4
"""An additive mask's value at or below this forbids: -inf, or the least number of a type (float16's is -65504)."""


@dataclass(frozen=True)
class LiveTensor:
    """One storage: its size, and the largest of the live tensors that lie in it."""

    tensor: Tensor
    nbytes: int


def live_tensors() -> list[Tensor]:
    """All tensors alive in this process, garbage collected first, without those frozen by `gc.freeze`."""
    gc.collect()
    # By type and not isinstance, which would ask lazy proxies for their class and so load them. Other subclasses are
    # stand-ins without data, such as those that the compiler traces with and keeps.
    return [item for item in gc.get_objects() if type(item) in (Tensor, Parameter)]


def tensors_since(before: Sequence[Tensor]) -> dict[int, LiveTensor]:
    """Live tensors that share no storage with `before`, by address. Shared storage counts once, at its full size.

    `before` is the result of `live_tensors`; it keeps these tensors alive, so that no newer one can have their address.
    Tensors without data (`meta`) are left out.
    """
    known = {_address(tensor) for tensor in before}
    found: dict[int, LiveTensor] = {}
    for tensor in live_tensors():
        address = _address(tensor)
        if tensor.is_meta or address in known:
            continue
        if address not in found or tensor.numel() > found[address].tensor.numel():
            found[address] = LiveTensor(tensor, _nbytes(tensor))
    return found


def _address(tensor: Tensor) -> int:
    if tensor.layout is not torch.strided:
        return id(tensor)
    return tensor.untyped_storage().data_ptr() or id(tensor)


def _nbytes(tensor: Tensor) -> int:
    if tensor.layout is not torch.strided:  # packed by a kernel's library: it has no storage to ask
        return tensor.numel() * tensor.element_size()
    return tensor.untyped_storage().nbytes()


def bytes_by_kind(
    found: dict[int, LiveTensor], config: LlamaConfig, *, lengths: Sequence[int], built: frozenset[int]
) -> dict[str, int]:
    """Bytes of each of KINDS. `lengths` and `built`: see `kind_of`; `built` holds the addresses found after `build`."""
    total = dict.fromkeys(KINDS, 0)
    for address, one in found.items():
        kind = kind_of(one.tensor, config, lengths=lengths, built=address in built)
        total[kind] += one.nbytes
    return total


def kind_of(tensor: Tensor, config: LlamaConfig, *, lengths: Sequence[int], built: bool) -> str:
    """One of KINDS, by the first rule that fits.

    mask      [..., T, S] whose values are those of a causal mask: nothing, then all, forbidden along a diagonal
    rope      [T, D/2], [T, D] or [T, D/2, 2] of cos and sin (the first row is 0s and 1s, none is above 1), the same as
              complex numbers, or D/2 frequencies that fall from 1
    kv        three dimensions or more, among them the key-value heads G, D and one of `lengths` (the positions that a
              cache may be made for: those so far, and the most), or G·D and one of `lengths`
    repacked  made by `build` (`built`) with a dimension that the checkpoint's weights have
    other     anything else
    """
    if tensor.layout is torch.strided:
        if _is_causal_mask(tensor):
            return "mask"
        if _is_rope(tensor, config.head_dim):
            return "rope"
        if _is_kv(tensor, config, lengths):
            return "kv"
    widths = {config.hidden_size, config.intermediate_size, config.vocab_size}
    return "repacked" if built and widths.intersection(tensor.shape) else "other"


def _is_causal_mask(tensor: Tensor) -> bool:
    if tensor.ndim < 2 or not tensor.numel():
        return False
    table = tensor.reshape(-1, *tensor.shape[-2:])[0] if tensor.ndim > 2 else tensor
    if table.dtype in (torch.bool, torch.uint8):
        return _is_triangle(table != 0) or _is_triangle(table == 0)
    if not table.dtype.is_floating_point:
        return False
    for part in (table[:1], table):  # the first row alone settles it for nearly everything else, however large
        if not bool(((part == 0) | (part <= FORBIDDEN)).all()):
            return False
    return _is_triangle(table <= FORBIDDEN)


def _is_triangle(forbidden: Tensor) -> bool:
    """Whether row t forbids exactly what lies beyond place t + k, for the k of the first row. Something must be."""
    seen = int((~forbidden[0]).sum())
    wanted = torch.ones_like(forbidden).triu_(seen)
    return seen > 0 and bool(wanted.any()) and torch.equal(forbidden, wanted)


def _is_rope(tensor: Tensor, head_dim: int) -> bool:
    table = tensor.squeeze()
    half = head_dim // 2
    if not (table.is_floating_point() or table.is_complex()) or not table.numel():
        return False
    if table.ndim == 1:
        falls = not table.is_complex() and table.numel() == half and bool((table > 0).all())
        return falls and bool(table[0] == 1) and bool((table.diff() <= 0).all())
    if table.ndim == 3 and table.shape[-1] == 2:  # cos and sin side by side
        table = table.flatten(1)
    if table.ndim != 2 or table.shape[1] not in (half, head_dim) or len(table) < 2:
        return False
    first = table[0]
    if not bool(((first == 0) | (first == 1)).all()) or bool((table == first).all()):
        return False
    return bool((table.abs() <= 1 + 1e-6).all())


def _is_kv(tensor: Tensor, config: LlamaConfig, lengths: Sequence[int]) -> bool:
    heads, head_dim = config.num_key_value_heads, config.head_dim
    if tensor.ndim < 3:
        return False
    shape = Counter(tensor.shape)
    return any(
        not Counter(wanted) - shape
        for length in lengths
        for wanted in ((heads, head_dim, length), (heads * head_dim, length))
    )
