"""The execution plan's profiling form, filled in from time shares: top consumers, bottlenecks, targets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..metrics.share.shares import CRITICAL, MODERATE, grade
from .decision import CACHE_HANDLING, MASK_CREATION
from .markdown import markdown_rows

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


def profiling_markdown(forms: Mapping[tuple[str, str], Iterable[Consumer]]) -> str:
    """A form for each (workload, variant), as the plan lays them out, for `workbench report --profiling`.

    Raises ValueError for numbers that are not shares in percent.
    """
    blocks = ["# Profiling results"]
    for (workload, variant), consumers in forms.items():
        rows = sorted(consumers, key=lambda consumer: (-consumer.share, consumer.phase))
        for each in rows:
            if not 0 <= each.low <= each.share <= each.high <= 100:
                numbers = f"{each.phase} = {each.share} [{each.low}, {each.high}]"
                raise ValueError(f"{variant} on {workload}: {numbers}: expected 0 <= low <= share <= high <= 100")
        cells = (
            (each.phase, f"{each.share:.1f} %", f"[{each.low:.1f}, {each.high:.1f}]", " or ".join(each.levels))
            for each in rows
        )
        blocks += [f"## {variant} on {workload}", markdown_rows(("phase", "share", "interval", "level"), cells)]
        total = sum(consumer.share for consumer in rows)
        if abs(total - 100) > 1:
            blocks.append(f"The phases named here make up {total:.0f} % of the time.")
        top = _numbered(consumer.describe() for consumer in rows[:TOP])
        blocks += [f"### Top {len(rows[:TOP])} time consumers", top or "- none"]
        blocks += ["### Bottlenecks", *_bottlenecks(rows)]
        targets = (
            f"{each.describe()}: {REMEDIES.get(each.phase, BEYOND)}"
            f"{'' if each.levels == ('critical',) else ' (may be below the limit)'}"
            for each in rows
            if "critical" in each.levels
        )
        blocks += ["### Optimisation targets", _numbered(targets) or "None: nothing is above the limit."]
    return "\n\n".join(blocks) + "\n"


def _numbered(lines: Iterable[str]) -> str:
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def _bottlenecks(consumers: Sequence[Consumer]) -> list[str]:
    titles = {
        ("critical",): f"Critical (above {100 * CRITICAL:g} %)",
        ("moderate",): f"Moderate ({100 * MODERATE:g}-{100 * CRITICAL:g} %)",
        ("minor",): f"Minor (below {100 * MODERATE:g} %)",
        (): "Cannot tell (the interval includes a limit)",
    }
    lines = []
    for levels, title in titles.items():
        if levels:
            names = [each.phase for each in consumers if each.levels == levels]
        else:
            names = [f"{each.phase} ({' or '.join(each.levels)})" for each in consumers if len(each.levels) > 1]
        if names or levels == ("critical",):
            lines.append(f"**{title}:** {', '.join(names) or 'none'}")
    return lines
