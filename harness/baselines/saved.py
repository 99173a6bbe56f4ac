"""Saved baselines: whole, judged run folders under names that people chose, one for each machine type.

A baseline is meant to be committed and read years later on other machines, so what cannot be read is not saved. The
first run that is saved under a name is the baseline itself. Those of other machine types lie in its folder, as the
machines of a fleet do: `NAME/machines/TYPE/`. A fleet that is saved has one for each of its machines.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from llama_workbench.variants import REFERENCE_BENCHMARK

from ..machine.environment import comparable, device_kind
from ..machine.lifeline import Lock
from ..store.files import CLAIMS, VERDICTS, RunError
from ..store.folder import RunFolder, run_folders
from ..store.remote import changed_in, files_of
from ..store.verdict_schema import HOME

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def save(run: RunFolder, name: str, *, under: Path, force: bool = False) -> RunFolder:
    """Keep a complete, judged run as the baseline of its machine type under `name`, and return the copy.

    It takes the place of an earlier one of its type only with `force`. A fleet is kept whole, and takes the place of
    all. Raises ValueError for a name that is no plain folder name, and RunError where the run cannot be a baseline or
    the name is taken.
    """
    if not _NAME.fullmatch(name):
        expected = 'letters, digits, ".", "_" and "-", a letter or digit first'
        raise ValueError(f'"{name}" cannot be the name of a baseline: {expected}')
    check(run)
    target = under / name
    there = baselines_of(RunFolder(target)) if RunFolder(target).looks_like_a_run() else []
    if not there or run.manifest().machines:
        return copied(run, target, force=force)
    if RunFolder(target).manifest().machines:
        problem = "this baseline is a run of several machines, which stays whole"
        raise RunError(target, problem, "Choose another name, or save another such run with --force.")
    hardware = _hardware(run)
    alike = [baseline.path for baseline in there if _hardware(baseline) == hardware]
    path = alike[0] if alike else target / HOME / hardware
    return copied(run, path, force=force, keeping=HOME if path == target else "")


def baselines_of(run: RunFolder) -> list[RunFolder]:
    """All runs of one machine that lie under this one's name, itself first unless it is a fleet."""
    own = [] if run.manifest().machines else [run]
    others = (each for each in run_folders(run.path / HOME) if each.looks_like_a_run())
    return own + sorted(others, key=lambda folder: folder.path.name)


def matching(base: RunFolder, new: RunFolder) -> tuple[RunFolder, str, str]:
    """Which of the runs under a baseline's name was made on a machine like that of `new`, what it is called there, and
    what to know of the choice: where none was, it is the one that differs least. Raises RunError."""
    today, runs = new.manifest(), baselines_of(base)
    if today.machines:
        first = min((each.path.name for each in run_folders(new.path / HOME)), default="NAME")
        problem = f"a run of several machines: compare that of one, such as {HOME}/{first}"
        raise RunError(new.path, problem, f"workbench compare {base.path.name} {new.path / HOME / first}")
    if not runs:
        raise RunError(base.path, "no machine of it has a run", "Save another baseline: workbench baseline save")
    differences = {run: comparable(run.manifest().machine_facts, today.machine_facts) for run in runs}
    hardware = _hardware(new)
    nearest = min(runs, key=lambda run: (len(differences[run]), _hardware(run) != hardware))
    name = base.path.resolve().name
    called = name if nearest.path == base.path else f"{name} ({nearest.path.name})"
    note = f"{name} has no run of this machine type; the nearest one differs: {'; '.join(differences[nearest])}. "
    note += f"Keep one: workbench baseline save {new.path.name} {name}"
    return nearest, called, note if differences[nearest] else ""


def check(run: RunFolder) -> None:
    """Raise RunError where a run is no baseline: unfinished, unjudged, without a reference benchmark, or unreadable."""
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
                check(RunFolder(run.path / HOME / Path(machine.name).name))
        return
    samples = run.read_samples()
    only_functions = all(each.workload.kind == "call" for each in manifest.experiments)
    if not only_functions and REFERENCE_BENCHMARK not in samples.names("variant").values:
        problem = (
            f"nothing can be compared with it: it has no samples of the reference benchmark ({REFERENCE_BENCHMARK})"
        )
        raise RunError(run.path, problem, "Save a run of whole models: pytest --benchmark")


def copied(run: RunFolder, target: Path, *, force: bool = False, keeping: str = "") -> RunFolder:
    """Copy a run to a folder of this machine, whole or not at all, and return the copy.

    The copy is checked before it gets its name. With `force` an earlier run there is replaced, but for its folder
    `keeping`. Raises RunError.
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
                _replace(run.path, target, Path(workplace), keeping)
        except OSError as error:
            problem = f"cannot be written ({error.strerror or error})"
            raise RunError(target, problem, "Check the folder and the space on its disk.") from error
    return RunFolder(target)


def _replace(source: Path, target: Path, workplace: Path, keeping: str) -> None:
    """Copy a folder aside, check it, and put it in the place of an earlier one at once, or not at all."""
    new, earlier = workplace / "new", workplace / "earlier"
    shutil.copytree(source, new, ignore=left_out)
    for changed in changed_in(new, files_of(new)):
        raise changed
    if target.exists():
        os.rename(target, earlier)
    try:
        if keeping and (earlier / keeping).is_dir():
            os.rename(earlier / keeping, new / keeping)
        os.rename(new, target)
    except OSError:
        if earlier.exists():  # else it would go with the workplace
            if keeping and (new / keeping).is_dir():
                os.rename(new / keeping, earlier / keeping)
            os.rename(earlier, target)
        raise


def left_out(folder: str, names: Iterable[str]) -> list[str]:
    """Of these names in the folder of a run those that no copy gets, for `shutil.copytree`: links (they lead out of the
    folder), hidden files and the logs of processes, which name paths of the machine."""
    return [name for name in names if name.startswith(".") or name == "log" or (Path(folder) / name).is_symlink()]


def _hardware(run: RunFolder) -> str:
    """A folder name for the machine type of a run, the same whatever the versions of its software are."""
    facts = run.manifest().machine_facts
    device = facts.get("device") or {} if device_kind(facts) != "cpu" else {}
    cores = min(filter(None, (facts.get("cores"), facts.get("cgroup_quota_cores"))), default=0)
    settings = [facts.get(key) for key in ("cpu_model", "system", "machine", "threads", "malloc")]
    gpu = {key: value for key, value in device.items() if key not in ("driver", "cuda")}
    text = json.dumps([*settings, sorted(facts.get("cpu_flags") or ()), int(cores), gpu], sort_keys=True, default=str)
    model = str(device.get("name") or facts.get("cpu_model") or "unknown processor").lower()
    words = re.sub(r"[^a-z0-9]+", "-", model).strip("-")[:60]
    return f"{words}-{int(cores)}c-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
