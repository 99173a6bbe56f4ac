"""One run from request to verdicts: plan, measure, store, judge."""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from llama_workbench.cache import FIX, CacheError, cache_directory, unwritable
from llama_workbench.datasets import geometries
from llama_workbench.datasets.geometries import DataError, Geometry, parameter_count, stored_shapes
from llama_workbench.datasets.lengths import longest_call
from llama_workbench.datasets.synthetic_files import TYPES, WEIGHTS_SEED, synthesize, synthetic_files
from llama_workbench.variants import LlamaConfig, UnknownVariant
from llama_workbench.variants.memory_policy import expected
from llama_workbench.variants.outside import OutsideVariantError
from llama_workbench.variants.presets import presets

from ..claims.model import ClaimError
from ..claims.reading import load_folder
from ..evidence.effect import ALPHA
from ..judge.stopping import StoppingRule, differing, proven
from ..machine.environment import Since, available_bytes, fingerprint, usable_cores
from ..machine.extras import lacking
from ..machine.lifeline import Interrupts, Lock
from ..machine.places import called_as
from ..measure.choosing import set_horizons
from ..measure.measurement import OVERTIME_SHARE, Measurement
from ..measure.participants import MeasureError, Progress, Setting
from ..measure.passes import kept_apart
from ..measure.processes import ALLOCATOR
from ..measure.profiling import look_closer
from ..metrics.base import PassContext
from ..metrics.registry import metric_of, metrics
from ..metrics.roof import hold_to_roof
from ..plan.experiments import Plan, make_plan, sources_of
from ..plan.options import Options, PlanError, Request, going_on, kept
from ..report.standings import write_standings
from ..spec.comparison import Comparison, EnteredName
from ..spec.dispute import Dispute
from ..spec.experiments import Experiment
from ..spec.hypotheses import DEVICES
from ..spec.regions import FAIL_IF, Condition
from ..spec.sample import Round
from ..spec.words import Word
from ..store.files import CLAIMS, MANIFEST, VERDICTS, RunError
from ..store.folder import RunFolder
from ..store.schema import FORMAT, UNIT, Checkpoint, Environment, Excluded, ExperimentRecord, Manifest, Sitting
from ..store.verdict_schema import FLEET, Verdict
from .judging import FirstAnswers, answer_so_far, judge_run, stopping_rule
from .unfinished import Unfinished

SNAPSHOT_SECONDS = 15.0


@dataclass(frozen=True)
class Result:
    """What a run came to."""

    folder: RunFolder
    manifest: Manifest
    verdicts: tuple[Verdict, ...]

    @property
    def interrupted(self) -> bool:
        """By Ctrl-C or SIGTERM. What was measured until then is kept, and judged unless there was a second signal."""
        return self.manifest.status == "interrupted"

    def failed_conditions(self, *, by_numbers: bool = False) -> list[Condition]:
        """The conditions of --fail-if that are met; by_numbers: by what was measured, not for want of it."""
        answers: dict[str, list[Word]] = {}
        for asked in self.verdicts:
            effects = [effect for effect in asked.effects if not by_numbers or effect.verdict != Word.NOT_EVIDENCE]
            if asked.claim == FAIL_IF and (effects or not by_numbers):
                answers.setdefault(asked.part, []).extend(effect.verdict for effect in effects)
        conditions = [each for each in self.manifest.fail_if if str(each) in answers]
        return [condition for condition in conditions if condition.fails(answers[str(condition)])]


def plan_run(request: Request, options: Options) -> Plan:
    """What would be measured; raises before anything is written (see `make_plan`, `load_folder`). The claims' folder is
    not read for a comparison of any functions, which has nothing to do with it."""
    read = partial(load_folder, options.claims_folder)
    claims, dispute = read() if request.compare is None else ([], Dispute())
    missing = lacking("models")
    if missing and options.checkpoint is not None:
        raise PlanError(f"--checkpoint: {missing}")
    plan = make_plan(request, claims, checkpoint=real_geometry(options), dispute=dispute)
    if any(each.workload.kind != "call" for each in plan.experiments):
        if missing:
            raise PlanError(f"models cannot be measured: {missing}. Functions need none of it.")
        if request.compare is not None:
            plan = replace(plan, dispute=read()[1])
    return plan


def real_geometry(options: Options) -> Geometry | None:
    """The shape of `--checkpoint`, and what was read from its files: all tensors must be there, well-shaped, finite."""
    if options.checkpoint is None:
        return None
    from llama_workbench.datasets.checkpoints import geometry_of

    return geometry_of(options.checkpoint, "given by --checkpoint")


