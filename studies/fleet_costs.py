"""What limits a cluster: `python -m studies.fleet_costs` prints how long the reference run's rounds would take on so
many nodes."""

from __future__ import annotations

import sys

from llama_workbench import ROOT
from llama_workbench.datasets.workloads import workloads
from llama_workbench.harness.claims.model import Claim
from llama_workbench.harness.claims.reading import stored_claims
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import Request
from llama_workbench.harness.slices.fleet.session import units_of
from llama_workbench.harness.store.folder import RunFolder

NODES = (1, 2, 5)


def on_paper() -> str:
    """Seconds of rounds of the reference run over so many nodes, each taking the longest unit that is left."""
    reference = RunFolder(ROOT / "results" / "baselines" / "reference")
    measured = [
        claim for claim in stored_claims(reference) if claim.hypothesis[0].metric != "check" and _is_asked(claim)
    ]
    plan, manifest = make_plan(Request(everything=True), measured), reference.read_manifest()
    took = {each["workload"]["name"]: float(each["seconds"]) for each in manifest["experiments"]}
    timed = [unit.workloads for unit in units_of(plan) if unit.workloads]
    units = sorted((sum(took[name] for name in names) for names in timed), reverse=True)
    counts = (*NODES, len(units))
    cells = [str(round(_longest(units, count))) for count in counts]
    return "\n".join(
        (
            f"| nodes | {' | '.join(map(str, counts))} |",
            "|---|" + "---|" * len(counts),
            f"| seconds of rounds, longest unit first | {' | '.join(cells)} |",
        )
    )


def _is_asked(claim: Claim) -> bool:
    """Whether all workloads of a stored claim still ship."""
    return {name for part in claim.hypothesis for name in part.workload_names()} <= workloads().keys()


def _longest(units: list[float], nodes: int) -> float:
    loads = [0.0] * nodes
    for seconds in units:
        loads[loads.index(min(loads))] += seconds
    return max(loads)


if __name__ == "__main__":
    sys.stdout.write(f"{on_paper()}\n")
