"""One run from request to verdicts: plan, measure, store, judge. Faces (pytest, command line) call this."""

from __future__ import annotations

import contextlib
import difflib
import math
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

import llama_workbench
from llama_workbench import variants
from llama_workbench.datasets import geometries
from llama_workbench.datasets.cache import FIX, CacheError, cache_directory, unwritable
from llama_workbench.datasets.geometries import Geometry
from llama_workbench.datasets.shape import DataError
from llama_workbench.datasets.tokenizer import TokenizerError

from .claims import claims as claim_data
from .evidence import judge
from .evidence.judge import Verdict
from .judge import verdicts
from .machine.environment import fingerprint, usable_cores
from .machine.interrupts import Interrupts
from .machine.locks import Lock
from .measure.confirmation import confirm
from .measure.measurement import MeasureError, Measurement, Need, Progress
from .measure.processes import ALLOCATOR, WorkerFailed
from .measure.profiles import run_phases, run_roofline
from .metrics import attribution
from .metrics import count as counts
from .metrics.check.checks import CHECKS
from .metrics.findings import find_out
from .metrics.loading.loading import measure_loading
from .metrics.memory import memory
from .metrics.memory.memory import memory_findings, run_memory
from .plan.selection import Plan, PlanError, Request, make_plan
from .report.standings import write_standings
from .spec.comparison import Comparison, Metric
from .spec.experiments import Experiment, without
from .spec.regions import Region
from .stats.confidence import first_interval, first_look, running_interval
from .store.folder import FINDINGS, LOADING, MANIFEST, NO_SAMPLES, PHASE_FACTS, RunError, RunFolder
from .store.forms import Fault

PRECISION = 0.03
"""A settled effect goes on until its interval is at most this far (log units) to either side: a verdict alone, "not
2-3x", would otherwise come with an interval too wide to be worth reading ..."""

ENOUGH_ROUNDS = 24
"""... or until it had this many rounds."""

CONTROL_PRECISION = 0.02
"""Identical copy and yardstick ride along until they are known this well; the A/A control always does."""

LOADING_SECONDS = 60.0
"""Of loading each checkpoint over and over, where a claim asks for it; a large one takes longer (`plan_rounds`)."""

SNAPSHOT_SECONDS = 15.0
DEFAULT_BUDGET_SECONDS = 480.0
WHOLE_BUDGET_SECONDS = 1530.0
"""Of gates and rounds; passes come on top. `make bench` then ends within 10 minutes, `make bench-all` within 45."""


@dataclass(frozen=True)
class Options:
    """How a run is made, beside what it measures."""

    budget_seconds: float = DEFAULT_BUDGET_SECONDS
    seed: int = 0
    run_dir: Path | None = None
    checkpoint: Path | None = None
    profile: bool = False
    profile_native: bool = False  # with frames of native code
    claims_folder: Path = field(default_factory=lambda: llama_workbench.ROOT / "claims")
    gates_only: bool = False
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """What a run came to. `interrupted`: by Ctrl-C or SIGTERM; what was measured until then is kept, and judged
    unless there was a second signal."""

    folder: RunFolder
    manifest: Mapping[str, Any]
    verdicts: tuple[Verdict, ...]
    interrupted: bool


def plan_run(request: Request, options: Options) -> Plan:
    """What would be measured; raises before anything is written (see `make_plan`, `load_claims`)."""
    plan = make_plan(request, claim_data.load_claims(options.claims_folder), checkpoint=_real_geometry(options))
    for claim in plan.claims:
        for reading in claim.readings():
            _check_quantity(claim.id, reading)
    return plan


def _check_quantity(claim: str, reading: claim_data.Reading) -> None:
    """What a pass is asked for must be something that it finds out; else the claim would only be open in the end."""
    known = {"memory": memory.QUANTITIES, "count": counts.QUANTITIES, "check": CHECKS}.get(reading.metric)
    if known is not None and reading.quantity not in known:
        near = difflib.get_close_matches(reading.quantity or "", known, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(known)}"
        raise PlanError(f'claim {claim}: quantity = "{reading.quantity}" is no {reading.metric}: {hint}')


