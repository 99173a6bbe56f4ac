"""The loading pass: how long weights take from their file, in rounds of all loaders in random order, and what it means.

A pass of its own and not a workload: it compares loaders by wall time, each load needs a process that has loaded
nothing, and the page cache must be brought into a known state before each. A load of a large checkpoint takes seconds,
too long for the rounds that a confidence sequence needs. So the number of rounds is fixed before the first one, by what
a load of each format costs and never by what comes out, and an ordinary t interval holds.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ...evidence.evidence import Evidence
from ...evidence.numbers import exp
from ...measure.participants import Progress
from ...measure.processes import WorkerFailed, WorkerProcess
from ...spec.hypotheses import Name, Names, Quantity, RangeHypothesis
from ...stats.confidence import Interval, fixed_interval
from ...store.files import LOADING
from ...store.folder import RunFolder
from ...store.schema import Effect
from ..base import IntervalMetric, PassContext

LOADED_INTO = "fast"
"""The variant that stands for "a model"."""

BASELINE = "safetensors-mmap"
CONTROL = f"{BASELINE}@aa"
PROMPT_TOKENS = 128
"""Time to first token is that of this variant after a prompt of this length: what a program pays before it answers."""

LEAST_ROUNDS, MOST_ROUNDS = 15, 30
LEAST_BESIDE = 2
"""Rounds of what no claim asks about, where time is short: a load's peak memory hardly varies."""

LOAD_SECONDS, PREPARE_SECONDS = 300.0, 900.0
METRICS = ("open", "touched", "first_token")

Ask = Callable[[Mapping[str, Any], str], dict[str, Any]]
"""Loads what a record is about once, for "loads" or "first_tokens" of it: the sample, or a `reason`."""


def measure_loading(
    folder: Path,
    *,
    cache: Path,
    log: Path,
    seed: int,
    seconds: float,
    progress: Progress,
    asked: Collection[tuple[str, str]] | None = None,
    variant: str = LOADED_INTO,
    prompt_tokens: int = PROMPT_TOKENS,
    rounds: int | None = None,
) -> list[dict[str, Any]]:
    """Measure every loader on a checkpoint folder, with cold and with warm page cache: the records of loading.json.

    `reason` of a record is None, or why there are no (further) numbers, such as a page cache that cannot be emptied
    here; never is a warm load passed off as a cold one. `loads` and `first_tokens` hold a dict a round: {"round",
    "position"} and the keys that `worker.measure_load` describes.

    The files of the formats are written to a temporary folder in `cache` and removed. `asked` are the (loader, cache)
    whose share of the time to first token a claim is about (None: all): they come first where a round of everything,
    LEAST_ROUNDS times, would not fit into about `seconds` (see `plan_rounds`; `rounds` sets their number instead). Runs
    in a process of its own (its output goes to `log`). Raises WorkerFailed where that cannot be started.
    """
    rng = random.Random(f"loading {seed}")
    cache.mkdir(parents=True, exist_ok=True)
    process = WorkerProcess(threads=1, cache=cache, log=log)
    try:
        with tempfile.TemporaryDirectory(prefix=".partial-loading-", dir=cache) as scratch:
            common: dict[str, Any] = {"scratch": scratch, "folder": str(folder), "variant": variant}
            facts: dict[str, dict[str, Any]] = process.ask("prepare_loads", PREPARE_SECONDS, **common)
            process.ask("freeze", LOAD_SECONDS)
            records = _records(facts, folder.name, variant, prompt_tokens)

            def ask(record: Mapping[str, Any], key: str) -> dict[str, Any]:
                kind = {"loader": record["loader"].partition("@")[0], "cold": record["cache"] == "cold"}
                first = {"first_token": key == "first_tokens", "tokens": prompt_tokens}
                try:
                    found: dict[str, Any] = process.ask("load", LOAD_SECONDS, **common, **kind, **first)
                except WorkerFailed as failure:
                    return {"reason": failure.reason}
                return found

            _rounds(records, ask, rng, asked=asked, seconds=seconds, rounds=rounds, progress=progress)
            return records
    finally:
        process.close()


def _records(
    facts: Mapping[str, Mapping[str, Any]], folder: str, variant: str, prompt_tokens: int
) -> list[dict[str, Any]]:
    """An empty record for each loader, the control among them, with a cold and with a warm page cache."""
    name = next((fact["checkpoint"] for fact in facts.values() if "checkpoint" in fact), folder)
    records: list[dict[str, Any]] = []
    for loader in (*facts, CONTROL):
        fact = facts[loader.partition("@")[0]]
        common = {"checkpoint": name, "loader": loader, "variant": variant, "prompt_tokens": prompt_tokens}
        of_file = {"file_bytes": fact.get("bytes"), "reason": fact.get("reason")}
        records += [common | of_file | {"cache": state, "loads": [], "first_tokens": []} for state in ("cold", "warm")]
    return records


