"""What a call must do at least, counted from the model's shape: floating-point operations and bytes. Pure functions.

Counted is what no variant can leave out: logits of the last position from all positions before it, with keys and values
of every position left behind. So queries of the last layer count for the last position alone, and a query counts only
the keys that it may see. Of the operations those of matrix products count (an addition and a multiplication are two);
of the bytes weights, keys and values, each once a forward. The rest is left out on both sides, which makes a bound
lower, never higher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from llama_workbench.datasets.geometries import parameter_count
from llama_workbench.datasets.workloads import Workload
from llama_workbench.variants import LlamaConfig
from llama_workbench.variants.memory_policy import forwards, kv_bytes


class ForwardWork(NamedTuple):
    """Of one forward: operations of its matrix products, and bytes that it must read or write."""

    flops: int
    nbytes: int


def work_of_forward(config: LlamaConfig, *, tokens: int, positions: int, batch: int, item_bytes: int) -> ForwardWork:
    """The work of `tokens` new tokens (1 or more) in each of `batch` sequences, which then have `positions` in all.

    `item_bytes` is the size of one weight, and of one number in the KV cache.
    """
    hidden, layers, vocabulary = config.hidden_size, config.num_hidden_layers, config.vocab_size
    query = config.num_attention_heads * config.head_dim
    key = config.num_key_value_heads * config.head_dim
    before = positions - tokens
    seen = tokens * before + tokens * (tokens + 1) // 2  # pairs of a query and a key that it may see
    keys_and_values = layers * tokens * 2 * hidden * 2 * key
    # Query, output and MLP of a token; attention of a pair is a product for the score and one for the sum.
    of_token = 2 * hidden * query * 2 + 3 * 2 * hidden * config.intermediate_size
    of_pair = 2 * 2 * query
    rest = (layers - 1) * (tokens * of_token + seen * of_pair) + of_token + positions * of_pair
    head = 2 * hidden * vocabulary
    # An embedding of its own is looked up in a few rows; a tied one is the head, which is read whole.
    weights = parameter_count(config) - (0 if config.tie_word_embeddings else vocabulary * hidden)
    cache = kv_bytes(config, positions=positions, batch=batch, item_bytes=item_bytes)
    return ForwardWork(batch * (keys_and_values + rest + head), weights * item_bytes + cache)


def work_of_call(config: LlamaConfig, workload: Workload, *, tokens: int, item_bytes: int) -> list[ForwardWork]:
    """The forwards of one call of `tokens` tokens (`call_lengths`), in order. Raises ValueError for a component."""
    if workload.kind == "component":
        raise ValueError(f"{workload.name} is one part of a forward; only whole forwards are counted")
    if workload.kind == "prefill":
        steps = forwards(tokens, context=workload.context, chunk=workload.chunk)[1 if workload.context else 0 :]
    elif workload.kind == "decode":
        steps = [(1, workload.context + 1)]
    else:  # the last token generated is not fed again
        steps = [(tokens, tokens)] + [(1, tokens + step) for step in range(1, workload.new_tokens or 1)]
    return [
        work_of_forward(config, tokens=new, positions=positions, batch=workload.batch, item_bytes=item_bytes)
        for new, positions in steps
    ]


def weight_bytes(config: LlamaConfig, *, item_bytes: int) -> int:
    """Bytes of the weights that every forward reads: what `work_of_forward` counts beside keys and values."""
    forward = work_of_forward(config, tokens=1, positions=1, batch=1, item_bytes=item_bytes)
    return forward.nbytes - kv_bytes(config, positions=1, batch=1, item_bytes=item_bytes)


def products(config: LlamaConfig, workload: Workload) -> list[tuple[int, int, int]]:
    """Shapes (rows, inner, columns) of the matrix products that the workload's longest forward has, each once."""
    longest = workload.chunk or workload.tokens
    rows, hidden, inner = workload.batch * longest, config.hidden_size, config.intermediate_size
    query = config.num_attention_heads * config.head_dim
    key = config.num_key_value_heads * config.head_dim
    shapes = [(rows, hidden, query), (rows, hidden, key), (rows, query, hidden), (rows, hidden, inner)]
    return list(dict.fromkeys([*shapes, (rows, inner, hidden), (workload.batch, hidden, config.vocab_size)]))


def least_seconds(
    work: Sequence[ForwardWork], *, flops_per_second: float, bytes_per_second: float
) -> tuple[float, float]:
    """(seconds of forwards that computing bounds, seconds of those that memory bounds): their sum is the least time.

    Forwards come one after another, so that each takes at least the longer of its two.
    """
    compute = memory = 0.0
    for forward in work:
        by_flops, by_bytes = forward.flops / flops_per_second, forward.nbytes / bytes_per_second
        if by_flops >= by_bytes:
            compute += by_flops
        else:
            memory += by_bytes
    return compute, memory
