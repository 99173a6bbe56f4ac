"""`workbench judge-change`"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import typer
from pydantic import BaseModel, ConfigDict, Field

from llama_workbench.commands.compare_revisions import INPUTS, asked_screens, condition, inputs_of, measured, shown
from llama_workbench.commands.shared import MOST_USED, Failure, Listed, ends, print_json, takes, write
from llama_workbench.variants import REFERENCE_BENCHMARKS

from ...report.comparison import Screen
from ...spec.comparison import EnteredName
from ...spec.words import Cause, VerbExit, Word, of_left_out
from ...store.schema import ExperimentRecord

Faster = Annotated[
    float, typer.Option(metavar="PERCENT", help="Minimum speed-up in percent required to accept the change.")
]


LISTED = Listed(
    4, MOST_USED, {"judge-change m:f --call b:gen": "is my change faster, and still right? JSON, for programs"}
)


@ends(
    {
        VerbExit.DONE: "accepted: right, and proven to be more than --faster percent faster with all inputs",
        VerbExit.AGAINST: "refused: proven not to be that much faster",
        VerbExit.COULD_NOT: "inconclusive in this time; or an error, then only standard error has a line",
        VerbExit.WRONG: "refused: wrong results, or it raises, hangs or ends its process; or so does --base",
        VerbExit.NO_VERDICT: "refused: it cheats, or exceeds the hardware limit; or the budget is too small",
    },
    refuses=True,
)
@takes(INPUTS | {"budget": "Measuring time in seconds. [default: 60]"})
def command(
    subject: Annotated[
        str,
        typer.Argument(
            help="Changed function: FILE:FUNCTION or MODULE:FUNCTION, with () if it returns the function to call."
        ),
    ] = "",
    base: Annotated[str, typer.Option(metavar="REV", help="Revision to compare with.")] = "HEAD",
    new: Annotated[
        str, typer.Option(metavar="REV", help='Revision with the change; "." is the working tree as it is now.')
    ] = ".",
    faster: Faster = 0.0,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of the answer; needs no function.")
    ] = False,
    **given: Any,
) -> None:
    """Is a change faster, and does it still give the same results? For programs that propose speed-ups.

    The working tree is compared with the last commit, as `compare-revisions` does: results first, then times over
    fresh processes, then where the difference is. Standard output has the answer as JSON and nothing else. Progress
    goes to standard error.

    \b
    Exit codes:

    \b
    Examples:
      workbench judge-change mypackage.text:encode --call bench.py:texts
      workbench judge-change mypackage.text:encode --call bench.py:texts --base main --faster 5 --budget 30
      workbench judge-change --schema
    """

    if schema:
        print_json(Judgement.model_json_schema(mode="serialization"))
        return
    if not subject:
        raise Failure(
            "no function is named; example: workbench judge-change mypackage.text:encode --call bench.py:texts"
        )
    inputs, seconds = inputs_of(given, 60.0)
    result = measured(subject, (base, new), inputs, condition("not-faster", "--faster", faster), seconds, strict=True)
    screens, run = asked_screens(subject, result), str(shown(result.folder.path))
    judgement = Judgement.of(subject, base, new, faster, screens, result.manifest.experiments, run)
    write(judgement.model_dump_json(indent=1) + "\n")
    raise typer.Exit(judgement.exit_code)


# The answer to a program that proposes a speed-up: accepted, refused or inconclusive, and why.


Decision = Literal["accepted", "refused", "inconclusive"]

_DECIDED: Mapping[Word, Decision] = {Word.SUPPORTED: "accepted", Word.REFUTED: "refused"}
"""By the verdict on whether it is faster by more than was asked."""


EXITS = (
    "0 accepted; 1 refused: proven not to be faster; 2 inconclusive; 6 wrong results; 7 refused for what it does, or "
    "too little time"
)


class ChangeComparison(BaseModel):
    """The change on one of the things that it was called with."""

    model_config = ConfigDict(frozen=True)

    called_with: Annotated[str, Field(description="name of its input generator, or of the workload")]
    decision: Annotated[Decision, Field(description="on this alone")]
    ratio: Annotated[float | None, Field(description="time before over time after; above 1 the change is faster")]
    low: Annotated[float | None, Field(description="lower end of its 99 % interval")]
    high: Annotated[float | None, Field(description="upper end; null: not known yet")]
    processes: Annotated[int, Field(description="processes that the interval is over")]
    before_ns: Annotated[float | None, Field(description="time of a call before")]
    after_ns: Annotated[float | None, Field(description="time of a call after")]
    instructions_ratio: Annotated[float | None, Field(description="instructions after over before; null: not counted")]
    where: Annotated[str, Field(description="in which functions the difference is; empty: none, or not examined")]
    cause: Annotated[Cause, Field(description="the kind of that reason, a word for programs")]
    reason: Annotated[str, Field(description="why it was refused or is inconclusive")]


class ChangeGate(BaseModel):
    """Whether a side gives the right answers, on one of the things that it was called with."""

    model_config = ConfigDict(frozen=True)

    called_with: str
    side: str
    passed: bool
    detail: Annotated[str, Field(description="what was checked, or what is wrong, with file and line if it raises")]


class Judgement(BaseModel):
    """What `workbench judge-change` prints."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    subject: str
    base: str
    new: str
    faster_percent: Annotated[float, Field(description="minimum speed-up in percent required to accept")]
    decision: Annotated[Decision, Field(description="on all inputs together")]
    exit_code: Annotated[Literal[0, 1, 2, 6, 7], Field(description=EXITS)]
    comparisons: tuple[ChangeComparison, ...]
    gates: tuple[ChangeGate, ...]
    run: Annotated[str, Field(description="folder of the run, for workbench show and workbench dashboard")]

    @classmethod
    def of(
        cls,
        subject: str,
        base: str,
        new: str,
        faster_percent: float,
        screens: Iterable[Screen],
        experiments: Sequence[ExperimentRecord],
        run: str,
    ) -> Judgement:
        """From the screens of a run that asked whether it is faster, and the gates of its experiments.

        A change that fails where what it was made from does not is refused. Where both fail, nobody can tell.
        """
        gates = tuple(gate for experiment in experiments for gate in _gates(experiment))
        passed = {(gate.called_with, gate.side): gate.passed for gate in gates}
        comparisons = tuple(_compared(screen, passed) for screen in screens)
        words = {each.decision for each in comparisons}
        agreed: Decision = "accepted" if words == {"accepted"} else "inconclusive"
        decision: Decision = "refused" if "refused" in words else agreed
        return cls(
            subject=subject,
            base=base,
            new=new,
            faster_percent=faster_percent,
            decision=decision,
            exit_code=_exit_code(decision, comparisons),
            comparisons=comparisons,
            gates=gates,
            run=run,
        )


