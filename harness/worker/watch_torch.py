"""Settings and names of torch that all code in a process shares, and that a variant may change for everybody.

Apart from `watch`, because a process whose functions do not use torch does not import it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional
from torch.nn.modules import module as modules

from .watch import GRADIENTS, Names, Watched

SAMPLED = 4099  # distance between the values of the weights that are checked

_TINY = float.fromhex("0x1p-1060")
_HOOKS = [table for name, table in vars(modules).items() if name.startswith("_global_") and name.endswith("hooks")]
_OPS = [name for name in dir(torch._C._VariableFunctions) if name in vars(torch) and not name.startswith("__")]


def _fused_attention() -> tuple[bool, ...]:
    cuda = torch.backends.cuda
    return cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()


def _set_fused_attention(value: tuple[bool, ...]) -> None:
    cuda = torch.backends.cuda
    enables = (cuda.enable_flash_sdp, cuda.enable_mem_efficient_sdp, cuda.enable_math_sdp)
    for enable, wanted in zip(enables, value, strict=True):
        enable(wanted)


TORCH_SETTINGS = (
    Watched("the number of torch threads", torch.get_num_threads, torch.set_num_threads),
    Watched("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Watched(GRADIENTS, torch.is_grad_enabled, torch.set_grad_enabled),
    Watched("whether tiny numbers count as 0", lambda: _TINY * 1.0 == 0.0, torch.set_flush_denormal),
    Watched("the precision of matrix products", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    Watched(
        "deterministic algorithms", torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms
    ),
    Watched("whether oneDNN is used", torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    Watched("which fused attention is allowed", _fused_attention, _set_fused_attention),
    Watched("autocast", lambda: torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on)),
    Watched("torch's profiler", torch._C._autograd._profiler_enabled),
    Watched("torch's default device or function modes", torch._C._len_torch_function_stack),
    Watched("torch's dispatch modes", torch._C._len_torch_dispatch_stack),
    Watched("torch's hooks for all modules", lambda: [*map(len, _HOOKS)], lambda _: [each.clear() for each in _HOOKS]),
    Watched("whether CUDA is used", torch.cuda.is_initialized),
)  # fmt: skip


def torch_names() -> list[Names]:
    """What torch's functions and classes are called, as they are now."""
    return [
        Names("torch.{}", torch, _OPS),
        Names("torch.nn.functional.{}", functional),
        Names("torch.Tensor.{}", torch.Tensor),
    ]


def weight_sums(weights: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """A sample of the weights' values, added up, by name."""
    return {name: float(weight.flatten()[::SAMPLED].double().sum()) for name, weight in weights.items()}
