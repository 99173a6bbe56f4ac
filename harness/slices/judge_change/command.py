"""`workbench judge-change`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llama_workbench.commands.compare_revisions import INPUTS, asked_screens, condition, inputs_of, measured, shown
from llama_workbench.commands.shared import MOST_USED, Failure, Listed, ends, print_json, takes, write
from llama_workbench.harness.spec.exits import VerbExit

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
    from .judgement import Judgement

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
