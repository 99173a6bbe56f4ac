"""Questions that one comparison answers: two functions in a test file or a notebook, or two revisions of a repository;
and which commit made a function slower."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_workbench.variants.outside import OutsideVariantError, look_for

from ..calls.called import Call, Called, Function, PayloadError
from ..calls.environments import interpreter_at, label_of
from ..calls.inputs import Payload, random_state_kept
from ..calls.revisions import (
    WORKING_TREE,
    BuiltRevision,
    built,
    commit_of,
    commits_between,
    files_of,
    name_of,
    parse_at,
    repository_of,
    revision_text,
    source_at,
)
from ..calls.source import Source, SourceError, named_apart, parse, source_of
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


# -- two revisions -----------------------------------------------------------------------------------------------------


class MissingAt(SourceError):
    """One of two revisions does not have a subject that the other has. reason: which, and what is there."""

    def __init__(self, subject: str, revision: str, error: Exception) -> None:
        at = "in" if revision == WORKING_TREE else "at"
        self.reason = f"not there {at} {revision_text(revision)}: {error}"
        super().__init__(f"{subject}: {self.reason}")


@dataclass(frozen=True)
class Inputs:
    """What both revisions are compared on. payloads: what functions are called with, today's files whatever the
    revision, and check: FILE:FUNCTION or MODULE:FUNCTION. workloads: of models; without payloads, the subject builds
    one. environments: in which the sides of a function run: none, one for both, or one for each. build: the command
    that builds a revision; empty: none is built."""

    payloads: tuple[str | Source, ...] = ()
    check: str | Source | None = None
    workloads: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    build: str = ""


def compare_revisions(
    subject: str, revisions: tuple[str, str], inputs: Inputs, condition: Condition, options: Options, progress: Progress
) -> Result:
    """Measure one function, or the model that one builds, at two revisions, the first as baseline.

    Raises what `run.USER_ERRORS` lists.
    """
    from ..plan.options import Request
    from . import run  # the parts that are heavy to import

    if inputs.build:
        sides, places, inputs = _built_sides(subject, revisions, inputs)
    else:
        sides, places = _sides(subject, revisions, inputs)
    request = Request(
        compare=(sides[0], sides[1]),
        workloads=inputs.workloads,
        calls=inputs.payloads,
        check=inputs.check,
        environments=tuple((side.name, place) for side, place in zip(sides, places, strict=False)),
        fail_if=(condition,),
        only_conditions=True,
    )
    run.check(request, options)
    return run.Run(run.plan_run(request, options), options, progress).measure()


def _sides(subject: str, revisions: tuple[str, str], inputs: Inputs) -> tuple[list[Source], tuple[str, ...]]:
    """Both sides, and where the environment of each is (nowhere: this one). Raises SourceError and PlanError."""
    from ..plan.functions import builds
    from ..plan.options import PlanError

    places = inputs.environments * (2 if len(inputs.environments) == 1 else 1)
    if len(places) not in (0, 2):
        raise PlanError(f"--env: given {len(places)} times; give it once for both revisions, or once for each")
    same = bool(places) and revisions[0] == revisions[1]
    looked_for = [_looked_for(subject, revision, elsewhere=bool(places), only=same) for revision in revisions]
    sides = [each for each in looked_for if isinstance(each, Source)]
    for revision, error in zip(revisions, looked_for, strict=True):
        if isinstance(error, Source):
            continue
        if not sides:
            raise error
        raise MissingAt(subject, revision, error) from error
    if places:
        sides = _named_after(sides, places)
    if not inputs.payloads and not all(map(builds, sides)):
        only = "only a build(config, weights, *, max_length) needs none"
        raise SourceError(f"{subject}: needs an input generator: add --call FILE:FUNCTION; {only}")
    if inputs.payloads and inputs.workloads:
        named = ",".join(inputs.workloads)
        raise SourceError(f"--workloads {named}: is for models, and --call is for functions; leave out one of them")
    return sides, places


def build_of(revision: str, command: str) -> BuiltRevision:
    """A revision of the repository around the current folder, built. Raises SourceError."""
    root = repository_of(Path.cwd())
    return built(root, revision_text(revision), "" if revision == WORKING_TREE else commit_of(root, revision), command)


def _built_sides(
    subject: str, revisions: tuple[str, str], inputs: Inputs
) -> tuple[list[Source], tuple[str, ...], Inputs]:
    """Both sides, each in the environment of its build, and the inputs: no folder of today goes before what a build
    has installed. Raises SourceError."""
    here = Path.cwd().resolve()
    within = here.relative_to(repository_of(here))
    sides, places = [], []
    for revision in revisions:
        made = build_of(revision, inputs.build)
        try:
            source = parse(
                subject, option=f"subject (at {revision_text(revision)})", folder=made.files / within, elsewhere=True
            )
        except SourceError as error:
            raise MissingAt(subject, revision, error) from error
        name = source.name if "=" in subject else f"{source.name}-{name_of(revision)}"
        sides.append(replace(source, name=name, folder=""))
        places.append(made.python)
    if sides[0].name == sides[1].name:
        sides[1] = replace(sides[1], name=f"{sides[1].name}-2")

    def without_folder(given: str | Source, option: str) -> Source:
        source = parse(given, option=option, elsewhere=True) if isinstance(given, str) else given
        return replace(source, folder="")

    payloads = tuple(without_folder(each, "--call") for each in inputs.payloads)
    if not payloads:
        raise SourceError(f"{subject}: --build is for functions and suites: add --call FILE:FUNCTION")
    check = None if inputs.check is None else without_folder(inputs.check, "--check")
    return sides, tuple(places), replace(inputs, payloads=payloads, check=check)


def _looked_for(subject: str, revision: str, *, elsewhere: bool, only: bool) -> Source | OutsideVariantError:
    """A side, or why it is not there. Nothing is imported. only: the other one is of the same revision, so that this
    need not be in its name. Raises SourceError where the revision cannot be had."""
    if revision != WORKING_TREE:
        root = repository_of(Path.cwd())
        files_of(root, commit_of(root, revision))
    try:
        if revision == WORKING_TREE:
            source = parse_at(subject, option="subject", elsewhere=elsewhere)
            if not (only or "=" in subject):
                source = replace(source, name=f"{source.name}-now")
        else:
            source = source_at(subject, revision, option="subject")
        if source.file and not elsewhere:
            look_for(source.file, source.function)
    except OutsideVariantError as error:
        return error
    return source


def _named_after(sides: Sequence[Source], places: Sequence[str]) -> list[Source]:
    """The sides, with the names of their environments in theirs. Raises SourceError."""
    names = [f"{side.name}-{label_of(interpreter_at(place))}" for side, place in zip(sides, places, strict=True)]
    if names[0] == names[1]:  # the same environment, or two folders of one name
        names[1] = f"{names[1]}-2"
    return [replace(side, name=name) for side, name in zip(sides, names, strict=True)]


# -- bisecting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A commit that was compared with the good one. slow: whether it is slower by more than the limit; None where that
    is open. ratio: how many times as fast as the good one, with its interval."""

    commit: str
    slow: bool | None
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Found:
    """The commits of which one made the function slower, oldest first: one where nothing was left open. steps: all that
    were measured. chance_percent: at most so probable is it that they are the wrong ones. limit_percent: how much more
    time counts as slow."""

    commits: tuple[str, ...]
    steps: tuple[Step, ...]
    limit_percent: float
    chance_percent: float


