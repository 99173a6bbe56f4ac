"""An earlier run that goes on: what `pytest --benchmark --continue` and `workbench resume` share."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from .fleet.folder import is_fleet
from .plan.selection import PlanError, Request
from .run import Options, real_geometry
from .run import check as check_options
from .store.errors import RunError
from .store.folder import RunFolder
from .unfinished import Unfinished


def go_on(
    folder: RunFolder,
    options: Options,
    *,
    added: tuple[str, ...] = (),
    compare: tuple[str, str] | None = None,
    calls: tuple[str, ...] = (),
    check: str | None = None,
    budget: float | None,
) -> tuple[Unfinished, Options]:
    """An earlier run to go on with, and the options with its seed. added: FILE:FUNCTION of its variants from outside;
    compare, calls, check: of the functions that it compares. budget: seconds of rounds; None: as many as its last
    sitting had. Raises as `Unfinished.read` and `check`."""
    with suppress(RunError):  # of a damaged run.json the reader below says what is wrong
        if is_fleet(folder.read_manifest()):
            raise PlanError(f"{folder.path} is a run of several machines: say which cluster goes on with it, --on ray")
    checkpoint, claims = real_geometry(options), options.claims_folder
    again = Request(added=added, compare=compare, calls=calls, check=check)
    earlier = Unfinished.read(folder, again=again, checkpoint=checkpoint, claims_folder=claims)
    seconds = earlier.budget_seconds if budget is None else budget
    options = replace(options, seed=int(earlier.manifest.get("seed") or 0), budget_seconds=seconds)
    check_options(Request(device=earlier.plan.device), options)
    return earlier, options
