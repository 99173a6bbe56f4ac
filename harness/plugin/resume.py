"""An earlier run that goes on: what `pytest --benchmark --continue` and `workbench resume` share."""

from __future__ import annotations

from contextlib import suppress

from ..plan.options import Options, PlanError, Request, going_on
from ..session.run import check as check_options
from ..session.run import real_geometry
from ..session.unfinished import Unfinished
from ..store.files import RunError
from ..store.folder import RunFolder
from ..store.verdict_schema import FLEET

NOTHING = Request()


def go_on(
    folder: RunFolder, options: Options, again: Request = NOTHING, *, budget: float | None
) -> tuple[Unfinished, Options]:
    """An earlier run to go on with, and the options with what it keeps. again: code that runs keep no paths of. budget:
    seconds of rounds; None: as many as its last sitting had. Raises as `Unfinished.read` and `check`."""
    with suppress(RunError):  # of a damaged run.json the reader below says what is wrong
        if folder.manifest().mode == FLEET:
            raise PlanError(f"{folder.path} is a run of several machines: add the cluster to continue on, --on ray")
    checkpoint, claims = real_geometry(options), options.claims_folder
    earlier = Unfinished.read(folder, again=again, checkpoint=checkpoint, claims_folder=claims)
    seconds = earlier.budget_seconds if budget is None else budget
    options = going_on(options, earlier.options).for_rounds(seconds)
    check_options(Request(device=earlier.plan.device), options)
    return earlier, options
