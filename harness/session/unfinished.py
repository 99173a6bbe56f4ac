"""A run that goes on: read back from its folder, with the same plan, where nothing has changed that it rests on.

Its rounds and those to come are one series, judged as one. That holds while they are measured in the same way: the same
code on the same weights, machine and libraries, each pair in rounds or in blocks as before. The prompts are fresh, and
no number of a round or a process comes twice.
"""

from __future__ import annotations

import shlex
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from llama_workbench.datasets import workloads as workload_data
from llama_workbench.datasets.geometries import DataError, Geometry, geometries
from llama_workbench.datasets.lengths import Statistic
from llama_workbench.datasets.workloads import Workload
from llama_workbench.variants.outside import OutsideVariantError

from ..calls.revisions import parse_at
from ..calls.source import Source, is_command
from ..claims.model import Claim
from ..claims.reading import load_claims, stored_claims
from ..machine.environment import changed_since, device_differences, fingerprint
from ..machine.lifeline import Lock
from ..measure.measurement import Measurement
from ..measure.processes import ALLOCATOR
from ..plan.experiments import Plan, experiments_of, renaming, sources_of
from ..plan.functions import Functions, added_sources, functions_of
from ..plan.options import ADD, CALL, CHECK, COMPARE, SIDE_ENV, Options, PlanError, Request, received
from ..report.outcome import brought_models, compared_again
from ..report.text import environments_text
from ..spec.comparison import Comparison, sides_of
from ..spec.experiments import Experiment
from ..spec.sample import Round
from ..spec.words import Cause
from ..store.files import JOURNAL, MANIFEST, RESTORE, SAMPLES, RunError, RunWarning, first_line
from ..store.folder import RunFolder
from ..store.forms import plain
from ..store.schema import ITS_TEST, Manifest, SideEnvironment, SourceRecord, Sources

# The user's code that a run measured, given again so that the run can go on: runs keep no paths, and nothing of a run
# is executed.


ANEW = "Start a new run."


def models_again(folder: RunFolder, known: Manifest, texts: Sequence[str | Source]) -> dict[str, Source]:
    """The source of each variant from outside. Raises RunError where one is missing, and PlanError."""
    added, brought = added_sources(texts), brought_models(known)
    if not texts:
        with suppress(OutsideVariantError):  # they may still be where this command is given; digests are compared
            here = added_sources([text if "=" in text else f"{name}={text}" for name, text in brought.items()])
            added = here if all(map(_is_here, here.values())) else {}
    if unknown := [name for name in added if name not in brought]:
        raise PlanError(f"{ADD} {unknown[0]}: {folder.path} has no such variant; leave it out")
    if lacking := [word for name, text in brought.items() if name not in added for word in (ADD, text)]:
        raise _lacks(folder, f"its variants from files {NOT_HERE}", lacking)
    return added


def functions_again(
    folder: RunFolder, known: Manifest, again: Request, claims: Sequence[Claim], claims_folder: Path
) -> Functions:
    """The functions that a run compares: of a comparison those that are given again, else those that its claims name
    today. Raises RunError where they are missing or others, PlanError and SourceError."""
    assert known.sources is not None
    asked = compared_again(known)
    if not asked:
        for option, given in ((COMPARE, again.compare), (CALL, again.calls), (CHECK, again.check)):
            if given:
                raise PlanError(f"{option}: {folder.path} keeps its own plan; leave it out")
        today = {claim.id: claim for claim in load_claims(claims_folder)} if any(c.function for c in claims) else {}
        if gone := [claim.id for claim in claims if claim.function and claim.id not in today]:
            problem = f"cannot resume: claim {gone[0]} names functions and is not in {claims_folder.name}/"
            raise RunError(folder.path, problem, "Pass the folder of its claims: --claims-dir FOLDER")
        return functions_of(Request(), [today[claim.id] for claim in claims if claim.function or claim.call])[1]
    if again == Request(of_sides=again.of_sides):
        again = replace(_here(asked), of_sides=again.of_sides)
    if not again.compare or (not again.calls and CALL in asked):
        if not again.compare and any(map(is_command, asked)):
            problem = (
                "cannot resume by itself: it measured commands or imports, which are not run because a run names them"
            )
            raise RunError(folder.path, problem, f"Pass them again: {shlex.join(asked)}")
        raise _lacks(folder, f"its functions {NOT_HERE}", asked)
    threads = max(entry.workload.threads or 1 for entry in known.experiments)
    [(statistic, calm)] = {(entry.workload.statistic, entry.workload.calm) for entry in known.experiments}
    sizes = tuple(sorted({entry.workload.size for entry in known.experiments if entry.workload.size}))
    again = replace(again, threads=threads, statistic=cast(Statistic, statistic), calm=calm, sizes=sizes)
    request, functions = functions_of(again, [])
    if request.compare != sides_of(known.ad_hoc) or functions.made_by.keys() != known.sources.calls.keys():
        raise _lacks(folder, "it measured other functions, or under other names", asked)
    before, now = known.environments, functions.environment_facts
    if before != now:
        problem = f"cannot resume: it measured with: {_own(before)}; given now: {_own(now)}"
        raise RunError(folder.path, problem, f"Pass it as it was: {shlex.join(asked)}")
    return functions


