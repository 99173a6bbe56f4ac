"""`workbench judge-change`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from llama_workbench.harness.plan.options import Request, typed

from .compare_revisions import INPUTS, measured
from .shared import print_json, takes, write

if TYPE_CHECKING:
    from llama_workbench.harness.baselines.judgement import Judgement
    from llama_workbench.harness.session.run import Result

Faster = Annotated[float, typer.Option(metavar="PERCENT", help="By more than this it must be faster.")]


@takes(INPUTS | {"budget": "Of measuring (60)."})
def command(
    subject: Annotated[
        str, typer.Argument(help="FILE:FUNCTION or MODULE:FUNCTION, with () for a factory; none with --schema.")
    ] = "",
    base: Annotated[str, typer.Option(metavar="REV", help="What it was made from: a commit, branch or tag.")] = "HEAD",
    new: Annotated[str, typer.Option(metavar="REV", help='The change; "." is the working tree as it is now.')] = ".",
    faster: Faster = 0.0,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the answer instead.")] = False,
    **given: Any,
) -> None:
    """Is a change faster, and does it still give the same answers? For programs that propose speed-ups.

    The working tree is compared with the last commit, as `compare-revisions` does it: answers first, then time over
    processes begun anew, then where the difference is. The answer is JSON on standard output, and nothing else;
    progress goes to standard error.

    \b
    Exit codes:
      0  accepted: the answers agree, and it is proven to be more than --faster percent faster, on all it is called with
      1  refused: it gives other answers, raises, hangs or cheats, or it is proven not to be that much faster
      2  cannot tell in this time, or it cannot be measured (then there is no JSON, and one line on standard error)

    \b
    Examples:
      workbench judge-change mypackage.text:encode --call bench.py:texts
      workbench judge-change mypackage.text:encode --call bench.py:texts --base main --faster 5 --budget 30
      workbench judge-change --schema
    """
    from llama_workbench.harness.baselines.judgement import SCHEMA
    from llama_workbench.harness.session.revisions import Inputs

    from .shared import Failure

    if schema:
        print_json(SCHEMA)
        return
    if not subject:
        raise Failure("name what was changed: FILE:FUNCTION or MODULE:FUNCTION")
    asked = typed(Request, given)
    inputs = Inputs(asked.calls, asked.check, asked.workloads)
    seconds = 60.0 if given["budget"] is None else given["budget"]
    result = measured(subject, (base, new), inputs, faster, seconds, kind="not-faster")
    judgement = _judged(subject, base, new, faster, result)
    write(judgement.model_dump_json(indent=1) + "\n")
    raise typer.Exit(judgement.exit_code)


def _judged(subject: str, base: str, new: str, faster: float, result: Result) -> Judgement:
    from llama_workbench.harness.baselines.judgement import Judgement
    from llama_workbench.harness.report.comparison import screens
    from llama_workbench.harness.report.stored import evidence_of
    from llama_workbench.harness.report.text import counted_in
    from llama_workbench.harness.spec.conditions import FAIL_IF

    folder, manifest = result.folder, result.manifest
    asked = [verdict for verdict in result.verdicts if verdict.claim == FAIL_IF]
    found = screens(folder, asked, evidence_of(folder, manifest), counted_in(manifest))
    return Judgement.of(subject, base, new, faster, found, manifest["experiments"], str(folder.path))
