"""Runs and baselines at a place: published with a row in the index of their folder, saved, listed and removed."""

from __future__ import annotations

import shlex
import warnings

from ..baselines.saved import check
from ..store.errors import RunWarning
from ..store.folder import RunFolder
from . import index
from .place import Place, PlaceError, Refused
from .rows import gone, row_of
from .transfer import remove, send


def publish(run: RunFolder, url: str, *, force: bool = False) -> Place:
    """Copy a run to `url` (see `transfer.send`) and note it in the index of the folder that it lies in then.

    An index that cannot be written is warned of: the run is there, and `workbench index` notes it later.

    Raises RunError: where the copying broke off the text says that the run here is whole, and the command that goes on.
    """
    place = Place.at(url)
    if not place.name or place.name.startswith(".") or "/" not in place.root.strip("/"):
        problem = "this is no place for a run"
        raise PlaceError(place.url, problem, "Name the folder that it gets, in another one: s3://bucket/runs/NAME")
    try:
        send(run, place, force=force)
    except Refused:
        raise
    except PlaceError as error:
        command = f"workbench publish {shlex.quote(str(run.path))} {shlex.quote(url)}"
        problem = f"not published: {error.problem}"
        fix = f"{error.fix} The run itself is whole in {run.path}; to publish it: {command}"
        raise PlaceError(error.url, problem, fix) from error
    try:
        index.add(place.parent(), [row_of(run, place.name)])
    except PlaceError as error:
        again = f"workbench index {shlex.quote(place.parent().url)}"
        warnings.warn(f"{error} The run is published; to list it: {again}", RunWarning, stacklevel=2)
    return place


def save(run: RunFolder, url: str, *, force: bool = False) -> Place:
    """Keep a run as a baseline at `url`. Raises RunError as `publish` and `report.baselines.save` do."""
    check(run)
    return publish(run, url, force=force)


def unpublish(url: str) -> None:
    """Remove the run at `url`, and note that it is gone. Raises PlaceError where there is none."""
    place = Place.at(url)
    remove(place)
    if index.read(place.parent()) is not None:
        index.add(place.parent(), [gone(place.name)])


def listed(url: str) -> tuple[index.Listing, str]:
    """The runs in the folder at `url`, newest first, and what to know of the list: "" where its index was read.

    Without an index each run is looked at, those with the last names first, at most MOST_LISTED. Raises PlaceError.
    """
    home = Place.at(url)
    if (table := index.read(home)) is not None:
        return table, ""
    names = home.folders()[::-1]
    rows = index.look(home, names[:MOST_LISTED])
    of = f" the last {MOST_LISTED} of {len(names)}" if len(names) > MOST_LISTED else ""
    note = f"{url} has no index, so{of} runs were looked at one by one; write it: workbench index {shlex.quote(url)}"
    return index.Listing(index.listed(rows)), note if rows else ""


MOST_LISTED = 200
"""Runs of a folder without an index that are looked at."""
