"""From experiments to rounds of samples: fresh processes, gates first, then rounds until everything is settled.

One process per checkpoint (and one for components) measures. Gates run in several of them at once; rounds in one at a
time, and nothing beside it. A variant that raises, answers wrongly, hangs, leaks or kills its process is excluded, with
its reason, and the others continue. The caller's `Stopping` decides that an effect is settled: this module knows no
statistics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..spec.experiments import Experiment
from ..spec.sample import Round, Sample
from .gating import INTRUDES, Gating
from .participants import ExperimentState, Group, MeasureError
from .processes import WorkerFailed


@dataclass(frozen=True)
class Remaining:
    """What an experiment still needs. `rounds_next`: until the next effect settles; `rounds_all`: until all do.

    Both are estimates, infinite where nothing can be said. No variants: all is settled. `early`: too few rounds yet
    for any interval of some effect; `rounds_next` is then until all have one, which is known. `effects`: how many are
    not settled. `headline`: whether one of them is of a headline claim.
    """

    variants: tuple[str, ...]
    early: bool
    rounds_next: float
    rounds_all: float
    effects: int = 1
    headline: bool = False


class Stopping(Protocol):
    """Decides what still needs rounds."""

    def add(self, finished: Round) -> None:
        """Take a finished round in."""

    def remaining(self, experiment: Experiment) -> Remaining:
        """Variants and pairs that still need rounds, and about how many."""


def next_to_measure(open_: Sequence[tuple[ExperimentState, Remaining]], seconds_left: float) -> ExperimentState:
    """Which experiment is measured next.

    First those without an interval, the least time for each effect first; then the one where an effect can be settled
    soonest. Of both, headline claims come before others. What the time that is left will not settle comes after that,
    and last what can no longer get its first interval: its rounds would say nothing.
    """

    def order(entry: tuple[ExperimentState, Remaining]) -> tuple[int, bool, float, float]:
        book, remaining = entry
        seconds = remaining.rounds_next * book.round_seconds()
        in_time = seconds <= seconds_left
        if remaining.early:
            return 0 if in_time else 3, not remaining.headline, seconds / remaining.effects, book.seconds
        return 1 if in_time else 2, not remaining.headline, seconds, book.seconds

    return min(open_, key=order)[0]


ROUND_SECONDS = 30.0
"""A variant that has not answered after this long hangs (a round: and 20 times what its calls should take)."""

SLICE_SECONDS = 3.0
"""An experiment measures this long before another takes its turn."""


class Measurement(Gating):
    """The measuring of a plan's experiments. `books` holds the state of each experiment, whatever happens."""

    def run(self, rule: Stopping, keep: Callable[[Round], None], *, seconds: float) -> None:
        """Rounds, experiment by experiment in short slices, until all is settled or `seconds` are spent.

        `keep` stores each finished round. `next_to_measure` chooses, so that an effect that lies on a boundary cannot
        keep others waiting.
        """
        start = time.monotonic()
        group_of = {id(book): group for group in self.groups for book in group.books}
        while (total_left := seconds - (time.monotonic() - start)) > 0:
            asked = [(book, rule.remaining(book.remaining())) for book in self.books]
            open_ = [(book, remaining) for book, remaining in asked if remaining.variants]
            if not open_:
                return
            book = next_to_measure(open_, total_left)
            needed = sum(min(remaining.rounds_all * book.round_seconds(), total_left) for book, remaining in open_)
            left = min(total_left, needed)
            elapsed = time.monotonic() - start
            self.progress.step(
                f"{book.experiment.workload.name}, {len(open_)} of {len(self.books)} workloads open",
                elapsed / (elapsed + left),
                left,
            )
            self._slice(group_of[id(book)], book, rule, keep, min(SLICE_SECONDS, total_left))

    def _slice(
        self, group: Group, book: ExperimentState, rule: Stopping, keep: Callable[[Round], None], seconds: float
    ) -> None:
        end = time.monotonic() + seconds
        workload = book.experiment.workload
        while time.monotonic() < end and (remaining := rule.remaining(book.remaining())).variants:
            if group.process is None:
                self.standing(group)
                continue
            begun = time.monotonic()
            active = list(remaining.variants)
            estimate = sum(book.call_ns.get(name, 0.0) for name in active) / 1e9
            try:
                outputs = str(self.examination.file) if self.examination else ""
                what = {"workload": workload.name, "round_index": book.rounds, "active": active, "outputs": outputs}
                answer = group.process.ask("round", ROUND_SECONDS + 20 * 60 * estimate, **what)
            except WorkerFailed as failure:
                if failure.variant_index is None or failure.variant_index >= len(active):
                    raise MeasureError(f"the measuring process {failure.reason} between variants") from failure
                self.exclude(active[failure.variant_index], failure.reason, book)
                self.end(group)
                continue
            bad = self._found_wrong(group, book, active, answer)
            if any(self.is_outside(name) for name in bad):
                self.end(group)  # what it left in the process need not be known in full
            for name, reason in bad.items():  # before the round is kept: a kill between the two must not hide it
                self.exclude(name, reason, book)
            if answer["elsewhere"] or any(self.is_outside(name) for name in answer["changed"]):
                continue  # others may have felt it
            samples = tuple(row for row in (Sample(*each) for each in answer["samples"]) if row.variant not in bad)
            finished = Round(workload.name, group.processes, book.rounds, samples)
            keep(finished)
            rule.add(finished)
            book.rounds += 1
            book.seconds += (spent := time.monotonic() - begun)
            if book.rounds == 1:
                book.first_seconds = spent

    def _found_wrong(
        self, group: Group, book: ExperimentState, active: Sequence[str], answer: Mapping[str, Any]
    ) -> dict[str, str]:
        """Variant → why it is excluded after a round, by the process's answer."""
        assert group.process is not None
        bad: dict[str, str] = {}
        if answer["drawn"]:
            assert self.examination is not None and book.folder is not None
            draw = self.draw_of(group.processes)
            try:
                bad |= self.examination.judge(book.folder, book.experiment.workload, draw, answer["drawn"])
            except WorkerFailed as failure:
                raise MeasureError(
                    f"the process that judges outputs {failure.reason} (see log/examiner.log)"
                ) from failure
        foreign = [name for name in active if self.is_outside(name)]
        for index in group.process.noise():
            running = active[index] if index is not None and index < len(active) else None
            if running in foreign or len(foreign) == 1:
                bad[running if running in foreign else foreign[0]] = INTRUDES
        misbehaved = answer["changed"] | answer["elsewhere"]
        if any(self.is_outside(name) for name in misbehaved):
            return misbehaved  # what is wrong with others may be its doing
        bad |= answer["wrong"] | misbehaved
        for name, grown in answer["leaks"].items():
            bad[name] = f"leaks: memory grew by {grown / 1e6:.0f} MB while it was rebuilt and called"
        return bad


