"""The verbs of the memory pass: bytes of live tensors by kind, and the peak of a call.

The garbage collector knows every live tensor, wherever the reference is. Tensors from before the model was built (above
all the checkpoint) are left out, and so are their views. Those that only native code refers to are not found. The kind
depends on values and shape, not on a name, so that it is right in variants of any make.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from llama_workbench.datasets.lengths import longest_call
from llama_workbench.variants import LlamaConfig
from llama_workbench.variants.memory_policy import KINDS, doublings, expected, kv_bytes, served_lengths

from ...worker.devices import Device
from ...worker.looks import peak_of_call
from ...worker.models import PrefillRunner, model_variant
from ...worker.state import Bench, Runner, Worker, WorkerError


def memory(worker: Worker, workload: str, variant: str) -> dict[str, Any]:
    """Peak bytes that one warmed-up call allocates above what lives already, on the device (`peak_bytes` of it).

    Parameter bytes count the checkpoint's tensors. Cache bytes are what a rebuilt variant keeps after a call, beyond
    the weights that it was given.
    """
    bench = worker.benches[workload]
    before = live_tensors()
    with worker.modes_of(bench):
        runner = bench.kind.runner(worker, bench, bench.subjects[variant].variant)
        peak = peak_of_call(runner, bench, bench.workload.tokens, worker.device)
        model = getattr(runner, "model", None)
        del runner  # what the harness keeps for itself, such as generated tokens, is not the variant's
        held = tensors_since(before) if model is not None else {}
    cache = sum(map(_nbytes, held.values()))
    return {"peak_transient_bytes": peak, "parameter_bytes": bench.parameter_bytes, "cache_bytes": cache}


def memory_held(worker: Worker, workload: str, variant: str) -> dict[str, Any]:
    """Bytes of tensors that a variant holds beyond the checkpoint, by kind, measured and expected; beside those of the
    checkpoint, and of the keys and values of the longest sequence.

    `steps` has one entry as built (no lengths), then one for each number of different lengths served: `held` with the
    longest served last, `kept` after a `reset`. `fills`: keys and values after one sequence alone, of a part of the
    longest length, in a model with room for all of it. Variants whose modules keep tensors need a fresh process.
    """
    bench = worker.benches[workload]
    checkpoint, work = bench.checkpoint, bench.workload
    assert checkpoint is not None
    before = live_tensors()
    entered = model_variant(worker, variant)
    page = (entered.memory and entered.memory.page) or bench.max_length
    positions = (work.context + longest_call(work), bench.max_length, page)
    if entered.engine is not None:
        raise WorkerError("an engine's tensors are not torch's, and nobody counts them")
    sizes = {"item_bytes": bench.dtype.itemsize, "batch": work.batch}

    def by_kind(built: frozenset[int], *lengths: int) -> dict[str, int]:
        return bytes_by_kind(tensors_since(before), checkpoint.config, lengths=(*positions, *lengths), built=built)

    def step(lengths: list[int], held: dict[str, int], kept: dict[str, int]) -> dict[str, Any]:
        room: dict[str, Any] = {"max_length": bench.max_length, "context": work.context, "chunk": work.chunk}
        policy = entered.memory
        computed = expected(policy, checkpoint.config, lengths, **room, **sizes) if policy else None
        return {"lengths": lengths, "held": held, "kept": kept, "computed": computed}

    with torch.inference_mode():
        runner = bench.kind.runner(worker, bench, entered)
        if not isinstance(runner, PrefillRunner):
            raise WorkerError(f"memory is swept over lengths of prefill workloads; {workload} is {work.kind}")
        fills = []
        for part in (part for part in FILLS if longest_call(work) >= part):
            length = longest_call(work) // part
            runner.prepare(length, bench.take(), 1)
            runner.call()
            fills.append({"part": part, "kv": by_kind(frozenset(), work.context + length)["kv"]})
            del runner  # a model of its own each
            runner = bench.kind.runner(worker, bench, entered)
        built = frozenset(tensors_since(before))
        as_built = by_kind(built)
        steps = [step([], as_built, as_built)]
        for lengths in _serve(runner, bench, worker.device):
            held = by_kind(built)
            runner.model.reset()
            steps.append(step(lengths, held, by_kind(built)))
    return {
        "planned_lengths": doublings(longest_call(work))[-1],
        "served": steps[-1]["lengths"],
        "weights_bytes": bench.parameter_bytes,
        "kv_bytes": kv_bytes(checkpoint.config, positions=positions[0], **sizes),
        "steps": steps,
        "fills": fills,
    }


FILLS = (8, 2, 1)
"""Of the longest length: an eighth, a half, all."""


def _serve(runner: Runner, bench: Bench, device: Device) -> Iterator[list[int]]:
    """Serve 1, 2, 4, ... different lengths, the longest last each time; ends early where memory gets short."""
    longest = longest_call(bench.workload)
    start = device.held_bytes()
    served: set[int] = set()
    for count in doublings(longest):
        if device.held_bytes() - start > device.available_bytes():  # twice as many lengths hold at most twice as much
            return
        lengths = served_lengths(longest, count)
        for length in [*(length for length in lengths[:-1] if length not in served), longest]:
            runner.prepare(length, bench.take(), 1)
            runner.call()
        served.update(lengths)
        yield lengths


FORBIDDEN = -1e4
"""An additive mask's value at or below this forbids: -inf, or the least number of a type (float16's is -65504)."""


def live_tensors() -> list[Tensor]:
    """All tensors alive in this process, garbage collected first, without those frozen by `gc.freeze`."""
    gc.collect()
    # By type and not isinstance, which would ask lazy proxies for their class and so load them. Other subclasses are
    # stand-ins without data, such as those that the compiler traces with and keeps.
    return [item for item in gc.get_objects() if type(item) in (Tensor, Parameter)]


def tensors_since(before: Sequence[Tensor]) -> dict[int, Tensor]:
    """Live tensors that share no storage with `before`, by address: of those in one storage the largest.

    `before` is the result of `live_tensors`; it keeps these tensors alive, so that no newer one can have their address.
    Tensors without data (`meta`) are left out.
    """
    older = {_address(tensor) for tensor in before}
    largest: dict[int, Tensor] = {}
    for tensor in live_tensors():
        address = _address(tensor)
        if tensor.is_meta or address in older:
            continue
        if address not in largest or tensor.numel() > largest[address].numel():
            largest[address] = tensor
    return largest


def _address(tensor: Tensor) -> int:
    if tensor.layout is not torch.strided:
        return id(tensor)
    return tensor.untyped_storage().data_ptr() or id(tensor)


def _nbytes(tensor: Tensor) -> int:
    """Of its whole storage."""
    if tensor.layout is not torch.strided:  # packed by a kernel's library: it has no storage to ask
        return tensor.numel() * tensor.element_size()
    return tensor.untyped_storage().nbytes()


def bytes_by_kind(
    tensors: dict[int, Tensor], config: LlamaConfig, *, lengths: Sequence[int], built: frozenset[int]
) -> dict[str, int]:
    """Bytes of each of KINDS. `tensors`: as of `tensors_since`. `built`: their addresses after `build`."""
    total = dict.fromkeys(KINDS, 0)
    for address, tensor in tensors.items():
        total[kind_of(tensor, config, lengths=lengths, built=address in built)] += _nbytes(tensor)
    return total


def kind_of(tensor: Tensor, config: LlamaConfig, *, lengths: Sequence[int], built: bool) -> str:
    """One of KINDS, by the first rule that fits.

    mask      [..., T, S] whose values are those of a causal mask: nothing, then all, forbidden along a diagonal
    rope      [T, D/2], [T, D] or [T, D/2, 2] of cos and sin (the first row is 0s and 1s, none is above 1), the same as
              complex numbers, or D/2 frequencies that fall from 1
    kv        three dimensions or more, among them the key-value heads G, D and one of `lengths` (the positions that a
              cache may be made for: those so far, the most, and those of a page), or G·D and one of `lengths`; or
              a scale for each of them, [B, G, one of `lengths`, 1]
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
    if tensor.ndim == 4 and tensor.shape[1] == heads and tensor.shape[3] == 1:
        return tensor.shape[2] in lengths
    return any(
        not Counter(wanted) - shape
        for length in lengths
        for wanted in ((heads, head_dim, length), (heads * head_dim, length))
    )


VERBS = {verb.__name__: verb for verb in (memory, memory_held)}
