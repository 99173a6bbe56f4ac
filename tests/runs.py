"""A small run folder with simulated samples, for the tests of everything that reads one.

The times are drawn, the verdicts are not: they come from the real judge.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_workbench.datasets import workloads
from llama_workbench.harness.claims.model import Claim
from llama_workbench.harness.claims.reading import check_claim, load_dispute
from llama_workbench.harness.evidence.evidence import evidence_from_manifest
from llama_workbench.harness.judge.parts import judge_ad_hoc, judge_claims
from llama_workbench.harness.measure import participants
from llama_workbench.harness.measure.groups import Processes
from llama_workbench.harness.measure.measurement import Measurement
from llama_workbench.harness.measure.participants import Setting
from llama_workbench.harness.plan.experiments import Plan
from llama_workbench.harness.slices import faces
from llama_workbench.harness.spec.sample import Round, Sample
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.forms import plain
from llama_workbench.harness.store.schema import FORMAT, UNIT, manifest_of
from llama_workbench.harness.store.verdict_schema import AD_HOC

SUB_ROUNDS = 5

WORKLOADS = ("prefill-15m-t128", "prefill-7b-1layer-t128", "decode-15m-c64", "mask-create-apply-t128")

CALL_NS = {
    "prefill-15m-t128": 9_000_000,
    "prefill-7b-1layer-t128": 190_000_000,
    "decode-15m-c64": 1_600_000,
    "mask-create-apply-t128": 160_000,
}
"""Time of one call of the reference benchmark (of the components: of team006_before)."""

FACTORS: Mapping[str, float] = {
    "yardstick": 1.0,
    "team006_before": 1.10,
    "team006_before@aa": 1.10,
    "team006_before@copy": 1.10,
    "team006_after": 1.10,
    "team005_hybrid": 1.09,
    "team005_proposal": 1.09,
    "prefill-15m-t128/team006_after": 1.06,
    "mask-create-apply-t128/team006_before": 1.0,
    "mask-create-apply-t128/team006_after": 1 / 1.085,
}
"""Time of each variant over the reference benchmark's, also for one workload alone (`workload/variant`)."""