def _own(environments: Mapping[str, SideEnvironment]) -> str:
    return environments_text(environments).removesuffix(".") or "no variables or options of its own"


def _here(options: Sequence[str]) -> Request:
    """What these options give, if all of it lies where this command is given; digests are compared later. A
    command or an installed module is never taken from a run: a run that is not ours could name any."""
    by_option = dict[str, list[Source]]()
    try:
        for word in options:
            if word.startswith("--"):
                option = word
            elif option != SIDE_ENV:  # nor is this: what is loaded when a program begins can be named by a variable
                by_option.setdefault(option, []).append(parse_at(word, option=option))
    except OutsideVariantError:
        return Request()
    if (
        not all(_is_here(source) for sources in by_option.values() for source in sources)
        or len(by_option.get(COMPARE, ())) < 2
    ):
        return Request()
    return Request(
        compare=tuple(by_option[COMPARE]),
        calls=tuple(by_option.get(CALL, ())),
        check=next(iter(by_option.get(CHECK, ())), None),
    )


def _is_here(source: Source) -> bool:
    """Whether a source is a file, or a module that lies where this command is given."""
    top = Path(source.where.partition(".")[0])
    return source.is_file or (not source.command and (top.is_dir() or top.with_suffix(".py").is_file()))


NOT_HERE = "were not found in this folder (runs do not store paths)"


def _lacks(folder: RunFolder, problem: str, options: Sequence[str]) -> RunError:
    return RunError(folder.path, f"cannot resume: {problem}", f"Pass them again: {shlex.join(options)}")


UNDO = "Undo that, or start a new run: rounds from before and after a change cannot be put together."


