"""What a run over a cluster puts down: its machines, what became of each, and what is needed to go on."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..evidence.effect import ALPHA
from ..machine.places import called_as, published
from ..plan.experiments import Plan
from ..plan.options import Options, Request, sent
from ..report.standings import write_standings
from ..session.run import Result
from ..store.errors import RunError
from ..store.files import CLAIMS, MANIFEST, VERDICTS
from ..store.folder import RunFolder
from ..store.machine_schema import Machine
from .folder import FleetFolder
from .judging import judge_fleet
from .order import Files
from .rejudge import rejudge


@dataclass(frozen=True)
class Spread:
    """Where and how a run is spread. on: `ray` or ray://HEAD; on_each_kind: whether each kind of machine measures
    everything. request, files: what nodes are sent."""

    on: str
    on_each_kind: bool
    request: Request
    files: Files


@dataclass(frozen=True)
class Before:
    """An earlier run that goes on. done: workloads that are measured, by kind of machine ("" where each is measured
    once)."""

    folder: FleetFolder
    manifest: Mapping[str, Any]
    machines: tuple[Machine, ...]
    done: Mapping[str, frozenset[str]]


class Record:
    """The folder of the run, and its machines: an entry for each stretch of work, and for each node left out."""

    def __init__(
        self,
        folder: FleetFolder,
        plan: Plan,
        spread: Spread,
        options: Options,
        sources: Mapping[str, Any],
        before: Before | None,
    ) -> None:
        """sources: digests of the code. With `before` what its driver did not live to close is closed."""
        self.folder = folder
        self.machines: list[Machine] = []
        self._before = before.manifest if before else {}
        earlier = float(self._before.get("budget_seconds") or 0)
        self._facts = {
            "started": self._before.get("started") or _now(),
            "command": self._before.get("command") or called_as(),
            "seed": options.seed,
            "budget_seconds": earlier + options.budget_seconds,
            "alpha": ALPHA,
            "ad_hoc": [list(pair) for pair in plan.ad_hoc],
            "fail_if": [str(condition) for condition in plan.conditions],
            "dispute": self._before["dispute"] if "dispute" in self._before else plan.dispute.stored(),
            "spending": "replicate" if spread.on_each_kind else "split",
            "request": {
                "asked": sent(spread.request),
                "options": sent(options),
                "sources": sources,
                "select": {each.workload.name: list(each.variants) for each in plan.experiments},
            },
        }
        if before is not None:
            folder.run.reopen(before.manifest)
            for machine in before.machines:
                self.machines.append(self._cut_off(machine) if machine.status == "running" else machine)
        self.write("running", claims=plan.claims)

    @property
    def has_begun(self) -> bool:
        """Whether any work was given to a node."""
        return any(each.status != "left out" for each in self.machines)

    def write(self, status: str, *, claims: Any = None) -> None:
        """Replace run.json."""
        finished = None if status == "running" else _now()
        self.folder.write(self.machines, claims=claims, status=status, finished=finished, **self._facts)

    def free_name(self, taken: set[str]) -> str:
        """A name for a node that none had in this run; taken: others."""
        known = taken | {each.name.partition(".")[0] for each in self.machines}
        return next(f"m{number}" for number in itertools.count(1) if f"m{number}" not in known)

    def begin(self, machine: Machine) -> None:
        """A stretch of work begins."""
        self.machines.append(machine)
        self.write("running")

    def leave_out(self, name: str, reason: str) -> None:
        """A node is not used, or no more."""
        taken = name in {each.name for each in self.machines}
        self.begin(Machine(name=f"{name}.out" if taken else name, status="left out", reason=published(reason)))

    def settle(self, machine: Machine, status: str, reason: str) -> str:
        """A stretch of work has ended: put down what it measured. What is to be told of it."""
        run = RunFolder(self.folder.machine(machine.name))
        note, measured = reason, []
        try:
            if not (run.path / MANIFEST).exists():
                shutil.rmtree(run.path)  # it had not begun
            elif status != "complete":
                close_out(run)
            elif changed := run.changed():
                note = changed[0].brief
            if run.path.is_dir():
                measured = [each.workload.name for each in run.manifest().experiments]
        except RunError as error:
            note = "; ".join(filter(None, (reason, error.brief)))
        ended = machine.model_copy(update={"status": status, "reason": published(note), "experiments": measured})
        self.machines[self.machines.index(machine)] = ended
        self.write("running")
        return note

    def finish(self, status: str) -> Result:
        """Judge all machines together. Raises RunError where none has a run that can be read."""
        self.write(status)
        verdicts = judge_fleet(self.folder.path) if self.folder.runs() else ()
        return self.result(verdicts)

    def result(self, verdicts: Any = ()) -> Result:
        """As it lies there."""
        return Result(self.folder.run, self.folder.run.manifest(), tuple(verdicts))

    def _cut_off(self, machine: Machine) -> Machine:
        run = RunFolder(self.folder.machine(machine.name))
        if (run.path / MANIFEST).exists():
            close_out(run)
        else:
            shutil.rmtree(run.path, ignore_errors=True)
        return machine.model_copy(update={"status": "interrupted", "reason": "the whole run was cut off"})


def close_out(run: RunFolder) -> None:
    """End a run that was cut off: judged by the rounds that it has, and sealed. Raises RunError where it cannot be
    read."""
    manifest = run.manifest()
    if run.sums.known() is not None:
        return
    if has_samples := bool(run.finished_rounds()) and run.has(CLAIMS):
        run.finish()
        verdicts, manifest = rejudge(run)
        run.write_json(VERDICTS, verdicts)
    run.seal(manifest.model_copy(update={"status": "interrupted", "finished": _now()}))
    if has_samples:
        write_standings(run)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
