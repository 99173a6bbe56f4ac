"""The time breakdown in `workbench report`: the dispute's profiling form, filled in."""

from __future__ import annotations

from collections.abc import Mapping

from ...report.markdown import markdown_cell, markdown_rows
from ...report.phases import Share, levels, top_consumers
from ...spec.dispute import ProfilingForm
from ...store.files import RESTORE, RunError
from ...store.folder import RunFolder
from ...store.passes import PHASES


def markdown(folder: RunFolder, alpha: float) -> str:
    """The form of each variant on each workload, or the command that measures one; empty of a run of functions, which
    have no phases. Raises RunError."""
    manifest, table = folder.manifest(), folder.read_table(PHASES)
    if pairs := table.distinct("workload", "variant"):
        try:
            shares = {(name, side): top_consumers(table, name, side, alpha=alpha) for name, side in pairs}
        except ValueError as error:
            raise RunError(folder.path / PHASES, str(error), RESTORE) from error
        return profiling_markdown(manifest.dispute.form, shares)
    if all(each.workload.kind == "call" for each in manifest.experiments):
        return ""
    measure = manifest.dispute.command("phases_of_one")
    return f"Where the time goes: this run has no time breakdown; to measure one: {measure}"


def profiling_markdown(form: ProfilingForm, forms: Mapping[tuple[str, str], Mapping[str, Share]]) -> str:
    """A table for each (workload, variant) from its shares by phase: every level that the interval
    allows by the dispute's form, and what is then done where it may be critical."""
    blocks = ["# Where the time goes"]
    for (workload, variant), shares in forms.items():
        rows = []
        for phase, share in shares.items():
            possible = levels(share.low, share.high)
            target = form.remedies.get(phase, form.beyond) if "critical" in possible else ""
            ends = f"[{100 * share.low:.1f}, {100 * share.high:.1f}]"
            rows.append((phase, f"{100 * share.value:.1f} %", ends, possible, markdown_cell(target)))
        headings = ("phase", "share", "interval", "level", "what the plan does")
        blocks += [f"## {variant} on {workload}", markdown_rows(headings, rows)]
    return "\n\n".join(blocks) + "\n"
