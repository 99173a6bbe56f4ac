"""torch.compile for the variants that exist compiled."""

from __future__ import annotations

import functools
import os
import shutil
import types
import zlib
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

MOST_GRAPHS = 64  # kinds of call (lengths, batches, types) that one function may be compiled for


@functools.cache
def compiled(forward: Callable[..., Tensor], model: Hashable) -> Callable[..., Tensor]:
    """`forward` through torch.compile for one `model` (its shape): whole, or an error, never eagerly under that name.

    Each model gets its own function: the compiler makes a symbol of a number that it has seen change, and after a
    second model would do so with sizes, in slower code. The function is kept, so that a model built again is not
    compiled again.
    """
    import torch

    torch._dynamo.config.recompile_limit = MOST_GRAPHS  # 8 by default, and then torch goes on eagerly
    name = f"{forward.__name__}_{zlib.crc32(repr(model).encode()):08x}"  # what the compiler learns is kept by name
    code = forward.__code__.replace(co_name=name)
    own = types.FunctionType(code, forward.__globals__, forward.__name__, forward.__defaults__, forward.__closure__)
    return torch.compile(own, fullgraph=True)


def missing() -> str | None:
    """What torch.compile needs and this machine lacks, in one line; None where all is there."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    if any(shutil.which(name) for name in names):
        return None
    return f"needs a C++ compiler ({', '.join(names)}): install g++"