class NotSlower(SourceError):
    """There is nothing to look for: the bad revision is not proven to be slower."""


def bisect(
    good: str, bad: str, *, slower_percent: float, alpha: float, measure: Callable[[str, float], Step], folder: Path
) -> Found:
    """Which commit between the two made a function slower.

    measure: compares a commit with the good one; is it more than so many percent slower? First the bad one, by
    `slower_percent`; then others, by half of what the bad one is slower at least, so that each is clearly on one side.
    Every answer is wrong with probability `alpha` at most. A commit that stays open is passed over for its neighbours.
    Raises NotSlower, SourceError.
    """
    root = repository_of(folder)
    first, last = commit_of(root, good), commit_of(root, bad)
    commits = commits_between(root, first, last)
    if not commits or commits[-1] != last:
        raise SourceError(f"{bad} does not come after {good}: expected an older and a newer revision of one branch")
    steps = [measure(last, slower_percent)]
    if not steps[0].slow:
        negation = "not shown to be" if steps[0].slow is None else "not"
        range_ = f"{steps[0].ratio:.3f} [{steps[0].low:.3f}, {steps[0].high:.3f}] times as fast"
        raise NotSlower(f"{bad} is {negation} more than {slower_percent:g} % slower than {good}: it is {range_}")
    limit = max(slower_percent, 100 * math.expm1(-math.log(steps[0].high) / 2))
    known_good, known_bad, open_ = -1, len(commits) - 1, set[int]()
    while candidates := [place for place in range(known_good + 1, known_bad) if place not in open_]:
        middle = (known_good + known_bad) / 2
        place = min(candidates, key=lambda candidate: abs(candidate - middle))
        try:
            step = measure(commits[place], limit)
        except (Disagreement, MissingAt):  # such as a commit whose tests would fail: it says nothing about time
            open_.add(place)
            continue
        steps.append(step)
        if step.slow is None:
            open_.add(place)
        elif step.slow:
            known_bad = place
        else:
            known_good = place
    return Found(tuple(commits[known_good + 1 : known_bad + 1]), tuple(steps), limit, 100 * alpha * len(steps))