class Run:
    """One run into a new folder, or an earlier one that goes on: `measure` makes the checkpoints, passes the gates,
    times the rounds, makes the passes that claims ask for, and judges.

    Until the gates are passed anew, the folder of an earlier run stays as it is."""

    def __init__(self, plan: Plan, options: Options, progress: Progress, earlier: Unfinished | None = None) -> None:
        self.plan = plan
        self.options = options
        self.progress = progress
        self.earlier = earlier
        self.cache = cache_directory()
        self.started = datetime.now(UTC)
        self.lock = Lock()
        self.interrupts = Interrupts()
        if earlier is None:
            self.folder = RunFolder.create(options.run_dir, lock=self.lock)
        else:
            earlier.hold(self.lock)
            self.folder = earlier.folder
        self.is_open = earlier is None
        self.sources = sources_of(plan)
        self.passes: list[str] = list(earlier.manifest.passes) if earlier else []
        allocator = ALLOCATOR if plan.calm else None
        self.environment = fingerprint(plan.threads, allocator=allocator, device=plan.device, results=self.folder.path)
        self.machine = Environment.model_validate(self.environment)
        self.measurement: Measurement | None = None
        self.others: float | None = None
        self.last_snapshot = time.monotonic()
        self.checkpoint_facts: dict[str, dict[str, str]] = {}
        self.configs: dict[str, LlamaConfig] = {}

    def measure(self) -> Result:
        """Everything. Ctrl-C (or SIGTERM) ends the measuring, and what there is by then is kept and judged; after a
        second one, or one during the judging, the run is left to `workbench judge`."""
        with contextlib.closing(self.lock), self.interrupts:
            try:
                status = self._measured()
                return self._unjudged() if self.interrupts.again else self._finish(status)
            except KeyboardInterrupt:
                return self._unjudged()

    def _measured(self) -> str:
        """The status that measuring ended with."""
        try:
            if self.is_open:
                self.folder.write_json(CLAIMS, [claim.stored() for claim in self.plan.claims])
                self._write_manifest("running")
            self._measure(time.monotonic())
        except KeyboardInterrupt:
            self.progress.note(f"interrupted ({self.interrupts.name or 'Ctrl-C'}): what was measured is kept")
            return "interrupted"
        except BaseException:
            with contextlib.suppress(RunError):  # a full disk is what the user must hear of, not this
                self._write_manifest("failed")
            raise
        return "complete"

    def _unjudged(self) -> Result:
        """End at once: all samples are in the folder, and can be judged at any time."""
        if not self.is_open:
            return self._untouched()
        manifest = self._manifest("interrupted").with_rounds(self.folder.finished_rounds())
        self.folder.write_json(MANIFEST, manifest)
        self.progress.note(f"there are no verdicts yet; to compute them: workbench judge {self.folder.path}")
        return Result(self.folder, manifest, ())

    def _untouched(self) -> Result:
        """End before an earlier run went on."""
        assert self.earlier is not None
        self.progress.note("the earlier run is unchanged")
        return Result(self.folder, self.earlier.manifest.model_copy(update={"status": "interrupted"}), ())

    def _measure(self, begun: float) -> None:
        """Gates, rounds, and what follows them. begun: when measuring began (`time.monotonic`)."""
        self.measurement = measurement = self._prepared()
        with measurement.processes.running():
            has_models = any(state.workload.has_model for state in measurement.participants.states)
            self.progress.phase("output checks: logits and operations" if has_models else "output checks")
            measurement.gates.pass_gates()
            if self.earlier is not None:  # it goes on from here
                self.earlier.check(measurement)
                self.is_open = True
                self.folder.reopen(self._manifest("running"))
            self._write_manifest("running")
            if self.options.gates_only:
                return
            rule = self._measure_rounds(measurement, begun)
            hold_to_roof(measurement, self.folder, self.configs)
            self._make_passes(measurement)
            self._look_closer(measurement, partial(differing, rule))

    def _prepared(self) -> Measurement:
        """What will be measured, with its checkpoints on disk. Rounds are judged by the manifest's gates and
        exclusions: those are on disk first, whenever the run is killed."""
        if any(each.workload.has_model for each in self.plan.experiments):
            self.progress.phase("checkpoints")
        without_cache = cache_note(self.plan, self.cache)
        folders, parameters, without_room = self._checkpoints()  # where these cannot be written, that alone is told
        if without_cache:
            self.progress.note(without_cache)
        (logs := self.folder.path / "log").mkdir(exist_ok=True)
        setting = Setting(
            added=self.plan.added,
            functions=self.plan.functions.sources,
            calls=self.plan.calls(),
            device=self.plan.device,
            folders=folders,
            parameters=parameters,
            no_room=without_room,
            cache=self.cache, logs=logs, seed=self.options.seed, progress=self.progress, strict=self.options.strict,
            budget_seconds=math.inf if self.earlier or self.options.gates_only else self.options.budget_seconds,
        )  # fmt: skip
        measurement = Measurement(self.plan.experiments, setting, partial(self._write_manifest, "running"))
        if self.earlier is not None:
            self.earlier.prepare(measurement)
        return measurement

    def _measure_rounds(self, measurement: Measurement, begun: float) -> StoppingRule:
        """The rounds, and the rule that ended them."""
        self.progress.phase("rounds")
        seconds = self.options.budget_seconds
        if self.options.budget_has_gates:  # gates and overtime are parts of it
            seconds = max((seconds - (time.monotonic() - begun)) / (1 + OVERTIME_SHARE), 1.0)
        set_horizons(measurement.processes.groups, seconds)
        self._write_manifest("running")
        states = {state.name: state for state in measurement.participants.states}
        wall = {name: state.wall_variants for name, state in states.items()}  # as they stand when a round counts
        plans = {name: (state.horizon, state.early) for name, state in states.items()}
        to_compare, is_saved = self.options.to_compare, self.options.is_saved
        rule = stopping_rule(self.plan, wall, self.machine, plans, to_compare=to_compare, is_saved=is_saved)
        for finished in self.earlier.rounds if self.earlier else ():
            rule.add(finished)
            states[finished.workload].note_process(finished)
        rule.end_process()
        pairs = self.plan.comparisons() if self.plan.mode == "compare" and not self.plan.is_tabled else []
        open_ = [pair for pair in pairs if proven(rule, pair) is None]
        answers, begun_rounds = FirstAnswers(rule, open_, self.progress.note), Since.now()
        try:
            measurement.schedule.run(rule, partial(self._keep, answers=answers), seconds=seconds)
        finally:
            self.others = begun_rounds.busy()
        return rule

    def _look_closer(self, measurement: Measurement, apart: Callable[[Comparison], tuple[float, float] | None]) -> None:
        if self.plan.mode == "compare" and self.folder.finished_rounds():
            self.progress.note(answer_so_far(self._manifest("running"), self.plan.claims, self.folder))
        look_closer(
            measurement, self.folder, self.progress, apart,
            causes=not self.options.no_causes and not self.plan.is_tabled,
            of_models=self.plan.mode == "compare" and self.options.profile,
            profiles=self.options.profile,
            headlines=self.plan.profiled_headlines(),
        )  # fmt: skip

    def _make_passes(self, measurement: Measurement) -> None:
        """The passes that claims or options ask for, after the rounds: verdicts come from what these write. Where one
        fails the reason is shown and its claims stay open; the others are made all the same.

        One that an earlier sitting made is not made again: its size was fixed beforehand, and looking until the answer
        pleases would spoil what its verdict promises."""
        context = PassContext(measurement, self.folder, self.progress, self.cache, WEIGHTS_SEED)
        parts = [part for claim in self.plan.claims for part in claim.hypothesis]
        for metric in metrics():
            asked = [part for part in parts if part.metric in metric.names]
            here = [part for part in asked if not part.elsewhere(self.plan.device)]
            if metric.names[0] in self.passes:
                continue
            everything = bool(metric.option) and getattr(self.options, metric.option)
            if not metric.title or not (here or everything):
                continue
            self.progress.phase(f"{metric.title}: {metric.does}")
            with kept_apart(metric.title, self.folder.path, self.progress):
                metric.run(here, replace(context, everything=everything))
                self.passes.append(metric.names[0])
                self._write_manifest("running")

    def _checkpoints(self) -> tuple[dict[str, Path], dict[str, int], dict[str, str]]:
        """Folder and parameters of each geometry there is room for, written where they are not there; else why not."""

        def step(tensor: str, done: float) -> None:
            self.progress.step(f"checkpoint: {tensor}", done, math.nan)

        models = [one for one in self.plan.experiments if one.workload.has_model]
        folders, parameters, real = dict[str, Path](), dict[str, int](), real_geometry(self.options) if models else None
        without_room = {
            one.workload.name: reason
            for one in (models if self.plan.device == "cpu" else ())
            if (reason := no_room(one, real or geometries.get(one.workload.geometry), None if real else self.cache))
        }
        for name in dict.fromkeys(one.workload.geometry for one in models if one.workload.name not in without_room):
            geometry = real or geometries.get(name)
            self.configs[name] = geometry.config
            parameters[name] = parameter_count(geometry.config)
            if real is None or self.options.checkpoint is None:
                folders[name] = synthesize(geometry, seed=WEIGHTS_SEED, cache=self.cache, progress=step)
            else:
                folders[name] = self.options.checkpoint.resolve()
                self.progress.note(f"checkpoint {name}: {real.description}")
                self.checkpoint_facts[name] = {"facts": real.description}
        return folders, parameters, without_room

    def _keep(self, finished: Round, answers: FirstAnswers | None = None) -> None:
        """Store a finished round; a snapshot in Parquet now and then, so that other tools can look at a live run."""
        self.folder.append_round(finished)
        if answers is not None:
            answers.look()
        self.interrupts.raise_lost()
        if time.monotonic() - self.last_snapshot > SNAPSHOT_SECONDS:
            self.folder.snapshot()
            self._write_manifest("running")
            self.last_snapshot = time.monotonic()

    def _manifest(self, status: str) -> Manifest:
        measurement = self.measurement
        checkpoints = measurement.processes.checkpoints if measurement else {}
        excluded = measurement.participants.excluded if measurement else {}
        before = self.earlier.manifest if self.earlier else Manifest()
        started = self.started.isoformat(timespec="seconds")
        device = {"device": measurement.processes.device_facts} if measurement else {}
        own = self.checkpoint_facts
        return Manifest(
            format=FORMAT, unit=UNIT, alpha=ALPHA, status=status, seed=self.options.seed,
            id=self.folder.path.name,
            started=before.started or started,
            finished=None if status == "running" else datetime.now(UTC).isoformat(timespec="seconds"),
            mode="gates" if self.options.gates_only else self.plan.mode,
            command=before.command or called_as(),
            options=kept(self.options),
            budget_seconds=(before.budget_seconds or 0.0) + self.options.budget_seconds,
            sittings=[
                *before.sittings,
                Sitting(started=started, budget_seconds=self.options.budget_seconds, others=self.others),
            ],
            sources=self.sources,
            passes=self.passes,
            ad_hoc=list(self.plan.ad_hoc),
            fail_if=list(self.plan.conditions),
            dispute=self.plan.dispute,
            environment=Environment.model_validate(self.environment | device),
            environments=self.plan.functions.environment_facts,
            checkpoints={
                name: Checkpoint.model_validate(read | own.get(name, {})) for name, read in checkpoints.items()
            },
            experiments=self._experiments(),
            excluded=[Excluded(variant=name, reason=reason) for name, reason in excluded.items()],
        )  # fmt: skip

    def _experiments(self) -> list[ExperimentRecord]:
        return [state.record() for state in self.measurement.participants.states] if self.measurement else []

    def _write_manifest(self, status: str) -> None:
        if self.is_open:
            self.folder.write_json(MANIFEST, self._manifest(status))

    def _finish(self, status: str) -> Result:
        if not self.is_open:
            return self._untouched()
        manifest = self._manifest(status)
        self.folder.write_json(MANIFEST, manifest)
        has_samples, verdicts = bool(self.folder.finished_rounds()), tuple[Verdict, ...]()
        judged = not self.options.gates_only and (has_samples or status == "complete")
        if judged:
            if has_samples:
                self.folder.finish()
                manifest = manifest.with_rounds(self.folder.finished_rounds())
            verdicts, manifest = judge_run(manifest, self.plan.claims, self.folder)
            self.folder.write_json(VERDICTS, verdicts)
        self.folder.seal(manifest)
        if judged and has_samples:
            write_standings(self.folder)
        return Result(self.folder, manifest, verdicts)