PASS_SECONDS = 180.0
"""A pass has failed once it takes this much longer than its calls should take."""


def ask_about(
    measurement: Measurement,
    group: Group,
    book: ExperimentState,
    names: Sequence[str],
    verb: str,
    limit_seconds: float,
    limit_calls: int,
    **arguments: Any,
) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """The answer of a pass about several variants at once, and why some have none.

    A variant that fails, or brings the process down, gets a reason, and the rest start anew. They have
    `limit_seconds` and the time of `limit_calls` calls of each.
    """
    left, lost = list(names), dict[str, str]()
    while left:
        calls_seconds = sum(max(book.call_ns.get(name, 0.0) / 1e9, 0.05) for name in left)
        try:
            what = {"workload": book.experiment.workload.name, "variants": left, **arguments}
            limit = limit_seconds + limit_calls * calls_seconds
            return measurement.standing(group).ask(verb, limit, **what), lost
        except WorkerFailed as failure:
            guilty = left if failure.variant_index is None else [left[failure.variant_index]]
            lost |= dict.fromkeys(guilty, failure.reason)
            left = [name for name in left if name not in guilty]
    return None, lost


def measured_by(measurement: Measurement) -> dict[str, tuple[Group, ExperimentState]]:
    """Workload → the process that measures it and the state of its experiment."""
    return {book.experiment.workload.name: (group, book) for group in measurement.groups for book in group.books}
