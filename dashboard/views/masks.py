"""What caching masks could gain: no more than making them takes, and nothing where no operation is saved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from llama_workbench import variants
from llama_workbench.harness.metrics.share import shares

from . import data, gates
from .breakdown import Phases, geometry

ANEW = "fresh"
KEPT = ("per_layer", "per_model")
"""What a variant does with masks, by its factor `mask`: it makes one for every call, or keeps those that it made."""

Factors = Mapping[str, Mapping[str, object]]
"""What variants say of themselves, by name; those that say nothing are left out."""


def gain(run: data.Run, phases: Phases, shape: str) -> dict[str, str]:
    """Whether caching masks would help models of this shape: a question and its answer for each kind of call of which
    this run can say so."""
    factors = {name: factors for name in variants.names() if (factors := variants.get(name).factors)}
    unchanged = _unchanged(run, shape, factors)
    timed = _timed_bounds(run, shape, factors)
    bounds = {}
    for kind, (high, where) in _most_spent(run, phases, shape, factors).items():
        bounds[kind] = f"At most by {100 * high:.2g} %: that is all that making them takes ({where})."
        if timed.get(kind, 0.0) > high:
            bounds[kind] += f" Timing whole calls says less: at most {100 * timed[kind]:.2g} %."
    bounds |= {
        kind: f"No: {kept}, which caches them, runs the same operations as {anew}."
        for kind, (anew, kept) in unchanged.items()
    }
    return {f"Would caching masks help a {kind}?": answer for kind, answer in bounds.items()}


def _most_spent(run: data.Run, phases: Phases, shape: str, factors: Factors) -> dict[str, tuple[float, str]]:
    """By kind of call the upper end of the largest share of a forward that making masks took, and where."""
    most: dict[str, tuple[float, str]] = {}
    for workload, variant in phases.measured:
        if geometry(run, workload) != shape or factors.get(variant, {}).get("mask") != ANEW:
            continue
        try:
            share = shares.share(phases.table, workload, variant, ["mask_create"], "forward", alpha=run.alpha)
        except ValueError:
            continue
        kind = _kind(run, workload)
        if math.isfinite(share.high) and share.high > most.get(kind, (-math.inf, ""))[0]:
            most[kind] = share.high, f"{variant}, {run.named(workload)}"
    return most


def _unchanged(run: data.Run, shape: str, factors: Factors) -> dict[str, tuple[str, str]]:
    """The kinds of calls in which caching changes no operation, each with a pair of variants that shows it."""
    unchanged: dict[str, tuple[str, str]] = {}
    changed = set()
    for experiment in run.manifest.experiments:
        workload = experiment.workload.name
        if geometry(run, workload) != shape:
            continue
        for pair in _pairs({name: factors[name] for name in experiment.traces if name in factors}):
            if gates.traces(run, workload, *pair).state == "the same":
                unchanged.setdefault(_kind(run, workload), pair)
            else:
                changed.add(_kind(run, workload))
    return {kind: pair for kind, pair in unchanged.items() if kind not in changed}


def _timed_bounds(run: data.Run, shape: str, factors: Factors) -> dict[str, float]:
    """By kind of call the largest gain by caching masks that the intervals of timed calls leave possible."""
    bounds: dict[str, float] = {}
    for effect in (effect for claim in run.claims for effect in claim.effects):
        if effect.unit or effect.upper is None or geometry(run, effect.workload) != shape:
            continue
        names = (effect.baseline, effect.variant)
        if names in _pairs({name: factors[name] for name in names if name in factors}):
            kind = _kind(run, effect.workload)
            bounds[kind] = max(effect.upper - 1, bounds.get(kind, 0.0))
    return bounds


def _pairs(factors: Factors) -> Iterator[tuple[str, str]]:
    """Variants that differ only in what they do with masks: one that makes them anew, one that keeps them."""
    for anew, ours in factors.items():
        if ours.get("mask") == ANEW:
            alike = [{**ours, "mask": policy} for policy in KEPT]
            yield from ((anew, kept) for kept, theirs in factors.items() if theirs in alike)


def _kind(run: data.Run, workload: str) -> str:
    return data.experiment(run, workload).workload.kind or "call"
