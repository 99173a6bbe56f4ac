"""A run that is kept at a URL (`--run-dir s3://bucket/runs/NAME`): measured into a folder of this machine, for its
journal needs a disk, and published when it has ended, however that was."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from llama_workbench.cache import cache_directory

from ..plan.options import Options
from ..remote.place import Place, Refused, is_url, key_of
from ..remote.publish import publish
from ..remote.transfer import release, reserve
from ..store.errors import RunError
from .run import Result, Run

if TYPE_CHECKING:
    from ..measure.participants import Progress
    from ..plan.experiments import Plan
    from .unfinished import Unfinished


def keep_at(options: Options, where: str) -> Options:
    """The options of a run that is kept at `where`, a folder or a URL. Raises CacheError."""
    if not is_url(where):
        return replace(options, run_dir=Path(where), publish_to="")
    url = where.rstrip("/")
    own = cache_directory() / "measured" / key_of(url) / url.rpartition("/")[2]
    return replace(options, run_dir=own, publish_to=url)


def keep_within(options: Options, name: str) -> Options:
    """The same for one of several runs, each in a folder of its own below; as they are where no place was named."""
    where = options.publish_to or options.run_dir
    return options if where is None else keep_at(options, f"{where}/{name}")


def measure(plan: Plan, options: Options, progress: Progress, earlier: Unfinished | None = None) -> Result:
    """`Run.measure`; then the run is published where the options say so. Raises as `published` does."""
    return published(Run(plan, options, progress, earlier).measure, options, progress)


def published(measuring: Callable[[], Result], options: Options, progress: Progress) -> Result:
    """Measure into `options.run_dir`, and publish what came of it where the options say so.

    The place is marked first: one that cannot be written costs no measuring. Raises what `run.USER_ERRORS` lists; where
    only the publishing fails, the result says so as its `trouble`, and the run is whole on this machine.
    """
    url = options.publish_to
    if not url:
        return measuring()
    place = Place.at(url)
    reserve(place)
    try:
        result = measuring()
    except BaseException:
        progress.note(f"not published; what was measured is in {options.run_dir}")
        release(place)
        raise
    try:
        progress.phase(f"publishing: {url}")
        publish(result.folder, url)
        return replace(result, published=url)
    except Refused as error:
        trouble = f"{error} The run is whole in {result.folder.path}."
    except RunError as error:
        trouble = str(error)
    except (KeyboardInterrupt, Exception) as error:  # stores fail in ways of their own
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
        command = f"workbench publish {shlex.quote(str(result.folder.path))} {shlex.quote(url)}"
        trouble = f"{url}: not published, {why}. The run is whole on this machine; to publish it: {command}"
    progress.note(trouble)
    return replace(result, trouble=trouble)