USER_ERRORS: tuple[type[Exception], ...] = (
    CacheError, ClaimError, DataError, MeasureError, PlanError, RunError, UnknownVariant, OutsideVariantError,
)  # fmt: skip
"""Errors whose text is for the user: no traceback needed."""


def check(request: Request, options: Options) -> None:
    """Raises PlanError for an impossible option; the text names it, its value and what is expected."""
    cores = usable_cores()
    wrong = ""
    if not options.budget_seconds > 0:
        wrong = f"--budget {options.budget_seconds:g}: expected a number of seconds above 0"
    elif request.threads is not None and not 1 <= request.threads <= cores:
        wrong = f"--threads {request.threads}: expected 1 to {cores}, the cores of this machine"
    elif request.device not in DEVICES:
        wrong = f"--device {request.device}: expected {' or '.join(DEVICES)}"
    elif options.count_instructions and request.device != "cpu":
        wrong = f"--count-instructions: only on the CPU; leave it out, or leave out --device {request.device}"
    elif request.own_environment and (options.profile or options.count_instructions):
        asked = "--count-instructions" if options.count_instructions else "--profile"
        wrong = f"{asked}: only where both run in one environment; leave out {request.own_environment}"
    elif options.seed < 0:
        wrong = f"--seed {options.seed}: expected 0 or more"
    elif request.device != "cpu":
        from ..worker.devices import problem  # imports torch, which nothing else needs yet

        if why := problem(request.device):
            wrong = f"--device {request.device}: {why}, or measure with --device cpu"
    if wrong:
        raise PlanError(wrong)


