"""Where time goes: shares of a forward by phase and length, beside the dispute's own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from llama_workbench.dashboard import state, words
from llama_workbench.dashboard.export.svg import DARK, LIGHT, Palette
from llama_workbench.dashboard.sections import blocks, trust
from llama_workbench.dashboard.sections.blocks import ABOVE, SMALL, bar_rows
from llama_workbench.dashboard.views import data
from llama_workbench.dashboard.views.samples import call_ns
from llama_workbench.datasets.geometries import DataError
from llama_workbench.datasets.workloads import workloads
from llama_workbench.variants.phase_map import DENOMINATORS, MEANING
from llama_workbench.variants.phase_map import PHASES as NAMES_OF_PHASES

from ...claims.reading import Figure, Portion, published, published_shares
from ...report import phases as shares
from ...report.phases import NAMES, Share
from ...report.workload_names import shipped_named
from ...spec.table import Table
from ...stats.confidence import Interval
from ...store.folder import RunFolder
from ...store.passes import PHASE_FACTS, PHASES
from ...store.tables import no_rows
from ...store.verdict_schema import Effect

PAGE, KEY, TITLE, PLACE = "explore", "time", "Time by phase", 0
MEASURED_BY = "phases"

TIMES_COMMAND = "pytest --benchmark --workloads rope-t128,qkv-t128,scores-t128,mask-create-apply-t128"
WHOLE = "forward"


def is_there(run: data.Run) -> bool:
    """Whether the run has timed phases."""
    return RunFolder(run.path).has(PHASES)


def show(opened: state.Opened) -> None:
    """Time by phase, and the times that the dispute published."""
    phases = state.computed(opened, read_phases)
    for problem in phases.problems:
        blocks.warn(f"Left out: {problem}")
    if phases.measured:
        show_phases(opened, phases)
    else:
        blocks.missing("shares of the time by phase", opened.run.dispute.command("phases"))
    show_published_times(opened)


def show_phases(opened: state.Opened, phases: Phases) -> None:
    """A bar for each workload of the chosen variant; then one workload against another variant, and the dispute's."""
    run, wanted = opened.run, st.query_params.get("workload")
    having = [name for workload, name in phases.measured if workload == wanted]
    asked = run.dispute.numbers.shares_of
    usual = asked if asked in having else having[0] if having else usual_variant(run, phases)
    variants = list(dict.fromkeys(name for _, name in phases.measured))
    variant = state.choose("Variant", variants, "variant", default=usual, also=lambda _: {"workload": ""})
    here = [workload for workload, name in phases.measured if name == variant]
    rows: list[Breakdown] = []
    for workload in sorted(here, key=lambda name: order(run, name)):
        try:
            rows.append(state.computed(opened, breakdown_of, workload, variant, WHOLE, _given=(phases,)))
        except ValueError as error:
            st.text(str(error))
    if not rows:
        return
    blocks.header("Time by phase", anchor="phases")
    show_bars([(run.named(row.workload), row.shares) for row in rows])
    cost = rows[0].overhead
    blocks.caption(
        f"Shares of the whole forward, over {rows[0].rounds} rounds. Each bar is one call and sums to 100 %. Above it "
        "stands the time of a call. With timestamps between the phases a call took "
        f"{cost.value:.3f}× [{cost.low:.3f}, {cost.high:.3f}] of that."
    )
    names = [row.workload for row in rows]
    blocks.show_cards(run, [variant], names)
    profiled = next((name for name in names if (name, variant) in run.profiles), None)
    theirs = next((name for name in names if data.experiment(run, name).workload.tokens == 128), None)  # in their table
    workload = blocks.choose_workload(run, names, "Look inside", default=profiled or theirs)
    chosen = next(row for row in rows if row.workload == workload)
    show_difference(opened, phases, chosen)
    show_published_shares(opened, phases, chosen)


def heading(run: data.Run, *, is_seen: bool) -> tuple[str, str] | None:
    """Phases are shown of two models."""
    return None if run.is_of_functions else ("Where the time goes", "time")


def show_sides(opened: state.Opened, effect: Effect, sides: Sequence[str], of: str) -> None:
    """The phases of both sides of an effect, once the reader opens them."""
    blocks.folded(TITLE, "show_time", partial(_show_sides, opened, effect.workload, sides, of))