def _rounds(
    records: Sequence[dict[str, Any]],
    ask: Ask,
    rng: random.Random,
    *,
    asked: Collection[tuple[str, str]] | None,
    seconds: float,
    rounds: int | None,
    progress: Progress,
) -> None:
    """Fill in the records, round by round; what claims ask about is in all rounds, the rest where there is time."""
    tasks = [(record, key) for record in records for key in ("loads", "first_tokens")]
    first: list[tuple[dict[str, Any], str]] = []
    beside: list[tuple[dict[str, Any], str]] = []
    for record, key in tasks:
        wanted = asked is None or (record["loader"], record["cache"]) in asked
        (first if key == "first_tokens" and wanted else beside).append((record, key))
    costs = _costs(records, ask)

    def cost(part: Sequence[tuple[dict[str, Any], str]]) -> float:
        return sum(costs.get(record["loader"].partition("@")[0], 0.0) for record, _ in part)

    count, fewer = (rounds, rounds) if rounds else plan_rounds(cost(first), cost(beside), seconds)
    begun = time.monotonic()
    for number in range(count):
        with_all = (number + 1) * fewer // count > number * fewer // count
        _round([*first, *beside] if with_all else first, number, rng, ask)
        done = (number + 1) / count
        progress.step(f"loading {records[0]['checkpoint']}", done, (time.monotonic() - begun) * (1 / done - 1))


def plan_rounds(asked_seconds: float, beside_seconds: float, seconds: float) -> tuple[int, int]:
    """How many rounds of what a claim asks about, and how many of them with everything else too.

    From what a round of each costs, before any round. As many of both as fit into `seconds`, up to MOST_ROUNDS. Where
    that is less than LEAST_ROUNDS, what is asked gets LEAST_ROUNDS however long they take, and the rest what is left,
    at least LEAST_BESIDE.
    """
    whole = max(asked_seconds + beside_seconds, 1e-3)
    fit = int(min(seconds / whole, MOST_ROUNDS))
    if fit >= LEAST_ROUNDS:
        return fit, fit
    left = (seconds - LEAST_ROUNDS * asked_seconds) / max(beside_seconds, 1e-3)
    return LEAST_ROUNDS, int(min(max(left, LEAST_BESIDE), LEAST_ROUNDS))


def _costs(records: Sequence[Mapping[str, Any]], ask: Ask) -> dict[str, float]:
    """Seconds of one warm load until the first token, by loader, bringing the file into the page cache included.

    Its times are thrown away: this only sizes the pass. A cold load takes longer on a slow disk.
    """
    costs = {}
    for record in records:
        if record["cache"] == "warm" and record["loader"] != CONTROL and record["reason"] is None:
            begun = time.monotonic()
            ask(record, "first_tokens")
            costs[record["loader"]] = time.monotonic() - begun
    return costs


def _round(tasks: Sequence[tuple[dict[str, Any], str]], number: int, rng: random.Random, ask: Ask) -> None:
    """Every task that stands, in random order: a loader and state, for its load or for the first token."""
    standing = [(record, key) for record, key in tasks if record["reason"] is None]
    for position, (record, key) in enumerate(rng.sample(standing, len(standing))):
        if record["reason"] is not None:  # since this round began
            continue
        found = ask(record, key)
        if "reason" in found:
            record["reason"] = found["reason"]
        else:
            record[key].append({"round": number, "position": position, **found})


# -- what it means: pure functions of the records ----------------------------------------------------------------------


@dataclass(frozen=True)
class LoadEffect:
    """One loader against BASELINE. `ratio` is t_baseline / t_loader (above 1 the loader is faster), all wall time.

    metric: "open" until the loader returned, "touched" until every byte was read too, "first_token" with the building
    of the model and a prefill. `low` is 0 and `high` infinite with fewer than two rounds; `reason` says why there
    are none at all. The `@aa` entry is the baseline once more: its interval is the pass's own noise.
    """

    checkpoint: str
    cache: str
    loader: str
    metric: str
    ratio: float
    low: float
    high: float
    rounds: int
    reason: str | None


def load_effects(records: Sequence[Mapping[str, Any]], *, alpha: float) -> list[LoadEffect]:
    """Every loader against BASELINE, by cache state and metric; `alpha` is divided by the number of effects."""
    pairs = [
        (record, base, metric)
        for record in records
        for base in records
        if record["loader"] != BASELINE and base["loader"] == BASELINE
        if (base["checkpoint"], base["cache"]) == (record["checkpoint"], record["cache"])
        for metric in METRICS
    ]
    effects = []
    for record, base, metric in pairs:
        ours, theirs = _times(record, metric), _times(base, metric)
        common = sorted(ours.keys() & theirs.keys())
        values = [math.log(theirs[number]) - math.log(ours[number]) for number in common]
        interval = fixed_interval(values, alpha / len(pairs))
        subject: tuple[str, str, str, str] = (record["checkpoint"], record["cache"], record["loader"], metric)
        ratio, low, high = (exp(end) for end in (interval.centre, interval.low, interval.high))
        effects.append(LoadEffect(*subject, ratio, low, high, interval.n, record["reason"] or base["reason"]))
    return effects


