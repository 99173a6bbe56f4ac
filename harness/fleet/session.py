"""A run over a cluster as a session asks for it: a new one, or one that goes on without what is measured already."""

from __future__ import annotations

from dataclasses import replace

from ..plan.options import Options, PlanError, Request, going_on, received
from ..session.run import check, plan_run
from ..session.unfinished import UNDO, changed_code
from ..store.errors import RESTORE, RunError
from ..store.files import CLAIMS, MANIFEST
from ..store.folder import RunFolder
from ..store.machine_schema import Machine
from ..store.sitting_schema import Sources
from . import kinds
from .cluster import check_address
from .folder import FleetFolder
from .order import Files
from .record import Before, Spread
from .run import FleetRun


def spread(request: Request, options: Options, *, on: str, on_each_kind: bool) -> FleetRun:
    """A new run over a cluster. Raises PlanError where it cannot be planned, or what it needs cannot be sent."""
    check_address(on)
    if options.gates_only:
        raise PlanError(f"--on {on}: gates alone (--benchmark-disable) are passed on this machine; leave it out")
    if request.calls:  # what they import is not sent
        raise PlanError(f"--call {request.calls[0]}: functions are compared on one machine only; leave out --on")
    # Whether they have so many cores, and a GPU, is for the nodes to say.
    check(replace(request, threads=None, device="cpu"), options)
    plan = plan_run(request, options)
    if functions := [*plan.functions.sources]:
        problem = "functions are compared on one machine only; choose other claims with --claims"
        raise PlanError(f"--on {on}: a claim is about the function {functions[0]}, and {problem}")
    files = Files.read(options.claims_folder, plan.added, request.workloads_file)
    return FleetRun(plan, Spread(on, on_each_kind, request, files), options)


def again(folder: RunFolder, given: Request, options: Options, *, on: str, budget: float | None) -> FleetRun:
    """An earlier run that goes on. given: the files that its request needs, again. budget: seconds for the rest; None:
    the share of its last budget that is left to do.

    Raises RunError where it cannot, as it names all that changed; PlanError where nothing is left to measure.
    """
    check_address(on)
    fleet = FleetFolder(folder.path)
    machines, manifest = tuple(fleet.machines()), folder.read_manifest()
    known = manifest.get("request") or {}
    try:
        asked = received(Request, known.get("asked"))
        options = going_on(options, earlier := received(Options, known.get("options")))
        before = Sources.model_validate(known["sources"])
        chosen = {(name, variant) for name, names in known["select"].items() for variant in names}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        fix = "Start a new run." if not known else RESTORE
        raise RunError(folder.path / MANIFEST, "does not say what was asked for", fix) from error
    request = replace(asked, added=given.added, workloads_file=given.workloads_file)
    plan = plan_run(request, options).restricted(chosen)
    differences = [*changed_code(before, plan)]
    if folder.records(CLAIMS) != [claim.stored() for claim in plan.claims]:
        differences.append("a claim, or which there are, changed")
    if differences:
        raise RunError(folder.path, f"cannot resume, because something changed: {'; '.join(differences)}", UNDO)
    each_kind = manifest.get("spending") == "replicate"
    done = _done(fleet, machines, each_kind)
    all_ = {each.workload.name for each in plan.experiments}
    left = [name for name in all_ if any(name not in names for names in done.values())] if done else list(all_)
    if not left and not each_kind:
        raise PlanError(f"{folder.path}: every experiment was measured; more rounds need a new run")
    share = earlier.budget_seconds * len(left) / max(len(all_), 1)
    options = replace(options, budget_seconds=share if budget is None else budget)
    files = Files.read(options.claims_folder, plan.added, given.workloads_file)
    return FleetRun(plan, Spread(on, each_kind, request, files), options, Before(fleet, manifest, machines, done))


def _done(fleet: FleetFolder, machines: tuple[Machine, ...], each_kind: bool) -> dict[str, frozenset[str]]:
    """Workloads that are measured, by kind of machine. "" among those of a kind stands for what needs no workload."""
    done: dict[str, frozenset[str]] = {}
    for machine in machines:
        if machine.status != "complete":
            continue
        run = RunFolder(fleet.machine(machine.name))
        kind = kinds.key_of(run.manifest().machine_facts) if each_kind else ""
        names = machine.experiments or [""]
        done[kind] = done.get(kind, frozenset()) | set(names)
    return done
