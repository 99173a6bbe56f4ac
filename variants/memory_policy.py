"""What a variant's policies say it must hold, computed from shapes alone: bytes by kind, before anything is built.

    lengths served, policies, shape --expected--> bytes held after the last call, and kept over `reset`

It stands beside what `holdings` finds in a running model. Where both agree to the byte, a table of memory can be read
off the policies for any size; where they do not, one of the two is wrong. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_workbench.variants import LlamaConfig

KINDS = ("kv", "rope", "mask", "repacked", "other")
"""Keys and values; RoPE tables or frequencies; causal masks; copies of weights in another order; the rest."""

MOST_LENGTHS = 32
"""Different lengths that a sweep ends with: enough to see that masks double with them, few enough to fit in memory."""


@dataclass(frozen=True)
class Policy:
    """The levels that decide what a variant holds.

    `mask`: none, fresh, per_layer, per_model, per_forward or static. `boolean_mask`: one byte an element, else the
    weights' type. `kv`: preallocated, static or cat. `rope`: half (tables of D/2 columns), full (of D) or frequencies
    (D/2 numbers, twice, in float32). `repacked`: none, qk, qkv, or matrices (all but the embedding). `counters`: one
    int64 a layer.
    """

    mask: str
    kv: str
    rope: str
    repacked: str
    boolean_mask: bool = False
    counters: bool = False


@dataclass(frozen=True)
class Footprint:
    """Bytes by kind: `held` after the last call, `kept` after a `reset` that follows it."""

    held: Mapping[str, int]
    kept: Mapping[str, int]


_LIBRARY = Policy(mask="none", kv="cat", rope="frequencies", repacked="none")
_FAST = Policy(mask="none", kv="preallocated", rope="full", repacked="matrices")
_GPT_FAST = Policy(mask="static", kv="static", rope="half", repacked="qkv", boolean_mask=True)

WITHOUT_SETTINGS: Mapping[str, Policy] = {
    "transformers_eager": _LIBRARY,
    "transformers_sdpa": _LIBRARY,
    "transformers_static": Policy(mask="none", kv="static", rope="frequencies", repacked="none", counters=True),
    "fast": _FAST,
    "fast_compiled": _FAST,
    "gpt_fast": _GPT_FAST,
    "gpt_fast_compiled": _GPT_FAST,
    "yardstick": Policy(mask="fresh", kv="preallocated", rope="half", repacked="none"),
}
"""Shipped variants that no `Settings` describe; none of them keeps a mask."""


def policy_of(name: str, factors: Mapping[str, str]) -> Policy | None:
    """The policies of a variant by its factors, or of a shipped one without any by its name; None where unknown."""
    if not factors:
        return WITHOUT_SETTINGS.get(name)
    mask = factors["mask"]
    if mask == "per_layer" and factors["cache"] == "unified":
        mask = "per_model"  # one Cache is one dict, whoever asks it
    return Policy(
        mask=mask,
        kv=factors["kv"],
        rope="half",
        repacked="none" if factors["rope"] == "rotate_half" else "qk",
        boolean_mask=factors["mask_application"] == "masked_fill",
    )


def doublings(longest: int, most: int = MOST_LENGTHS) -> list[int]:
    """How many lengths are served at each step: 1, 2, 4, ... up to `most`, and no more than there are lengths."""
    return [1 << power for power in range(min(longest, most).bit_length())]


def served_lengths(longest: int, count: int) -> list[int]:
    """`count` different lengths, evenly spread, ascending; the last is `longest`. Those of `count` are in 2·`count`'s.

    Raises:
        ValueError: there are fewer lengths than `count`.
    """
    if not 1 <= count <= longest:
        raise ValueError(f"{count} different lengths of at most {longest} tokens: expected 1 to {longest}")
    return [longest * part // count for part in range(1, count + 1)]


def kv_bytes(config: LlamaConfig, *, positions: int, batch: int, item_bytes: int) -> int:
    """Keys and values of `positions` tokens in all layers."""
    heads, layers = config.num_key_value_heads, config.num_hidden_layers
    return 2 * layers * batch * heads * positions * config.head_dim * item_bytes


def forwards(length: int, *, context: int = 0, chunk: int | None = None) -> list[tuple[int, int]]:
    """(new tokens, positions so far) of each forward of a sequence: the context, then `length` tokens, or in chunks."""
    step = chunk or length
    ends = ([context] if context else []) + [context + min(end, length) for end in range(step, length + step, step)]
    return [(end - start, end) for start, end in zip([0, *ends], ends, strict=False)]


def expected(
    policy: Policy,
    config: LlamaConfig,
    lengths: Sequence[int],
    *,
    item_bytes: int,
    max_length: int,
    batch: int = 1,
    context: int = 0,
    chunk: int | None = None,
) -> Footprint:
    """What must be held once a sequence of each of `lengths` was served, in that order, each from `reset` on.

    `context` and `chunk` as in `forwards`; `item_bytes` is the size of one weight, `max_length` what the model was
    built for. No lengths: what `build` makes.
    """
    calls = [call for length in lengths for call in forwards(length, context=context, chunk=chunk)]
    positions = calls[-1][1] if policy.kv == "cat" and calls else max_length if calls else 0
    # Buffers are made at the first call, when the batch size is known.
    kv = kv_bytes(config, positions=positions, batch=batch, item_bytes=item_bytes)
    shared = {
        "rope": _rope_bytes(policy, config, max_length, item_bytes),
        "mask": _mask_bytes(policy, config, calls, max_length, item_bytes),
        "repacked": _repacked_bytes(policy, config, item_bytes),
        "other": 8 * config.num_hidden_layers if policy.counters and calls else 0,
    }
    return Footprint({"kv": kv, **shared}, {"kv": 0 if policy.kv == "cat" else kv, **shared})


def _rope_bytes(policy: Policy, config: LlamaConfig, max_length: int, item_bytes: int) -> int:
    half = config.head_dim // 2
    if policy.rope == "frequencies":
        return 2 * half * 4
    return 2 * max_length * half * item_bytes * (2 if policy.rope == "full" else 1)


def _mask_bytes(
    policy: Policy, config: LlamaConfig, calls: Sequence[tuple[int, int]], max_length: int, item_bytes: int
) -> int:
    size = 1 if policy.boolean_mask else item_bytes
    if policy.mask == "static":
        return max_length * max_length * size
    # One query row sees everything before it: no policy makes a mask for it.
    kept: set[tuple[int, int]] = set()
    if policy.mask in ("per_layer", "per_model"):
        kept = {call for call in calls if call[0] > 1}
    elif policy.mask == "per_forward":
        kept = {call for call in calls[-1:] if call[0] > 1}  # forgotten when the next call begins, not before
    copies = config.num_hidden_layers if policy.mask == "per_layer" else 1
    return copies * size * sum(rows * columns for rows, columns in kept)


def _repacked_bytes(policy: Policy, config: LlamaConfig, item_bytes: int) -> int:
    query = config.num_attention_heads * config.head_dim * config.hidden_size
    key = config.num_key_value_heads * config.head_dim * config.hidden_size
    layer = query + 2 * key
    if policy.repacked == "matrices":
        layer += query + 3 * config.intermediate_size * config.hidden_size
    elements = config.num_hidden_layers * {"none": 0, "qk": query + key}.get(policy.repacked, layer)
    if policy.repacked == "matrices":
        elements += config.vocab_size * config.hidden_size
    return elements * item_bytes
