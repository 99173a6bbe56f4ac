"""Nobody is faster than the machine: a side whose calls take less time than its work must is left out.

Work is what no code can leave out: of a model see `work`; of a function what its payload function says
(`texts.flops`, `texts.bytes`). The bound is generous, so that no honest code is ever below it:

- A core does at most MOST_TIMES as much as the best call of a plain kernel did (`worker.looks`). That is room for a
  machine that was busy then, and for a kernel that was not the fastest. All cores count for what computes in threads.
- Numbers narrower than float32 are multiplied faster: NARROW times more. Which ones a function uses is not known.
- Of the bytes those count that the last-level cache cannot hold, weights as small as their file has them: a variant may
  keep 4-bit weights as they are. Where the size of the cache is unknown, none do.
- The work of all forwards of a call is one sum, and of their bytes those of one forward count: calls may be joined.

It is asked once, after the rounds, of the median over all samples of a side: no round that was odd can break it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from llama_workbench.datasets.geometries import parameter_count
from llama_workbench.datasets.workloads import Workload
from llama_workbench.variants import REFERENCE_BENCHMARKS, LlamaConfig
from llama_workbench.variants.memory_policy import forwards, kv_bytes

from ..evidence.effect import short_time
from ..machine.environment import last_level_cache_bytes, usable_cores
from ..measure.groups import Group
from ..measure.measurement import Measurement
from ..measure.participants import ExperimentState
from ..measure.passes import measured_by
from ..measure.processes import WorkerFailed
from ..spec.table import Table
from ..spec.words import Cause
from ..store.folder import RunFolder

# What a call must do at least, counted from the model's shape: floating-point operations and bytes. Pure functions.
# Counted is what no variant can leave out: logits of the last position from all positions before it, with keys and
# values of every position left behind. So queries of the last layer count for the last position alone, and a query
# counts only the keys that it may see. Of the operations those of matrix products count (an addition and a
# multiplication are two); of the bytes weights, keys and values, each once a forward. The rest is left out on both
# sides, which makes a bound lower, never higher.


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


MOST_TIMES, NARROW = 4.0, 16.0
ROOF_SECONDS = 120.0

Work = Callable[[int], ForwardWork]
"""Tokens of a call → what it must do at least: of bytes those that must come from memory."""

Rates = tuple[float, float]
"""The most operations, and the most bytes from memory, that a core does in a second."""


def hold_to_roof(measurement: Measurement, folder: RunFolder, configs: Mapping[str, LlamaConfig]) -> None:
    """Leave out every side that reports less time than its work can take here. configs: by geometry."""
    places = measured_by(measurement)
    asked = {name: work for name, (_, state) in places.items() if (work := _work(state, configs))}
    if measurement.setting.device != "cpu" or not asked or not folder.finished_rounds():
        return
    try:
        flops, nbytes = _rates(measurement, next(iter(places.values()))[0])
    except WorkerFailed as failure:
        measurement.setting.progress.note(f"how fast this machine can be is not known: measuring it {failure.reason}")
        return
    samples = folder.read_samples()
    for workload, work in asked.items():
        state = places[workload][1]
        narrow = (
            NARROW if state.experiment.workload.kind == "call" or state.experiment.workload.dtype != "float32" else 1.0
        )
        for name in state.remaining().variants:
            mine = samples.where(workload=workload, variant=name)
            if name not in REFERENCE_BENCHMARKS and (
                reason := beyond(mine, work, (flops * narrow, nbytes), *_clock(state, name))
            ):
                reason = f"faster than this machine can be: {reason}"
                measurement.participants.exclude(name, reason, state, Cause.BEYOND_ROOF)


def beyond(samples: Table, work: Work, rates: Rates, clock: str, cores: int) -> str:
    """Both numbers of a side that takes less time than it can, by its median sample; empty where it takes enough."""
    moved = samples.take(samples[clock] > 0)  # a virtual machine's clock may stand still
    took, lengths = moved[clock] / moved["repeats"] / 1e9, moved["tokens"].tolist()
    least = {tokens: _least(work(tokens), rates, cores) for tokens in set(lengths)}
    with np.errstate(divide="ignore"):  # nothing to do takes no time
        shares = took / np.array([least[tokens][0] for tokens in lengths])
    if not len(shares) or np.median(shares) >= 1:
        return ""
    middle = np.argsort(shares, kind="stable")[len(shares) // 2]
    seconds, what = least[lengths[middle]]
    return f"reports {short_time(took[middle])} a call; {what} in less than {short_time(seconds)} here"


def _least(work: ForwardWork, rates: Rates, cores: int) -> tuple[float, str]:
    """Seconds that a call takes at least, and what it does in them."""
    by_flops, by_bytes = (amount / rate / cores for amount, rate in zip(work, rates, strict=True))
    if by_bytes > by_flops:
        return by_bytes, f"{work.nbytes / 1e6:.3g} MB beyond what its caches hold cannot be read"
    return by_flops, f"{work.flops / 1e6:.3g} million operations cannot be done"


def _clock(state: ExperimentState, name: str) -> tuple[str, int]:
    """The column of its times, and how many cores may have worked in them."""
    threads = state.experiment.workload.threads
    by_wall = threads > 1 or name in state.wall_variants
    return ("wall_ns", max(threads, usable_cores())) if by_wall else ("cpu_ns", 1)


def _rates(measurement: Measurement, group: Group) -> Rates:
    alone = replace(group, threads=1, torch=False)
    with closing(measurement.processes.new(alone, 0, "roof.log")) as process:
        rates = process.ask("roof", ROOF_SECONDS)
    return MOST_TIMES * rates["flops"], MOST_TIMES * rates["bytes"]


def _work(state: ExperimentState, configs: Mapping[str, LlamaConfig]) -> Work | None:
    """The work of a call of a workload; None where nobody knows it."""
    workload, cache = state.experiment.workload, last_level_cache_bytes()

    def counted(flops: float, nbytes: float) -> ForwardWork:
        held = nbytes if cache is None else cache * (usable_cores() if workload.threads > 1 else 1)
        return ForwardWork(int(flops), int(max(nbytes - held, 0)))

    if workload.kind == "call":
        amounts = [
            max((learnt.get(what, 0) for learnt in state.learnt.values()), default=0) for what in ("flops", "bytes")
        ]
        return (lambda tokens: counted(*amounts)) if any(amounts) else None
    config = configs.get(workload.geometry)
    if workload.kind == "component" or config is None or state.folder is None:
        return None
    item_bytes = 4 if workload.dtype == "float32" else 2
    stored = min(1.0, _file_bytes(state.folder) / (item_bytes * parameter_count(config)))

    def of_model(tokens: int) -> ForwardWork:
        forwards = work_of_call(config, workload, tokens=tokens, item_bytes=item_bytes)
        flops, nbytes = sum(each.flops for each in forwards), max(each.nbytes for each in forwards)
        return counted(flops, stored * nbytes)

    return of_model


def _file_bytes(checkpoint: Path) -> int:
    files = [checkpoint] if checkpoint.is_file() else checkpoint.glob("*.safetensors")
    return sum(file.stat().st_size for file in files)