def _real_geometry(options: Options) -> Geometry | None:
    """The shape of `--checkpoint`, once its tensors are known to be all there, well-shaped and finite.

    Its description is what was taken from the files, in one line.
    """
    if options.checkpoint is None:
        return None
    from llama_workbench.datasets.checkpoints import described, facts

    found = facts(options.checkpoint)
    return Geometry(_safe_name(options.checkpoint), found.config, described(found), "given by --checkpoint")


def _safe_name(folder: Path) -> str:
    """A folder's name as part of a workload's name."""
    name = "".join(letter if letter.isalnum() else "-" for letter in folder.resolve().name.lower()).strip("-")
    return name or "checkpoint"


Key = tuple[str, str, str, Metric]
"""Workload, baseline, variant, metric."""


def _control_pair(name: str, baseline: str) -> tuple[str, str, Metric]:
    """What a control is measured against: `NAME@aa` with NAME, the yardstick with the experiment's baseline."""
    original, _, control = name.partition("@")
    return (original, name, "time") if control else (name, baseline, "time")


def _call_ns(times: NDArray[Any], clock: int, metric: Metric) -> NDArray[np.float64]:
    """Time of a call, or what is proportional to it, from rows of (repeats, cpu, wall, device, first of each)."""
    whole: NDArray[np.float64] = times[:, clock] / times[:, 0]
    first = times[:, clock + 3].astype(np.float64)
    if metric == "time_to_first_token":
        return first
    return whole if metric == "time" else np.where(first > 0, whole - first, 0.0)