ENVIRONMENT: Mapping[str, Any] = {
    "cpu_model": "Simulated CPU",
    "cpu_flags": ["avx2", "fma", "sse2"],
    "cores": 2,
    "memory_bytes": 8 * 2**30,
    "transparent_huge_pages": "madvise",
    "kernel": "6.1",
    "libc": "glibc 2.36",
    "python": "3.11.7",
    "torch": "2.13.0+cpu",
    "packages": {"torch": "2.13.0+cpu"},
    "threads": 1,
    "malloc": {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824"},
    "load_average": [0.1, 0.1, 0.1],
    "commit": None,
}


DEVICE: Mapping[str, Any] = {
    "kind": "cuda",
    "name": "Simulated GPU",
    "compute_capability": "9.0",
    "memory_bytes": 80 * 2**30,
    "cuda": "12.8",
    "driver": "570.1",
    "matmul_allow_tf32": False,
}


def a_claim(identity: str, *hypotheses: Mapping[str, Any], who: Sequence[str] = ("TEAM-006",)) -> dict[str, Any]:
    """A claim as in claims.json, from its hypotheses."""
    shared = {"evidence": "operations", "variant": "team006_after", "baseline": "team006_before", "metric": "time"}
    return {
        "id": identity,
        "title": identity.replace("-", " "),
        "who": list(who),
        "source": [{"document": "A document", "section": "A section"}],
        "statement": f"They say: {identity}.",
        "assumes": [],
        "decided_by": "By timing both sides in the same rounds.",
        "hypothesis": [shared | dict(hypothesis) for hypothesis in hypotheses],
    }


CLAIMS: Sequence[Mapping[str, Any]] = (
    a_claim(
        "refactor-2x-3x",
        {
            "variant": "team005_proposal",
            "workloads": ["prefill-15m-t128", "prefill-7b-1layer-t128", "decode-15m-c64"],
            "ratio": [2.0, 3.0],
        },
        who=("TEAM-005",),
    ),
    a_claim(
        "single-file-faster",
        {
            "evidence": "architecture",
            "variant": "team005_proposal",
            "baseline": "team005_hybrid",
            "workloads": ["prefill-15m-t128", "decode-15m-c64"],
            "faster_than_percent": 1,
        },
        who=("TEAM-005",),
    ),
    a_claim(
        "mask-caching-helps",
        {"workloads": ["prefill-15m-t128", "prefill-7b-1layer-t128"], "faster_than_percent": 1},
        who=("TEAM-005", "TEAM-006"),
    ),
    a_claim(
        "mask-caching-6-11",
        {"part": "micro-op", "workloads": ["mask-create-apply-t128"], "gain_percent": [6, 11]},
        {"part": "whole prefill", "workloads": ["prefill-15m-t128", "prefill-7b-1layer-t128"], "gain_percent": [6, 11]},
    ),
    a_claim("mask-caching-exactly-8.5", {"workloads": ["mask-create-apply-t128"], "faster_than_percent": 8.5}),
    a_claim("gpu-kernels", {"workloads": ["prefill-110m-t128"], "faster_than_percent": 10}, who=("TEAM-005",)),
)
"""Claims whose verdicts, with FACTORS, are all the words there are."""


_dispute = cache(load_dispute)
"""It takes reading all claims, as long as all else that a run takes to write."""


def write_run(
    folder: Path | str,
    *,
    seed: int = 0,
    rounds: int = 40,
    noise: float = 0.01,
    factors: Mapping[str, float] | None = None,
    only: Sequence[str] = WORKLOADS,
    without: Sequence[str] = (),
    claims: Sequence[Mapping[str, Any]] = CLAIMS,
    compare: tuple[str, str] | None = None,
    status: str = "complete",
    killed: bool = False,
    judged: bool = True,
    device_factors: Mapping[str, float] | None = None,
    environment: Mapping[str, Any] | None = None,
    manifest: Mapping[str, Any] | None = None,
    dispute: Mapping[str, Any] | None = None,
) -> RunFolder:
    """Write a run into `folder` and return it.

    Each of its `rounds` is of a process of its own. `noise` is the SD of one sample's log time. `factors` are laid over
    FACTORS; `only` are the workloads, `without` variants to leave out. `compare` makes it a run of `--compare baseline
    variant`. A `killed` run has a journal whose last line is cut off, a manifest that says "running", and no verdicts;
    without `judged` a run has none either, which is faster. With `device_factors` it is one on a CUDA device: they are
    to the device's times what `factors` are to the CPU's, which stay what they are. `environment` and `manifest` are
    laid over what would stand there. `dispute`: what is asked about the claims; if not given that of those that ship.
    """
    run = RunFolder.create(folder)
    rng = np.random.default_rng(seed)
    times = dict(FACTORS) | dict(factors or {})
    device_times = None if device_factors is None else dict(FACTORS) | dict(device_factors)
    device = {} if device_factors is None else {"device": dict(DEVICE)}
    for workload in only:
        _sample(run, workload, _variants(workload, without), times, device_times, rounds, noise, rng)
    content: dict[str, Any] = {
        "format": FORMAT,
        "id": run.path.name,
        "started": "2026-01-02T03:04:05+00:00",
        "finished": None if killed else "2026-01-02T03:14:05+00:00",
        "status": "running" if killed else status,
        "command": ["pytest", "--benchmark"],
        "seed": seed,
        "budget_seconds": 600.0,
        "alpha": 0.01,
        "unit": UNIT,
        "mode": "compare" if compare else "claims",
        "ad_hoc": [list(compare)] if compare else [],
        "environment": dict(ENVIRONMENT) | device | dict(environment or {}),
        "checkpoints": {
            geometry: {"name": f"{geometry} seed 0", "digest": f"{geometry}-0", "parameters": 1000, "synthetic": True}
            for geometry in ("15m", "7b-1layer")
        },
        "experiments": [_experiment(name, _variants(name, without), rounds, compare) for name in only],
        "dispute": _dispute().stored() if dispute is None else dispute,
        "excluded": [],
    }
    content |= dict(manifest or {})
    run.write_json("run.json", content)
    if killed:
        journal = run.path / "samples.jsonl"
        journal.write_bytes(journal.read_bytes()[:-30])
    else:
        run.finish()
    run.write_json("claims.json", [] if compare else [dict(claim) for claim in claims])
    if killed or not judged:
        return run
    evidence = evidence_from_manifest(manifest_of(content), run.read_samples())
    run.write_json("run.json", content | {"noise": plain(evidence.noise)})
    if compare:
        verdicts = [judge_ad_hoc(evidence, baseline=compare[0], variant=compare[1])]
    else:
        checked: list[Claim] = [check_claim(claim, "claims") for claim in claims]
        verdicts = judge_claims(checked, evidence)
    run.write_json("verdicts.json", verdicts)
    _passes(run, only)
    return run


def _variants(workload: str, without: Sequence[str]) -> list[str]:
    if workloads.get(workload).kind == "component":
        names = ["team006_before", "team006_before@aa", "team006_after"]
    else:
        names = [name for name in FACTORS if "/" not in name]
    return [name for name in names if name not in without]


def _sample(
    run: RunFolder,
    workload: str,
    variants: Sequence[str],
    times: Mapping[str, float],
    device_times: Mapping[str, float] | None,
    rounds: int,
    noise: float,
    rng: np.random.Generator,
) -> None:
    call_ns = CALL_NS[workload]
    repeats = max(1, 200_000 // call_ns + 1)
    tokens = workloads.get(workload).tokens
    for number in range(rounds):
        slow = rng.lognormal(0.0, 0.05)  # what the whole process shares, as on a busy machine
        samples: list[Sample] = []
        for sub_round in range(SUB_ROUNDS):
            for position, index in enumerate(rng.permutation(len(variants))):
                name = variants[index]
                disturbed = call_ns * repeats * slow * math.exp(noise * rng.standard_normal())
                cpu_ns = round(disturbed * _factor(times, workload, name))
                sample = Sample(name, sub_round, position, tokens, repeats, cpu_ns, round(cpu_ns * 1.02), 0)
                if device_times is not None:
                    device_ns = round(disturbed * _factor(device_times, workload, name))
                    sample = sample._replace(device_ns=device_ns)
                samples.append(sample)
        run.append_round(Round(workload, number + 1, number, tuple(samples)))


def _factor(times: Mapping[str, float], workload: str, name: str) -> float:
    original = name.partition("@")[0]
    return times.get(f"{workload}/{original}", times.get(f"{workload}/{name}", times[original]))


def _experiment(workload: str, variants: Sequence[str], rounds: int, compare: tuple[str, str] | None) -> dict[str, Any]:
    def digest(name: str) -> str:
        alike = {"team005_proposal": "team005_hybrid"}
        original = name.partition("@")[0]
        return alike.get(original, original)

    baseline = compare[0] if compare else "team006_before"
    return {
        "workload": workloads.get(workload).model_dump(mode="json"),
        "variants": list(variants),
        "baseline": baseline,
        "clock": {"default": "cpu", "wall_variants": []},
        "rounds": rounds,
        "seconds": rounds * len(variants) * SUB_ROUNDS * CALL_NS[workload] / 1e9,
        "gates": {
            name: {"passed": True, "cases": 6, "max_error": 1e-6, "tolerance": 1e-4, "detail": ""} for name in variants
        },
        "traces": {name: {"digest": digest(name), "ops": 400} for name in variants},
        "trace_differences": [],
        "excluded": [],
    }


FOLDED = """\
<module> (worker.py:10);run (worker.py:40);forward (variants/modular/model.py:88);attention (ops.py:20) {attention}
<module> (worker.py:10);run (worker.py:40);forward (variants/modular/model.py:88);apply_mask (masks.py:31) {mask}
<module> (worker.py:10);run (worker.py:40);forward (variants/modular/model.py:90);mlp (ops.py:55) 420
"""


def _passes(run: RunFolder, only: Sequence[str]) -> None:
    """Profiles and memory of two variants on the first workload, as the passes leave them."""
    workload = only[0]
    profiles: list[dict[str, Any]] = []
    memory: list[dict[str, Any]] = []
    sizes = {"parameter_bytes": 60_000_000, "cache_bytes": 7_000_000}
    for name, mask in (("team006_before", 60), ("team006_after", 20)):
        target = run.path / "profiles" / workload / f"{name}.folded"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(FOLDED.format(attention=300, mask=mask))
        common: dict[str, Any] = {"workload": workload, "variant": name, "reason": None}
        sampled = {"path": f"profiles/{workload}/{name}.folded", "rate_hz": 250, "samples": 720 + mask}
        profiles.append(common | sampled | {"median_ns": int(CALL_NS[workload] * FACTORS[name])})
        memory.append(common | sizes | {"peak_transient_bytes": 3_000_000 + 10_000 * mask})
    common = {"workload": workload, "variant": "team005_hybrid"}
    no_profile = {"path": None, "rate_hz": 250, "samples": 0, "median_ns": None}
    profiles.append(common | no_profile | {"reason": "py-spy may not attach to other processes here"})
    no_peak = {"peak_transient_bytes": None, "reason": "the memory pass ran into its time limit"}
    memory.append(common | sizes | no_peak)
    run.write_json("profiles.json", profiles)
    run.write_json("memory.json", memory)


@contextmanager
def short_sessions() -> Iterator[None]:
    """Functions are sampled for as short in each process as where there is little time, and where a difference is, is
    looked for in three: a second and not twenty for what is twice as slow. Of sessions within this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(participants, "MOST_SIDE_SECONDS", participants.LEAST_SIDE_SECONDS)
        # One round a process, however long the next one takes to begin: a busy machine has as many as a free one.
        patch.setattr(Processes, "should_wait", lambda self, group: False)
        for causes in faces("causes"):
            patch.setattr(causes, "PROCESSES", 3)
            patch.setattr(causes, "SECONDS", 0.1)
        yield


def measurement_of(plan: Plan, folder: Path, **given: Any) -> Measurement:
    """The measurement of a plan, whose gates nobody has passed yet; what is not given lies in this folder, or is not
    there."""
    common: dict[str, Any] = {
        "added": plan.added, "functions": plan.functions.sources, "calls": plan.calls(), "device": plan.device,
        "folders": {}, "parameters": {}, "cache": folder, "logs": folder, "seed": 0, "progress": Quiet(),
    }  # fmt: skip
    return Measurement(plan.experiments, Setting(**common | given))


class Quiet:
    """Progress that is only remembered."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.notes: list[str] = []
        self.steps: list[tuple[str, float]] = []

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, text: str, done: float, seconds_left: float) -> None:
        assert 0 <= done <= 1 and not seconds_left < 0
        self.steps.append((text, done))


def code_by_intervals(run: Path) -> int:
    """With what a session must end whose sides are all right: 7 where something was compared without a claim and none
    of that has an interval, else 0."""
    verdicts = json.loads((run / "verdicts.json").read_text(encoding="utf-8"))
    effects = [effect for verdict in verdicts if verdict["claim"] == AD_HOC for effect in verdict["effects"]]
    return 7 if effects and all(effect.get("low") is effect.get("high") is None for effect in effects) else 0
