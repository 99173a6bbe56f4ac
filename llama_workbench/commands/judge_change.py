"""`workbench judge-change`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llama_workbench.harness.spec.exits import VerbExit

from .compare_revisions import INPUTS, asked_screens, condition, inputs_of, measured, shown
from .shared import Failure, ends, print_json, takes, write

Faster = Annotated[float, typer.Option(metavar="PERCENT", help="By more than this it must be faster.")]


@ends(
    {
        VerbExit.DONE: "accepted: right, and proven to be more than --faster percent faster wherever it is called",
        VerbExit.AGAINST: "refused: it is proven not to be that much faster",
        VerbExit.COULD_NOT: "cannot tell in this time; or could not, then one line on standard error is all",
        VerbExit.WRONG: "refused: its answers are wrong, or it raises, hangs or ends its process; or so does --base",
        VerbExit.NO_VERDICT: "refused: it cheats, or is faster than this machine can be; or the budget is too small",
    }
)
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

    \b
    Examples:
      workbench judge-change mypackage.text:encode --call bench.py:texts
      workbench judge-change mypackage.text:encode --call bench.py:texts --base main --faster 5 --budget 30
      workbench judge-change --schema
    """
    from llama_workbench.harness.baselines.judgement import Judgement

    if schema:
        print_json(Judgement.model_json_schema(mode="serialization"))
        return
    if not subject:
        raise Failure("name what was changed: FILE:FUNCTION or MODULE:FUNCTION")
    inputs, seconds = inputs_of(given, 60.0)
    result = measured(subject, (base, new), inputs, condition("not-faster", "--faster", faster), seconds, strict=True)
    screens, run = asked_screens(subject, result), str(shown(result.folder.path))
    judgement = Judgement.of(subject, base, new, faster, screens, result.manifest.experiments, run)
    write(judgement.model_dump_json(indent=1) + "\n")
    raise typer.Exit(judgement.exit_code)