class SequentialReferee:
    """Settles effects by the confidence sequence that will judge them, after every round."""

    def __init__(self, plan: Plan, wall: Mapping[str, frozenset[str]]) -> None:
        here = [part for claim in plan.claims if (part := claim.on(plan.device))]
        self.alpha = judge.effect_alpha(plan.comparisons(), others=verdicts.own_intervals(here))
        self.device = plan.device
        self.wall = wall
        self.series: dict[Key, list[float]] = {}
        self.pairs: dict[str, list[tuple[str, str, Metric]]] = {}
        self.threads = {e.workload.name: e.workload.threads for e in plan.experiments}
        self.cells = frozenset(attribution.needed_variants())
        self.grids: dict[str, list[Any]] = {e.workload.name: [] for e in plan.experiments if e.grid}
        for experiment in plan.experiments:
            pairs = [(t.comparison.baseline, t.comparison.variant, t.comparison.metric) for t in experiment.targets]
            pairs += [_control_pair(name, experiment.baseline) for name in experiment.controls]
            self.pairs[experiment.workload.name] = list(dict.fromkeys(pairs))

    def add(self, record: Mapping[str, Any]) -> None:
        workload = record["workload"]
        times: dict[str, dict[int, tuple[int, ...]]] = {}
        for name, sub_round, _, _, repeats, cpu_ns, wall_ns, _, *more in record["samples"]:
            first_cpu_ns, first_wall_ns, device_ns, first_device_ns = (*more, 0, 0, 0, 0)[:4]
            first = (first_cpu_ns, first_wall_ns, first_device_ns)
            times.setdefault(name, {})[sub_round] = (repeats, cpu_ns, wall_ns, device_ns, *first)
        if workload in self.grids:
            logs = attribution.round_logs(record["samples"], clock=self._clock(workload, self.cells))
            if logs is not None:
                self.grids[workload].append(logs)
        for baseline, variant, metric in self.pairs[workload]:
            common = sorted(times.get(baseline, {}).keys() & times.get(variant, {}).keys())
            if not common:
                continue
            clock = 1 + get_args(judge.Clock).index(self._clock(workload, {baseline, variant}))
            ours = _call_ns(np.array([times[baseline][k] for k in common]), clock, metric)
            theirs = _call_ns(np.array([times[variant][k] for k in common]), clock, metric)
            if (ours <= 0).any() or (theirs <= 0).any():
                continue
            value = judge.round_value(ours, np.ones(len(common)), theirs, np.ones(len(common)))
            self.series.setdefault((workload, baseline, variant, metric), []).append(value)

    def ratios(self) -> dict[Comparison, float]:
        """t_baseline / t_variant of every comparison that has rounds: the median over them."""
        return {
            Comparison(workload, variant, baseline, metric): math.exp(float(np.median(values)))
            for (workload, baseline, variant, metric), values in self.series.items()
        }

    def _clock(self, workload: str, variants: Set[str]) -> judge.Clock:
        """As `judge.Evidence.clock` will have it."""
        if self.device != "cpu":
            return "device"
        by_wall = self.wall.get(workload, frozenset())
        return "wall" if self.threads[workload] > 1 or by_wall & variants else "cpu"

    def need(self, experiment: Experiment) -> Need:
        workload = experiment.workload.name
        pairs: list[tuple[str, str, Metric]] = []
        rounds: list[float] = []
        for target in experiment.targets:
            asked = target.comparison
            key = (workload, asked.baseline, asked.variant, asked.metric)
            if not self._settled(key, target.region):
                pairs.append(key[1:])
                rounds.append(self._rounds_left(key, target.region))
        open_ = self._open_in_grid(experiment)
        rounds += [self._rounds_left_of(effect.values, effect.region) for effect in open_]
        if not rounds:
            return Need((), False, 0.0, 0.0)
        counts = [len(self.series.get((workload, *pair), [])) for pair in pairs]
        missing = first_interval(self.alpha) - min([*counts, *(len(effect.values) for effect in open_)])
        for name in experiment.controls:
            pair = _control_pair(name, experiment.baseline)
            if name.endswith("@aa") or not self._known((workload, *pair)):
                pairs.append(pair)
        wanted = {name for pair in pairs for name in pair[:2]} | ({*experiment.grid} if open_ else set())
        entered = tuple(name for name in experiment.entered() if name in wanted)
        # Before there is an interval its spread says nothing on what it will settle, and may not keep it waiting.
        settles = float(missing) if missing > 0 else min(rounds)
        return Need(entered, missing > 0, settles, max(rounds), len(rounds))

    def _open_in_grid(self, experiment: Experiment) -> tuple[attribution.OpenEffect, ...]:
        """The effects of the workload's grid, if it has one, that the rounds so far do not settle."""
        if not experiment.grid:
            return ()
        logs = self.grids[experiment.workload.name]
        return attribution.open_effects(
            logs, alpha=self.alpha, wanted=(attribution.ARCHITECTURE, attribution.OPERATIONS)
        )

    def _rounds_left(self, key: Key, region: Region) -> float:
        """Rounds until the effect is clear of the region's boundary and known well enough; a guess at first."""
        return self._rounds_left_of(self.series.get(key, []), region)

    def _rounds_left_of(self, values: Sequence[float] | NDArray[np.float64], region: Region) -> float:
        first_by_t = first_look(self.alpha / 2)
        least = float(max(first_by_t - len(values), 1))
        if len(values) < 2:
            return least
        interval = running_interval(values, self.alpha)
        if interval.unstable:
            return math.inf  # no later look makes that undone: others first
        half = (interval.high - interval.low) / 2
        if judge.decided(interval, region):
            until_known = len(values) * ((half / PRECISION) ** 2 - 1)
            return max(min(until_known, float(ENOUGH_ROUNDS - len(values))), 1.0)
        # From the interval itself, not from the spread: on a busy machine outliers make the spread say "hopeless" of
        # what the signs will settle in a moment.
        centre = float(np.median(values))
        distance = min((abs(centre - boundary) for boundary in region.boundaries), default=0.0)
        left = len(values) * ((half / distance) ** 2 - 1) if distance > 0 else math.inf
        if len(values) < first_by_t:  # when there is no interval yet, or only the range of all rounds
            # Seconds in proportion to rounds: asked with one second a round, it answers in rounds.
            left = min(left, judge.remaining_seconds(values, float(len(values)), region, alpha=self.alpha))
        return max(left, least)

    def _settled(self, key: Key, region: Region) -> bool:
        values = self.series.get(key, [])
        if len(values) < 2:
            return False
        interval = running_interval(values, self.alpha)
        if not judge.decided(interval, region):
            return False
        return (interval.high - interval.low) / 2 <= PRECISION or len(values) >= ENOUGH_ROUNDS

    def _known(self, key: Key) -> bool:
        values = self.series.get(key, [])
        if len(values) < 2:
            return False
        interval = running_interval(values, judge.ALPHA)
        return (interval.high - interval.low) / 2 <= CONTROL_PRECISION or len(values) >= ENOUGH_ROUNDS


