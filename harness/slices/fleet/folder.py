"""A fleet on disk: a run folder whose `machines/NAME/` is an ordinary run each.

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
from ...machine.lifeline import Lock
from ...store import schema
from ...store.files import CLAIMS, MANIFEST, RESTORE, RunError
from ...store.folder import RunFolder
from ...store.forms import plain
from ...store.verdict_schema import FLEET, HOME, Machine

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


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

    def write(
        self,
        machines: Iterable[Machine],
        *,
        claims: Sequence[Any] | None = None,
        status: str = "running",
        **manifest: Any,
    ) -> None:
        """Replace run.json: `machines`, and what else it holds (`id`, `started`, `finished`, `command`, `alpha`,
        `ad_hoc`, `fail_if`, `spending`, ...). With `claims` also claims.json. Raises RunError.

        A `folder` of a machine is written as this folder has it, whatever it said: null only where there is no run.
        """
        if claims is not None:
            self.run.write_json(CLAIMS, [each.stored() if isinstance(each, Claim) else each for each in claims])
        content = {"format": schema.FORMAT, "unit": schema.LIFE, "id": self.path.resolve().name, "status": status}
        facts = plain({**manifest, "machines": self._listed(machines), "experiments": []})
        self.run.write_json(MANIFEST, {**content, "mode": FLEET, **facts})

    def update(self, machines: Iterable[Machine], status: str) -> None:
        """Replace the machines and the status in run.json. Raises RunError."""
        finished = None if status == "running" else datetime.now(UTC).isoformat(timespec="seconds")
        changed = {"machines": self._listed(machines), "status": status, "finished": finished}
        self.run.write_json(MANIFEST, self.run.manifest().model_copy(update=changed))

    def _listed(self, machines: Iterable[Machine]) -> list[Machine]:
        """With the folders that they have here."""

        def folder_of(name: str) -> str | None:
            return f"{HOME}/{name}" if (self.machine(name) / MANIFEST).is_file() else None

        # All that it has is written, whoever made it and whatever it said.
        return [Machine(**{**each.model_dump(), "folder": folder_of(each.name)}) for each in machines]

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
