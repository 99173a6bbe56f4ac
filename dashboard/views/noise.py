"""How noisy a run was, out of its samples: aggregates by round, drifts, places within a round, page faults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from llama_workbench.dashboard.views import data, values
from llama_workbench.harness.store.folder import RunError, RunFolder

LEVEL = 0.99
YARDSTICK = "yardstick"
CLOCKS = ("cpu_ns", "wall_ns", "device_ns")
SEE = 0.01
"""The difference of which the page says where it could have been seen."""


@dataclass(frozen=True)
class Span:
    """A value with its interval (99 %, for itself) and the number of rounds; ends are infinite where there is none."""

    value: float
    low: float
    high: float
    rounds: int


@dataclass(frozen=True)
class Noise:
    """Aggregates of a run's samples.

    rounds: a row for each variant in each round: `workload`, `variant`, `seconds` (timed before it in this run), `ns`
    (median of a call) and `faults` (page faults a call). places: by workload, how much longer, as a ratio, the first
    sample of a sub-round took than the others, and the last than the first by a straight line.
    """

    rounds: pd.DataFrame
    places: Mapping[str, tuple[Span, Span]]
    samples: int
    problem: str


def read(run: data.Run) -> Noise:
    """Aggregate the samples of a run. What cannot be read is a problem, and nothing of it is shown."""
    try:
        samples = RunFolder(run.path).read_samples()
    except RunError as error:
        return Noise(_NO_ROUNDS, {}, 0, f"{error.path.name}: {error.problem}. {error.fix}")
    return aggregate(samples, clocks(run))


def clocks(run: data.Run) -> dict[str, str]:
    """By workload the column of its clock."""
    found = {}
    for entry in values.records(run.manifest.get("experiments")):
        name = values.text(values.mapping(entry.get("workload")).get("name"))
        column = f"{values.text(values.mapping(entry.get('clock')).get('default'))}_ns"
        found[name] = column if column in CLOCKS else CLOCKS[0]
    return found


def aggregate(samples: pd.DataFrame, clock: Mapping[str, str]) -> Noise:
    """The same from a table of samples, columns as the store's SCHEMA, in the order they were taken."""
    if samples.empty:
        return Noise(_NO_ROUNDS, {}, 0, "")
    timed = _timed(samples, clock)
    return Noise(by_round(timed), places(timed), len(samples), "")


_NO_ROUNDS = pd.DataFrame(columns=["workload", "variant", "process", "round", "seconds", "ns", "faults"])


def _timed(samples: pd.DataFrame, clock: Mapping[str, str]) -> pd.DataFrame:
    """Samples with `ns`, the time of a call by the workload's clock, and `seconds`, what was timed until then."""
    wanted = samples["workload"].map(clock).astype(object)
    chosen = samples[CLOCKS[0]].to_numpy()
    for column in CLOCKS[1:]:
        chosen = np.where(wanted.eq(column).to_numpy(bool), samples[column].to_numpy(), chosen)
    repeats = samples["repeats"].clip(lower=1).to_numpy()
    return samples.assign(
        ns=chosen / repeats,
        faults=samples["faults"].to_numpy() / repeats,
        seconds=samples["wall_ns"].to_numpy().cumsum() / 1e9,
    )


def by_round(timed: pd.DataFrame) -> pd.DataFrame:
    """Medians of every variant in every round; lengths that differ are taken together."""
    keys = ["workload", "variant", "process", "round"]
    grouped = timed.groupby(keys, observed=True, sort=False)
    found = pd.DataFrame(
        {"seconds": grouped["seconds"].first(), "ns": grouped["ns"].median(), "faults": grouped["faults"].median()}
    )
    return found[found["ns"] > 0].reset_index()


def places(timed: pd.DataFrame) -> dict[str, tuple[Span, Span]]:
    """Of each workload: the first place against the others, and the last against the first by a straight line.

    A sample's log time has its variant's median at that length taken off, and then the mean of its sub-round. One
    number a round, so that the interval is a t interval over rounds.
    """
    rows = timed[timed["ns"] > 0]
    log = np.log(rows["ns"].to_numpy())
    own = pd.Series(log, rows.index)
    own = own - own.groupby([rows["workload"], rows["variant"], rows["tokens"]], observed=True).transform("median")
    sub_rounds = [rows["workload"], rows["process"], rows["round"], rows["sub_round"]]
    grouped = rows["position"].groupby(sub_rounds, observed=True)
    most = grouped.transform("max")
    frame = pd.DataFrame(
        {
            "workload": rows["workload"],
            "process": rows["process"],
            "round": rows["round"],
            "own": own - own.groupby(sub_rounds, observed=True).transform("mean"),
            "place": rows["position"] / most.where(most > 0),
            "first": rows["position"] == 0,
        }
    ).dropna()
    frame["centred"] = frame["place"] - 0.5
    frame["product"] = frame["own"] * frame["centred"]
    frame["square"] = frame["centred"] ** 2
    frame["own_first"] = frame["own"].where(frame["first"])
    frame["own_later"] = frame["own"].where(~frame["first"])
    by = frame.groupby(["workload", "process", "round"], observed=True)
    sums = by[["product", "square"]].sum()
    means = by[["own_first", "own_later"]].mean()
    per_round = pd.DataFrame(
        {"first": means["own_first"] - means["own_later"], "slope": sums["product"] / sums["square"]}
    )
    return {
        str(workload): (_ratio(one["first"].dropna().to_numpy()), _ratio(one["slope"].dropna().to_numpy()))
        for workload, one in per_round.groupby("workload", observed=True)
    }


