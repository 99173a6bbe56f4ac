"""The time breakdown of a forward by phase, from the phase pass of a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from llama_workbench.harness.claims.reading import Portion
from llama_workbench.harness.metrics.share import shares
from llama_workbench.harness.metrics.share.metric import PHASE_FACTS, PHASES, PhaseFacts
from llama_workbench.harness.metrics.share.shares import Share
from llama_workbench.harness.spec.table import Table
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.tables import no_rows
from llama_workbench.variants.phase_map import DENOMINATORS

from .. import words
from . import data
from .samples import call_ns

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

    def at(self, percent: float) -> float:
        """The milliseconds of another share of the same whole."""
        return self.ms * percent / self.percent if self.percent else 0.0

    @property
    def grade(self) -> str:
        """The execution plan's word, or both that the interval allows."""
        ends = dict.fromkeys(shares.grade(end / 100) for end in (self.low, self.high))
        return " or ".join(ends)


@dataclass(frozen=True)
class Phases:
    """What a run's phase pass left. `facts`: by workload and variant. `problems`: files that could not be read."""

    table: Table
    facts: Mapping[tuple[str, str], PhaseFacts]
    problems: tuple[str, ...]

    @property
    def measured(self) -> tuple[tuple[str, str], ...]:
        """Workloads and variants with phases, in the order of the file."""
        return tuple(self.table.distinct("workload", "variant"))


@dataclass(frozen=True)
class Breakdown:
    """Shares of one variant in `of` (a key of DENOMINATORS). `overhead`: time of a marked call over a plain one's."""

    workload: str
    variant: str
    of: str
    shares: tuple[PhaseShare, ...]
    rounds: int
    overhead: Share

    @property
    def ms(self) -> float:
        """Milliseconds of a call that the shares are shares of."""
        return sum(share.ms for share in self.shares)


def read(run: data.Run) -> Phases:
    """The phase pass of a run; what cannot be read is a problem and counts as not measured."""
    folder, problems = RunFolder(run.path), list[str]()
    table = data.read_or(no_rows(PHASES.columns), lambda: folder.read_table(PHASES), problems)
    facts = data.read_or_none(folder, PHASE_FACTS, problems)
    return Phases(table, {(fact.workload, fact.variant): fact for fact in facts}, tuple(problems))


def breakdown(phases: Phases, workload: str, variant: str, of: str, alpha: float) -> Breakdown:
    """The shares of every phase of `of` that ran. Raises ValueError where nothing was measured."""
    top = shares.top_consumers(phases.table, workload, variant, of, alpha=alpha)
    top = {phase: share for phase, share in top.items() if math.isfinite(share.value)}
    if not top:
        raise ValueError(f"{variant} on {workload}: no phase of {of} took any time")
    times = shares.times_ns(phases.table, workload, variant)
    rows = tuple(_phase_share(phase, share, times.get(phase, 0.0)) for phase, share in top.items())
    rounds = max(share.rounds for share in top.values())
    overhead = shares.overhead(phases.table, workload, variant, alpha=alpha)
    return Breakdown(workload, variant, of, rows, rounds, overhead)


def breakdown_of(run: data.Run, phases: Phases, workload: str, variant: str, of: str) -> Breakdown:
    """The same at the run's own error rate. Milliseconds are parts of the time of a call in the rounds, where it was
    timed there: with timestamps between the phases it takes longer."""
    measured = breakdown(phases, workload, variant, of, run.alpha)
    marked = breakdown(phases, workload, variant, "forward", run.alpha).ms
    ns = call_ns(run, workload, variant)
    if ns is None or not marked:
        return measured
    return replace(measured, shares=tuple(replace(each, ms=each.ms * ns / 1e6 / marked) for each in measured.shares))


def differences(before: Breakdown, after: Breakdown) -> list[tuple[str, float, float, float, float, float]]:
    """Phase, milliseconds of both, the second less the first, and its ends; the largest difference first."""
    nothing = PhaseShare("", 0.0, 0.0, 0.0, 0.0)
    sides = [{share.phase: share for share in side.shares} for side in (before, after)]
    rows = []
    for phase in dict.fromkeys([*sides[0], *sides[1]]):
        one, other = (side.get(phase, nothing) for side in sides)
        low = other.at(other.low) - one.at(one.high)
        high = other.at(other.high) - one.at(one.low)
        rows.append((NAMES.get(phase, phase), one.ms, other.ms, other.ms - one.ms, low, high))
    return sorted(rows, key=lambda row: -abs(row[3]))


def part(phases: Phases, workload: str, variant: str, of: Sequence[str], whole: str, alpha: float) -> str:
    """Several phases together in percent of `whole`, as `interval` writes it.

    Raises ValueError where they cannot be told apart from other phases.
    """
    share = shares.share(phases.table, workload, variant, of, whole, alpha=alpha)
    return interval(_phase_share("", share, 0.0))


def _phase_share(phase: str, share: Share, ns: float) -> PhaseShare:
    return PhaseShare(phase, 100 * share.value, 100 * share.low, 100 * share.high, ns / 1e6)


# -- in words ------------------------------------------------------------------------------------------------------


def geometry(run: data.Run, workload: str) -> str:
    """The geometry of a workload, "unknown" where the manifest does not say."""
    return data.experiment(run, workload).workload.geometry or "unknown"


def usual_variant(run: data.Run, phases: Phases) -> str:
    """The variant that is shown at first: the one with most kinds of calls, then with most workloads."""
    kinds: dict[str, set[str]] = {}
    for workload, name in phases.measured:
        kinds.setdefault(name, set()).add(data.experiment(run, workload).workload.kind or "")
    counts = Counter(name for _, name in phases.measured)
    return max(kinds, key=lambda name: (len(kinds[name]), counts[name]))


def order(run: data.Run, workload: str) -> tuple[int, int, int, str]:
    """Prefills before decodes, short before long."""
    work = data.experiment(run, workload).workload
    return {"prefill": 0, "decode": 1}.get(work.kind or "", 2), work.tokens or 0, work.context or 0, workload


def interval(share: PhaseShare) -> str:
    """ "41.3 % [37.2, 45.4]"."""
    places = 1 if share.percent >= 1 else 2
    return f"{share.percent:.{places}f} % [{share.low:.{places}f}, {share.high:.{places}f}]"


def why_their_share(phases: Phases, workload: str, variant: str, lines: Iterable[Portion], alpha: float) -> str:
    """Why the dispute's table puts its largest line where it does; empty where the phases were not measured apart."""
    table = list(lines)
    try:
        line = max(table, key=lambda portion: portion.percent)
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
        f"{subset} of the forward: {left_out} were never in the sum. Of what they timed {line.line} takes {theirs} "
        f"here, of the whole forward {honest}."
    )
