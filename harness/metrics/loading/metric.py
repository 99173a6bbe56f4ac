"""The loading pass: how long weights take from their file, in rounds of all loaders in random order, and what it means.

Loaders are compared by wall time. Each load needs a process that has loaded nothing, and a page cache in a known state.
A load of a large checkpoint takes seconds, too long for as many rounds as planned looks need. So the number of
rounds is fixed before the first one, by what a load of each format costs, and an ordinary t interval holds.
"""

from __future__ import annotations

import itertools
import math
import random
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ...evidence.evidence import Evidence
from ...measure.participants import Progress
from ...measure.processes import WorkerFailed, WorkerProcess
from ...spec.entered import AA, EnteredName
from ...spec.hypotheses import Name, Names, Quantity, RangeHypothesis
from ...stats.confidence import Interval, fixed_interval
from ...store.folder import RunFolder
from ...store.verdict_schema import Effect
from ..base import IntervalMetric, PassContext
from .files import LOADING, Loading

BASELINE = "safetensors-mmap"
CONTROL = EnteredName.of_control(BASELINE, AA)
LOADED_INTO, PROMPT_TOKENS = "ladder_transposed", 128
"""Time to first token is that of this variant after a prompt of this length: what a program pays before it answers.
`fast` would not do: of one layer it computes the MLP for the last position alone."""

LEAST_ROUNDS, MOST_ROUNDS = 15, 30
LEAST_BESIDE = 2
"""Rounds of what no claim asks about, where time is short: a load's peak memory hardly varies."""

LOADING_SECONDS = 60.0
"""Of loading each checkpoint over and over; a large one takes longer (`plan_rounds`)."""

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
    progress: Progress,
    asked: Collection[tuple[str, str]],
) -> list[dict[str, Any]]:
    """Measure every loader on a checkpoint folder, with cold and with warm page cache: the records of loading.json.

    `reason` of a record is None, or why there are no (further) numbers, such as a page cache that cannot be emptied;
    a warm load is never given as a cold one. `loads` and `first_tokens` hold a dict a round: {"round", "position"} and
    the keys that `worker.measure_load` describes.

    `asked` are the (loader, cache) whose share of the time to first token a claim is about: they come first where
    LEAST_ROUNDS rounds of everything would not fit into LOADING_SECONDS (see `plan_rounds`). Raises WorkerFailed where
    the process that loads, whose output goes to `log`, cannot be started.
    """
    rng = random.Random(f"loading {seed}")
    cache.mkdir(parents=True, exist_ok=True)
    with (
        closing(WorkerProcess(threads=1, cache=cache, log=log)) as process,
        tempfile.TemporaryDirectory(prefix=".partial-loading-", dir=cache) as scratch,
    ):
        common: dict[str, Any] = {"scratch": scratch, "folder": str(folder), "variant": LOADED_INTO}
        facts: dict[str, dict[str, Any]] = process.ask("prepare_loads", PREPARE_SECONDS, **common)
        process.ask("freeze", LOAD_SECONDS)

        def ask(record: Mapping[str, Any], key: str) -> dict[str, Any]:
            kind = {"loader": _loader(record), "cold": record["cache"] == "cold"}
            first = {"first_token": key == "first_tokens", "tokens": PROMPT_TOKENS}
            try:
                return dict(process.ask("load", LOAD_SECONDS, **common, **kind, **first))
            except WorkerFailed as failure:
                return {"reason": failure.reason}

        name = next((fact["checkpoint"] for fact in facts.values() if "checkpoint" in fact), folder.name)
        of_all = {"checkpoint": name, "variant": LOADED_INTO, "prompt_tokens": PROMPT_TOKENS}
        records = [of_all | record for record in _records(facts)]
        _rounds(records, ask, rng, asked, progress)
        return records


def _loader(record: Mapping[str, Any]) -> str:
    """What loads the file of a record; the control's is the baseline's."""
    return EnteredName(record["loader"]).original


