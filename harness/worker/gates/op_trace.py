"""The ATen operations of a call: a claim about architecture holds only where both sides run the same ones."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def noting(note: Callable[[Any, Sequence[Any], Mapping[str, Any]], None]) -> TorchDispatchMode:
    """A dispatch mode that runs each operation, after it gave it to `note` with its positional and named arguments.

    torch has every mode import its compiler at the first operation, so that it can be told to leave the handler alone:
    1.7 s of a processor in each process. Here that is done only where the compiler is loaded already.
    """

    class Noting(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:  # asked once, when the class is made
            return "torch._dynamo" in sys.modules

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            note(func, args, kwargs or {})
            return func(*args, **(kwargs or {}))

    return Noting()


def _shown(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}/{list(value.stride())}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    return str(value)


@dataclass(frozen=True)
class OpTrace:
    """The ATen ops of one call, each with the shapes, strides and types of its arguments."""

    ops: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Short name of the sequence. Equal digests mean equal traces."""
        return sha256("\n".join(self.ops).encode()).hexdigest()[:16]


def trace(call: Callable[[], object]) -> OpTrace:
    """Record what `call` dispatches, with gradients and inference mode off: in inference mode composite operations stay
    whole, and a trace would not show which kernel scaled_dot_product_attention chose.
    """
    ops: list[str] = []

    def note(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        ops.append(f"{func}({', '.join(_shown(value) for value in (*args, *kwargs.values()))})")

    with torch.inference_mode(False), torch.no_grad(), noting(note):
        call()
    return OpTrace(tuple(ops))


def trace_difference(baseline: OpTrace, variant: OpTrace) -> str | None:
    """None where both sides run the same ops on the same shapes. Otherwise the first difference, in words."""
    if baseline.ops == variant.ops:
        return None
    for index, (ours, theirs) in enumerate(zip(baseline.ops, variant.ops, strict=False)):
        if ours != theirs:
            return (
                f"op {index + 1} of {len(baseline.ops)} / {len(variant.ops)}: {_short(ours)} against {_short(theirs)}"
            )
    return f"{len(baseline.ops)} ops against {len(variant.ops)}"


def facts_of(ops: OpTrace) -> dict[str, Any]:
    """What a run keeps of a trace."""
    counts = dict(sorted(_counts(ops).items()))
    return {"digest": ops.digest, "ops": len(ops.ops), "attention_kernels": attention_kernels(ops), "counts": counts}


def op_counts(baseline: OpTrace, variant: OpTrace) -> list[tuple[str, int, int]]:
    """Ops that one side runs more often: (name, times in the baseline, times in the variant), largest gap first."""
    ours, theirs = _counts(baseline), _counts(variant)
    rows = [(name, ours[name], theirs[name]) for name in {*ours, *theirs} if ours[name] != theirs[name]]
    return sorted(rows, key=lambda row: (-abs(row[2] - row[1]), row[0]))


def _counts(ops: OpTrace) -> Counter[str]:
    """How often each op runs, by its name without "aten."."""
    return Counter(op.split("(")[0].removeprefix("aten.") for op in ops.ops)


def _short(op: str) -> str:
    return op.removeprefix("aten.")[:90]


def attention_kernels(ops: OpTrace) -> list[str]:
    """Names of the fused attention kernels in a trace: which backend scaled_dot_product_attention chose."""
    names = {op.split("(")[0].removeprefix("aten.") for op in ops.ops}
    return sorted(name for name in names if name.startswith("_scaled_dot_product"))
