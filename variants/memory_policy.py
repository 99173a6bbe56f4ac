"""Expected memory: what a variant must hold by its policies, in bytes by kind, computed from shapes alone.

Where it agrees to the byte with the live tensors of a running model, the memory of a model of any size can be computed;
where it does not, one of the two is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .config import LlamaConfig
from .settings import Settings

KINDS = ("kv", "rope", "mask", "repacked", "other")
"""Keys and values; RoPE tables or frequencies; causal masks; copies of weights in another order; the rest."""

MOST_LENGTHS = 32
"""Different lengths that a sweep ends with: enough to see that masks double with them, few enough to fit in memory."""


@dataclass(frozen=True)
class Policy:
    """The levels that decide what a variant holds.

    `mask`: none, static, or a level of that axis. `boolean_mask`: one byte an element, else as the
    weights. `kv`: preallocated, static, cat, or paged: in pages of `page` tokens, taken as they fill. `rope`: half
    (tables of D/2 columns), complex (the same, of float32 at least), full (of D) or frequencies (D/2 numbers, twice,
    float32), inline (made at each call). `repacked`: none, qk, qkv, joined (qkv, gate and up) or matrices (all but the
    embedding). `counters`: int64 a layer. `rounding`: the type that keys and values are kept in, where it is not that
    of the weights."""

    mask: str
    kv: str
    rope: str
    repacked: str
    boolean_mask: bool = False
    counters: bool = False
    page: int = 0
    rounding: str = ""

    def whole_pages(self, positions: int) -> int:
        """Positions in as many pages as it takes."""
        return -(-positions // self.page) * self.page if self.page else positions


def policy_of(settings: Settings) -> Policy:
    """What the settings of one of our variants decide."""
    per_model = settings.mask == "per_layer" and settings.cache == "unified"  # one Cache is one dict, whoever asks it
    return Policy(
        mask="per_model" if per_model else settings.mask,
        kv=settings.kv,
        rope="complex" if settings.rope == "complex" else "half",
        repacked="qk" if settings.interleaved else "none",
        boolean_mask=settings.mask_application == "masked_fill",
    )


def doublings(longest: int) -> list[int]:
    """How many lengths are served at each step: 1, 2, 4, ... up to `MOST_LENGTHS` and the number of lengths."""
    return [1 << power for power in range(min(longest, MOST_LENGTHS).bit_length())]


def served_lengths(longest: int, count: int) -> list[int]:
    """`count` different lengths, evenly spread, ascending; the last is `longest`. Those of `count` are in 2·`count`'s.
    Raises ValueError where there are fewer lengths than `count`."""
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
    return [(end - start, end) for start, end in zip([0, *ends], ends)]


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
) -> dict[str, dict[str, int]]:
    """Bytes by kind that are "held" after a sequence of each of `lengths` was served, in that order, each from `reset`
    on, and "kept" after a `reset` that follows; without lengths what `build` makes. `context` and `chunk` as in
    `forwards`; `item_bytes` is the size of one weight, `max_length` what the model was built for."""
    calls = [call for length in lengths for call in forwards(length, context=context, chunk=chunk)]
    positions = calls[-1][1] if policy.kv == "cat" and calls else max_length if calls else 0
    if policy.page:
        positions = policy.whole_pages(max((end for _, end in calls), default=0))
    # Buffers are made at the first call, when the batch size is known.
    kept_bytes = {"bfloat16": 2, "int8": 1}.get(policy.rounding, item_bytes)
    kv = kv_bytes(config, positions=positions, batch=batch, item_bytes=kept_bytes)
    if policy.rounding == "int8":  # a scale for head_dim values
        kv += kv_bytes(config, positions=positions, batch=batch, item_bytes=max(item_bytes, 4)) // config.head_dim
    table = max_length * config.head_dim * item_bytes  # cosine and sine, D/2 columns each
    shared = {
        "rope": {
            "half": table,
            "complex": max_length * config.head_dim * max(item_bytes, 4),
            "full": 2 * table,
            "frequencies": 4 * config.head_dim,
            "inline": 0,
        }[policy.rope],
        "mask": _mask_bytes(policy, config, calls, max_length, item_bytes),
        "repacked": _repacked_bytes(policy, config, item_bytes),
        "other": 8 * config.num_hidden_layers if policy.counters and calls else 0,
    }
    if (1, 1) in calls:  # a mask of one place, which hides nothing
        masks = {"per_layer_by_length": config.num_hidden_layers, "per_model_by_length": 1}.get(policy.mask, 0)
        shared["other"] += masks * item_bytes
    held = {"kv": kv, **shared}
    if policy.page and calls:  # the block table: a page's number, and the places of its tokens, until the sequence ends
        held["other"] += 8 * batch * policy.whole_pages(calls[-1][1]) * (policy.page + 1) // policy.page
    return {"held": held, "kept": {**shared, "kv": 0 if policy.kv == "cat" else kv}}


def _mask_bytes(
    policy: Policy, config: LlamaConfig, calls: Sequence[tuple[int, int]], max_length: int, item_bytes: int
) -> int:
    size = 1 if policy.boolean_mask else item_bytes
    if policy.mask == "static":
        return max_length * max_length * size
    # One query row sees everything before it, and gets no mask; per_forward forgets when the next call begins.
    kept = {"per_layer": calls, "per_model": calls, "per_forward": calls[-1:]}.get(policy.mask, ())
    if policy.mask.endswith("_by_length"):  # asked only where all keys are new
        kept = [(rows, columns) for rows, columns in calls if rows == columns]
    copies = config.num_hidden_layers if policy.mask.startswith("per_layer") else 1
    return copies * size * sum(rows * columns for rows, columns in set(kept) if rows > 1)


def _repacked_bytes(policy: Policy, config: LlamaConfig, item_bytes: int) -> int:
    query = config.num_attention_heads * config.head_dim
    key = config.num_key_value_heads * config.head_dim
    matrices = 2 * query + 2 * key + 3 * config.intermediate_size
    joined = query + 2 * key + 2 * config.intermediate_size
    of_level = {"none": 0, "qk": query + key, "qkv": query + 2 * key, "joined": joined, "matrices": matrices}
    rows = of_level[policy.repacked]
    head = config.vocab_size if policy.repacked == "matrices" else 0
    return (config.num_hidden_layers * rows + head) * config.hidden_size * item_bytes