def _records(facts: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """An empty record for each loader, the control among them, with a cold and with a warm page cache."""
    for loader in (*facts, CONTROL):
        fact = facts[EnteredName(loader).original]
        of_file = {"loader": loader, "file_bytes": fact.get("bytes"), "reason": fact.get("reason")}
        for state in ("cold", "warm"):
            yield {**of_file, "cache": state, "loads": [], "first_tokens": []}


def _rounds(
    records: Sequence[dict[str, Any]],
    ask: Ask,
    rng: random.Random,
    asked: Collection[tuple[str, str]],
    progress: Progress,
) -> None:
    """Fill in the records, round by round; what claims ask about is in all rounds, the rest where there is time."""
    wanted = [record for record in records if (record["loader"], record["cache"]) in asked]
    first = [(record, "first_tokens") for record in wanted]
    beside = [(record, "first_tokens") for record in records if record not in wanted]
    beside += [(record, "loads") for record in records]
    costs: dict[str, float] = {}  # seconds of one warm load until the first token, its way into the page cache included
    for record in records:
        if record["cache"] == "warm" and record["loader"] != CONTROL and record["reason"] is None:
            begun = time.monotonic()
            ask(record, "first_tokens")  # only to size the pass: its times are not kept
            costs[record["loader"]] = time.monotonic() - begun
    of_first, of_beside = (sum(costs.get(_loader(record), 0.0) for record, _ in part) for part in (first, beside))
    count, fewer = plan_rounds(of_first, of_beside)
    begun = time.monotonic()
    for number in range(count):
        with_all = (number + 1) * fewer // count > number * fewer // count
        _round([*first, *beside] if with_all else first, number, rng, ask)
        done = (number + 1) / count
        progress.step(f"loading {records[0]['checkpoint']}", done, (time.monotonic() - begun) * (1 / done - 1))


def plan_rounds(asked_seconds: float, beside_seconds: float) -> tuple[int, int]:
    """How many rounds of what a claim asks about, and how many of them with everything else too.

    From what a round of each costs: as many of both as fit into LOADING_SECONDS, up to MOST_ROUNDS. Where that is less
    than LEAST_ROUNDS, what is asked gets LEAST_ROUNDS however long they take, the rest what is left, LEAST_BESIDE or
    more.
    """
    whole = max(asked_seconds + beside_seconds, 1e-3)
    fit = int(min(LOADING_SECONDS / whole, MOST_ROUNDS))
    if fit >= LEAST_ROUNDS:
        return fit, fit
    left = (LOADING_SECONDS - LEAST_ROUNDS * asked_seconds) / max(beside_seconds, 1e-3)
    return LEAST_ROUNDS, int(min(max(left, LEAST_BESIDE), LEAST_ROUNDS))


def _round(tasks: Sequence[tuple[dict[str, Any], str]], number: int, rng: random.Random, ask: Ask) -> None:
    """Every task that has not failed, in random order: a loader and state, for its load or for the first token."""
    left = [(record, key) for record, key in tasks if record["reason"] is None]
    for position, (record, key) in enumerate(rng.sample(left, len(left))):
        if record["reason"] is not None:  # since this round began
            continue
        sample = ask(record, key)
        if "reason" in sample:
            record["reason"] = sample["reason"]
        else:
            record[key].append({"round": number, "position": position, **sample})


def load_effects(records: Sequence[Loading], *, alpha: float) -> dict[tuple[str, str, str], dict[str, Interval]]:
    """Every loader against BASELINE: log ratios t_baseline / t_loader of wall time (above 0 the loader is faster).

    By (checkpoint, loader, cache), and then "open" until the loader returned, "touched" until every byte was read too,
    "first_token" with the building of the model and a prefill. That of `@aa`, the baseline once more, is the pass's own
    noise. `alpha` is divided by the number of intervals.
    """
    bases = {(base.checkpoint, base.cache): base for base in records if base.loader == BASELINE}
    others = [record for record in records if record.loader != BASELINE and (record.checkpoint, record.cache) in bases]
    effects: dict[tuple[str, str, str], dict[str, Interval]] = {}
    for record, metric in itertools.product(others, METRICS):
        ours, theirs = _times(record, metric), _times(bases[record.checkpoint, record.cache], metric)
        values = [math.log(theirs[number] / ours[number]) for number in sorted(ours.keys() & theirs.keys())]
        about = effects.setdefault((record.checkpoint, record.loader, record.cache), {})
        about[metric] = fixed_interval(values, alpha / (len(others) * len(METRICS)))
    return effects


def load_shares(records: Sequence[Loading], *, alpha: float) -> list[Interval]:
    """Of each record, the share (0 to 1) of the time to first token that is saved if the weights are in memory already.

    That is opening the file, and all that building the model and the first prefill take longer than they do a second
    time: a mapped file is read there. Starting Python and importing torch are in neither. `alpha` is divided by the
    number of records.
    """
    shares = []
    for record in records:
        whole = _times(record, "first_token")
        again = {first.round: first.build_again_ns + first.first_again_ns for first in record.first_tokens}
        shares.append(fixed_interval([1 - again[number] / whole[number] for number in whole], alpha / len(records)))
    return shares


def _times(record: Loading, metric: str) -> dict[int, float]:
    """Nanoseconds by round."""
    if metric == "first_token":
        return {first.round: first.open_ns + first.build_ns + first.first_ns for first in record.first_tokens}
    return {load.round: load.open_ns if metric == "open" else load.touched_ns for load in record.loads}


class LoadingHypothesis(RangeHypothesis):
    """Percent of the time to first token that goes into loading, by the loader `quantity` from a page cache `of`."""

    cpu_only = "loading is measured until the weights lie in main memory, and not on to a CUDA device"

    metric: Literal["loading"]
    workloads: Names
    quantity: Quantity
    of: Annotated[Name, Field(description='"cold" or "warm"')]

    def subjects(self) -> tuple[tuple[str, str], ...]:
        return tuple((workload, LOADED_INTO) for workload in self.workloads)


class LoadingMetric(IntervalMetric[LoadingHypothesis]):
    """Measured in rounds of all loaders, each load in a process that has loaded nothing."""

    names = ("loading",)
    about = "What loading the weights adds to the time to the first token, in percent of that time."
    page = "memory"
    inside = "nothing"
    hypothesis = LoadingHypothesis
    files = (LOADING,)
    title = "loading"
    does = "how long weights take from their files"
    needs_cache = True

    def run(self, hypotheses: Sequence[LoadingHypothesis], context: PassContext) -> None:
        """Load the checkpoint of each workload with every loader; write loading.json."""
        wanted = {workload for hypothesis in hypotheses for workload in hypothesis.workloads}
        folders = {
            book.experiment.workload.geometry: book.folder
            for book in context.measurement.participants.books
            if book.experiment.workload.name in wanted and book.folder is not None
        }
        records: list[dict[str, Any]] = []
        for folder in folders.values():
            records += measure_loading(
                folder,
                cache=context.cache,
                log=context.log("loading"),
                seed=context.measurement.setting.seed,
                progress=context.progress,
                asked={(hypothesis.quantity, hypothesis.of) for hypothesis in hypotheses},
            )
            context.folder.write_json(LOADING, records)

    def read(self, folder: RunFolder) -> list[Loading] | None:
        return folder.read(LOADING) or None

    def words(self, hypothesis: LoadingHypothesis) -> str:
        return f"share of the time to first token: {hypothesis.quantity}, {hypothesis.of} page cache"

    def measured(self, effect: Effect, hypothesis: LoadingHypothesis, evidence: Evidence, alpha: float) -> Effect:
        asked = (evidence.geometries.get(effect.workload), hypothesis.quantity, hypothesis.of)
        records = {(one.checkpoint, one.loader, one.cache): one for one in evidence.passes.get("loading", ())}
        if asked not in records:
            raise ValueError("this run has not loaded it")
        [share] = load_shares([records[asked]], alpha=alpha)
        if (reason := records[asked].reason) or not share.n:
            raise ValueError(reason or "no rounds")
        few = f"too few rounds for an interval ({share.n} of about {LEAST_ROUNDS})" if math.isinf(share.low) else ""
        value, low, high = (100 * end for end in (share.centre, share.low, share.high))
        if variant := records[asked].variant:
            runs = f"what runs: {variant} on {asked[0]}, a prompt of {records[asked].prompt_tokens} tokens"
            effect = replace(effect, notes=(*effect.notes, runs))
        return replace(effect, ratio=value, low=low, high=high, rounds=share.n, reason=few)


METRIC = LoadingMetric()