AS_IT_WAS = Request()


def go_on(
    folder: RunFolder, options: Options, again: Request = AS_IT_WAS, *, budget: float | None
) -> tuple[Unfinished, Options]:
    """An earlier run to go on with, and the options with what it keeps. again: code that runs keep no paths of. budget:
    seconds of rounds; None: as many as its last sitting had. Raises as `Unfinished.read` and `check`."""
    with contextlib.suppress(RunError):  # of a damaged run.json the reader below says what is wrong
        if folder.manifest().mode == FLEET:
            raise PlanError(f"{folder.path} is a run of several machines: add the cluster to continue on, --on ray")
    checkpoint, claims = real_geometry(options), options.claims_folder
    earlier = Unfinished.read(folder, again=again, checkpoint=checkpoint, claims_folder=claims)
    seconds = earlier.manifest.sittings[-1].budget_seconds if budget is None else budget
    options = going_on(options, earlier.options).for_rounds(seconds)
    check(Request(device=earlier.plan.device), options)
    return earlier, options


# -- whether there is room for a large model, in memory and on the disk, and for what a run caches ---------------------

LARGE_PARAMETERS = 1_000_000_000
"""Models with fewer are never left out."""

PROCESS_BYTES, PROCESSES = 1 << 29, 4
"""What each process of a run holds beside models, and how many there are: the one that measures, the next one, the
examiner and this one."""