def _ratio(logs: NDArray[np.float64]) -> Span:
    """Mean of log ratios as a ratio with its t interval."""
    if len(logs) < 2:
        return Span(math.exp(float(logs[0])) if len(logs) else math.nan, 0.0, math.inf, len(logs))
    mean, error = float(logs.mean()), float(logs.std(ddof=1)) / math.sqrt(len(logs))
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(logs) - 1)) * error
    return Span(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


def median_ns(noise: Noise, workload: str, variant: str) -> Span | None:
    """Median over rounds of a call's time, with the exact interval by order statistics; None where not measured."""
    rows = noise.rounds
    found = rows.loc[(rows["workload"] == workload) & (rows["variant"] == variant), "ns"].to_numpy(np.float64)
    if not len(found):
        return None
    ends = stats.quantile_test(found, q=float(np.median(found)), p=0.5).confidence_interval(LEVEL)
    low, high = float(ends.low), float(ends.high)
    return Span(
        float(np.median(found)),
        low if math.isfinite(low) else 0.0,
        high if math.isfinite(high) else math.inf,
        len(found),
    )


def drift(noise: Noise, baselines: Mapping[str, str]) -> pd.DataFrame:
    """Each round's median of the yardstick, where a workload has none of its baseline, over its own median.

    Columns `workload`, `variant`, `seconds` and `relative`, in the order of time.
    """
    rows = noise.rounds
    if rows.empty:
        return pd.DataFrame(columns=["workload", "variant", "seconds", "relative"])
    wanted = dict(baselines) | dict.fromkeys(rows.loc[rows["variant"] == YARDSTICK, "workload"], YARDSTICK)
    kept = rows[rows["variant"].astype(str) == rows["workload"].astype(str).map(wanted)].copy()
    kept["relative"] = kept["ns"] / kept.groupby(["workload", "variant"], observed=True)["ns"].transform("median")
    return kept.sort_values("seconds")[["workload", "variant", "seconds", "relative"]].reset_index(drop=True)


def faults(noise: Noise) -> pd.DataFrame:
    """Of each workload the least and the most page faults a call among its variants (medians over rounds)."""
    rows = noise.rounds
    columns = ["workload", "least", "fewest faults", "most", "most faults"]
    if rows.empty:
        return pd.DataFrame(columns=columns)
    medians = rows.groupby(["workload", "variant"], observed=True)["faults"].median().reset_index()
    found = []
    for workload, one in medians.groupby("workload", observed=True):
        ordered = one.sort_values("faults", kind="stable")
        low, high = ordered.iloc[0], ordered.iloc[-1]
        found.append([str(workload), str(low["variant"]), low["faults"], str(high["variant"]), high["faults"]])
    return pd.DataFrame(found, columns=columns)


# -- controls ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Control:
    """Identical code against itself: `kind` is "aa" (entered twice) or "copy" (a copy of its source).

    An open interval, of too few rounds, has None for both ends.
    """

    workload: str
    kind: str
    variant: str
    ratio: float | None
    low: float | None
    high: float | None
    rounds: int
    fired: bool

    @property
    def smallest(self) -> float | None:
        """The smallest difference that it could have told apart, as a part of 1: its half width on the log scale."""
        if self.low is None or self.high is None:
            return None
        return math.expm1((math.log(self.high) - math.log(self.low)) / 2)


def controls(run: data.Run) -> list[Control]:
    """The controls of a run, what fired first, then the least certain first."""
    found = []
    for row in values.records(values.mapping(run.manifest.get("noise")).get("controls")):
        low, high = values.positive(row.get("low")), values.positive(row.get("high"))
        bounded = low is not None and high is not None and low <= high
        found.append(
            Control(
                workload=values.text(row.get("workload")),
                kind=values.text(row.get("kind")),
                variant=values.text(row.get("variant")),
                ratio=values.positive(row.get("ratio")),
                low=low if bounded else None,
                high=high if bounded else None,
                rounds=int(values.number(row.get("rounds")) or 0),
                fired=row.get("fired") is True,
            )
        )
    return sorted(found, key=lambda one: (not one.fired, one.smallest is None, -(one.smallest or 0)))


def smallest(found: list[Control]) -> dict[str, float | None]:
    """By workload the smallest difference that its least certain control could have told apart; None where open."""
    by_workload: dict[str, float | None] = {}
    for control in found:
        have = by_workload.get(control.workload, 0.0)
        mine = control.smallest
        by_workload[control.workload] = None if have is None or mine is None else max(have, mine)
    return by_workload


def could_see(found: list[Control], difference: float = SEE) -> str:
    """The run's trust in a sentence."""
    by_workload = smallest(found)
    known = {name: size for name, size in by_workload.items() if size is not None}
    able = [name for name, size in known.items() if size <= difference]
    fired = sorted({control.workload for control in found if control.fired})
    of = f"{len(by_workload)} workload{'s' * (len(by_workload) != 1)}"
    said = f"On {len(able)} of {of} this machine could have seen a difference of {100 * difference:g} %"
    if known:
        ordered = sorted(known.values())
        middle = float(np.median(ordered))
        said += (
            f"; the smallest that it could have seen was {100 * ordered[0]:.2g} % at best, {100 * middle:.2g} % in the "
            f"middle and {100 * ordered[-1]:.2g} % at worst"
        )
    open_ones = len(by_workload) - len(known)
    if open_ones:
        said += f". On {open_ones} there were too few rounds to say"
    return said + (f". Identical code was told apart on {len(fired)}." if fired else ". No control fired.")
