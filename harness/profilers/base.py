"""What a profiler is to a run: a look at each variant once the rounds are over. It feeds no verdict.

A profiler is one module of this package, whose PROFILER is found by `registry`. It may have verbs of the measuring
process too (see `worker.main`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..measure.passes import PASS_SECONDS
from ..measure.processes import WorkerProcess
from ..store.forms import JsonFile


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
    long one look takes."""

    file: ClassVar[JsonFile]
    seconds: ClassVar[float] = 1.0

    @abstractmethod
    def look(self, at: ProfiledVariant) -> Mapping[str, Any]:
        """The rest of an entry, with a `reason` where there is nothing. Raises WorkerFailed."""


def _file_name(name: str) -> str:
    """A name as a file's name: nothing that leaves the folder."""
    return re.sub(r"[^A-Za-z0-9._@+-]", "_", name).lstrip(".") or "_"