def _show_sides(opened: state.Opened, workload: str, sides: Sequence[str], of: str) -> None:
    """One bar for each of `sides` whose phases were timed; `of` is the denominator, a key of DENOMINATORS."""
    whole = of if of in WHOLES else WHOLE
    phases = state.computed(opened, read_phases)
    rows, missing = [], []
    for side in sides:
        try:
            measured = state.computed(opened, breakdown_of, workload, side, whole, _given=(phases,))
            rows.append((f"{side} · {measured.ms:.3g} ms · {measured.rounds} rounds", measured.shares))
        except ValueError:
            missing.append(side)
    if not rows:
        blocks.missing("shares of the time by phase here", opened.run.dispute.command("phases"))
        return
    show_bars(rows)
    untimed = f" Not timed by phase: {words.listing(missing)}." if missing else ""
    blocks.caption(
        f"Shares of the {WHOLES[whole]} by phase; each bar sums to 100 %. Milliseconds hold for "
        f"this machine only.{untimed}"
    )


def show_difference(opened: state.Opened, phases: Phases, chosen: Breakdown) -> None:
    """Phase by phase, what another variant takes more or less; nothing where no other was timed by phase here."""
    others = [name for workload, name in phases.measured if workload == chosen.workload and name != chosen.variant]
    if not others:
        return
    other = state.choose("Against", others, "against")
    asked = chosen.workload, other, chosen.of
    try:
        beside = state.computed(opened, breakdown_of, *asked, _given=(phases,))
    except ValueError as error:
        st.text(str(error))
        return
    rows = [
        {"phase": name, other: before, chosen.variant: after, "difference": value, "low": low, "high": high}
        for name, before, after, value, low, high in differences(beside, chosen)
    ]
    formats = dict.fromkeys((other, chosen.variant), "%.4g ms") | dict.fromkeys(
        ("difference", "low", "high"), "%+.3g ms"
    )
    blocks.table(rows, f"Time by phase of {chosen.variant} less that of {other}, the largest difference first", formats)
    sure = words.percent(1 - opened.run.alpha)
    blocks.caption(f"An end holds wherever both shares' {sure} intervals do.")


# -- the bars ----------------------------------------------------------------------------------------------------------

# Okabe and Ito's colours, light and dark enough that black text on one and white text on the other can be read. Parts
# of one thing share a colour and differ in their pattern; no colour is needed, since every bar has its name on it.
_LOOKS: dict[str, tuple[str, str, str]] = {
    "mask_create": ("#F2A27C", "#A4481A", ""),
    "mask_apply": ("#F2A27C", "#A4481A", "/"),
    "rope": ("#F3CF8E", "#7F6119", ""),
    "qkv": ("#8CC0E8", "#1F5F8B", ""),
    "scores": ("#BFE1F5", "#2B6F80", ""),
    "softmax": ("#BFE1F5", "#2B6F80", "/"),
    "output": ("#BFE1F5", "#2B6F80", "\\"),
    "attention_fused": ("#BFE1F5", "#2B6F80", "x"),
    "o_proj": ("#8CC0E8", "#1F5F8B", "/"),
    "cache": ("#F0E58A", "#6E6A1E", ""),
    "mlp": ("#8FD3BC", "#176B54", ""),
    "norm": ("#DDB5CC", "#7B4767", ""),
    "final_norm": ("#DDB5CC", "#7B4767", "/"),
    "lm_head": ("#C3B5E0", "#5A4B8A", ""),
    "embedding": ("#D5DAE0", "#4A545F", "/"),
    "other": ("#D5DAE0", "#4A545F", ""),
}


def show_bars(rows: Rows) -> None:
    largest = [(name, sorted(parts, key=lambda part: -part.percent)[:5]) for name, parts in rows]
    alts = [f"{name}: {', '.join(f'{part.name} {interval(part)}' for part in parts)}" for name, parts in largest]
    blocks.plot(phase_bars(rows, state.colours()), f"Shares of the time. {'; '.join(alts)}.", "phases")


def phase_bars(rows: Rows, colours: Palette = LIGHT) -> go.Figure:
    """One bar of 100 % a row: phases in the order of a forward, named where there is room; above it label and ms."""
    times = [words.milliseconds(1e6 * sum(part.ms for part in parts)) for _, parts in rows]
    measured = {part.phase for _, parts in rows for part in parts}
    return bar_rows(
        [(words.label(name, 34), time) for (name, _), time in zip(rows, times, strict=True)],
        [_bar(phase, rows, colours) for phase in NAMES_OF_PHASES if phase in measured],
        colours,
        title="share of the time [%]",
        ends=(0, 100),
        ticks_at={percent: f"{percent} %" for percent in (0, 25, 50, 75, 100)},
        row_px=58,
        bar_px=28,
        foot_px=110,
        right_px=20,
        barmode="stack",
        uniformtext={"mode": "hide", "minsize": SMALL},
        legend={**ABOVE, "y": -46 / (58 * len(rows)), "yanchor": "top", "traceorder": "normal"},
        showlegend=True,
    )


