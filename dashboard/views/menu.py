"""Which pages have something to show of a run."""

from __future__ import annotations

from llama_workbench.harness.metrics.loading.files import LOADING
from llama_workbench.harness.metrics.memory.files import MEMORY_SWEEP
from llama_workbench.harness.metrics.roofline.files import ROOFLINE
from llama_workbench.harness.metrics.share.files import PHASES
from llama_workbench.harness.store.folder import RunFolder

from . import data

OF_MODELS = frozenset({"attribution", "breakdown", "memory", "scaling"})


def without_content(run: data.Run) -> frozenset[str]:
    """The pages, by their files in page_scripts, that have nothing of this run. Raises RunError."""
    if run.is_of_functions:
        return OF_MODELS
    if run.manifest.machines:
        return frozenset()  # they lead to the runs of its machines
    folder, asked = RunFolder(run.path), {*run.dispute.measured_by.get("attribution", ())}
    asked |= {run.dispute.ladder.claim} if run.dispute.ladder else set()
    there = {
        "attribution": any(claim.is_factorial or claim.claim in asked for claim in run.claims),
        "breakdown": bool(run.profiles) or folder.has(PHASES) or folder.has(ROOFLINE),
        "memory": bool(run.memory) or folder.has(MEMORY_SWEEP) or folder.has(LOADING),
    }
    return frozenset(page for page, has in there.items() if not has)
