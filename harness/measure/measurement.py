"""From experiments to rounds of samples: fresh processes, gates first, then rounds until everything is settled.

One process per checkpoint (and one for components) measures. Gates, which time calls only to size samples, run in
several of them at once; rounds in one at a time, and nothing beside it. A variant that raises, answers wrongly, hangs,
leaks or kills its process falls out with a reason, and the rest goes on. Who decides that an effect is settled is told
to the loop by its caller (`Stopping`): this module knows no statistics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..spec.sample import Round, Sample
from .gating import INTRUDES, Gating
from .participants import ExperimentState, Group, MeasureError
from .processes import WorkerFailed
from .schedule import Stopping, next_to_measure

ROUND_SECONDS = 30.0
"""A variant that has not answered after this long hangs (a round: and 20 times what its calls should take)."""

SLICE_SECONDS = 3.0
"""An experiment measures this long before another takes its turn."""


class Measurement(Gating):
    """The measuring of a plan's experiments. `books` holds what was found, whatever happens."""

    def run(self, rule: Stopping, keep: Callable[[Round], None], *, seconds: float) -> None:
        """Rounds, experiment by experiment in short slices, until all is settled or `seconds` are spent.

        `keep` stores each finished round. First all get the rounds that an interval needs at all, if there is time for
        them; then the next slice goes where an effect can be settled soonest, so that one that lies on a boundary
        cannot keep others waiting.
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
        self,
        group: Group,
        book: ExperimentState,
        rule: Stopping,
        keep: Callable[[Round], None],
        seconds: float,
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
                found = group.process.ask(
                    "round",
                    ROUND_SECONDS + 20 * 60 * estimate,
                    workload=workload.name,
                    round_index=book.rounds,
                    active=active,
                    outputs=str(self.examination.file) if self.examination else "",
                )
            except WorkerFailed as failure:
                self._lost(group, book, active, failure)
                continue
            bad = self._found_wrong(group, book, active, found)
            if any(self.is_outside(name) for name in bad):
                self.end(group)  # what it left in the process need not be known in full
            for name, reason in bad.items():  # before the round is kept: a kill between the two must not hide it
                self.exclude(name, reason, book)
            if found["elsewhere"] or any(self.is_outside(name) for name in found["changed"]):
                continue  # others may have felt it
            samples = (Sample(*row) for row in found["samples"])
            finished = Round(
                workload.name, group.processes, book.rounds, tuple(each for each in samples if each.variant not in bad)
            )
            keep(finished)
            rule.add(finished)
            book.rounds += 1
            book.seconds += (spent := time.monotonic() - begun)
            if book.rounds == 1:
                book.first_seconds = spent

    def _found_wrong(
        self, group: Group, book: ExperimentState, active: Sequence[str], found: Mapping[str, Any]
    ) -> dict[str, str]:
        """Variant → why it falls out after a round."""
        assert group.process is not None
        bad: dict[str, str] = {}
        if found["drawn"]:
            assert self.examination is not None and book.folder is not None
            draw = self.draw_of(group.processes)
            try:
                bad |= self.examination.judge(book.folder, book.experiment.workload, draw, found["drawn"])
            except WorkerFailed as failure:
                raise MeasureError(
                    f"the process that judges outputs {failure.reason} (see log/examiner.log)"
                ) from failure
        foreign = [name for name in active if self.is_outside(name)]
        for index in group.process.noise():
            running = active[index] if index is not None and index < len(active) else None
            if running in foreign or len(foreign) == 1:
                bad[running if running in foreign else foreign[0]] = INTRUDES
        told = found["changed"] | found["elsewhere"]
        if any(self.is_outside(name) for name in told):
            return told  # what is wrong with others may be its doing
        bad |= found["wrong"] | told
        for name, grown in found["leaks"].items():
            bad[name] = f"leaks: memory grew by {grown / 1e6:.0f} MB while it was rebuilt and called"
        return bad

    def _lost(self, group: Group, book: ExperimentState, active: Sequence[str], failure: WorkerFailed) -> None:
        """A round failed: blame the variant that was running, and go on with a fresh process."""
        if failure.variant_index is not None and failure.variant_index < len(active):
            self.exclude(active[failure.variant_index], failure.reason, book)
        else:
            raise MeasureError(f"the measuring process {failure.reason} between variants")
        self.end(group)