class Run:
    """One run in stages, so that a face can show each: `prepare`, `measure`, `finish`."""

    def __init__(self, plan: Plan, options: Options, progress: Progress) -> None:
        self.plan = plan
        self.options = options
        self.progress = progress
        self.cache = cache_directory()
        self.started = datetime.now(UTC)
        self.interrupted = False
        self.lock = Lock()
        self.folder = RunFolder.create(options.run_dir, lock=self.lock)
        threads = max((e.workload.threads for e in plan.experiments), default=1)
        self.environment = fingerprint(threads, allocator=ALLOCATOR, device=plan.device)
        self.measurement: Measurement | None = None
        self.checkpoint_facts: dict[str, dict[str, str]] = {}

    def measure(self) -> Result:
        """Everything: checkpoints, gates, rounds, passes, verdicts. Ctrl-C (or SIGTERM) ends it, and what there is by
        then is kept and judged; a second one, or one while it is judged, leaves the judging to others."""
        with contextlib.closing(self.lock), Interrupts() as interrupts:
            try:
                status = self._measured(interrupts)
                return self._unjudged() if interrupts.again else self._finish(status)
            except KeyboardInterrupt:
                return self._unjudged()

    def _measured(self, interrupts: Interrupts) -> str:
        """The status that measuring ended with."""
        begun = time.monotonic()
        try:
            self._measure(begun)
        except KeyboardInterrupt:
            self.interrupted = True
            self.progress.note(f"interrupted ({interrupts.name or 'Ctrl-C'}): what was measured is kept")
            return "interrupted"
        except BaseException:
            with contextlib.suppress(RunError):  # a full disk is what the user must hear of, not this
                self._write_manifest("failed")
            raise
        return "complete"

    def _unjudged(self) -> Result:
        """What there is to say in a hurry: all samples lie in the folder, and can be judged at any time."""
        self.interrupted = True
        manifest = counted(self._manifest("interrupted"), self.folder)
        self.folder.write_json("run.json", manifest)
        self.progress.note(f"not judged; that can be done later: workbench judge {self.folder.path}")
        return Result(self.folder, manifest, (), self.interrupted)

    def _measure(self, begun: float) -> None:
        self.folder.write_json("claims.json", [claim.model_dump(mode="json") for claim in self.plan.claims])
        self._write_manifest("running")
        self.progress.phase("checkpoints")
        self._check_cache()
        folders, parameters = self._checkpoints()
        logs = self.folder.path / "log"
        logs.mkdir(exist_ok=True)
        self.measurement = measurement = Measurement(
            self.plan.experiments,
            added=self.plan.added,
            device=self.plan.device,
            folders=folders,
            parameters=parameters,
            cache=self.cache,
            logs=logs,
            seed=self.options.seed,
            progress=self.progress,
        )
        # Rounds are journalled one by one, and are judged by what the manifest says of gates and of what fell out:
        # that must be on disk before the next of them is, for the run may be killed at any time.
        measurement.changed = lambda: self._write_manifest("running")
        with measurement.processes():
            self.progress.phase("gates: logits and op traces")
            measurement.pass_gates()
            self._write_manifest("running")
            if self.options.gates_only:
                return
            self.progress.phase("rounds")
            wall = {book.experiment.workload.name: frozenset(book.wall_variants) for book in measurement.books}
            referee = SequentialReferee(self.plan, wall)
            seconds = self.options.budget_seconds - (time.monotonic() - begun)
            measurement.run(referee, self._keep(), seconds=max(seconds, 1.0))
            confirm(measurement, referee.ratios())
            self._find_out(measurement)
            if self.options.profile or self.options.profile_native:
                from .measure.profiles import run_passes

                self.progress.phase("profiles and memory")
                run_passes(measurement, self.folder, self.progress, native=self.options.profile_native)

    def _find_out(self, measurement: Measurement) -> None:
        """The passes that claims ask for, after the rounds: what they find feeds verdicts. One that fails says so, and
        its claims stay open; the others go on."""
        readings = self.plan.readings
        found: list[judge.Finding] = []
        if unmeasured := self.unmeasured_phases():
            self.folder.write_json(PHASE_FACTS, unmeasured)

        def phases() -> None:
            run_phases(measurement, self.folder, self.progress, self.plan.subjects("share"))

        def loading() -> None:
            self._load(measurement, [reading for reading in readings if reading.metric == "loading"])

        def held_memory() -> None:
            held = run_memory(measurement, self.folder, self.progress, self.plan.subjects("memory"))
            found.extend(memory_findings(held))

        def roofline() -> None:
            run_roofline(measurement, self.folder, self.progress, self.plan.subjects("roofline"))

        def checks() -> None:
            log = self.folder.path / "log" / "checks.log"
            seed = self.options.seed
            found.extend(find_out(readings, cache=self.cache, seed=seed, log=log, progress=self.progress))

        for metrics, name, look in (
            ({"share"}, "phases: where the time of a forward goes", phases),
            ({"loading"}, "loading: how long weights take from their files", loading),
            ({"memory"}, "memory: what each policy holds", held_memory),
            ({"roofline"}, "roofline: what a variant reaches of what this machine can do", roofline),
            ({"check", "count"}, "checks and counts", checks),
        ):
            if not any(reading.metric in metrics for reading in readings):
                continue
            self.progress.phase(name)
            try:
                look()
            except (WorkerFailed, MeasureError) as error:
                self.progress.note(f"{name.partition(':')[0]}: nothing found, {error}")
            if found:
                self.folder.write_json(FINDINGS, [finding.to_json() for finding in found])

    def unmeasured_phases(self) -> list[dict[str, Any]]:
        """An entry of phases.json for each (workload, variant) whose phases this device does not give."""
        wanted = {
            (workload, reading.variant): reason
            for claim in self.plan.claims
            for reading in claim.readings()
            if reading.metric == "share" and (reason := claim_data.elsewhere(reading, self.plan.device))
            for workload in reading.workloads
        }
        return [
            {"workload": workload, "variant": variant, "rounds": 0, "reason": reason}
            for (workload, variant), reason in wanted.items()
        ]

    def _load(self, measurement: Measurement, readings: Sequence[claim_data.Reading]) -> None:
        """Load the checkpoints of the workloads that claims about loading name."""
        wanted = {workload for reading in readings for workload in reading.workloads}
        folders = {
            book.experiment.workload.geometry: book.folder
            for book in measurement.books
            if book.experiment.workload.name in wanted and book.folder is not None
        }
        records: list[dict[str, Any]] = []
        for folder in folders.values():
            log = self.folder.path / "log" / "loading.log"
            records += measure_loading(
                folder,
                cache=self.cache,
                log=log,
                seed=self.options.seed,
                seconds=LOADING_SECONDS,
                progress=self.progress,
                asked={(reading.quantity or "", reading.of or "") for reading in readings},
            )
            self.folder.write_json(LOADING, records)

    def _check_cache(self) -> None:
        """Say once what a cache that takes nothing means; `CacheError` where something that is asked for needs it.

        Checkpoints that are not there yet need it too, and writing them says so.
        """
        if not (why := unwritable(self.cache)):
            return
        if needs := sorted({reading.metric for reading in self.plan.readings} & {"check", "loading"}):
            asked = " and ".join(f'metric = "{metric}"' for metric in needs)
            raise CacheError(f"{self.cache}: cannot be written ({why}), and claims with {asked} need it; {FIX}")
        self.progress.note(
            f"cache: {self.cache} cannot be written ({why}): nothing is kept there, and each process does the work "
            f"again; {FIX}"
        )

    def _checkpoints(self) -> tuple[dict[str, Path], dict[str, int]]:
        """Folder and parameter count of every geometry that the plan needs; synthesized where they are not there."""
        from llama_workbench.datasets.checkpoints import synthesize

        folders: dict[str, Path] = {}
        parameters: dict[str, int] = {}
        for experiment in self.plan.experiments:
            workload = experiment.workload
            if workload.kind == "component" or workload.geometry in folders:
                continue
            if self.options.checkpoint is not None:
                real = _real_geometry(self.options)
                assert real is not None
                folders[workload.geometry] = self.options.checkpoint.resolve()
                parameters[workload.geometry] = geometries.parameter_count(real.config)
                self.progress.note(f"checkpoint {real.name}: {real.description}")
                self.checkpoint_facts[workload.geometry] = {"facts": real.description}
                continue
            geometry = geometries.get(workload.geometry)
            folders[workload.geometry] = synthesize(
                geometry,
                seed=self.options.seed,
                cache=self.cache,
                progress=lambda text, done: self.progress.step(f"checkpoint: {text}", done, math.nan),
            )
            parameters[workload.geometry] = geometries.parameter_count(geometry.config)
        return folders, parameters

    def _keep(self):  # type: ignore[no-untyped-def]
        """Stores a finished round; a snapshot in Parquet now and then, so that other tools can look at a live run."""
        last = time.monotonic()

        def keep(record: Mapping[str, Any]) -> None:
            nonlocal last
            self.folder.append_round(record)  # type: ignore[arg-type]
            if time.monotonic() - last > SNAPSHOT_SECONDS:
                self.folder.snapshot()
                self._write_manifest("running")
                last = time.monotonic()

        return keep

    # -- writing -------------------------------------------------------------------------------------------------

    def _manifest(self, status: str) -> dict[str, Any]:
        measurement = self.measurement
        return {
            "format": 1,
            "id": self.folder.path.name,
            "started": self.started.isoformat(timespec="seconds"),
            "finished": None if status == "running" else datetime.now(UTC).isoformat(timespec="seconds"),
            "status": status,
            "mode": "gates" if self.options.gates_only else self.plan.mode,
            "command": list(self.options.command) or _command(),
            "seed": self.options.seed,
            "budget_seconds": self.options.budget_seconds,
            "alpha": judge.ALPHA,
            "ad_hoc": [list(pair) for pair in self.plan.ad_hoc],
            "environment": self.environment | ({"device": measurement.device} if measurement else {}),
            "checkpoints": {
                name: {**found, **self.checkpoint_facts.get(name, {})}
                for name, found in (measurement.checkpoints if measurement else {}).items()
            },
            "experiments": [book.to_json() for book in measurement.books] if measurement else [],
            "excluded": [
                {"variant": name, "reason": reason}
                for name, reason in (measurement.excluded if measurement else {}).items()
            ],
        }

    def _write_manifest(self, status: str) -> None:
        self.folder.write_json("run.json", self._manifest(status))

    def _finish(self, status: str) -> Result:
        manifest = self._manifest(status)
        self.folder.write_json("run.json", manifest)
        has_samples = bool(self.folder.finished_rounds())
        verdicts: tuple[Verdict, ...] = ()
        judged = not self.options.gates_only and (has_samples or status == "complete")
        if judged:
            if has_samples:
                self.folder.finish()
                manifest = counted(manifest, self.folder)
            verdicts, noise = judge_run(manifest, self.plan.claims, self.folder)
            manifest["noise"] = noise
            self.folder.write_json("verdicts.json", [verdict.to_json() for verdict in verdicts])
        self.folder.seal(manifest)
        if judged and has_samples:
            write_standings(self.folder)
        return Result(self.folder, manifest, verdicts, self.interrupted)


