"""A claim by machine: the forest plot with a row a machine kind and one for their mean; links to the machines' runs."""

from __future__ import annotations

from collections.abc import Mapping

from .. import state, words
from ..views import data, machines
from . import blocks


def show(opened: state.Opened, claim: data.Claim) -> bool:
    """The claim by machine; False, and nothing shown, where no two machines measured it."""
    over = blocks.computed("What holds over the machines cannot be read.", opened, machines.read_over)
    by_machine = machines.by_machine(claim, over or [])
    if by_machine is None:
        return False
    blocks.forest_plot(by_machine.claim, "forest by machine", heading="")
    sure = words.percent(1 - by_machine.claim.alpha)
    blocks.caption(
        "A row is a kind of machine; several machines of one kind are averaged. The mean is over what is true on each "
        f"of these machines, and says nothing about others. Each interval holds with {sure} confidence."
    )
    for line in by_machine.lines:
        blocks.caption(line)
    return True


def kinds_of(run: data.Run) -> str:
    """The machines of the run in one line; empty where it is of one."""
    kinds = [machine.kind or machine.name for machine in run.manifest.machines if machine.folder]
    return f"{len(kinds)} machines: {', '.join(kinds)}" if kinds else ""


def show_links(opened: state.Opened, page: str, query: Mapping[str, str] | None = None) -> None:
    """Links to the runs of the machines on a page, with choices made; below them who was left out."""
    for machine in opened.run.manifest.machines:
        name = machine.kind or machine.name
        if machine.folder is None:
            blocks.caption(f"{name}: left out. {machine.reason}")
        else:
            place = {**(query or {}), "run": f"{opened.name}/{machine.name}"}
            blocks.link(page, words.markdown(name), "dns", place)