def _bar(phase: str, rows: Rows, colours: Palette) -> go.Bar:
    """One phase over all rows."""
    light_fill, dark_fill, pattern = _LOOKS[phase]
    shares = [next((part for part in parts if part.phase == phase), None) for _, parts in rows]
    return go.Bar(
        name=NAMES.get(phase, phase),
        x=[share.percent if share else 0 for share in shares],
        marker={
            "color": dark_fill if colours == DARK else light_fill,
            "line": {"color": colours.page, "width": 1},
            "pattern": {
                "shape": pattern,
                "fillmode": "overlay",
                "size": 7,
                "solidity": 0.12,
                "fgcolor": colours.text,
                "fgopacity": 0.3,
            },
        },
        text=[f"{share.name} {share.percent:.0f} %" if share and share.percent >= 4 else "" for share in shares],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        constraintext="inside",
        insidetextfont={"color": colours.frame_text, "size": SMALL},
        hovertext=[_hover(name, share) if share else "" for (name, _), share in zip(rows, shares, strict=True)],
    )


def _hover(name: str, share: PhaseShare) -> str:
    return (
        f"<b>{share.name}</b>, {words.label(name)}<br>{interval(share)}<br>"
        f"{words.milliseconds(share.ms * 1e6)} a call, {share.grade}<br>{MEANING[share.phase]}"
    )


# -- what the dispute published ----------------------------------------------------------------------------------------


def shares_beside(
    run: data.Run, phases: Phases, portions: Sequence[Portion], workload: str, variant: str
) -> tuple[str, list[dict[str, object]], list[str]]:
    """Why their table says what it says, its lines beside ours, and what cannot be told apart here."""
    why = why_their_share(phases, workload, variant, portions, run.alpha)
    table: list[dict[str, object]] = []
    problems: list[str] = []
    work = data.experiment(run, workload).workload
    ours = f"ours at T = {work.tokens:,}" if work.tokens else "ours"
    for line in portions:
        row: dict[str, object] = {
            "their line": line.line,
            "theirs at T = 128": line.percent,
            "their time": line.milliseconds,
        }
        for whole in ("attention-subset", "layer", "forward"):
            try:
                share = part(phases, workload, variant, line.phases, whole, run.alpha)
                row[f"{ours}, of {WHOLES[whole]}"] = share
            except ValueError as error:
                problems.append(f"{line.line}: {error}")
        table.append(row)
    return why, table, problems


def show_published_shares(opened: state.Opened, phases: Phases, chosen: Breakdown) -> None:
    """Their table of shares beside ours, in three denominators."""
    blocks.header("The dispute's time shares beside ours", anchor="published")
    try:
        portions = published_shares()
    except DataError as error:
        blocks.warn(str(error))
        return
    asked = chosen.workload, chosen.variant
    why, table, problems = state.computed(opened, shares_beside, *asked, _given=(phases, portions))
    if why:
        blocks.say(why)
    if table:
        blocks.table(
            table,
            f"The dispute's shares beside ours on {chosen.workload}, in three denominators",
            {"theirs at T = 128": "%.1f %%", "their time": "%.1f ms"},
        )
    blocks.notes("Cannot be told apart here", problems)
    if portions:
        source = portions[0].source
        blocks.caption(
            f"Theirs: {source.document}, {source.section}; at T = 128, one table for all lengths, no intervals. "
            "Their sum of separate benchmarks is no part of any forward: softmax and output had no benchmark of "
            "their own."
        )


def show_published_times(opened: state.Opened) -> None:
    """The dispute's micro-benchmarks beside the same work here."""
    blocks.header("The dispute's micro-benchmarks beside ours", anchor="times")
    try:
        figures = published()
    except DataError as error:
        blocks.warn(str(error))
        return
    measured = state.computed(opened, trust.read_noise)
    if measured.problem:
        blocks.warn(f"Left out: {measured.problem}")
    rows = state.computed(opened, compared, _given=(measured, figures))
    if (rows[["our interval", "its interval"]] == "").all(axis=None):
        blocks.missing("times of the parts that they timed", TIMES_COMMAND)
    wide = st.column_config.TextColumn(width="medium")
    blocks.table(
        rows.assign(workload=rows["workload"].map(shipped_named(figures))),
        "Times a call that the dispute published, beside the medians of this run",
        columns=dict.fromkeys(("their interval", "our interval", "its interval"), wide),
    )
    source = next(iter(figures.values())).source if figures else None
    origin = f"Theirs: {source.document}, {source.section}, and later documents. " if source else ""
    blocks.caption(
        f"{origin}They ran Candle on a machine that they do not name, with all its cores: nobody can compare "
        "absolute times of two machines. Growth is the time over that of the next shorter length in this table, "
        "and that compares well. Ours is on PyTorch; on Candle are that engine's own kernels, called from Python. "
        "Both are medians over rounds, each with its exact 99 % interval by order statistics."
    )


