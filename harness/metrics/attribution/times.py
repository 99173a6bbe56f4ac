"""From samples to the log times of a grid's cells, [rounds, cells]."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...evidence.judge import Clock
from .grid import GRID, Grid


@dataclass(frozen=True)
class GridTimes:
    """Whole rounds of a grid on one workload, in order of (process, round).

    logs: [rounds, cells], median over the round's sub-rounds of the log time of a call in ns. rounds: (process, round)
    of each. faults: mean over rounds of the median page faults a call, by cell. incomplete: rounds that lack a cell.
    invalid: rounds left out because a time was not positive. seconds: wall time of all samples behind `logs`.
    """

    logs: NDArray[np.float64]
    rounds: tuple[tuple[int, int], ...]
    faults: NDArray[np.float64]
    incomplete: int
    invalid: int
    seconds: float


def grid_times(samples: pd.DataFrame, grid: Grid = GRID, *, workload: str, clock: Clock) -> GridTimes:
    """Take the whole rounds of a grid from samples, which have the columns of samples.parquet, in any order.

    A round in which some cell has no sample is left out whole: without it the signs would no longer sum to nil, and the
    round's own speed would enter. Of a round only the sub-rounds with all cells count. Raises ValueError where a
    cell occurs twice in one sub-round.
    """
    cells = grid.cells()
    key = ["process", "round", "sub_round"]
    here = samples[(samples["workload"] == workload) & samples["variant"].isin(cells)]
    if here.duplicated([*key, "variant"]).any():
        raise ValueError(f"{workload}: a cell of the grid has duplicate samples in one sub-round")
    sub_rounds = here[key].drop_duplicates().sort_values(key, ignore_index=True)
    row = here.groupby(key, sort=True).ngroup().to_numpy()
    column = here["variant"].astype(str).map({name: index for index, name in enumerate(cells)}).to_numpy(dtype=int)

    def by_cell(name: str) -> NDArray[np.float64]:
        table = np.full((len(sub_rounds), len(cells)), np.nan)
        table[row, column] = here[name]
        return table

    times, repeats = by_cell(f"{clock}_ns"), by_cell("repeats")
    whole: NDArray[np.bool_] = np.all(~np.isnan(times), axis=1)
    usable: NDArray[np.bool_] = np.all((times > 0) & (repeats > 0), axis=1)
    rounds = sub_rounds.loc[whole, ["process", "round"]].assign(valid=usable[whole])
    valid = rounds.groupby(["process", "round"])["valid"].transform("all").to_numpy(dtype=bool)
    kept = np.flatnonzero(whole)[valid]
    by_round = [rounds.loc[valid, "process"].to_numpy(), rounds.loc[valid, "round"].to_numpy()]
    logs = pd.DataFrame(np.log(times[kept] / repeats[kept])).groupby(by_round).median()
    faults = pd.DataFrame(by_cell("faults")[kept] / repeats[kept]).groupby(by_round).median()
    complete = len(rounds.drop_duplicates(["process", "round"]))
    return GridTimes(
        logs=logs.to_numpy(dtype=np.float64).reshape(-1, len(cells)),
        rounds=tuple((int(process), int(number)) for process, number in logs.index),
        faults=faults.to_numpy(dtype=np.float64).mean(axis=0) if len(faults) else np.zeros(len(cells)),
        incomplete=len(sub_rounds.drop_duplicates(["process", "round"])) - complete,
        invalid=complete - len(logs),
        seconds=float(by_cell("wall_ns")[kept].sum()) / 1e9,
    )


def round_logs(samples: Iterable[Sequence[Any]], grid: Grid = GRID, *, clock: Clock) -> NDArray[np.float64] | None:
    """The same for one round as the measuring loop has it: [cells], or None where the round is not whole or not valid.

    Each sample is a row of `store.RoundRecord`.
    """
    cells = {name: index for index, name in enumerate(grid.cells())}
    place = {"cpu": 0, "wall": 1, "device": 5}[clock]
    rows: dict[int, dict[int, float]] = {}
    for variant, sub_round, _, _, repeats, *found_ns in samples:
        if variant in cells:
            time_ns = found_ns[place]
            usable = time_ns > 0 and repeats > 0
            rows.setdefault(sub_round, {})[cells[variant]] = math.log(time_ns / repeats) if usable else math.nan
    whole = [[row[index] for index in range(len(cells))] for row in rows.values() if len(row) == len(cells)]
    logs = np.median(np.array(whole), axis=0) if whole else np.full(len(cells), np.nan)
    return None if np.isnan(logs).any() else logs


def dummy_series(times: GridTimes, seed: int) -> NDArray[np.float64]:
    """The contrast of a random half of the cells with the rest, one value a round: its truth is 0.

    The draw depends on the run's seed and the round alone. Given the times, every value is as likely as its negative
    and independent of the others, whatever the deviations from the cells' means are: symmetric about 0.
    """
    cells = times.logs.shape[1]
    signs = np.repeat([-1.0, 1.0], cells // 2)
    drawn = [np.random.default_rng([seed, process, number]).permutation(signs) for process, number in times.rounds]
    deviations = times.logs - times.logs.mean(axis=0) if len(times.logs) else times.logs
    return np.asarray((np.reshape(drawn, times.logs.shape) * deviations).sum(axis=1) / (cells / 2), dtype=np.float64)