def judge_run(
    manifest: Mapping[str, Any], claims: Sequence[claim_data.Claim], folder: RunFolder
) -> tuple[tuple[Verdict, ...], dict[str, Any]]:
    """Verdicts and noise of a stored run, from its samples and from what its passes found.

    Raises RunError where one of its files cannot be read, or the samples are gone that its manifest speaks of.
    """
    experiments = manifest.get("experiments", ())
    timed = bool(folder.finished_rounds()) or any(experiment.get("rounds") for experiment in experiments)
    phases = folder.read_phases()
    try:
        evidence = judge.evidence_from_manifest(
            manifest,
            folder.read_samples() if timed else NO_SAMPLES,
            phases=None if phases.empty else phases,
            loading=folder.read_loading(),
            roofline=folder.read_roofline(),
            findings=[judge.Finding.from_json(record) for record in folder.read_findings()],
        )
    except Fault as fault:
        raise RunError(folder.path / MANIFEST, str(fault), "Restore the file from a copy, or measure again.") from fault
    found = verdicts.judge_claims(claims, evidence) if claims else []
    for baseline, variant in manifest.get("ad_hoc", []):
        found.append(verdicts.judge_ad_hoc(evidence, baseline=baseline, variant=variant))
    return tuple(found), evidence.noise.to_json()


