"""Where each variant of a run stands: its ratio to the frozen yardstick that was timed in the same rounds.

Times of another day mean nothing; these ratios can be compared (see `compare`) and followed over runs. They are small,
and the samples behind them are not, so the judge leaves them beside the run in `standings.json`. The file says of which
run.json and samples it was made, by digest; one that does not fit, or cannot be read, is not used, and the standings
are measured anew.

A workload without a yardstick (the components have none) has the ratio to its baseline.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..evidence.evidence import Evidence, evidence_from_manifest
from ..spec.comparison import Comparison
from ..stats.confidence import Interval, running_interval
from ..store.folder import MANIFEST, STANDINGS, RunError, RunFolder, RunWarning
from ..store.forms import Fault

YARDSTICK = "yardstick"

FORMAT = 1

Key = tuple[str, str]
"""(workload, variant)"""


@dataclass(frozen=True)
class Standing:
    """One variant on one workload. interval: of log t_against / t_variant, at the run's own alpha (not at a share of
    it for each row). faults: page faults a call, more than those of what it is compared with."""

    clock: str
    interval: Interval
    faults: float


@dataclass(frozen=True)
class Course:
    """One workload of a run: what was done, on which weights (digest; None where there are none), what its variants
    are compared with (None: nothing), and by how many log units the session's controls say that a ratio may be off."""

    workload: Mapping[str, Any]
    checkpoint: str | None
    against: str | None
    bias: float


@dataclass(frozen=True)
class Standings:
    """A run as ratios. environment: the machine, as run.json has it.

    subjects: what has a number (no yardstick, no controls, nothing that failed a gate). rows: their standings, all of
    them or those of the workloads that were asked for. dropped: what was taken on and has no number, and why. fired:
    controls that told identical code apart.
    """

    name: str
    started: str
    status: str
    environment: Mapping[str, Any]
    noise: str
    courses: Mapping[str, Course]
    subjects: tuple[Key, ...]
    rows: Mapping[Key, Standing]
    dropped: Mapping[Key, str]
    fired: tuple[str, ...]

    def of(self, workload: str) -> Standings:
        """The same of one workload alone."""
        return replace(
            self,
            courses={name: course for name, course in self.courses.items() if name == workload},
            subjects=tuple(key for key in self.subjects if key[0] == workload),
            rows={key: row for key, row in self.rows.items() if key[0] == workload},
            dropped={key: reason for key, reason in self.dropped.items() if key[0] == workload},
        )


def measure_standings(folder: RunFolder, workloads: Collection[str] | None = None) -> Standings:
    """Take the standings from a run's samples; with `workloads`, the intervals of these alone.

    Raises RunError where the run cannot be read.
    """
    manifest = folder.read_manifest()
    samples = folder.read_samples()
    try:
        evidence = evidence_from_manifest(manifest, samples)
    except Fault as fault:
        raise RunError(folder.path / MANIFEST, str(fault), "Restore the file from a copy, or measure again.") from fault
    there = samples[["workload", "variant"]].drop_duplicates()
    present = {(str(workload), str(variant)) for workload, variant in there.itertuples(index=False)}
    courses: dict[str, Course] = {}
    for experiment in manifest.get("experiments", ()):
        name = experiment["workload"]["name"]
        geometry = (manifest.get("checkpoints") or {}).get(experiment["workload"].get("geometry")) or {}
        courses.setdefault(
            name,
            Course(
                workload=experiment["workload"],
                checkpoint=geometry.get("digest"),
                against=_against(name, experiment.get("baseline"), present),
                bias=evidence.bias(name),
            ),
        )
    entered = [(workload, name) for workload, names in evidence.measured.items() for name in names]
    subjects = tuple(
        key
        for key in dict.fromkeys(entered)
        if key in present and key not in evidence.unusable and "@" not in key[1] and key[1] != courses[key[0]].against
    )
    rows = {
        key: _standing(evidence, key, against)
        for key in subjects
        if (against := courses[key[0]].against) and (workloads is None or key[0] in workloads)
    }
    return Standings(
        name=str(manifest.get("id") or folder.path.name),
        started=str(manifest.get("started") or ""),
        status=str(manifest.get("status") or ""),
        environment=manifest.get("environment") or {},
        noise=evidence.noise.line,
        courses=courses,
        subjects=subjects,
        rows=rows,
        dropped=dict(evidence.unusable)
        | {key: "no finished round" for key in entered if key not in present and key not in evidence.unusable},
        fired=tuple(f"{control.variant} on {control.workload}" for control in evidence.noise.controls if control.fired),
    )


