"""Causal masks: how one is made, how long it is kept (the policies), and how it is applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


def additive_mask(length: int, kv_length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[T, kv]: 0 where query t may see key j (j <= t + kv - T), -inf elsewhere. Vectorised: one fill, one triangle."""
    return torch.full((length, kv_length), float("-inf"), dtype=dtype, device=device).triu_(kv_length - length + 1)


def boolean_mask(length: int, kv_length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[T, kv]: True where the key must not be seen (Candle's u8 mask)."""
    return torch.ones((length, kv_length), dtype=torch.bool, device=device).triu_(kv_length - length + 1)


MAKERS = {"additive": additive_mask, "in_sdpa": additive_mask, "masked_fill": boolean_mask}


def apply_mask(scores: Tensor, mask: Tensor, application: str) -> Tensor:
    """scores [B, H, T, kv] with the forbidden places at -inf."""
    if application == "additive":
        return scores + mask
    return torch.where(mask, float("-inf"), scores)  # one pass, as Candle's where_cond makes


class Masks(Protocol):
    """A mask policy. One query row sees everything before it, so none needs a mask at decode; the worker's before its
    change made one all the same."""

    def begin(self, length: int, kv_length: int) -> None:
        """Called once at the start of every forward."""

    def get(self, length: int, kv_length: int) -> Tensor | None:
        """The mask [T, kv] for one layer, or None where none is needed."""


class FreshMasks:
    """A new mask per layer and call, made on the host; at decode zeros, which are added as any other (the worker before
    its change, but for later chunks of a prompt, which it left unmasked: see FreshOrZeros)."""

    def __init__(self, application: str, dtype: torch.dtype, device: torch.device) -> None:
        self.make = MAKERS[application]
        self.dtype = dtype
        self.nothing = torch.bool if application == "masked_fill" else dtype
        self.device = device
        self.host = torch.device("cpu")

    def begin(self, length: int, kv_length: int) -> None:
        pass

    def get(self, length: int, kv_length: int) -> Tensor | None:
        if length == 1:
            return torch.zeros(length, kv_length, dtype=self.nothing, device=self.device)
        return self.make(length, kv_length, self.dtype, self.host).to(self.device)


class CachedMasks:
    """A dict by (T, kv): one in each Attention (per_layer) or one in the model (per_model).

    The worker's key was T alone, which is wrong as soon as a prompt comes in chunks; Candle had the same fault until
    2026 and now keys by (T, kv) as here.
    """

    def __init__(self, application: str, dtype: torch.dtype, device: torch.device) -> None:
        self.make = MAKERS[application]
        self.dtype = dtype
        self.device = device
        self.masks: dict[tuple[int, int], Tensor] = {}

    def begin(self, length: int, kv_length: int) -> None:
        pass

    def get(self, length: int, kv_length: int) -> Tensor | None:
        if length == 1:
            return None
        key = (length, kv_length)
        mask = self.masks.get(key)
        if mask is None:
            mask = self.masks[key] = self.make(length, kv_length, self.dtype, self.device)
        return mask


class FreshOrZeros:
    """The worker before its change, to the letter: a mask if T = kv; at decode and in later chunks zeros are made and
    added, so that a later chunk sees what it should not."""

    def __init__(self, application: str, dtype: torch.dtype, device: torch.device) -> None:
        self.make = MAKERS[application]
        self.dtype = dtype
        self.device = device
        self.host = torch.device("cpu")

    def begin(self, length: int, kv_length: int) -> None:
        pass

    def get(self, length: int, kv_length: int) -> Tensor | None:
        if length != kv_length:
            return torch.zeros(length, kv_length, dtype=self.dtype, device=self.device)
        return self.make(length, kv_length, self.dtype, self.host).to(self.device)  # on a CPU that is where it lies


class MasksByLength:
    """The worker after its change, and TEAM-008's cache, to the letter: a dict by T alone, asked only if T = kv. At
    decode and in later chunks nothing is added."""

    def __init__(self, application: str, dtype: torch.dtype, device: torch.device) -> None:
        self.make = MAKERS[application]
        self.dtype = dtype
        self.device = device
        self.masks: dict[int, Tensor] = {}

    def begin(self, length: int, kv_length: int) -> None:
        pass

    def get(self, length: int, kv_length: int) -> Tensor | None:
        if length != kv_length:
            return None
        mask = self.masks.get(length)
        if mask is None:
            mask = self.masks[length] = self.make(length, kv_length, self.dtype, self.device)
        return mask


class ForwardMasks:
    """One mask per forward, shared by the layers and then forgotten (meta's reference code, mistral.rs)."""

    def __init__(self, application: str, dtype: torch.dtype, device: torch.device) -> None:
        self.make = MAKERS[application]
        self.dtype = dtype
        self.device = device
        self.mask: Tensor | None = None

    def begin(self, length: int, kv_length: int) -> None:
        self.mask = None if length == 1 else self.make(length, kv_length, self.dtype, self.device)

    def get(self, length: int, kv_length: int) -> Tensor | None:
        return self.mask


POLICIES: dict[str, Callable[[str, torch.dtype, torch.device], Masks]] = {
    "fresh": FreshMasks,
    "per_layer": CachedMasks,
    "per_model": CachedMasks,
    "per_forward": ForwardMasks,
    "fresh_or_zeros": FreshOrZeros,
    "per_layer_by_length": MasksByLength,
    "per_model_by_length": MasksByLength,
}
"""By level of the mask axis."""

OF_EACH_LAYER = frozenset({"per_layer", "per_layer_by_length"})
"""Policies of which each Attention has one of its own."""
