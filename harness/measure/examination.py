"""The examiner (`examiner`) as the parent sees it: begun beside the gates, asked after each round."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llama_workbench.datasets.workloads import Workload

from ..machine.environment import granted_cores
from .processes import WorkerProcess

JUDGE_SECONDS = 600.0
"""Long prompts of a large model take the reference minutes."""


class Examination:
    """A process for judging, and a folder in which outputs of timed calls lie until they are judged."""

    def __init__(self, *, cache: Path, log: Path) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="workbench-outputs-")
        # Between rounds nothing else computes: all cores are free.
        self._process = WorkerProcess(threads=granted_cores(), cache=cache, log=log, module="examiner.main", wait=False)

    @property
    def file(self) -> Path:
        """Where a measuring process leaves the outputs of a round."""
        return Path(self._scratch.name) / "outputs.safetensors"

    def judge(self, folder: Path, workload: Workload, draw: str, drawn: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Variant → what is wrong with its outputs, which lie in `file`; without those whose outputs are right.

        Raises:
            WorkerFailed: nothing can be judged.
        """
        wrong: dict[str, str] = self._process.ask(
            "judge",
            JUDGE_SECONDS,
            folder=str(folder),
            workload=workload.model_dump(),
            draw=draw,
            file=str(self.file),
            outputs=list(drawn),
        )
        return wrong

    def close(self) -> None:
        """End the process and remove the folder."""
        self._process.close()
        self._scratch.cleanup()
