"""A run over a cluster as a session asks for it: a new one, or one that goes on without what is measured already.

Each node runs the ordinary command on a part of the plan, or on each kind of machine on all of it (see `driver`). What
comes back lies in one folder, and is judged together.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from llama_workbench.variants.digests import written_in

from ...evidence.effect import ALPHA
from ...machine.environment import child_environment
from ...machine.lifeline import Interrupts, Lock, tied
from ...machine.places import called_as
from ...measure.participants import MeasureError, Progress
from ...metrics.registry import metrics
from ...plan.experiments import Plan, sources_of
from ...plan.options import ADD, CLAIMS, Options, PlanError, Request, going_on, options_of, received, sent
from ...session.run import Result, check, plan_run
from ...session.unfinished import UNDO, changed_code
from ...spec.experiments import Experiment
from ...store import files
from ...store.files import RESTORE, RunError
from ...store.folder import RunFolder
from ...store.forms import plain
from ...store.schema import Manifest, Sources
from .driver import READY, Order, Piece, check_address
from .folder import FleetFolder
from .machines import judge_fleet
from .node import OURS, kind_of

LOOK_SECONDS = 0.2
WORKLOADS = "workloads.toml"


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
    if plan.ad_hoc and request.compare is None and not on_each_kind:  # a part of the plan would choose another baseline
        problem = f"no claim is about {plan.ad_hoc[0][1]}; name what it is compared with: --compare A B"
        raise PlanError(f"--on {on}: {problem}, or add --on-each-kind")
    return FleetRun(on, on_each_kind, plan, request, options)


def again(folder: RunFolder, given: Request, options: Options, *, on: str, budget: float | None) -> FleetRun:
    """An earlier run that goes on. given: the files that its request needs, again. budget: seconds for the rest; None:
    the share of its last budget that is left to do.

    Raises RunError where it cannot, as it names all that changed; PlanError where nothing is left to measure.
    """
    check_address(on)
    fleet, known = FleetFolder(folder.path), folder.manifest().request or {}
    fleet.machines()  # raises where it is no fleet
    try:
        asked = received(Request, known.get("asked"))
        options = going_on(options, earlier := received(Options, known.get("options")))
        before = Sources.model_validate(known["sources"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        fix = "Start a new run." if not known else RESTORE
        raise RunError(folder.path / files.MANIFEST, "does not say what was asked for", fix) from error
    request = replace(asked, added=given.added, workloads_file=given.workloads_file)
    plan = plan_run(request, options)
    differences = [*changed_code(before, plan)]
    if folder.records(files.CLAIMS) != [claim.stored() for claim in plan.claims]:
        differences.append("a claim, or which there are, changed")
    if differences:
        raise RunError(folder.path, f"cannot resume, because something changed: {'; '.join(differences)}", UNDO)
    on_each_kind = folder.manifest().spending == "replicate"
    done, share = frozenset[str](), 1.0
    if not on_each_kind:
        complete = [machine for machine in fleet.machines() if machine.status == "complete"]
        done = frozenset(name for machine in complete for name in machine.experiments or [""])
        share = sum(unit.share for unit in units_of(plan) if not _is_in(unit, done))
    if not share:
        raise PlanError(f"{folder.path}: every experiment was measured; more rounds need a new run")
    options = replace(options, budget_seconds=earlier.budget_seconds * share if budget is None else budget)
    return FleetRun(on, on_each_kind, plan, request, options, fleet, done)


def _is_in(piece: Piece, done: Collection[str]) -> bool:
    """Whether these workloads have all of it ("" for what needs none)."""
    return all(name in done for name in piece.workloads or ("",))


# -- what is sent ------------------------------------------------------------------------------------------------------


def units_of(plan: Plan) -> list[Piece]:
    """What one machine must measure together, the longest first: a trend, or a share of a sum, is a value of several
    workloads. Last what needs no workload."""
    home = {each.workload.name: each.workload.name for each in plan.experiments}
    for part in plan.hypotheses():
        names = [name for name in part.workload_names() if name in home]
        if names and part.as_a_whole().selected((), names[:1], anywhere=False) is None:
            joined = {home[name] for name in names}
            home |= {name: home[names[0]] for name, place in home.items() if place in joined}
    together: dict[str, list[Experiment]] = {}
    for experiment in plan.experiments:
        together.setdefault(home[experiment.workload.name], []).append(experiment)
    units = []
    for experiments in together.values():
        workloads = [each.workload.name for each in experiments]
        about = [claim.id for claim in plan.claims if {*workloads} & {*claim.workloads()}]
        weight = sum(1 + len(each.targets) + len(each.contrasts) for each in experiments)
        units.append(Piece(workloads=workloads, claims=about, share=weight))
    looked_at = {name for metric in metrics() if metric.title for name in metric.names}
    parts = [(claim.id, part) for claim in plan.claims for part in claim.hypothesis if not part.workload_names()]
    if rest := dict.fromkeys(name for name, part in parts if part.metric in looked_at or not units):
        units.append(Piece(claims=[*rest], share=0.5))
    return _longest_first(units)


def _longest_first(units: Sequence[Piece]) -> list[Piece]:
    """With shares that are 1 together."""
    whole = sum(unit.share for unit in units)
    shared = [unit.model_copy(update={"share": unit.share / whole}) for unit in units]
    return sorted(shared, key=lambda unit: -unit.share)


def files_and_words(plan: Plan, request: Request, options: Options) -> tuple[dict[str, str], list[str]]:
    """The files that a node needs, by their paths there, and the words that name them. Raises PlanError where one is in
    no file of today, or a file cannot be read."""
    sent_files: dict[str, str] = {}
    words, homes = list[str](), list[Path]()
    try:
        if (own := options.claims_folder) != Options.claims_folder:
            sent_files |= {f"claims/{path.name}": path.read_text("utf-8") for path in own.glob("*.toml")}
            words.append(f"{CLAIMS}=claims")
        for name, source in plan.added.items():
            if not source.is_file or source.revision:
                what = f"{'a file of a revision' if source.revision else 'a module'} is not sent to nodes"
                raise PlanError(f"{source.shown}: {what}: give FILE:FUNCTION, or leave out --on")
            file, home = Path(source.where), Path(source.where).parent
            homes += [home] * (home not in homes)
            place = f"added-{homes.index(home)}"
            beside = (each for each in written_in(file, home) if each.is_relative_to(home))
            sent_files |= {f"{place}/{each.relative_to(home).as_posix()}": each.read_text("utf-8") for each in beside}
            words.append(f"{ADD}={name}={place}/{file.name}:{source.function}")
        if request.workloads_file is not None:
            sent_files[WORKLOADS] = request.workloads_file.read_text("utf-8")
            words.append(f"--workloads-file={WORKLOADS}")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"cannot send a file to the nodes: {error}") from error
    return sent_files, words


def typed_again(section: Request | Options) -> list[str]:
    """The words of a command that say what is `sent`, without a budget."""
    words, options = list[str](), options_of(type(section))
    for name, value in sent(section).items():
        option = options.get(name)
        if option is None or option.name == "budget" or value in (None, False, [], "", option.usual):
            continue
        if option.typed is bool:
            words.append(f"--{option.name}")
        elif option.typed == tuple[str, str]:
            words += [f"--{option.name}", *value]
        elif option.typed == list[str]:
            words += [f"--{option.name}={each}" for each in value]
        else:
            words.append(f"--{option.name}={','.join(value) if isinstance(value, list) else value}")
    return words


# -- the run -----------------------------------------------------------------------------------------------------------


@dataclass
class FleetRun:
    """One run over a cluster. options: of the whole, whose budget it is. earlier: its folder where it goes on; done:
    workloads that are measured ("" for what needs none)."""

    on: str
    on_each_kind: bool
    plan: Plan
    request: Request
    options: Options
    earlier: FleetFolder | None = None
    done: Collection[str] = ()

    def __post_init__(self) -> None:
        self.files, self.words = files_and_words(self.plan, self.request, self.options)

    def measure(self, progress: Progress) -> Result:
        """Everything. Ctrl-C and SIGTERM end it in order, and what was measured until then is judged; after a second
        one it is left to `workbench judge`. Raises `run.USER_ERRORS`."""
        with tempfile.TemporaryFile("w+") as errors, ExitStack() as stack:
            # A session of its own, for Ctrl-C on a terminal goes to all processes of one.
            driver = stack.enter_context(subprocess.Popen(
                tied([sys.executable, "-c", f"from {__package__}.driver import main; main({self.on!r})"]),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env=child_environment(), start_new_session=True,
            ))  # fmt: skip
            stack.callback(driver.kill)
            assert driver.stdin is not None and driver.stdout is not None
            if (first := driver.stdout.readline().strip()) != READY:
                raise PlanError(first or f"--on {self.on}: {_last_of(errors)}")
            fleet = self._folder(stack.enter_context(closing(Lock())))
            driver.stdin.write(f"{self.order(fleet).model_dump_json()}\n")
            driver.stdin.flush()
            progress.phase(f"measuring on {self.on}")
            with Interrupts() as interrupts:
                try:
                    last_line = self._wait(driver, interrupts, progress)
                    if not (interrupts.name or driver.returncode or fleet.runs()):
                        fleet.update(fleet.machines(), "failed")
                        raise MeasureError(f"--on {self.on}: {last_line}")
                    if driver.returncode and not interrupts.name:
                        progress.note(f"the process that speaks to Ray ended ({driver.returncode}): {_last_of(errors)}")
                    if fleet.run.manifest().status != "complete":
                        fleet.update(fleet.machines(), "interrupted")
                        progress.note(f"to continue: pytest --benchmark --on {self.on} --continue {fleet.path}")
                    if not interrupts.again:
                        verdicts = judge_fleet(fleet.path) if fleet.runs() else ()
                        return Result(fleet.run, fleet.run.manifest(), verdicts)
                except KeyboardInterrupt:
                    fleet.update(fleet.machines(), "interrupted")
                progress.note(f"there are no verdicts yet; to compute them: workbench judge {fleet.path}")
                return Result(fleet.run, fleet.run.manifest(), ())

    def _wait(self, driver: subprocess.Popen[str], interrupts: Interrupts, progress: Progress) -> str:
        """Hand on what the driver and its nodes tell until it has ended, which a signal brings about, a second one at
        once. Returns the last line."""
        assert driver.stdout is not None
        text = ""
        try:
            for line in driver.stdout:
                _, is_ours, progressed = line.strip().partition(OURS)  # Ray writes the process before a line of a node
                if is_ours:
                    progress.note(text := progressed)
                interrupts.raise_lost()
            driver.wait()
        except KeyboardInterrupt:
            progress.note(f"interrupted ({interrupts.name or 'Ctrl-C'}): what was measured is kept")
            driver.terminate()
            while driver.poll() is None and not interrupts.again:
                time.sleep(LOOK_SECONDS)
            driver.kill()
            driver.wait()
        return text

    def _folder(self, lock: Lock) -> FleetFolder:
        """The folder, with run.json and claims.json."""
        fleet, before = self.earlier or FleetFolder.create(self.options.run_dir, lock=lock), Manifest()
        if self.earlier is not None:
            fleet.run.hold(lock)
            before = fleet.run.manifest()
            fleet.run.reopen(before)
        sources = sources_of(self.plan)
        assert sources is not None  # no functions are sent
        fleet.write(
            before.machines,
            claims=self.plan.claims,
            started=before.started or datetime.now(UTC).isoformat(timespec="seconds"),
            finished=None,
            command=before.command or called_as(),
            seed=self.options.seed,
            budget_seconds=(before.budget_seconds or 0.0) + self.options.budget_seconds,
            alpha=ALPHA,
            ad_hoc=[list(pair) for pair in self.plan.ad_hoc],
            fail_if=[str(condition) for condition in self.plan.conditions],
            dispute=(before.dispute if "dispute" in before.model_fields_set else self.plan.dispute).stored(),
            spending="replicate" if self.on_each_kind else "split",
            request={"asked": sent(self.request), "options": sent(self.options), "sources": plain(sources)},
        )
        return fleet

    def pieces(self) -> list[Piece]:
        """What is left to measure, the longest first; on each kind of machine all of it."""
        if self.on_each_kind:
            return [Piece()]
        left = [unit for unit in units_of(self.plan) if not _is_in(unit, self.done)]
        if not (self.request.claims or self.request.everything):
            # A claim that is named is measured as a whole; where none was, only what is quick.
            left = [unit.model_copy(update={"claims": []}) if unit.workloads else unit for unit in left]
        return _longest_first(left)

    def order(self, fleet: FleetFolder) -> Order:
        """What the driver is asked to do."""
        request = self.request
        complete = [RunFolder(fleet.machine(each.name)) for each in fleet.machines() if each.status == "complete"]
        # By their processors, for that is what a node says of itself.
        kinds = [kind_of({**run.manifest().machine_facts, "device": {}}) for run in complete]
        if request.compare is not None:  # by their names, for a node has the files elsewhere
            request = replace(request, compare=self.plan.sides)
        return Order(
            folder=fleet.path.resolve(),
            pieces=self.pieces(),
            each_kind=self.on_each_kind,
            kinds_done=kinds,
            seconds=self.options.budget_seconds,
            words=[*self.words, *typed_again(request), *typed_again(self.options)],
            files=self.files,
            gpu=self.plan.device != "cpu",
        )


def _last_of(errors: IO[str]) -> str:
    errors.seek(0)
    return [*filter(None, errors.read().split("\n")), "it said nothing"][-1]
