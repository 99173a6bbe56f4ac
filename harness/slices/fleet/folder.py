"""A fleet on disk: a run folder whose `machines/NAME/` is an ordinary run each; and what machines are called.

At its top lie run.json (`"mode": "fleet"`, the machines, no samples), claims.json, verdicts.json over all machines and
machines.json. Whoever reads runs finds verdicts there as in any other run. What was measured lies with the machines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...claims.model import Claim
from ...evidence.effect import PIECE
from ...machine.lifeline import Lock
from ...store import schema
from ...store.files import CLAIMS, MANIFEST, RESTORE, RunError
from ...store.folder import RunFolder
from ...store.forms import plain
from ...store.verdict_schema import FLEET, HOME, Machine

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PIECE_FOLDER = re.compile(r"(m[0-9]+)(?:\.([0-9]+))?")
"""The folder of a piece of the work: which node of a cluster, and its number there from the second on."""


@dataclass(frozen=True)
class FleetFolder:
    """One fleet on disk. Making the value touches nothing; `create` makes the folder."""

    path: Path

    @classmethod
    def create(cls, path: Path | None, *, lock: Lock | None = None) -> FleetFolder:
        """Make an empty folder, by the rules of `RunFolder.create`. Raises RunError."""
        return cls(RunFolder.create(path, lock=lock).path)

    @property
    def run(self) -> RunFolder:
        """The top of it: run.json, claims.json, verdicts.json and machines.json."""
        return RunFolder(self.path)

    def machine(self, name: str) -> Path:
        """Where the run of this machine lies, or is to be made. Raises ValueError for no plain folder name."""
        if not _NAME.fullmatch(name):
            expected = 'letters, digits, ".", "_" and "-", a letter or digit first, 100 at most'
            raise ValueError(f'"{name}" cannot be the name of a machine: {expected}')
        return self.path / HOME / name

    def write(self, machines: Iterable[Machine], claims: Sequence[Any], status: str = "running", **facts: Any) -> None:
        """Begin run.json and claims.json. facts: what else run.json holds (`started`, `command`, `alpha`, ...). Raises
        RunError."""
        self.run.write_json(CLAIMS, [each.stored() if isinstance(each, Claim) else each for each in claims])
        content = {"format": schema.FORMAT, "unit": schema.UNIT, "id": self.path.resolve().name, "status": status}
        facts = plain({**facts, "machines": self._listed(machines), "experiments": []})
        self.run.write_json(MANIFEST, {**content, "mode": FLEET, **facts})

    def update(self, machines: Iterable[Machine], status: str) -> None:
        """Replace the machines and the status in run.json. Raises RunError."""
        finished = None if status == "running" else datetime.now(UTC).isoformat(timespec="seconds")
        changed = {"machines": self._listed(machines), "status": status, "finished": finished}
        self.run.write_json(MANIFEST, self.run.manifest().model_copy(update=changed))

    def _listed(self, machines: Iterable[Machine]) -> list[Machine]:
        """With the folders that they have here, whatever they said: none where there is no run."""
        listed = []
        for machine in machines:
            there = (self.machine(machine.name) / MANIFEST).is_file()
            # All that it has is written, whoever made it.
            listed.append(Machine(**{**machine.model_dump(), "folder": f"{HOME}/{machine.name}" if there else None}))
        return listed

    def machines(self) -> list[Machine]:
        """The machines that run.json names. Raises RunError where it is no fleet's."""
        manifest = self.run.manifest()
        if manifest.mode != FLEET:
            raise RunError(self.path, "this is a run of one machine", "Make a fleet: workbench combine RUN RUN")
        return manifest.machines

    def runs(self) -> list[tuple[Machine, RunFolder]]:
        """Each machine that has a run, with that. Raises RunError, also for a name that leads out of the folder."""
        try:
            return [(each, RunFolder(self.machine(each.name))) for each in self.machines() if each.folder is not None]
        except ValueError as error:
            raise RunError(self.path / MANIFEST, str(error), RESTORE) from error


def labels(kinds: Sequence[str], folders: Sequence[str]) -> list[str]:
    """A name for each run, each another one: that of its machine's kind, with a number where several are of one kind.

    folders: of the runs. A node of a cluster has one for each piece of the work ("m2", "m2.2", "m2.3").
    """
    places = [_PIECE_FOLDER.fullmatch(each) for each in folders]
    nodes = [place[1] if place else str(index) for index, place in enumerate(places)]
    made = []
    for kind, node, place in zip(kinds, nodes, places, strict=True):
        alike = [*dict.fromkeys(other for other, name in zip(nodes, kinds, strict=True) if name == kind)]
        number = f" #{alike.index(node) + 1}" if len(alike) > 1 else ""
        piece = f"{PIECE}{place[2] or 1}" if place and nodes.count(node) > 1 else ""
        made.append(f"{kind}{number}{piece}")
    return made
