"""Baselines of several kinds of machines under one name, and which of them a run is compared with.

The first run that is saved under a name is the baseline itself. Those of other kinds of machines lie in its folder, as
the machines of a fleet do: `NAME/machines/KIND/`. A fleet that is saved has one for each of its machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..baselines import saved as baselines
from ..machine.environment import comparable
from ..store.errors import RunError
from ..store.folder import RunFolder, run_folders
from .folder import HOME, is_fleet
from .kinds import hardware_of, key_of, names, slug


@dataclass(frozen=True)
class Matched:
    """The baseline that a run is compared with."""

    run: RunFolder
    name: str  # what it is called there
    note: str = ""  # what to know of the choice


def save(run: RunFolder, name: str, *, under: Path, force: bool = False) -> RunFolder:
    """Keep a run as the baseline of its kind of machine under `name`, and return the copy.

    Beside those of other kinds, it takes the place of an earlier one of its kind only with `force`. A fleet is kept
    whole, and takes the place of all. Raises as `report.baselines.save` does.
    """
    target = under / name
    there = baselines_of(RunFolder(target)) if RunFolder(target).looks_like_a_run() else []
    environment = _environment(run)
    mine = next((each for each in there if hardware_of(_environment(each)) == hardware_of(environment)), None)
    if not there or is_fleet(run.manifest()):
        return baselines.save(run, name, under=under, force=force)
    if is_fleet(RunFolder(target).manifest()):
        problem = "this baseline is a run of several machines, which stays whole"
        raise RunError(target, problem, "Choose another name, or save another such run with --force.")
    if mine is None:
        place = slug(environment, hardware_of(environment))
        return baselines.save(run, place, under=target / HOME)
    if mine.path == target:
        return baselines.save(run, name, under=under, force=force, keeping=HOME)
    return baselines.save(run, mine.path.name, under=target / HOME, force=force)


def baselines_of(run: RunFolder) -> list[RunFolder]:
    """All runs of one machine that lie under this one's name, itself first unless it is a fleet."""
    own = [] if is_fleet(run.manifest()) else [run]
    return own + sorted(
        (each for each in run_folders(run.path / HOME) if each.looks_like_a_run()), key=lambda folder: folder.path.name
    )


def matching(base: RunFolder, new: RunFolder) -> Matched:
    """Which of the runs under a baseline's name was made on a machine like that of `new`.

    Where none was it is the one that differs least, and `note` says so. Raises RunError.
    """
    if is_fleet(new.manifest()):
        first = min((each.path.name for each in run_folders(new.path / HOME)), default="NAME")
        problem = f"a run of several machines: compare that of one, such as {HOME}/{first}"
        raise RunError(new.path, problem, f"workbench compare {base.path.name} {new.path / HOME / first}")
    today = _environment(new)
    runs = {each: _environment(each) for each in baselines_of(base)}
    if not runs:
        raise RunError(base.path, "no machine of it has a run", "Save another baseline: workbench baseline save")
    nearest = min(runs, key=lambda run: (len(comparable(runs[run], today)), key_of(runs[run]) != key_of(today)))
    name = base.path.resolve().name
    called = name if nearest.path == base.path else f"{name} ({nearest.path.name})"
    if not (differences := comparable(runs[nearest], today)):
        return Matched(nearest, called)
    *have, own = names([*runs.values(), today])
    # Two kinds can have one name, where one of them does not say what the other is.
    has = (
        f"the nearest one differs: {'; '.join(differences)}"
        if own in have
        else f"it has: {', '.join(dict.fromkeys(have))}"
    )
    note = f"{name} has no run of this machine type, {own}; {has}"
    return Matched(nearest, called, f"{note}. Keep one: workbench baseline save {new.path.name} {name}")


def _environment(run: RunFolder) -> Mapping[str, Any]:
    return run.manifest().machine_facts