def counted(manifest: Mapping[str, Any], folder: RunFolder) -> dict[str, Any]:
    """The manifest with the rounds that lie in the folder: of a killed run it counts those of some time before."""
    rounds = folder.finished_rounds()
    experiments = [
        experiment | {"rounds": rounds.get(experiment["workload"]["name"], 0)}
        for experiment in manifest.get("experiments", ())
    ]
    return {**manifest, "experiments": experiments}


def _command() -> list[str]:
    """How this process was called; of a path on this machine only the last part."""
    program = "pytest" if "pytest" in sys.argv[0] else os.path.basename(sys.argv[0])
    return [program, *(re.sub(r"(?:[^\s=,:]*/)+([^/\s=,:]+)", r"\1", word) for word in sys.argv[1:])]


# --- what faces need around a run ----------------------------------------------------------------------------------

USER_ERRORS: tuple[type[Exception], ...] = (
    claim_data.ClaimError,
    DataError,
    PlanError,
    variants.UnknownVariant,
    variants.outside.OutsideVariantError,
    MeasureError,
    RunError,
    TokenizerError,
    CacheError,
)
"""Errors whose text is for the user: no traceback needed."""


def check(request: Request, options: Options) -> None:
    """Refuse impossible options.

    Raises:
        PlanError: the text names the option, its value and what is expected.
    """
    if not options.budget_seconds > 0:
        raise PlanError(f"--budget {options.budget_seconds:g}: expected a number of seconds above 0")
    cores = usable_cores()
    if request.threads is not None and not 1 <= request.threads <= cores:
        raise PlanError(f"--threads {request.threads}: expected 1 to {cores}, the cores of this machine")
    if request.device not in claim_data.DEVICES:
        raise PlanError(f"--device {request.device}: expected {' or '.join(claim_data.DEVICES)}")
    if request.device != "cpu":
        from .worker.devices import problem  # imports torch, which nothing else needs yet

        if said := problem(request.device):
            raise PlanError(f"--device {request.device}: {said}, or measure with --device cpu")
    if options.seed < 0:
        raise PlanError(f"--seed {options.seed}: expected 0 or more")


