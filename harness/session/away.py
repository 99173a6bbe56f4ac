"""A run that is kept at a URL (`--run-dir s3://bucket/runs/NAME`): measured into a folder of this machine, for its
journal needs a disk, and put there when it has ended, however that was."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from llama_workbench.cache import cache_directory

from ..plan.options import Options
from ..store import remote
from ..store.errors import RunError
from .run import Result

if TYPE_CHECKING:
    from ..measure.participants import Progress


def kept_at(options: Options, url: str) -> Options:
    """The options of a run that is kept at `url`. Raises CacheError."""
    url = url.rstrip("/")
    own = cache_directory() / "measured" / remote.key_of(url) / url.rpartition("/")[2]
    return replace(options, run_dir=own, publish_to=url)


def published(measuring: Callable[[], Result], options: Options, progress: Progress) -> Result:
    """Measure into `options.run_dir`, and put what came of it to `options.publish_to`.

    The place is marked first: one that cannot be written costs no measuring. Raises what `run.USER_ERRORS` lists; where
    only the publishing fails, the result says so as its `trouble`, and the run is whole on this machine.
    """
    url = options.publish_to
    remote.reserve(url)
    try:
        result = measuring()
    except BaseException:
        progress.note(f"not published; what was measured is in {options.run_dir}")
        remote.release(url)
        raise
    progress.phase(f"publishing: {url}")
    try:
        remote.put(result.folder, url)
        return replace(result, published=url)
    except (KeyboardInterrupt, Exception) as error:  # stores fail in ways of their own
        reason = str(error) if isinstance(error, RunError) else f"{url}: {type(error).__name__}: {error}"
    command = f"workbench publish {shlex.quote(str(result.folder.path))} {shlex.quote(url)}"
    trouble = f"Not published. {reason} The run is whole on this machine; to publish it: {command}"
    progress.note(trouble)
    return replace(result, trouble=trouble)
