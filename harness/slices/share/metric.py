"""The share of a call's time that some phases take."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator

from llama_workbench.variants.phase_map import DENOMINATORS

from ...evidence.evidence import Evidence
from ...measure.passes import Asked, ask_in_processes, measured_by
from ...metrics.base import IntervalMetric, PassContext, VariantHypothesis, subjects
from ...report.phases import share
from ...spec.hypotheses import Name, no_repeats
from ...spec.table import Table
from ...store.folder import RunFolder
from ...store.passes import PHASE_FACTS, PHASES
from ...store.verdict_schema import Effect

BUSY = 0.1
"""Where other programs used this share of the machine, the verdict says so: small operations lose more to a neighbour
than large ones. In two sessions, the second beside tests, masks for 8 tokens took 1.06 and 1.40 % of a forward."""

ANOTHER_SESSION = "the interval is of this pass: where the machine is slower, short phases take a larger share"
SHORT = 0.2
"""Of shares below this that is said. A slower machine takes more from small operations."""

PHASE_PROCESSES = 12
"""Processes of the pass, with a round each: fixed beforehand, as the t interval over them asks for."""


class ShareHypothesis(VariantHypothesis):
    """The time of `phases` in percent of `of`, for `variant` on each of `workloads`."""

    cpu_only = (
        "shares of the time are not measured on CUDA: the host's clock between two statements says when work was "
        "queued, not when it was done, and an event between every two phases costs what launching a small kernel does"
    )

    metric: Literal["share"]
    phases: Annotated[
        tuple[Annotated[Name, Field(description="a phase")], ...],
        Field(min_length=1, description="a list of one or more phases without repeats"),
        AfterValidator(no_repeats),
    ]
    of: Annotated[Name, Field(description="the name of a denominator")]

    @model_validator(mode="after")
    def _names_phases_of_the_denominator(self) -> Self:
        whole = DENOMINATORS.get(self.of)
        if whole is None:
            raise ValueError(f'of = "{self.of}" is no denominator; there are {", ".join(DENOMINATORS)}')
        if foreign := [phase for phase in self.phases if phase not in whole]:
            raise ValueError(f'{", ".join(foreign)} is no phase of "{self.of}", which has {", ".join(whole)}')
        return self


class TimedPhases(NamedTuple):
    """The table of phases.parquet, and by (workload, variant) how busy others kept the machine."""

    table: Table
    busy: Mapping[tuple[str, str], float]


class ShareMetric(IntervalMetric[ShareHypothesis]):
    """Measured in calls of a copy of the variant that notes the clock between phases (see `worker`)."""

    names = ("share",)
    about = "The share of the time: marked calls were timed phase by phase, beside unmarked ones."
    page = "time"
    hypothesis = ShareHypothesis
    files = (PHASES, PHASE_FACTS)
    title = "time breakdown"
    does = "how long each phase of a forward takes"

    def run(self, hypotheses: Sequence[ShareHypothesis], context: PassContext) -> None:
        """Time the phases of each (workload, variant); those of a workload take turns, in every round.

        Writes phases.parquet, and phases.json with one entry for each that was wanted: `reason` where it has no phases,
        else the clock, the number of timestamps in a call, and which lines of the source belong to which phase.
        """
        nothing = {"rounds": 0, "reason": "it is not measured in this run, or was excluded"}
        facts: dict[tuple[str, str], dict[str, Any]] = dict.fromkeys(subjects(hypotheses), nothing)
        wanted = {
            workload: names
            for workload, (_, state) in measured_by(context.measurement).items()
            if (names := [name for name in state.remaining().variants if (workload, name) in facts])
        }

        def once(asked: Asked) -> dict[str, Any]:
            threads = asked.state.experiment.workload.threads
            return {"rounds": 1, "wall": threads > 1 or any(name in asked.state.wall_variants for name in asked.names)}

        def write(asked: Mapping[str, Asked], done: float) -> None:
            context.progress.step(f"phases on {len(asked)} workloads", done, math.nan)
            now = facts | {(workload, name): fact for workload, of in asked.items() for name, fact in _facts(of)}
            context.folder.write_table(PHASES, [row for workload, of in asked.items() for row in _rows(workload, of)])
            context.folder.write_json(
                PHASE_FACTS, [{"workload": w, "variant": v, **fact} for (w, v), fact in now.items()]
            )

        ask_in_processes(context.measurement, wanted, "phases", PHASE_PROCESSES, once, write)

    def read(self, folder: RunFolder) -> TimedPhases | None:
        """What was timed; None where that is nothing."""
        table = folder.read_table(PHASES)
        busy = {(fact.workload, fact.variant): fact.busy or 0.0 for fact in folder.read(PHASE_FACTS)}
        return TimedPhases(table, busy) if len(table) else None

    def words(self, hypothesis: ShareHypothesis) -> str:
        return f"share of {hypothesis.of}: {' + '.join(hypothesis.phases)}"

    def measured(self, effect: Effect, hypothesis: ShareHypothesis, evidence: Evidence, alpha: float) -> Effect:
        phases: TimedPhases | None = evidence.passes.get("share")
        if phases is None:
            raise ValueError("this run has no phases")
        part = share(phases.table, effect.workload, hypothesis.variant, hypothesis.phases, hypothesis.of, alpha=alpha)
        value, low, high = (100 * end for end in (part.value, part.low, part.high))
        busy = phases.busy.get((effect.workload, hypothesis.variant), 0.0)
        others = f"other programs used {100 * busy:.0f} % of this machine meanwhile, which makes short phases longer"
        notes = (*effect.notes, *[ANOTHER_SESSION] * (part.value < SHORT), *[others] * (busy >= BUSY))
        return replace(effect, ratio=value, low=low, high=high, rounds=part.rounds, seconds=part.seconds, notes=notes)


def _facts(asked: Asked) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of each variant of a workload what phases.json says; the first process's answer counts."""
    of_variants = {name: fact for _, answer in reversed(asked.answers) for name, fact in answer["facts"].items()}
    of_variants |= {name: {"reason": reason} for name, reason in asked.lost.items()}
    busy = statistics.median(asked.busy) if asked.busy else None
    return ((name, {"rounds": len(asked.answers), "busy": busy, **fact}) for name, fact in of_variants.items())


def _rows(workload: str, asked: Asked) -> Iterator[list[Any]]:
    """Of each variant that is left the rows of phases.parquet."""
    return (
        [workload, name, process, round_index, call, tokens, phase, ns, plain_ns]
        for process, answer in asked.answers
        for name, round_index, call, tokens, plain_ns, spent in answer["rows"]
        if name not in asked.lost
        for phase, ns in spent.items()
    )


METRIC = ShareMetric()
