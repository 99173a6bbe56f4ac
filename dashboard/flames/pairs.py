"""Two profiles of one workload with the times that the run measured in pairs, and by phase."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from llama_workbench.harness.store.errors import RunError
from llama_workbench.harness.store.verdict_schema import Effect

from ..views import breakdown, data, samples
from ..views.phase_lines import phase_lines
from .phases import phase_stacks, phase_trees

Times = tuple[float, float | None]
"""Nanoseconds of a call, and the standard error."""


@dataclass(frozen=True)
class Pair:
    """Both sides of a difference. paired: the change of the time in the run's rounds, None where it has none.

    unaligned: the sides whose code is in no known phase; both trees are then by function.
    """

    before: data.Profile
    after: data.Profile
    paired: Effect | None
    unaligned: tuple[str, ...]


PairedTimes = tuple[Effect, Times, Times]
"""The ratio that was measured, and the times of baseline and variant that fit it."""


def paired_times(run: data.Run, workload: str, baseline: str, variant: str) -> PairedTimes | None:
    """The ratio of two variants in the rounds that they shared, and the time of a call of each that fits it.

    The baseline's is the typical one. The variant's is that over the ratio, and has all the error of the ratio, so that
    the difference of both is the difference measured. None where they shared no rounds.
    """
    try:
        paired = samples.pair(run, workload, variant, baseline, "time", run.alpha)
    except (RunError, KeyError, ValueError):
        return None
    count, ratio = len(paired.ratios), paired.effect.value
    if count < 2 or not ratio or not paired.baseline_ns:
        return None
    ns = paired.baseline_ns / ratio
    error = float(np.std(np.log(paired.ratios), ddof=1)) / math.sqrt(count)
    return paired.effect, (paired.baseline_ns, None), (ns, ns * error)


def timed(profile: data.Profile, times: Times) -> data.Profile:
    """The same profile with another time of a call."""
    ns, error_ns = times
    return replace(profile, row=profile.row.model_copy(update={"median_ns": ns, "median_error_ns": error_ns}))


def read_pair(run: data.Run, workload: str, baseline: str, variant: str, times: PairedTimes | None) -> Pair:
    """Both profiles, which must exist, with the times that were measured in pairs."""
    profiles = [data.read_profile(run, workload, side) for side in (baseline, variant)]
    before, after = (profile for profile in profiles if profile is not None)
    if times is not None:
        before, after = (timed(profile, each) for profile, each in zip((before, after), times[1:], strict=True))
    phases = breakdown.read(run)
    texts = {side: data.profile_text(run, workload, side) for side in (baseline, variant)}
    stacks = {side: phase_stacks(text, phase_lines(phases, side, text)) for side, text in texts.items()}
    unaligned = tuple(side for side, found in stacks.items() if not found)
    if not unaligned:
        roots = phase_trees(*stacks.values())
        before, after = (replace(each, root=root) for each, root in zip((before, after), roots, strict=True))
    return Pair(before, after, times and times[0], unaligned)