def restricted(plan: Plan, selected: set[tuple[str, str]]) -> Plan:
    """The plan for only these (workload, variant) pairs: effects that miss a side fall away, claims stay."""
    experiments = []
    for experiment in plan.experiments:
        gone = [name for name in experiment.variants if (experiment.workload.name, name) not in selected]
        left = without(experiment, gone)
        if left.targets or (left.variants and not experiment.targets):
            experiments.append(left)
    return replace(plan, experiments=tuple(experiments))


@dataclass(frozen=True)
class Replay:
    """One variant's samples on one workload for pytest-benchmark: seconds a call, or why there are none."""

    seconds: tuple[float, ...]
    facts: dict[str, Any]
    skipped: str


def replay(result: Result) -> dict[tuple[str, str], Replay]:
    """Samples of every variant that entered the run (controls included), on the clock that counts for it."""
    replays: dict[tuple[str, str], Replay] = {}
    samples = result.folder.read_samples() if result.folder.finished_rounds() else None
    profiles = {(entry["workload"], entry["variant"]): entry["path"] for entry in result.folder.read_profiles()}
    run_wide = {item["variant"]: item["reason"] for item in result.manifest["excluded"]}
    for experiment in result.manifest["experiments"]:
        workload = experiment["workload"]["name"]
        excluded = run_wide | {item["variant"]: item["reason"] for item in experiment["excluded"]}
        clock = experiment["clock"]
        for variant in experiment["variants"]:
            seconds: tuple[float, ...] = ()
            by = "wall" if variant in clock["wall_variants"] and clock["default"] == "cpu" else clock["default"]
            if samples is not None and variant not in excluded:
                mine = samples[(samples["workload"] == workload) & (samples["variant"] == variant)]
                column = mine[f"{by}_ns"] / mine["repeats"]
                seconds = tuple(float(value) / 1e9 for value in column if value > 0)
            facts = {
                "workload": workload,
                "variant": variant,
                "clock": {"cpu": "thread CPU"}.get(by, by),
                "run": result.folder.path.name,
                "profile": profiles.get((workload, variant)),
                "gate": experiment["gates"].get(variant, {}).get("detail"),
            }
            reason = excluded.get(
                variant,
                "gates only"
                if result.manifest["mode"] == "gates"
                else "not timed: nothing compares it here, or the budget was spent",
            )
            replays[workload, variant] = Replay(seconds, facts, reason)
    return replays
