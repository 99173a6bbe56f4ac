"""One comparison on one screen, as the terminal shows it, for the claims of a run."""

from __future__ import annotations

from llama_workbench.harness.report.causes import explanations_in
from llama_workbench.harness.report.comparison import Screen, screens
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.harness.store.folder import RunFolder

from . import data, samples


def read_screens(run: data.Run, claim: str, part: str, *, explained: bool = False) -> list[Screen]:
    """A screen for each effect on a time of the claim of that name and part; none while it has no verdict. `explained`:
    of those alone whose difference was looked into."""
    folder = RunFolder(run.path)
    if explained and not explanations_in(folder):
        return []
    asked = [each for each in folder.read(VERDICTS) if (each.claim, each.part) == (claim, part)]
    sides = {name for verdict in asked for effect in verdict.effects for name in (effect.variant, effect.baseline)}
    if not any(effect.baseline and not effect.unit for verdict in asked for effect in verdict.effects):
        return []
    found = screens(folder, asked, samples.read_evidence(run, sides))
    return [screen for screen in found if screen.explained is not None or not explained]


def explained_screens(run: data.Run, claim: str, part: str) -> list[Screen]:
    """Those whose difference was looked into."""
    return read_screens(run, claim, part, explained=True)
