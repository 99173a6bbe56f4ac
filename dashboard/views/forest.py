"""The forest plot as data: rows, axis, ticks, names. export/svg draws it, strips/picture takes a strip from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from llama_workbench.harness.store.verdict_schema import Effect

from .. import words
from . import outcomes
from .data import Claim, Floor, identical_code

# Heights in pixels. The y axis counts pixels, so that a row is as high on a phone as on a wall.
ROW_PX = 46  # a line of text and a track
TRACK_PX = 20
GROUP_PX = 26  # a heading
HEAD_PX = 18

LANE_PX = 10  # below a track: how identical code came out

FLOOR = "identical code"
SLOWER, FASTER = "← slower", "faster →"
"""Where a speed-up grows to the right."""


@dataclass(frozen=True)
class Row:
    """One effect. `y`: the middle of its track above the axis, in pixels; the floor has a lane of its own below."""

    y: float
    effect: Effect
    floor: Floor | None

    @property
    def lane(self) -> float:
        """The middle of the floor's lane."""
        return self.y - (TRACK_PX + LANE_PX) / 2

    @property
    def told(self) -> str:
        """The effect and its number of processes, at the right above the track."""
        return f"{words.effect(self.effect)} · {self.effect.rounds}"


@dataclass(frozen=True)
class Forest:
    """Rows in the order of the file, under a heading for each baseline where there are several.

    left, right: ends of the axis, logarithmic for ratios. region: the claimed one, None for an open end, or in all.
    """

    claim: Claim
    rows: tuple[Row, ...]
    headings: tuple[tuple[float, str], ...]
    height: float
    left: float
    right: float
    region: tuple[float | None, float | None] | None

    @property
    def is_ratio(self) -> bool:
        """Whether the effects are ratios of times."""
        return not self.claim.unit

    @property
    def column(self) -> str:
        """What the text at the right of each row says."""
        sure = words.percent(1 - self.claim.alpha)
        return f"speed-up [{sure} interval] · processes" if self.is_ratio else "value [interval] · count"

    @property
    def title(self) -> str:
        """The axis."""
        if self.is_ratio:
            return "speed-up (t_baseline / t_variant), log scale"
        return f"{self.claim.effects[0].metric} [{self.claim.unit}]"

    @property
    def ticks(self) -> dict[float, str]:
        """Round values with their labels."""
        return (ratio_ticks if self.is_ratio else linear_ticks)(self.left, self.right)

    @property
    def looks(self) -> list[words.Appearance]:
        """How the verdicts look that have a mark, each once."""
        return list(dict.fromkeys(self.look(row.effect) for row in self.rows if row.effect.value is not None))

    def look(self, effect: Effect) -> words.Appearance:
        """How an effect of this claim is shown."""
        return outcomes.look_of_row(self.claim, effect.verdict)

    def ends(self, low: float | None, high: float | None) -> tuple[float, float]:
        """An interval on the axis: an open end runs to the edge."""
        return self.left if low is None else low, self.right if high is None else high

    def share(self, value: float) -> float:
        """Where a value is between the ends, from 0 to 1; what is outside is moved to the nearer end."""
        if self.is_ratio:
            return log_share(value, self.left, self.right)
        return (min(max(value, self.left), self.right) - self.left) / (self.right - self.left)


def log_share(value: float, left: float, right: float) -> float:
    """Where a ratio is between two ends of a logarithmic axis, from 0 to 1; what is outside is moved to the nearer
    end."""
    return math.log(min(max(value, left), right) / left) / math.log(right / left)


def forest(claim: Claim, floors: Mapping[str, Floor]) -> Forest:
    """The forest of a claim's effects, with the floor of each workload that has one."""
    floors = {} if claim.unit else floors
    lane_px = LANE_PX if any(effect.workload in floors for effect in claim.effects) else 0
    placed, headings, height = _rows(claim.effects, lane_px)
    rows = tuple(Row(y, effect, floors.get(effect.workload)) for y, effect in placed)
    area = region(claim)
    ends = [*(area or ()), *(row.floor.value for row in rows if row.floor)]  # a wide floor would hide small effects
    ends += [end for effect in claim.effects for end in (effect.value, effect.lower, effect.upper)]
    left, right = (_linear_span if claim.unit else _span)([end for end in ends if end is not None])
    return Forest(claim, rows, tuple(headings), height, left, right, area)


def region(claim: Claim) -> tuple[float | None, float | None] | None:
    """Ends of the claimed region on the axis, None for an open one; None where there is none, or it is no ratio."""
    if (claim.low is None and claim.high is None) or (not claim.unit and claim.low == claim.high):
        return None
    return claim.low, claim.high


def region_name(claim: Claim) -> str:
    """What the region is, for the legend."""
    return f"{claim.range_word}: {claim.claimed_here or 'not recorded'}"