def no_room(experiment: Experiment, geometry: Geometry, cache: Path | None) -> str:
    """Why a model cannot be measured here, with what it needs and what is free; empty where it can.

    The weights lie in memory once: all processes map one file. Beside them lies what the variants of a round hold, and
    one matrix in float32, for the examiner widens one after the other. `cache`: where the checkpoint is written if it
    is not there yet; None for one of the user's.
    """
    parameters = parameter_count(geometry.config)
    if parameters < LARGE_PARAMETERS:
        return ""
    work, config = experiment.workload, geometry.config
    item_bytes, length = TYPES[work.dtype][1], longest_call(work)
    sizes = {
        "item_bytes": item_bytes,
        "max_length": work.context + length,
        "batch": work.batch,
        "context": work.context,
    }
    weights = parameters * item_bytes
    needed = weights + PROCESSES * PROCESS_BYTES + 4 * max(map(math.prod, stored_shapes(config).values()))
    for name in experiment.entered():  # all of them are there at once, in a round
        variant = presets().get(EnteredName(name).original)
        policy = variant.memory if variant else None
        needed += sum(expected(policy, config, [length], **sizes)["held"].values()) if policy else weights
    free = available_bytes()
    if needed > free:
        return f"no room: {_gib(needed)} of memory are needed ({_gib(weights)} of weights), {_gib(free)} are free"
    if cache is None:
        return ""
    files = synthetic_files(geometry, seed=WEIGHTS_SEED, dtype=geometry.dtype, cache=cache)
    free = shutil.disk_usage(next(path for path in (cache, *cache.resolve().parents) if path.exists())).free
    if files.size_bytes > free and not files.are_there():
        return f"no room: {_gib(files.size_bytes)} of {cache} are needed for the checkpoint, {_gib(free)} are free"
    return ""


def cache_note(plan: Plan, cache: Path) -> str:
    """What to know of a cache that cannot be written; empty of one that can. `CacheError` where something that is asked
    for needs it; missing checkpoints need it too, and writing them says so."""
    if not (why := unwritable(cache)):
        return ""
    asked = {part.metric for part in plan.hypotheses() if metric_of(part.metric).needs_cache}
    if needs := " and ".join(f'metric = "{name}"' for name in sorted(asked)):
        raise CacheError(f"{cache}: cannot be written ({why}), and claims with {needs} need it; {FIX}")
    return f"cache: {cache} cannot be written ({why}): nothing is kept there, each process does the work again; {FIX}"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f} GiB"
