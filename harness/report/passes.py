"""What the passes of a run found, as Markdown: the profiling form, and the roofline. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..metrics.roofline.metric import Estimate, Reached
from ..metrics.share.shares import CRITICAL, MODERATE, Share, grade
from ..spec.dispute import ProfilingForm
from .markdown import markdown_cell, markdown_rows, markdown_text
from .text import short

TOP = 5
LEVELS = ("minor", "moderate", "critical")


def profiling_markdown(form: ProfilingForm, forms: Mapping[tuple[str, str], Mapping[str, Share]]) -> str:
    """A form for each (workload, variant), as the dispute has it, from its shares by phase.

    Raises ValueError for what is no share.
    """
    blocks = ["# Profiling results"]
    for (workload, variant), shares in forms.items():
        rows = sorted(shares.items(), key=lambda item: (-item[1].value, item[0]))
        for phase, share in rows:
            if not 0 <= share.low <= share.value <= share.high <= 1:
                numbers = f"{phase} = {share.value} [{share.low}, {share.high}]"
                raise ValueError(f"{variant} on {workload}: {numbers}: expected 0 <= low <= share <= high <= 1")
        texts = {
            phase: (f"{100 * share.value:.1f} %", f"[{100 * share.low:.1f}, {100 * share.high:.1f}]")
            for phase, share in rows
        }
        levels = {phase: _levels(share) for phase, share in rows}
        cells = ((phase, *texts[phase], " or ".join(levels[phase])) for phase in texts)
        blocks += [f"## {variant} on {workload}", markdown_rows(("phase", "share", "interval", "level"), cells)]
        total = 100 * sum(share.value for share in shares.values())
        if abs(total - 100) > 1:
            blocks.append(f"The phases named here make up {total:.0f} % of the time.")
        lines = {phase: f"{phase}: {' '.join(text)}" for phase, text in texts.items()}
        blocks += [f"### Top {len(rows[:TOP])} time consumers", _numbered(list(lines.values())[:TOP]) or "- none"]
        blocks += ["### Bottlenecks", *_bottlenecks(levels)]
        targets = (
            f"{': '.join(filter(None, (lines[phase], form.remedies.get(phase, form.beyond))))}"
            f"{'' if possible == ('critical',) else ' (may be below the limit)'}"
            for phase, possible in levels.items()
            if "critical" in possible
        )
        blocks += ["### Optimisation targets", _numbered(targets) or "None: nothing is above the limit."]
    return "\n\n".join(blocks) + "\n"


def _numbered(lines: Iterable[str]) -> str:
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def _levels(share: Share) -> tuple[str, ...]:
    """Every level that the interval allows: one where that is settled."""
    first, last = (LEVELS.index(grade(end)) for end in (share.low, share.high))
    return LEVELS[first : last + 1]


def _bottlenecks(levels_of: Mapping[str, tuple[str, ...]]) -> list[str]:
    titles: dict[tuple[str, ...], str] = {
        ("critical",): f"Critical (above {100 * CRITICAL:g} %)",
        ("moderate",): f"Moderate ({100 * MODERATE:g}-{100 * CRITICAL:g} %)",
        ("minor",): f"Minor (below {100 * MODERATE:g} %)",
        (): "Inconclusive (the interval includes a limit)",
    }
    names = {levels: [phase for phase, its in levels_of.items() if its == levels] for levels in titles}
    names[()] = [f"{phase} ({' or '.join(its)})" for phase, its in levels_of.items() if len(its) > 1]
    shown = [levels for levels in titles if names[levels] or levels == ("critical",)]
    return [f"**{titles[levels]}:** {', '.join(names[levels]) or 'none'}" for levels in shown]


def roofline_markdown(rows: Sequence[Reached], missing: Iterable[str], *, alpha: float) -> str:
    """What each variant reaches of this machine's roof, as a Markdown table; `missing` has a line for each without."""
    kernels: dict[str, str] = {}
    table = [(*map(markdown_cell, cells[:2]), *cells[2:]) for cells in roofline_rows(rows)]
    for row in rows:
        compute, memory = map(markdown_text, row.kernels)
        by = f"GFLOP/s by a matrix product ({compute}), GB/s by a {memory}; its weights {FITS[row.in_cache]}"
        kernels[markdown_text(row.workload)] = by
    notes = [f"{name}: {text}." for name, text in kernels.items()]
    if rows:
        notes.append(
            "The roofline is the least time that the operations and bytes of a call can take, at the rates measured in "
            f"the same rounds; each interval holds with {100 * (1 - alpha):.4g} % confidence."
        )
    notes += [f"{markdown_text(f'{row.variant} on {row.workload}')}: {row.above}." for row in rows if row.above]
    notes += [f"Not measured: {markdown_text(line)}" for line in missing]
    title = "# Roofline: what percentage of the hardware limit is reached"
    return "\n\n".join([title, markdown_rows(COLUMNS, table), *notes]) + "\n"


FITS = {
    True: "fit in the last-level cache: GB/s are the cache's",
    False: "do not fit in the last-level cache",
    None: "may fit in a cache; its size is not known here",
}
COLUMNS = (
    "workload", "variant", "ms a call", "roofline fraction, %", "rounds", "limited by", "FLOP a byte", "GFLOP/s",
    "GB/s",
)  # fmt: skip


def roofline_rows(rows: Iterable[Reached]) -> list[tuple[str, ...]]:
    """The cells below COLUMNS, a row for each workload and variant."""
    return [
        (
            row.workload,
            row.variant,
            _estimate_text(row.call_ms),
            _estimate_text(row.share),
            str(row.rounds),
            row.binds,
            short(row.intensity),
            _estimate_text(row.gflops),
            _estimate_text(row.gbytes),
        )
        for row in rows
    ]


def _estimate_text(estimate: Estimate) -> str:
    ends = [short(end) if 0 < end < math.inf else "open" for end in estimate[1:]]
    return f"{short(estimate.value)} [{', '.join(ends)}]"
