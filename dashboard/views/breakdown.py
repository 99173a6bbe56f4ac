"""Shares of a forward by phase as the pages show them: read from a run's phase pass; no Streamlit, no drawing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from llama_workbench.dashboard import words
from llama_workbench.dashboard.flames.tree import StackError
from llama_workbench.dashboard.views import data, values
from llama_workbench.harness.claims.published import Portion
from llama_workbench.harness.metrics.share import shares
from llama_workbench.harness.metrics.share.shares import Share
from llama_workbench.harness.report.decision import Decision, decisions_of
from llama_workbench.harness.store.folder import PHASE_SCHEMA, RunError, RunFolder
from llama_workbench.variants.phase_map import DENOMINATORS

NAMES: Mapping[str, str] = {
    "mask_create": "mask create",
    "mask_apply": "mask apply",
    "rope": "RoPE",
    "qkv": "QKV",
    "o_proj": "output proj.",
    "attention_fused": "fused attention",
    "mlp": "MLP",
    "lm_head": "LM head",
    "final_norm": "final norm",
}
"""What a phase is called where its own name does not say it."""

WHOLES: Mapping[str, str] = {
    "forward": "whole forward",
    "layer": "decoder layers",
    "attention": "attention block",
    "attention-subset": "what the dispute timed",
}
"""What a share is a share of, by the key of DENOMINATORS."""


@dataclass(frozen=True)
class PhaseShare:
    """One phase's part of a whole: percent with its interval, and milliseconds of a call."""

    phase: str
    percent: float
    low: float
    high: float
    ms: float

    @property
    def name(self) -> str:
        """The phase in words."""
        return NAMES.get(self.phase, self.phase)

    @property
    def grade(self) -> str:
        """The execution plan's word, or both that the interval allows."""
        ends = dict.fromkeys(shares.grade(end / 100) for end in (self.low, self.high))
        return " or ".join(ends)


@dataclass(frozen=True)
class Phases:
    """What a run's phase pass left. `facts`: by workload and variant. `problems`: files that could not be read."""

    table: pd.DataFrame
    facts: Mapping[tuple[str, str], Mapping[str, Any]]
    problems: tuple[str, ...]

    @property
    def measured(self) -> tuple[tuple[str, str], ...]:
        """Workloads and variants with phases, in the order of the file."""
        pairs = self.table[["workload", "variant"]].astype(str).drop_duplicates()
        return tuple(pairs.itertuples(index=False, name=None))


@dataclass(frozen=True)
class Breakdown:
    """Shares of one variant on one workload, largest first, in `of` (a key of DENOMINATORS).

    `overhead`: time of a marked call over a plain one's. `clock`: what the readings were taken with.
    """

    workload: str
    variant: str
    of: str
    shares: tuple[PhaseShare, ...]
    rounds: int
    overhead: Share
    clock: str

    @property
    def ms(self) -> float:
        """Milliseconds of a call that the shares are shares of."""
        return sum(share.ms for share in self.shares)


def read(path: Path) -> Phases:
    """The phase pass of the run at `path`; what cannot be read is a problem and counts as not measured."""
    folder, problems = RunFolder(path), list[str]()
    table = PHASE_SCHEMA.empty_table().to_pandas()
    facts: list[dict[str, Any]] = []
    try:
        table = folder.read_phases()
    except RunError as error:
        problems.append(f"{error.path.name}: {error.problem}. {error.fix}")
    try:
        facts = folder.read_phase_facts()
    except RunError as error:
        problems.append(f"{error.path.name}: {error.problem}. {error.fix}")
    by_pair = {(values.text(fact.get("workload")), values.text(fact.get("variant"))): fact for fact in facts}
    return Phases(table, by_pair, tuple(problems))


def breakdown(phases: Phases, workload: str, variant: str, of: str, alpha: float) -> Breakdown:
    """The shares of every phase of `of` that ran. Raises ValueError where nothing was measured."""
    found = shares.top_consumers(phases.table, workload, variant, of, alpha=alpha)
    times = shares.times_ns(phases.table, workload, variant)
    rows = [
        _phase_share(phase, share, times.get(phase, 0.0))
        for phase, share in found.items()
        if math.isfinite(share.value)
    ]
    if not rows:
        raise ValueError(f"{variant} on {workload}: no phase of {of} took any time")
    return Breakdown(
        workload=workload,
        variant=variant,
        of=of,
        shares=tuple(rows),
        rounds=next(iter(found.values())).rounds,
        overhead=shares.overhead(phases.table, workload, variant, alpha=alpha),
        clock=values.text(phases.facts.get((workload, variant), {}).get("clock")),
    )


def part(phases: Phases, workload: str, variant: str, of: Sequence[str], whole: str, alpha: float) -> PhaseShare:
    """Several phases together, as a share of `whole`. Raises ValueError where they cannot be told apart."""
    found = shares.share(phases.table, workload, variant, of, whole, alpha=alpha)
    times = shares.times_ns(phases.table, workload, variant)
    return _phase_share(" + ".join(of), found, sum(times.get(phase, 0.0) for phase in of))


def _phase_share(phase: str, share: Share, ns: float) -> PhaseShare:
    return PhaseShare(phase, 100 * share.value, 100 * share.low, 100 * share.high, ns / 1e6)


