"""The execution plan's profiling form, filled in from time shares: top consumers, bottlenecks, targets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..metrics.share.shares import CRITICAL, MODERATE, grade
from .decision import CACHE_HANDLING, MASK_CREATION

TOP = 5
LEVELS = ("minor", "moderate", "critical")

REMEDIES: Mapping[str, str] = {
    MASK_CREATION: "cache masks (Phase 3A)",
    CACHE_HANDLING: "unify the caches (Phase 3B)",
    "other": "not named by the plan: look at the flamegraph",
}
BEYOND = "the library's own operations: the plan says that these cannot be optimised"


@dataclass(frozen=True)
class Consumer:
    """Share of a workload's time that a phase takes, percent, with its interval."""

    phase: str
    share: float
    low: float
    high: float

    @property
    def levels(self) -> tuple[str, ...]:
        """Every level that the interval allows: one where that is settled."""
        first, last = (LEVELS.index(grade(end / 100)) for end in (self.low, self.high))
        return LEVELS[first : last + 1]

    def describe(self) -> str:
        """Phase, share and interval: "mlp: 41.2 % [40.1, 42.3]"."""
        return f"{self.phase}: {self.share:.1f} % [{self.low:.1f}, {self.high:.1f}]"


@dataclass(frozen=True)
class ProfilingForm:
    """The form for one variant on one workload; consumers with the largest share first."""

    variant: str
    workload: str
    consumers: tuple[Consumer, ...]

    def at(self, level: str) -> tuple[Consumer, ...]:
        """Phases that are of this level for certain."""
        return tuple(consumer for consumer in self.consumers if consumer.levels == (level,))

    def unsettled(self) -> tuple[Consumer, ...]:
        """Phases whose interval includes a limit."""
        return tuple(consumer for consumer in self.consumers if len(consumer.levels) > 1)

    def targets(self) -> tuple[tuple[Consumer, str], ...]:
        """What is or may be critical, with what the plan would do about it."""
        return tuple((c, REMEDIES.get(c.phase, BEYOND)) for c in self.consumers if "critical" in c.levels)


def profiling_form(variant: str, workload: str, consumers: Iterable[Consumer]) -> ProfilingForm:
    """Fill in the form. Raises ValueError for a phase that occurs twice, or whose numbers are not shares in percent."""
    rows = sorted(consumers, key=lambda consumer: (-consumer.share, consumer.phase))
    for index, each in enumerate(rows):
        if each.phase in (other.phase for other in rows[:index]):
            raise ValueError(f"{variant} on {workload}: phase {each.phase!r} occurs twice")
        if not 0 <= each.low <= each.share <= each.high <= 100:
            numbers = f"{each.phase} = {each.share} [{each.low}, {each.high}]"
            raise ValueError(f"{variant} on {workload}: {numbers}: expected 0 <= low <= share <= high <= 100")
    return ProfilingForm(variant, workload, tuple(rows))


def profiling_markdown(forms: Sequence[ProfilingForm]) -> str:
    """The forms as the plan lays them out, for `workbench report --profiling`."""
    blocks = ["# Profiling results"]
    for form in forms:
        blocks += [f"## {form.variant} on {form.workload}", _share_table(form)]
        total = sum(consumer.share for consumer in form.consumers)
        if abs(total - 100) > 1:
            blocks.append(f"The phases named here make up {total:.0f} % of the time.")
        top = [f"{index}. {consumer.describe()}" for index, consumer in enumerate(form.consumers[:TOP], 1)]
        blocks += [f"### Top {len(top)} time consumers", "\n".join(top) or "- none"]
        blocks += ["### Bottlenecks", *_bottlenecks(form)]
        targets = [
            f"{index}. {c.describe()}: {remedy}{'' if c.levels == ('critical',) else ' (may be below the limit)'}"
            for index, (c, remedy) in enumerate(form.targets(), 1)
        ]
        blocks += ["### Optimisation targets", "\n".join(targets) or "None: nothing is above the limit."]
    return "\n\n".join(blocks) + "\n"


def _bottlenecks(form: ProfilingForm) -> list[str]:
    groups = {
        f"Critical (above {100 * CRITICAL:g} %)": form.at("critical"),
        f"Moderate ({100 * MODERATE:g}-{100 * CRITICAL:g} %)": form.at("moderate"),
        f"Minor (below {100 * MODERATE:g} %)": form.at("minor"),
        "Cannot tell (the interval includes a limit)": form.unsettled(),
    }
    lines = []
    for title, consumers in groups.items():
        names = [f"{c.phase} ({' or '.join(c.levels)})" if len(c.levels) > 1 else c.phase for c in consumers]
        if names or title.startswith("Critical"):
            lines.append(f"**{title}:** {', '.join(names) or 'none'}")
    return lines


def _share_table(form: ProfilingForm) -> str:
    rows = ["| phase | share | interval | level |", "|---|---|---|---|"]
    rows += [
        f"| {c.phase} | {c.share:.1f} % | [{c.low:.1f}, {c.high:.1f}] | {' or '.join(c.levels)} |"
        for c in form.consumers
    ]
    return "\n".join(rows)
