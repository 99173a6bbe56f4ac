"""Runs that are kept: a baseline is a whole, judged run folder under a name that people chose.

A baseline is meant to be committed and read years later on other machines, so what cannot be read is not saved.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from llama_workbench.variants import YARDSTICK

from ..store.errors import RunError
from ..store.files import CLAIMS, VERDICTS
from ..store.folder import RunFolder

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def save(run: RunFolder, name: str, *, under: Path, force: bool = False, keeping: str = "") -> RunFolder:
    """Copy a complete, judged run to `under`/`name` and return the copy.

    The copy is read in full before it gets its name. Left out are links (they lead out of the folder), hidden files and
    the workers' logs, which name paths of the machine. With `force` an earlier baseline of that name is replaced,
    but for its folder `keeping`.

    Raises ValueError for a name that is no plain folder name, and RunError where the run cannot be read, is not
    complete or not judged, or the name is taken.
    """
    _check_name(name)
    check(run)
    target = under / name
    if target.resolve() == run.path.resolve():
        raise RunError(target, "this is the run itself", "Choose another name.")
    if target.exists() and not force:
        raise RunError(target, "a baseline of this name exists", "Choose another name, or replace it with --force.")
    if target.exists() and not RunFolder(target).looks_like_a_run():
        raise RunError(target, "this folder holds no run, so it is not replaced", "Choose another name.")
    try:
        under.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=under, prefix=f".{name}.") as workplace:
            copied = Path(workplace) / "new"
            shutil.copytree(run.path, copied, ignore=left_out)
            check(RunFolder(copied))
            copied.chmod(run.path.stat().st_mode & 0o777)
            earlier = Path(workplace) / "earlier"
            if target.exists():
                os.rename(target, earlier)
            try:
                if keeping and (earlier / keeping).is_dir():
                    os.rename(earlier / keeping, copied / keeping)
                os.rename(copied, target)
            except OSError:
                if earlier.exists():  # else it would go with the workplace
                    if keeping and (copied / keeping).is_dir():
                        os.rename(copied / keeping, earlier / keeping)
                    os.rename(earlier, target)
                raise
    except OSError as error:
        raise RunError(
            target, f"cannot be written ({error.strerror or error})", "Check the folder and the space on its disk."
        ) from error
    return RunFolder(target)


def kept(name: str, *, under: Path) -> RunFolder:
    """The baseline `under`/`name`.

    Raises ValueError for a name that is no plain folder name, and RunError where there is none, or where the folder
    holds no run.
    """
    _check_name(name)
    run = RunFolder(under / name)
    if not run.path.is_dir():
        raise RunError(run.path, "there is no baseline of this name", "List them: workbench baseline list")
    if not run.looks_like_a_run():
        raise RunError(
            run.path, "this folder holds no run, so it is not deleted", "Delete it yourself, or choose another name."
        )
    return run


def remove(name: str, *, under: Path) -> None:
    """Remove the baseline `under`/`name`. Raises as `kept` does, and RunError where it cannot be removed."""
    run = kept(name, under=under)
    try:
        with tempfile.TemporaryDirectory(dir=under, prefix=f".{name}.") as workplace:
            os.rename(run.path, Path(workplace) / "removed")  # at once: nobody sees half of one
    except OSError as error:
        problem = f"cannot be removed ({error.strerror or error})"
        raise RunError(run.path, problem, "Check who may write there.") from error


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        expected = 'letters, digits, ".", "_" and "-", a letter or digit first'
        raise ValueError(f'"{name}" cannot be the name of a baseline: {expected}')


def check(run: RunFolder) -> None:
    """Raise RunError where a run is no baseline: unfinished, unjudged, without a yardstick, or unreadable."""
    manifest = run.manifest()
    if (status := manifest.status) != "complete":
        problem = f"the run is {status}, and a baseline must be complete"
        raise RunError(run.path, problem, f"Finish it: workbench resume {run.path}")
    for changed in run.changed():
        raise changed
    run.records(VERDICTS)
    run.records(CLAIMS)
    if manifest.machines:
        for machine in manifest.machines:
            if machine.folder:
                check(RunFolder(run.path / "machines" / Path(machine.name).name))
        return
    samples = run.read_samples()
    only_functions = all(each.workload.kind == "call" for each in manifest.experiments)
    if not only_functions and YARDSTICK not in samples.names("variant").values:
        problem = (
            f"the run has no samples of the reference benchmark ({YARDSTICK}), so nothing could be compared with it"
        )
        raise RunError(run.path, problem, "Save a run of whole models: pytest --benchmark")


def left_out(folder: str, names: Iterable[str]) -> list[str]:
    """Of these names in the folder of a run those that no copy gets, for `shutil.copytree`."""
    return [name for name in names if name.startswith(".") or name == "log" or (Path(folder) / name).is_symlink()]