def _ends(ends_ns: Sequence[float]) -> str:
    return " – ".join(map(words.milliseconds, ends_ns))


def _span(measured: Interval | None) -> str:
    if measured is None:
        return ""
    return _ends([measured.low, measured.high]) if math.isfinite(measured.high) else "too few rounds"


def compared(run: data.Run, measured: trust.Noise, published: Mapping[str, Figure]) -> pd.DataFrame:
    """All published times in the order of their file, beside those of the workload's baseline and of Candle here.

    The growths are the time over that of the next shorter length of the same part.
    """
    rows, times_ns = [], []
    for workload, theirs in published.items():
        variant = data.experiment(run, workload).baseline or ""
        ours = trust.median_ns(measured, workload, variant)
        candle = next(
            filter(None, (trust.median_ns(measured, workload, name) for name in run.dispute.engine_variants)), None
        )
        times_ns.append((1e3 * theirs.microseconds, *(one.centre if one else math.nan for one in (ours, candle))))
        rows.append(
            {
                "workload": workload,
                "theirs": words.milliseconds(times_ns[-1][0]),
                "their interval": _ends([1e3 * end for end in theirs.interval]) if theirs.interval else "not given",
                "ours": words.milliseconds(ours.centre if ours else None),
                "our interval": _span(ours),
                "rounds": str(ours.n) if ours else "",
                "on Candle here": words.milliseconds(candle.centre) if candle else "",
                "its interval": _span(candle),
                "variant here": variant if ours else "",
                "their benchmark": theirs.bench,
            }
        )
    times = pd.DataFrame(times_ns, columns=["their growth", "our growth", "growth on Candle"])
    known = workloads()
    parts = pd.Series([known[name].component if name in known else name for name in published])
    growths = times / times.groupby(parts).shift()
    return pd.DataFrame(rows).join(growths.map(lambda growth: f"{growth:.2f}×" if growth > 0 else ""))


# -- shares, from the phase pass of a run ------------------------------------------------------------------------------

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
        """The execution plan's word, or all that the interval allows."""
        return shares.levels(self.low / 100, self.high / 100)


Rows = Sequence[tuple[str, Sequence[PhaseShare]]]
"""The label of each bar, and its shares."""


@dataclass(frozen=True)
class Phases:
    """What a run's phase pass left. `problems`: files that could not be read."""

    table: Table
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


def read_phases(run: data.Run) -> Phases:
    """The phase pass of a run; what cannot be read is a problem and counts as not measured."""
    folder, problems = RunFolder(run.path), list[str]()
    table = data.read_or(no_rows(PHASES.columns), lambda: folder.read_table(PHASES), problems)
    data.read_or_none(folder, PHASE_FACTS, problems)  # which flamegraphs need: they say nothing where it is damaged
    return Phases(table, tuple(problems))


def shares_of(phases: Phases, workload: str, variant: str, of: str, alpha: float) -> Breakdown:
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
    measured = shares_of(phases, workload, variant, of, run.alpha)
    marked = shares_of(phases, workload, variant, "forward", run.alpha).ms
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


def usual_variant(run: data.Run, phases: Phases) -> str:
    """The variant that is shown at first: the one with most kinds of calls, then with most workloads."""
    kinds: dict[str, set[str]] = {}
    for workload, name in phases.measured:
        kinds.setdefault(name, set()).add(data.experiment(run, workload).workload.kind or "")
    counts = Counter(name for _, name in phases.measured)
    return max(kinds, key=lambda name: (len(kinds[name]), counts[name]))


def order(run: data.Run, workload: str) -> tuple[str, int, int, int, str]:
    """By the model's shape; prefills before decodes, short before long."""
    work = data.experiment(run, workload).workload
    kind = {"prefill": 0, "decode": 1}.get(work.kind or "", 2)
    return work.geometry or "", kind, work.tokens or 0, work.context or 0, workload


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
        whole = shares_of(phases, workload, variant, "forward", alpha)
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