def load_shares(records: Sequence[Mapping[str, Any]], *, alpha: float) -> list[Interval]:
    """Of each record, the share (0 to 1) of the time to first token that goes if the weights are in memory already.

    That is opening the file, and all that building the model and the first prefill take longer than they do a second
    time: a mapped file is read there. Starting Python and importing torch count for neither. `alpha` is divided by the
    number of records.
    """
    shares = []
    for record in records:
        samples = record["first_tokens"]
        again = [sample["build_again_ns"] + sample["first_again_ns"] for sample in samples]
        values = [1 - warm / whole for warm, whole in zip(again, _times(record, "first_token").values(), strict=True)]
        shares.append(fixed_interval(values, alpha / len(records)))
    return shares


def _times(record: Mapping[str, Any], metric: str) -> dict[int, float]:
    """Nanoseconds by round."""
    first = metric == "first_token"
    parts = ("open_ns", "build_ns", "first_ns") if first else (f"{metric}_ns",)
    samples = record["first_tokens" if first else "loads"]
    return {sample["round"]: float(sum(sample[part] for part in parts)) for sample in samples}


LOADING_SECONDS = 60.0
"""Of loading each checkpoint over and over; a large one takes longer (`plan_rounds`)."""


class LoadingHypothesis(RangeHypothesis):
    """How much of the time to first token goes into loading each workload's checkpoint, in percent.

    `quantity` is the loader, `of` the page cache: cold or warm.
    """

    cpu_only = "loading is measured until the weights lie in main memory, and not on to a CUDA device"

    metric: Literal["loading"]
    workloads: Names
    quantity: Quantity
    of: Annotated[Name, Field(description='"cold" or "warm"')]

    def subjects(self) -> tuple[tuple[str, str], ...]:
        return tuple((workload, LOADED_INTO) for workload in self.workloads)

    def intervals(self) -> frozenset[Hashable]:
        return frozenset((self.metric, workload, self.quantity, self.of) for workload in self.workloads)


class LoadingMetric(IntervalMetric[LoadingHypothesis]):
    """Measured in rounds of all loaders, each load in a process that has loaded nothing."""

    names = ("loading",)
    about = "What loading the weights adds to the time to the first token, in percent of that time."
    page = "memory"
    inside = "nothing"
    hypothesis = LoadingHypothesis
    title = "loading: how long weights take from their files"
    needs_cache = True

    def run(self, hypotheses: Sequence[LoadingHypothesis], context: PassContext) -> None:
        """Load the checkpoint of each workload with every loader; write loading.json."""
        wanted = {workload for hypothesis in hypotheses for workload in hypothesis.workloads}
        folders = {
            book.experiment.workload.geometry: book.folder
            for book in context.measurement.books
            if book.experiment.workload.name in wanted and book.folder is not None
        }
        asked = {(hypothesis.quantity, hypothesis.of) for hypothesis in hypotheses}
        records: list[dict[str, Any]] = []
        for folder in folders.values():
            log, progress, seed = context.log("loading"), context.progress, context.seed
            records += measure_loading(
                folder, cache=context.cache, log=log, seed=seed, seconds=LOADING_SECONDS, progress=progress, asked=asked
            )
            context.folder.write_json(LOADING, records)

    def read(self, folder: RunFolder) -> list[dict[str, Any]] | None:
        return folder.records(LOADING) or None

    def words(self, hypothesis: LoadingHypothesis) -> str:
        return f"share of the time to first token: {hypothesis.quantity}, {hypothesis.of} page cache"

    def measured(self, effect: Effect, hypothesis: LoadingHypothesis, evidence: Evidence, alpha: float) -> Effect:
        asked = (evidence.geometries.get(effect.workload), hypothesis.quantity, hypothesis.of)
        records = [
            record
            for record in evidence.passes.get("loading", ())
            if (record["checkpoint"], record["loader"], record["cache"]) == asked
        ]
        if not records:
            raise ValueError("this run has not loaded it")
        [found] = load_shares(records, alpha=alpha)
        if (reason := records[0]["reason"]) or not found.n:
            raise ValueError(reason or "no rounds")
        few = f"too few rounds for an interval ({found.n} of about {LEAST_ROUNDS})"
        warnings = (few,) if math.isinf(found.low) else ()
        value, low, high = (100 * end for end in (found.centre, found.low, found.high))
        return replace(effect, ratio=value, low=low, high=high, rounds=found.n, warnings=warnings)


METRIC = LoadingMetric()
