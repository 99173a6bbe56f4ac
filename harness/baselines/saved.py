"""Saved baselines: whole, judged run folders under names that people chose.

A baseline is meant to be committed and read years later on other machines, so what cannot be read is not saved.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from llama_workbench.variants import REFERENCE_BENCHMARK

from ..machine.lifeline import Lock
from ..store.files import CLAIMS, VERDICTS, RunError
from ..store.folder import RunFolder
from ..store.remote import changed_in, files_of
from ..store.verdict_schema import HOME

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def save(run: RunFolder, name: str, *, under: Path, force: bool = False) -> RunFolder:
    """Keep a complete, judged run as the baseline under `name`, and return the copy. It takes the place of an earlier
    one only with `force`.

    Raises ValueError for a name that is no plain folder name, and RunError where the run cannot be a baseline or the
    name is taken.
    """
    if not _NAME.fullmatch(name):
        expected = 'letters, digits, ".", "_" and "-", a letter or digit first'
        raise ValueError(f'"{name}" cannot be the name of a baseline: {expected}')
    check(run)
    return copied(run, under / name, force=force)


def check(run: RunFolder) -> None:
    """Raise RunError where a run is no baseline: unfinished, unjudged, without a reference benchmark, or unreadable."""
    manifest = run.manifest()
    if manifest.machines:
        problem = "a run of several machines cannot be a baseline"
        raise RunError(run.path, problem, f"Save those of single machines: {run.path / HOME}")
    if (status := manifest.status) != "complete":
        problem = f"the run is {status}, and a baseline must be complete"
        raise RunError(run.path, problem, f"Finish it: pytest --benchmark --continue {run.path}")
    for changed in run.changed():
        raise changed
    run.records(VERDICTS)
    run.records(CLAIMS)
    samples = run.read_samples()
    only_functions = all(each.workload.kind == "call" for each in manifest.experiments)
    if not only_functions and REFERENCE_BENCHMARK not in samples.names("variant").values:
        problem = (
            f"nothing can be compared with it: it has no samples of the reference benchmark ({REFERENCE_BENCHMARK})"
        )
        raise RunError(run.path, problem, "Save a run of whole models: pytest --benchmark")


def copied(run: RunFolder, target: Path, *, force: bool = False) -> RunFolder:
    """Copy a run to a folder of this machine, whole or not at all, and return the copy.

    The copy is checked before it gets its name. With `force` an earlier run there is replaced. Raises RunError.
    """
    if target.resolve() == run.path.resolve():
        raise RunError(target, "this is the run itself", "Choose another name.")
    if target.exists() and not force:
        raise RunError(target, "there is a run of this name", "Choose another name, or replace it with --force.")
    if target.exists() and not RunFolder(target).looks_like_a_run():
        raise RunError(target, "this folder holds no run, so it is not replaced", "Choose another name.")
    with contextlib.closing(Lock()) as lock:
        if run.manifest().status == "running":
            run.hold(lock)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as workplace:
                _replace(run.path, target, Path(workplace))
        except OSError as error:
            problem = f"cannot be written ({error.strerror or error})"
            raise RunError(target, problem, "Check the folder and the space on its disk.") from error
    return RunFolder(target)


def _replace(source: Path, target: Path, workplace: Path) -> None:
    """Copy a folder aside, check it, and put it in the place of an earlier one at once, or not at all."""
    new, earlier = workplace / "new", workplace / "earlier"
    shutil.copytree(source, new, ignore=left_out)
    for changed in changed_in(new, files_of(new)):
        raise changed
    if target.exists():
        os.rename(target, earlier)
    try:
        os.rename(new, target)
    except OSError:
        if earlier.exists():  # else it would go with the workplace
            os.rename(earlier, target)
        raise


def left_out(folder: str, names: Iterable[str]) -> list[str]:
    """Of these names in the folder of a run those that no copy gets, for `shutil.copytree`: links (they lead out of the
    folder), hidden files and the logs of processes, which name paths of the machine."""
    return [name for name in names if name.startswith(".") or name == "log" or (Path(folder) / name).is_symlink()]
