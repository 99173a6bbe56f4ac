"""Where runs lie, below the folder that one stands in, and a run by its name or by a URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .harness.store.folder import RunFolder

RUNS = Path("results/runs")
BASELINES = Path("results/baselines")


def find_run(name: str) -> RunFolder:
    """A run by its folder, or by its name under results/baselines or results/runs; the first of these that is there.

    The run at a URL is fetched into the cache; the folder is a copy that nobody may write to. Raises RunError."""
    from .harness.store.folder import RunFolder  # loads pandas
    from .harness.store.remote import get, is_url

    return get(name) if is_url(name) else RunFolder(_folder(name))


def run_to_go_on(name: str) -> RunFolder:
    """The same, of a run that is to be written to. Raises RunError for a URL."""
    from .harness.store.remote import RemoteError, is_url

    if is_url(name):
        fix = f"Copy it first: workbench publish {name} {RUNS}/NAME"
        raise RemoteError(name, "a run goes on in a folder of this machine", fix)
    return find_run(name)


def _folder(name: str) -> Path:
    candidates = [Path(name), BASELINES / name, RUNS / name]
    return next((folder for folder in candidates if folder.is_dir()), candidates[0])
