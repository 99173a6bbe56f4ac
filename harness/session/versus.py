"""Two functions in a test file or a notebook: their gate here, or a measured comparison with its verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..calls.called import Call, Called, Function
from ..calls.gate import PayloadError
from ..calls.inputs import Payload, random_state_kept
from ..calls.revisions import parse_at
from ..calls.source import Source, named_apart, source_of
from ..calls.world import WorldTurn, modules_kept
from ..spec.regions import BETWEEN, FAIL_IF, Condition
from ..spec.words import Word

if TYPE_CHECKING:
    from ..measure.participants import Progress
    from ..plan.options import Options
    from ..store.verdict_schema import Verdict
    from .run import Result

Given = Callable[..., Any] | str | Source


class Disagreement(AssertionError):
    """The functions do not give the same answers, or the payload cannot be used."""


@dataclass(frozen=True)
class FunctionQuestion:
    """What is asked of two functions. Each is one that another process can find, or FILE:FUNCTION.

    payload: makes the arguments of a call; check: compares two answers, where `==` and rounding are not enough.
    faster_than: times as fast (1.2: by more than 20 %). between: (low, high), times as fast. threads: that each has.
    """

    variant: Given
    baseline: Given
    payload: Given
    check: Given | None = None
    faster_than: float | None = None
    between: tuple[float, float] | None = None
    threads: int | None = None

    def condition(self) -> Condition | None:
        """What is not proven if the test fails. Raises ValueError."""
        if self.faster_than is not None and self.between is not None:
            raise ValueError("give faster_than or between, not both")
        if self.between is not None:
            low, high = self.between
            return Condition(BETWEEN, low=float(low), high=float(high))
        if self.faster_than is None:
            return None
        if not 1 <= self.faster_than < float("inf"):
            raise ValueError(f"faster_than = {self.faster_than!r}: expected 1 or more; 1.2 is 20 % faster")
        return Condition("not-faster", float(round(100 * (self.faster_than - 1), 9)))

    def gate(self) -> None:
        """Call both in this process, on a few inputs. Raises Disagreement; SourceError where one cannot be found."""
        try:
            with random_state_kept(), modules_kept() as turn:
                wrong = self._called(turn).gate()
        except PayloadError as error:
            raise Disagreement(str(error)) from None
        if wrong:
            raise Disagreement(f"{_name(self.variant)} and {_name(self.baseline)} do not agree: {wrong}")

    def measure(self, options: Options, progress: Progress) -> Result:
        """Measure in fresh processes, into a run folder. Raises what `run.USER_ERRORS` lists, and ValueError."""
        from ..plan.options import Request
        from . import run  # the parts that are heavy to import

        condition = self.condition()
        request = Request(
            compare=(_source(self.baseline, "baseline"), _source(self.variant, "variant")),
            calls=(_source(self.payload, "payload"),),
            check=None if self.check is None else _source(self.check, "check"),
            fail_if=() if condition is None else (condition,),
            only_conditions=True,
            threads=self.threads,
        )
        run.check(request, options)
        return run.Run(run.plan_run(request, options), options, progress).measure()

    def _called(self, turn: WorldTurn) -> Called:
        """Both sides as this process has them, or imported where one is given by its name."""
        given: Any = (self.variant, self.baseline, self.payload, self.check)
        if not all(callable(each) for each in given if each is not None):
            return Called.imported(*self._sources_called(), "", turn)
        variant, baseline, payload, check = given
        side = Function(lambda: variant, Payload(payload, ""), shown=_name(variant))
        other = Function(lambda: baseline, Payload(payload, ""), shown=_name(baseline))
        return Called(side, lambda: other, _name(payload), check)

    def _sources_called(self) -> tuple[Source, Call]:
        variant, baseline = named_apart((_source(self.variant, "variant"), _source(self.baseline, "baseline")))
        check = None if self.check is None else _source(self.check, "check")
        return variant, Call(baseline, _source(self.payload, "payload"), check)


def _source(function: Given, what: str) -> Source:
    if isinstance(function, Source):
        return function
    return parse_at(function, option=what) if isinstance(function, str) else source_of(function, what)


def _name(function: Given) -> str:
    if isinstance(function, (str, Source)):
        return str(function)
    return str(getattr(function, "__name__", repr(function)))


@dataclass(frozen=True)
class Outcome:
    """What a measured comparison came to.

    ratio: the baseline's time over the variant's, with its interval from low to high (0 and infinite while there are
    too few rounds). verdict: faster, slower, same or inconclusive; of what was asked, supported, refuted or
    inconclusive. claimed: what that is about, in words. run: the folder of the run.
    """

    variant: str
    baseline: str
    verdict: Word
    reason: str
    claimed: str
    ratio: float
    low: float
    high: float
    rounds: int
    run: Path
    judged: Verdict  # all of it
    asked: bool = False

    @classmethod
    def of(cls, result: Result) -> Outcome:
        """From a run of `Question.measure`: the condition's verdict where there is one."""
        judged = sorted(result.verdicts, key=lambda judgement: judgement.claim == FAIL_IF)
        if not judged or not judged[-1].effects:
            excluded = "; ".join(f"{each.variant}: {each.reason}" for each in result.manifest.excluded)
            raise Disagreement(excluded or "nothing was measured")
        verdict = judged[-1]
        [effect] = verdict.effects
        if not effect.rounds:
            raise Disagreement("; ".join(effect.said) or "nothing was measured")
        return cls(
            variant=effect.variant,
            baseline=effect.baseline,
            verdict=verdict.verdict,
            reason="; ".join(effect.said) or verdict.reason,
            claimed=verdict.claimed,
            ratio=effect.ratio,
            low=effect.low,
            high=effect.high,
            rounds=effect.rounds,
            run=result.folder.path,
            judged=verdict,
            asked=verdict.claim == FAIL_IF,
        )

    @property
    def fails(self) -> bool:
        """Whether what was asked is not proven."""
        return self.asked and self.verdict != Word.SUPPORTED

    def __str__(self) -> str:
        """One sentence."""
        ends = f"{self.low:.3f}, {self.high:.3f}" if self.high < math.inf else "no interval yet"
        size = f"{self.ratio:.3f} [{ends}] times as fast as {self.baseline}"
        asked = f" (asked: {self.claimed})" if self.asked else ""
        why = f"; {self.reason}" if self.reason else ""
        return f"{self.variant} is {size} after {self.rounds} rounds: {self.verdict}{asked}{why}"
