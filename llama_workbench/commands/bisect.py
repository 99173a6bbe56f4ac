"""`workbench bisect`"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from llama_workbench.harness.spec.words import VerbExit

from .compare_revisions import INPUTS, Slower, condition, inputs_of, measured
from .shared import MOST_USED, AsJson, Failure, Listed, ends, print_json, show, takes

if TYPE_CHECKING:
    from llama_workbench.harness.session.questions import Inputs


LISTED = Listed(5, MOST_USED, {"bisect v1.2 main m:f": "which commit made it slower?"})


@ends(
    {
        VerbExit.DONE: "the commit (or the few that are left) is printed",
        VerbExit.COULD_NOT: "BAD is not proven to be slower, or it cannot be measured: the reason is printed",
    }
)
@takes(INPUTS | {"budget": "Measuring time for each comparison, in seconds. [default: 60]"})
def command(
    good: Annotated[str, typer.Argument(metavar="GOOD", help="Revision in which the function was fast.")],
    bad: Annotated[str, typer.Argument(metavar="BAD", help="Later revision in which it is slow.")],
    subject: Annotated[str, typer.Argument(metavar="FUNCTION", help="FILE:FUNCTION or MODULE:FUNCTION.")],
    slower: Slower = 5.0,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Which commit made a function, or a model, slower?

    BAD must be at least --slower percent slower than GOOD; then commits in between are tested by binary search, along
    first parents. Each of them is compared with GOOD: it counts as slow if it is slower by more than half of what BAD
    is proven to be, or by more than --slower if that is more.

    Each answer is wrong with at most 1 % probability, and the named commit with at most the sum. A commit that is
    inconclusive, cannot be imported or gives other results is skipped; then several commits may be left. The search
    assumes that one commit is to blame.

    \b
    Exit codes:

    \b
    --json prints:
      {"format": 1, "commits": [..], "limit_percent", "chance_percent",
       "steps": [{"commit", "slow": true|false|null, "ratio", "low", "high"}]}

    \b
    Examples:
      workbench bisect v1.2 main mypackage.text:encode --call bench.py:texts
      workbench bisect v1.2 main mypackage.model:build --workloads prefill-15m-t8
    """
    inputs, budget = inputs_of(given, 60.0)
    if len(inputs.payloads) > 1:
        raise Failure("--call: give only one input generator; bisect needs one number for each commit")
    if not inputs.payloads and len(inputs.workloads) != 1:
        raise Failure(
            f"{subject}: needs an input generator: add --call FILE:FUNCTION, or --workloads NAME if it builds a model"
        )
    bisection, named = _found(good, bad, subject, inputs, slower, budget)
    if as_json:
        print_json({"format": 1, **bisection})
        return
    worst, steps = bisection["steps"][0], len(bisection["steps"])
    which = "this commit made it slower" if len(named) == 1 else f"one of these {len(named)} commits made it slower"
    size = f"{1 / worst['ratio']:.3f} [{1 / worst['high']:.3f}, {1 / worst['low']:.3f}] times the time of {good}"
    show(Text("\n".join([*named, f"{which}: {subject} takes {size} in {bad}."])))
    show(Text(f"{steps} comparisons; wrong with at most {bisection['chance_percent']:g} % probability."))


def _found(
    good: str, bad: str, subject: str, inputs: Inputs, slower: float, budget: float
) -> tuple[dict[str, Any], list[str]]:
    """What `bisect` found, as plain values, and the commits that are left, in words. Raises Failure."""
    from llama_workbench.harness.calls.revisions import repository_of, subject_of
    from llama_workbench.harness.evidence.effect import ALPHA
    from llama_workbench.harness.session.questions import Disagreement, Outcome, Step, bisect

    def measure(commit: str, percent: float) -> Step:
        asked = condition("maybe-slower", "--slower", percent)
        outcome = Outcome.of(measured(subject, (good, commit), inputs, asked, budget, causes=False))
        slow = {"supported": True, "refuted": False}.get(outcome.verdict)
        words = {True: "slower", False: "not slower", None: "inconclusive"}[slow]
        typer.echo(f"{subject_of(repository_of(Path.cwd()), commit)}: {words}", err=True)
        return Step(commit, slow, outcome.ratio, outcome.low, outcome.high)

    try:
        bisection = bisect(good, bad, slower_percent=slower, alpha=ALPHA, measure=measure, folder=Path.cwd())
        return asdict(bisection), [subject_of(repository_of(Path.cwd()), commit) for commit in bisection.commits]
    except Disagreement as error:  # that of any other commit is passed over
        raise Failure(f"{bad} cannot be compared with {good}: {error}") from error