def _exit_code(decision: Decision, comparisons: Iterable[ChangeComparison]) -> Literal[0, 1, 2, 6, 7]:
    if decision == "accepted":
        return 0
    code = of_left_out([compared.cause for compared in comparisons if compared.decision == decision])
    return 6 if code == VerbExit.WRONG else 7 if code else 1 if decision == "refused" else 2


def _compared(screen: Screen, passed: Mapping[tuple[str, str], bool]) -> ChangeComparison:
    effect, counted = screen.effect, screen.instructions
    before, after = (None if math.isnan(ns) else ns for ns in screen.call_ns)
    decision = _DECIDED.get(effect.verdict, "inconclusive")
    old, new = (passed.get((effect.workload, side), False) for side in (effect.baseline, effect.variant))
    if old and not new:
        decision = "refused"
    return ChangeComparison(
        called_with=effect.workload,
        decision=decision,
        ratio=effect.ratio if effect.rounds else None,
        low=effect.low if effect.rounds else None,
        high=effect.high if math.isfinite(effect.high) else None,
        processes=effect.rounds,
        before_ns=before,
        after_ns=after,
        instructions_ratio=counted.ratio if counted else None,
        where=screen.where,
        cause=effect.cause,
        reason="" if decision == "accepted" else "; ".join(effect.said),
    )


def _gates(experiment: ExperimentRecord) -> list[ChangeGate]:
    """Of both sides; a side that was left out later has not passed either."""
    workload, gates = experiment.workload.name, experiment.gates
    later = {each.variant: each.reason for each in experiment.excluded}
    return [
        ChangeGate(
            called_with=workload,
            side=name,
            passed=name not in later and name in gates and gates[name].passed,
            detail=later.get(name) or (gates[name].detail if name in gates else None) or "",
        )
        for name in dict.fromkeys([*experiment.variants, *later])
        if not EnteredName(name).is_control and name not in REFERENCE_BENCHMARKS
    ]