@dataclass(frozen=True)
class Unfinished:
    """An earlier run, as it lies in its folder.

    manifest: run.json; rounds: what was measured so far. digest: of run.json and the samples, when they were read."""

    folder: RunFolder
    manifest: Manifest
    plan: Plan
    rounds: tuple[Round, ...]
    digest: Mapping[str, str]

    @classmethod
    def read(cls, folder: RunFolder, *, again: Request, checkpoint: Geometry | None, claims_folder: Path) -> Unfinished:
        """Read a run to go on with it. again: code that runs keep no paths of: variants from outside, functions that
        are compared, what they are called with and checked by. checkpoint: the shape of the one that it was given.
        claims_folder: where its claims stand today.

        Raises RunError where the run cannot go on: it names all that changed, and the fix.
        """
        with closing(Lock()) as lock:
            folder.hold(lock)
        manifest, sources = _manifest(folder)
        claims = tuple(stored_claims(folder))
        rounds = _rounds(folder, manifest)
        pairs, conditions = tuple(manifest.ad_hoc), tuple(manifest.fail_if)
        outside = models_again(folder, manifest, again.added)
        functions = functions_again(folder, manifest, again, claims, claims_folder)
        device, dispute = manifest.device_kind, manifest.dispute
        plan = Plan(str(manifest.mode), claims, pairs, (), outside, device, conditions, functions, dispute)
        plan = replace(plan, experiments=_experiments(folder, manifest, plan, checkpoint))
        now = fingerprint(plan.threads, allocator=ALLOCATOR if plan.calm else None, device=plan.device)
        before = manifest.machine_facts
        # What a GPU is, its worker knows; and that sides have what they had, `functions_again`.
        differences = changed_since(before, now | {key: before.get(key) for key in ("device", "sides")})
        differences += [*changed_code(sources, plan), *_changed_claims(claims, claims_folder)]
        if differences:
            raise _refused(folder, differences)
        return cls(folder, manifest, plan, rounds, folder.digest())

    def hold(self, lock: Lock) -> None:
        """Take the folder. Raises RunError where another run holds it, or has gone on with it meanwhile."""
        self.folder.hold(lock)
        if self.folder.digest() != self.digest:
            lock.close()
            raise RunError(self.folder.path, "another command resumed this run meanwhile", "Give the command again.")

    @property
    def options(self) -> Options:
        """How it was made, as far as it keeps that. Raises RunError."""
        try:
            return received(Options, {"seed": self.manifest.seed or 0, **self.manifest.options})
        except ValueError as error:
            problem = f"options: {first_line(error)}"
            raise RunError(self.folder.path / MANIFEST, problem, RESTORE) from error

    def prepare(self, measurement: Measurement) -> None:
        """Give the state of each experiment what earlier sittings know of it. Gates are passed anew, and the time of a
        call is taken anew."""
        rounds, numbers = Counter[str](), dict[str, int]()
        for finished in self.rounds:
            rounds[finished.workload] += 1
            numbers[finished.workload] = max(numbers.get(finished.workload, -1), finished.number)
        known = {entry.workload.name: entry for entry in self.manifest.experiments}
        everywhere = {entry.variant: entry.reason for entry in self.manifest.excluded}  # the code is the same
        measurement.participants.excluded |= everywhere
        for group in measurement.processes.groups:
            group.processes = max((each.process for each in self.rounds), default=0)
        for state in measurement.participants.states:
            name, entry = state.name, known[state.name]
            out = everywhere | {each.variant: each.reason for each in entry.excluded}
            state.excluded |= {each: reason for each, reason in out.items() if each in state.experiment.entered()}
            state.causes |= {each.variant: each.cause for each in entry.excluded if each.cause is not Cause.EXCLUDED}
            state.gates |= {each: gate for each, gate in entry.gates.items() if each in out}
            state.traces |= {each: trace for each, trace in entry.traces.items() if each in out}
            state.wall_variants += entry.clock.wall_variants
            state.forgotten = numbers.get(name, -1) + 1
            state.own_processes |= entry.own_processes
            state.horizon, state.early, state.lost_processes = entry.horizon, entry.early, list(entry.lost_processes)
            state.earlier = entry.model_copy(update={"rounds": rounds[name]})
            if rounds and entry.apart is not None:
                ways = {Comparison(name, e.variant, e.baseline, e.metric): e.blocks for e in entry.apart}
                state.pairs_apart = frozenset(ways)
                state.sliced = {pair: blocks for pair, blocks in ways.items() if blocks is not None}

    def check(self, measurement: Measurement) -> None:
        """After the gates: the weights and the device are what they were. Raises RunError."""
        earlier = {"device": self.manifest.machine_facts.get("device")}
        differences = device_differences(earlier, {"device": measurement.processes.device_facts})
        for name, facts in (self.manifest.checkpoints or {}).items():
            before, digest = facts.digest, measurement.processes.checkpoints.get(name, {}).get("digest")
            if before is not None and digest is not None and before != digest:
                differences.append(f"weights of {name}: SHA-256 {before[:12]} against {digest[:12]}")
        if differences:
            raise _refused(self.folder, differences)


def _refused(folder: RunFolder, differences: Sequence[str]) -> RunError:
    return RunError(folder.path, f"cannot resume, because something changed: {'; '.join(differences)}", UNDO)


# -- what is read back -------------------------------------------------------------------------------------------------


def _manifest(folder: RunFolder) -> tuple[Manifest, Sources]:
    """run.json of a run whose files are whole, and the code that was measured. Raises RunError."""
    if changed := folder.changed():
        raise changed[0]
    known = folder.manifest()
    if known.mode not in ("claims", "compare"):
        problem = "cannot resume: this run checked outputs only and has no timings"
        raise RunError(folder.path, problem, "Start a new run without --benchmark-disable.")
    if not known.experiments:
        raise RunError(folder.path, "cannot resume: it ended before its first output check", ANEW)
    if any(each.workload.payload == ITS_TEST for each in known.experiments):
        problem = "cannot resume: a suite of benchmarks is always measured whole"
        raise RunError(folder.path, problem, "Give its command again, with a larger --budget.")
    if any(side.python is not None for side in known.environments.values()):
        problem = "cannot resume: a run does not store what is installed in environments (--env)"
        raise RunError(folder.path, problem, ANEW)
    if known.sources is None or not known.sittings:
        problem = "cannot resume: it was made by an older version, which did not store which code it measured"
        raise RunError(folder.path, problem, ANEW)
    return known, known.sources


def _rounds(folder: RunFolder, known: Manifest) -> tuple[Round, ...]:
    """All finished rounds. Raises RunError where samples are damaged, or fewer than run.json counts."""
    there = folder.has(JOURNAL) or folder.has(SAMPLES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)  # a line that a kill cut off is no finished round
        rounds = tuple(folder.rounds()) if there else ()
    counted = Counter(each.workload for each in rounds)
    for entry in known.experiments:
        if entry.rounds > (had := counted[entry.workload.name]):
            problem = (
                f"cannot resume: it holds {had} rounds of {entry.workload.name}, and {MANIFEST} counted {entry.rounds}"
            )
            raise RunError(folder.path, problem, "Restore its samples from a copy, or start a new run.")
    return rounds


