"""What looks at each variant once the rounds are over, for people and not for verdicts: the profilers of slices."""

from __future__ import annotations

import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from ..machine import extras
from ..slices import faces
from ..spec.comparison import Comparison
from ..store.folder import RunFolder
from ..store.forms import JsonFile
from .groups import Group
from .measurement import Measurement
from .participants import ExperimentState, Progress
from .passes import PASS_SECONDS, kept_apart
from .processes import WorkerFailed, WorkerProcess

SHORT_CALL_NS = 1e8
"""Calls up to this long are looked at for their memory without being asked to: some, under a tool that slows them."""

SPARE_SHARE, LEAST_SPARE_SECONDS = 0.5, 10.0
"""So much of the budget, or so many seconds if that is more, may pass before a look leaves out what takes long."""


@dataclass(frozen=True)
class ProfiledVariant:
    """A variant on a workload, opened in a process that waits for verbs.

    folder: of the run. added: files that were given to the run, so that stacks can name them. is_function: it is a
    function and no model. first_call_seconds: of the first call in its gate. spare_seconds: how long what may be left
    out can take.
    """

    process: WorkerProcess
    workload: str
    variant: str
    folder: Path
    added: Sequence[Path] = ()
    is_function: bool = False
    first_call_seconds: float = 0.0
    spare_seconds: float = PASS_SECONDS

    def ask(self, verb: str, **arguments: Any) -> Any:
        """The answer of the process to a verb about this variant. Raises WorkerFailed."""
        return self.process.ask(verb, PASS_SECONDS, workload=self.workload, variant=self.variant, **arguments)

    def stacks(self) -> Path:
        """Where stacks of this variant belong."""
        return self.folder / "profiles" / _file_name(self.workload) / f"{_file_name(self.variant)}.folded"


class Profiler(ABC):
    """One profiler. file: what it writes, a list of entries that each name a workload and a variant. seconds: about how
    long one look takes. is_unasked: of functions whose calls are short it looks without being asked to."""

    file: ClassVar[JsonFile]
    seconds: ClassVar[float] = 1.0
    is_unasked: ClassVar[bool] = False

    @abstractmethod
    def look(self, at: ProfiledVariant) -> Mapping[str, Any]:
        """The rest of an entry, with a `reason` where there is nothing. Raises WorkerFailed."""


@cache
def profilers() -> tuple[Profiler, ...]:
    """All profilers, by the names of their files: PROFILER of each slice that has one."""
    return tuple(sorted((face.PROFILER for face in faces("profiler")), key=lambda profiler: profiler.file))


def seconds_each() -> float:
    """About how long all of them look at a variant."""
    return sum(profiler.seconds for profiler in profilers())


def look_closer(
    measurement: Measurement,
    folder: RunFolder,
    progress: Progress,
    differing: Callable[[Comparison], tuple[float, float] | None],
    *,
    causes: bool,
    of_models: bool,
    profiles: bool,
    headlines: Collection[tuple[str, str]] = (),
) -> None:
    """Once the rounds are over: where differences are (`causes`, also `of_models`), and what variants hold. Nothing of
    it feeds a verdict. headlines: (workload, variant) that are profiled without being asked for.

    Of functions whose calls are short the peak of memory costs a moment, so that nobody has to ask for it.
    """
    commands = {name for name, source in measurement.setting.functions.items() if source.command}

    def is_cheap(group: Group, state: ExperimentState, name: str) -> bool:
        is_short = state.call_ns.get(name, math.inf) <= SHORT_CALL_NS
        is_called = state.experiment.workload.kind == "call" and not group.divided
        return is_short and is_called and name in _compared(state) - commands

    if causes:
        for face in faces("causes"):
            with kept_apart("causes", folder.path, progress):
                face.look_for_causes(measurement, folder, progress, differing, of_models=of_models)
    can_profile = not extras.lacking("profile")
    if profiles or (causes and headlines and can_profile):
        only = () if profiles else headlines

        def wanted(group: Group, state: ExperimentState, name: str) -> bool:
            return not only or (state.experiment.workload.name, name) in only

        with kept_apart("profiles and memory", folder.path, progress):
            _look(measurement, folder, progress, "profiles and memory", profilers(), wanted)
    elif causes and can_profile:
        spare = min(max(SPARE_SHARE * measurement.setting.budget_seconds, LEAST_SPARE_SECONDS), PASS_SECONDS)
        title = "memory: what a call takes and keeps"
        with kept_apart("memory", folder.path, progress):
            unasked = [profiler for profiler in profilers() if profiler.is_unasked]
            _look(measurement, folder, progress, title, unasked, is_cheap, spare_seconds=spare)


def _look(
    measurement: Measurement,
    folder: RunFolder,
    progress: Progress,
    title: str,
    tools: Sequence[Profiler],
    wanted: Callable[[Group, ExperimentState, str], bool],
    *,
    spare_seconds: float = math.inf,
) -> None:
    """Look at every wanted variant that is left, on every workload; what a tool refuses is the entry's `reason`.

    Left out are controls, and cells of the grid that no claim compares by name: each differs from others in one axis,
    which other pairs of variants show as well, and there are 16 of them. spare_seconds: after so many, what may be left
    out of a look is.
    """
    given = (*measurement.setting.added.values(), *measurement.setting.functions.values())
    added = [source.file for source in given if source.file]
    work = [
        (group, state, name)
        for group in measurement.processes.groups
        for state in group.states
        for name in state.remaining().variants
        if (name in _compared(state) or name not in state.experiment.grid) and wanted(group, state, name)
    ]
    if not (work and tools):
        return
    progress.phase(title)
    end = time.monotonic() + spare_seconds
    entries: dict[Profiler, list[dict[str, Any]]] = {profiler: [] for profiler in tools}
    each_seconds = sum(profiler.seconds for profiler in tools)
    for index, (group, state, name) in enumerate(work):
        workload = state.experiment.workload
        progress.step(f"profile {workload.name}: {name}", index / len(work), (len(work) - index) * each_seconds)
        for profiler, records in entries.items():
            at = ProfiledVariant(
                measurement.gates.standing(group), workload.name, name, folder.path, added, workload.kind == "call",
                first_call_seconds=state.facts.get(name, {}).get("first_call_ns", 0.0) / 1e9,
                spare_seconds=min(end - time.monotonic(), PASS_SECONDS),
            )  # fmt: skip
            rest: Mapping[str, Any] = {"reason": state.lost_in_passes.get(name)}
            if name not in state.lost_in_passes:
                try:
                    rest = profiler.look(at)
                except WorkerFailed as failure:
                    rest = {"reason": failure.reason}
            records.append({"workload": workload.name, "variant": name, **rest})
            folder.write_json(profiler.file, records)
    for profiler, records in entries.items():
        reasons = [record["reason"] for record in records if record.get("reason")]
        if reasons and len(reasons) == len(records):
            progress.note(f"{profiler.file}: nothing found, {'; '.join(dict.fromkeys(reasons))}")


def _compared(state: ExperimentState) -> set[str]:
    """The variants of an experiment that a claim compares by name."""
    return {name for target in state.experiment.targets for name in target.comparison.sides}


def _file_name(name: str) -> str:
    """A name as a file's name: nothing that leaves the folder."""
    return re.sub(r"[^A-Za-z0-9._@+-]", "_", name).lstrip(".") or "_"