def write_standings(folder: RunFolder) -> None:
    """Put standings.json beside a run that has samples, made from these samples, and its checksum into run.json.

    Raises RunError.
    """
    digest = folder.digest()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)  # who judged this run just before was told
        standings = measure_standings(folder)
    folder.write_json(STANDINGS, {"format": FORMAT, "of": digest, **_to_json(standings)})
    folder.renew(STANDINGS)


def read_standings(folder: RunFolder, workloads: Collection[str] | None = None) -> Standings:
    """The standings of a run: from its standings.json where that fits the run, else from its samples.

    Raises RunError where the run cannot be read.
    """
    try:
        stored = folder.read_standings() if (folder.path / STANDINGS).exists() else {}
    except RunError as error:
        if error.path.name != STANDINGS:
            raise
        warnings.warn(f"{error}; till then the samples are read instead", RunWarning, stacklevel=2)
        stored = {}
    if stored and stored["format"] == FORMAT and stored["of"] == folder.digest():
        return _from_json(stored)
    return measure_standings(folder, workloads)


def _against(workload: str, baseline: object, present: Collection[Key]) -> str | None:
    """What the variants of a workload are compared to: the yardstick, for want of it the baseline."""
    if (workload, YARDSTICK) in present:
        return YARDSTICK
    return str(baseline) if (workload, baseline) in present else None


def _standing(evidence: Evidence, key: Key, against: str) -> Standing:
    workload, variant = key
    measured = evidence.differences(Comparison(workload, variant, against))
    return Standing(
        clock=evidence.clocks.of(workload, variant, against),
        interval=running_interval(measured.values, evidence.alpha),
        faults=measured.faults_variant - measured.faults_baseline,
    )


# -- the file ----------------------------------------------------------------------------------------------------------


def _to_json(standings: Standings) -> dict[str, Any]:
    """Plain JSON types. An end that is still open becomes null."""
    return {
        "name": standings.name,
        "started": standings.started,
        "status": standings.status,
        "environment": dict(standings.environment),
        "noise": standings.noise,
        "courses": {
            name: {
                "workload": dict(course.workload),
                "checkpoint": course.checkpoint,
                "against": course.against,
                "bias": course.bias,
            }
            for name, course in standings.courses.items()
        },
        "subjects": [list(key) for key in standings.subjects],
        "rows": [
            {
                "workload": workload,
                "variant": variant,
                "clock": row.clock,
                "log_ratio": row.interval.centre,
                "low": row.interval.low,
                "high": row.interval.high,
                "rounds": row.interval.n,
                "unstable": row.interval.unstable,
                "faults": row.faults,
            }
            for (workload, variant), row in standings.rows.items()
        ],
        "dropped": [[workload, variant, reason] for (workload, variant), reason in standings.dropped.items()],
        "fired": list(standings.fired),
    }


def _from_json(stored: Mapping[str, Any]) -> Standings:
    """What `_to_json` made, as `RunFolder.read_standings` checked it."""
    return Standings(
        name=str(stored["name"]),
        started=str(stored["started"]),
        status=str(stored["status"]),
        environment=dict(stored["environment"]),
        noise=str(stored["noise"]),
        courses={
            str(name): Course(
                workload=dict(course["workload"]),
                checkpoint=_text_or_none(course["checkpoint"]),
                against=_text_or_none(course["against"]),
                bias=float(course["bias"]),
            )
            for name, course in stored["courses"].items()
        },
        subjects=tuple((str(workload), str(variant)) for workload, variant in stored["subjects"]),
        rows={
            (str(row["workload"]), str(row["variant"])): Standing(
                clock=str(row["clock"]),
                interval=Interval(
                    centre=_number(row["log_ratio"], math.nan),
                    low=_number(row["low"], -math.inf),
                    high=_number(row["high"], math.inf),
                    n=int(row["rounds"]),
                    unstable=row["unstable"] is True,
                ),
                faults=float(row["faults"]),
            )
            for row in stored["rows"]
        },
        dropped={(str(workload), str(variant)): str(reason) for workload, variant, reason in stored["dropped"]},
        fired=tuple(str(name) for name in stored["fired"]),
    )


def _number(value: Any, otherwise: float) -> float:
    return otherwise if value is None else float(value)


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)