def _experiments(
    folder: RunFolder, manifest: Manifest, plan: Plan, checkpoint: Geometry | None
) -> tuple[Experiment, ...]:
    """What the plan measures, on the workloads as they were; the same as run.json says. Raises RunError."""
    entries = {entry.workload.name: entry for entry in manifest.experiments}
    shapes = renaming(_named(folder, manifest, checkpoint))[1]
    try:
        workloads = {
            name: Workload.model_validate(plain(entry.workload), context={"geometries": shapes})
            for name, entry in entries.items()
        }
        for claim in plan.claims:  # those of which nothing was selected are not in the manifest
            for name in (claim.on(plan.device) or claim).workloads():
                if name not in workloads:
                    workloads[name] = plan.functions.workloads.get(name) or workload_data.get(name)
        whole = replace(plan, experiments=experiments_of(plan, workloads, shapes))
    except (DataError, ValueError) as error:
        problem = f"cannot resume: the plan cannot be rebuilt ({first_line(error)})"
        raise RunError(folder.path, problem, ANEW) from error
    selected = {(name, variant) for name, entry in entries.items() for variant in entry.variants}
    experiments = whole.restricted(selected).experiments
    again = {each.workload.name: (list(each.entered()), each.baseline) for each in experiments}
    if again != {name: (entry.variants, entry.baseline) for name, entry in entries.items()}:
        problem = "cannot resume: this version of the workbench would measure something else"
        raise RunError(folder.path, problem, ANEW)
    return experiments


def _named(folder: RunFolder, manifest: Manifest, checkpoint: Geometry | None) -> Geometry | None:
    """The user's checkpoint by the name that it has in the run. Raises RunError where the run was given none, or it is
    missing."""
    names = [entry.workload.geometry for entry in manifest.experiments]
    synthetic = {name: facts.synthetic is not False for name, facts in (manifest.checkpoints or {}).items()}
    own = next((name for name in names if name and not synthetic.get(name, name in geometries())), None)
    if own is None and checkpoint is not None:
        raise RunError(folder.path, "cannot resume: it measured generated weights", "Leave out --checkpoint.")
    if own is not None and checkpoint is None:
        fix = "Pass it again: --checkpoint PATH"
        raise RunError(folder.path, f"cannot resume: it measured the checkpoint {own} (runs do not store paths)", fix)
    return None if checkpoint is None else replace(checkpoint, name=own or checkpoint.name)


# -- what may have changed ---------------------------------------------------------------------------------------------


def changed_code(before: Sources, plan: Plan) -> Iterator[str]:
    """What of the code is not as it was, in words."""
    now = sources_of(plan)
    assert now is not None  # of sides with environments of their own no run goes on
    for name, source in now.variants.items():
        if name not in before.variants or before.variants[name].digest != source.digest:
            yield f"the code of {name} changed"
    for name, call in now.calls.items():
        if name not in before.calls or before.calls[name].payload.digest != call.payload.digest:
            yield f"the input generator of {name} changed"
        elif _digest(before.calls[name].check) != _digest(call.check):
            yield f"the output check of {name} changed"
        elif before.calls[name].commands != call.commands:
            yield f"the way to run the commands of {name} changed (exit codes, prepare, conclude or input)"
    if before.harness != now.harness:
        yield "the code that measures changed (another version of the workbench)"


def _digest(source: SourceRecord | None) -> str | None:
    return None if source is None else source.digest


def _changed_claims(claims: Sequence[Claim], folder: Path) -> Iterator[str]:
    """What the claims of today say otherwise than those of the run. A claim that is not there today did not change."""
    today = {claim.id: claim for claim in load_claims(folder)} if claims else {}
    for claim in claims:
        if claim.id in today:
            ours, theirs = (_said(each) for each in (claim, today[claim.id]))
            if changed := [key for key, value in ours.items() if theirs.get(key) != value]:
                yield f"claim {claim.id}: {', '.join(changed)} changed"


SELECTED = {"workloads", "quick", "left_out"}
"""What a selection changes of a hypothesis."""


def _said(claim: Claim) -> dict[str, Any]:
    """What a claim says, whatever was selected of it: its keys, and its parts by their labels."""
    said = claim.model_dump(mode="json", exclude={"hypothesis"})
    for part in claim.hypothesis:
        said[f"part {part.part}" if part.part else "its hypothesis"] = part.model_dump(mode="json", exclude=SELECTED)
    return said