def agreements(
    run: data.Run, phases: Phases, workload: str, variant: str, alpha: float
) -> list[shares.Agreement] | str:
    """The same shares of the forward by py-spy's samples, or the reason why there are none."""
    lines = _lines(phases.facts.get((workload, variant), {}).get("lines"))
    if not lines:
        return "the run does not say which line belongs to which phase"
    try:
        folded = data.profile_text(run, workload, variant)
        return shares.agreements(phases.table, workload, variant, shares.sampled_phases(folded, lines), alpha)
    except (StackError, ValueError) as error:
        return str(error)
    except OSError as error:
        return f"its profile cannot be read: {error.strerror}"


def _lines(found: Any) -> dict[str, dict[str, list[list[str]]]]:
    """The map of phases.json, without what is not in its form."""
    known = set(DENOMINATORS["forward"])

    def pair(value: Any) -> list[list[str]] | None:
        if not isinstance(value, list) or len(value) != 2 or not all(isinstance(part, list) for part in value):
            return None
        return [[name for name in part if isinstance(name, str) and name in known] for part in value]

    return {
        file: {number: kept for number, value in lines.items() if (kept := pair(value)) is not None}
        for file, lines in values.mapping(found).items()
        if isinstance(lines, dict)
    }


def decisions(run: data.Run, phases: Phases, alpha: float) -> dict[str, tuple[Decision, ...]]:
    """What the dispute's rules pick from the run's shares and its verdicts' effects, by workload.

    Raises ValueError where the run's numbers are no shares or ratios.
    """
    records = [
        {
            "effects": [
                {
                    "workload": effect.workload,
                    "variant": effect.variant,
                    "baseline": effect.baseline,
                    "ratio": effect.value,
                    "low": effect.low,
                    "high": effect.high,
                }
                for effect in claim.effects
                if not effect.unit
            ]
        }
        for claim in run.claims
    ]
    return decisions_of(phases.table, records, alpha)


# -- in words ------------------------------------------------------------------------------------------------------


def geometry(run: data.Run, workload: str) -> str:
    """The geometry of a workload, "unknown" where the manifest does not say."""
    work = values.mapping(data.experiment(run, workload).get("workload"))
    return values.text(work.get("geometry")) or "unknown"


def order(run: data.Run, workload: str) -> tuple[int, int, int, str]:
    """Prefills before decodes, short before long."""
    work = values.mapping(data.experiment(run, workload).get("workload"))
    kind = {"prefill": 0, "decode": 1}.get(values.text(work.get("kind")), 2)
    tokens, context = (int(values.number(work.get(key)) or 0) for key in ("tokens", "context"))
    return kind, tokens, context, workload


def length(run: data.Run, workload: str) -> str:
    """A workload by its length, where that is all there is to say of it: "T = 128", "1 token after 64"."""
    work = values.mapping(data.experiment(run, workload).get("workload"))
    tokens, context = (int(values.number(work.get(key)) or 0) for key in ("tokens", "context"))
    plain = not work.get("chunk") and values.number(work.get("batch")) in (None, 1.0)
    if not plain or values.text(work.get("lengths")) not in ("", "repeated"):
        return workload
    if work.get("kind") == "prefill" and tokens:
        return f"T = {tokens}" if not context else f"T = {tokens} after {context}"
    return f"1 token after {context}" if work.get("kind") == "decode" else workload


def interval(share: PhaseShare) -> str:
    """ "41.3 % [37.2, 45.4]"."""
    places = 1 if share.percent >= 1 else 2
    return f"{share.percent:.{places}f} % [{share.low:.{places}f}, {share.high:.{places}f}]"


def largest(found: Breakdown, count: int = 3) -> str:
    """The largest phases: "MLP 45 %, QKV 22 %, RoPE 9 %"."""
    return ", ".join(f"{share.name} {share.percent:.0f} %" for share in found.shares[:count])


def why_their_share(phases: Phases, workload: str, variant: str, lines: Iterable[Portion], alpha: float) -> str:
    """Why the dispute's table puts the largest of its lines where it does: its sum, and the same phases in a forward.

    Empty where the phases were not measured apart.
    """
    table = list(lines)
    if not table:
        return ""
    line = max(table, key=lambda one: one.percent)
    try:
        subset = part(phases, workload, variant, DENOMINATORS["attention-subset"], "forward", alpha)
        theirs = part(phases, workload, variant, line.phases, "attention-subset", alpha)
        honest = part(phases, workload, variant, line.phases, "forward", alpha)
        whole = breakdown(phases, workload, variant, "forward", alpha)
    except ValueError:
        return ""
    outside = [share for share in whole.shares if share.phase not in DENOMINATORS["attention-subset"]]
    left_out = words.listing([f"{share.name} ({share.percent:.0f} %)" for share in outside[:4]])
    total = sum(one.milliseconds for one in table)
    return (
        f"Their table says {line.percent:g} % for {line.line} because it divides {line.milliseconds:g} ms by "
        f"{total:.4g} ms, the sum of {len(table)} micro-benchmarks of one layer's attention. Here these parts are "
        f"{interval(subset)} of the forward: {left_out} were never in the sum. Of what they timed {line.line} takes "
        f"{interval(theirs)} here, of the whole forward {interval(honest)}."
    )