def _rows(effects: Sequence[Effect], lane_px: int) -> tuple[list[tuple[float, Effect]], list[tuple[float, str]], float]:
    """Tracks and headings with the height of their middle above the axis in pixels, and the height of all of them."""
    baselines = list(dict.fromkeys(effect.baseline for effect in effects))
    heading_px = GROUP_PX if len(baselines) > 1 else 0
    top = (ROW_PX + lane_px) * len(effects) + heading_px * len(baselines) + HEAD_PX
    y, placed, headings = float(top - HEAD_PX), [], []
    for baseline in baselines:
        y -= heading_px
        if heading_px:
            headings.append((y + 10, baseline))
        for effect in effects:
            if effect.baseline == baseline:
                y -= ROW_PX + lane_px
                placed.append((y + lane_px + TRACK_PX / 2 + 3, effect))
    return placed, headings, top


def _span(ratios: Sequence[float]) -> tuple[float, float]:
    """Ends of the axis of ratios: everything that is finite, 1, and some air, as far as a float goes."""
    logs = [0.0, *(math.log(value) for value in ratios if value > 0)]
    low, high = min(logs), max(logs)
    air = max(0.08 * (high - low), 0.003)
    return math.exp(max(low - air, -700.0)), math.exp(min(high + air, 700.0))


def _linear_span(values: Sequence[float]) -> tuple[float, float]:
    """The same for values with a unit; from 0 where nothing is below."""
    values = values or [0.0, 1.0]
    low, high = min(0.0, *values), max(0.0, *values)
    air = 0.05 * (high - low) or 1.0
    return low - (air if low < 0 else 0.0), high + air


def in_words(claim: Claim, floors: Mapping[str, Floor]) -> str:
    """The forest plot in a sentence a row, for those who do not see it."""
    lines = []
    for effect in claim.effects:
        floor = floors.get(effect.workload)
        beside = f", {FLOOR} {floor.text}" if floor else ""
        against = f" against {effect.baseline}" if effect.baseline else ""
        word = outcomes.look_of_row(claim, effect.verdict).word.lower()
        lines.append(f"{effect.where}{against}: {words.effect(effect)}, {word}{beside}")
    what = "Value" if claim.unit else "Speed-up"
    return f"{what} per workload, {region_name(claim)}. {'. '.join(lines or ['No rows'])}."


def caption(claim: Claim, floors: Mapping[str, Floor]) -> str:
    """What the colours of the figure mean, and with what confidence each interval holds."""
    area = "the margin within which two variants count as the same" if claim.is_comparison else "the claimed range"
    blue = f"Blue is {area}. " if region(claim) is not None else ""
    if claim.unit:
        return f"{blue}A value without a line was counted or tried: it is exact and has no interval."
    same = identical_code(floors[effect.workload] for effect in claim.effects if effect.workload in floors)
    floor = "This run timed no identical code against itself on these workloads."
    if same:
        floor = (
            f"The thin grey line below a row is a control: on these workloads {same}. Where an interval runs past the "
            "axis it is cut off there."
        )
    sure = words.percent(1 - claim.alpha)
    return f"{blue}{floor} Each interval holds with {sure} confidence, however often one looks at it."


# -- round numbers for axes --------------------------------------------------------------------------------------------


def ratio_ticks(left: float, right: float) -> dict[float, str]:
    """Up to eight round ratios between the ends with their labels: evenly stepped on a short axis, else 1-2-5."""
    air = 0.02 * math.log(right / left)  # plotly hides a label that does not fit in at the edge, but not its tick
    low, high = left * math.exp(air), right * math.exp(-air)
    if right / left > 4:
        digits = (1,) if right / left > 500 else (1, 2, 5) if right / left > 12 else (1, 1.5, 2, 3, 4, 5, 7)
        values = [digit * 10.0**power for power in range(-9, 10) for digit in digits]
        return {value: f"{value:.10g}×" for value in values if low <= value <= high}
    for step in (digit * 10.0**power for power in range(-4, 9) for digit in (1, 2, 5)):
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first < 6:
            places = max(0, -math.floor(math.log10(step) + 1e-9))
            return {round(step * k, 6): f"{step * k:,.{places}f}×" for k in range(first, last + 1)}
    return {1.0: "1×"}


def linear_ticks(left: float, right: float) -> dict[float, str]:
    """Two to five round values between the ends with their labels, evenly stepped."""
    step = round_step(right - left)
    places = max(0, -int(Decimal(f"{step:g}").as_tuple().exponent))
    first, last = math.ceil(left / step - 1e-9), math.floor(right / step + 1e-9)
    return {step * k: f"{step * k:,.{places}f}" for k in range(first, last + 1)}


def round_step(largest: float) -> float:
    """A round tick step with two to four ticks up to `largest`."""
    if largest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next(step * power for step in (0.25, 0.5, 1, 2.5, 5) if largest / (step * power) < 4.5)
