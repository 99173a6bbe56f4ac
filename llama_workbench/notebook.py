"""Runs as data frames, for notebooks and scripts: `import llama_workbench as wb; run = wb.open("reference")`."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from .harness.claims.faults import ClaimError
from .harness.rejudge import rejudge
from .harness.store.errors import RESTORE, RunError
from .harness.store.files import CLAIMS, VERDICTS
from .harness.store.folder import RunFolder
from .results import find_run

VERDICT_COLUMNS = ("claim", "part", "who", "title", "verdict", "reason", "claimed", "alpha", "together")
EFFECT_COLUMNS = (
    "claim", "part", "workload", "variant", "baseline", "metric", "unit", "value", "low", "high", "rounds", "seconds",
    "verdict", "warnings",
)  # fmt: skip


class OpenRun:
    """A run that lies on the disk. Nothing in it is changed, and its tables are read when they are first asked for.

    path: its folder. Asking for a table raises RunError if its file is missing, damaged, or not what the run wrote; the
    text says what to do.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.path: Path = folder.path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """run.json: what was measured, on what machine, which gates passed (FORMAT.md has every key)."""
        return self._folder.read_manifest()

    @cached_property
    def verdicts(self) -> pd.DataFrame:
        """One row a part of a claim: claim, part, who said it, verdict, reason, what is claimed, alpha, together.

        part: "" where a claim has one part. together: whether it holds at once with all others that say so (Holm).
        """
        return _frame(VERDICT_COLUMNS, ({**each, "who": ", ".join(each["who"])} for each in self._judged))

    @cached_property
    def effects(self) -> pd.DataFrame:
        """One row an effect: what a part's verdict rests on.

        value: of a time the ratio t_baseline / t_variant (above 1 the variant is faster), else a value in `unit`.
        low, high: its interval; infinite where it has no end. rounds: how many. seconds: of their samples.
        """
        rows = (
            {
                **effect,
                "claim": each["claim"],
                "part": each["part"],
                "value": effect.get("ratio", effect.get("value")),
                "unit": effect.get("unit") or "times",
                "warnings": "\n".join(effect["warnings"]),
            }
            for each in self._judged
            for effect in each["effects"]
        )
        frame = _frame(EFFECT_COLUMNS, rows)
        numbers = ["value", "low", "high"]
        frame[numbers] = frame[numbers].astype(float)
        frame["low"] = frame["low"].fillna(float("-inf"))
        frame["high"] = frame["high"].fillna(float("inf"))
        return frame

    @cached_property
    def samples(self) -> pd.DataFrame:
        """One row a sample: workload, variant, process, round, sub_round, tokens, repeats (calls), cpu_ns, wall_ns,
        faults, ... Times are those of all its calls together."""
        return self._folder.read_samples()

    @cached_property
    def _judged(self) -> Sequence[Mapping[str, Any]]:
        """The verdicts that lie there; of a run that was killed before it had any, those of its finished rounds."""
        if self._folder.has(VERDICTS):
            return self._folder.records(VERDICTS)
        try:
            return rejudge(self._folder)[0]
        except ClaimError as error:
            raise RunError(self.path / CLAIMS, str(error), RESTORE) from error

    def _summary(self) -> str:
        counts = Counter(str(each["verdict"]) for each in self._judged)
        return ", ".join(f"{count} {word}" for word, count in counts.most_common()) or "no verdicts"

    def __repr__(self) -> str:
        try:
            return f"<run {self.path}: {self._summary()}>"
        except RunError as error:  # what is wrong is told, as text: a notebook shows whatever a line comes to
            return f"<run {self.path}: {error}>"

    def _repr_html_(self) -> str:
        """What Jupyter shows: a row a verdict. Texts of a run are escaped."""
        title = f"<p>{html.escape(repr(self))}</p>"
        try:
            return title + self.verdicts[["claim", "part", "verdict", "reason"]].to_html(index=False, escape=True)
        except RunError:
            return title


def open_run(run: str | Path) -> OpenRun:
    """A run by its folder, or by its name under results/baselines or results/runs. Raises RunError."""
    opened = OpenRun(find_run(str(run)))
    opened.manifest  # noqa: B018 (what is no run is told now)
    return opened


def _frame(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame([{name: row.get(name) for name in columns} for row in rows], columns=list(columns))
    texts = [name for name in ("part", "claimed") if name in columns]
    frame[texts] = frame[texts].fillna("")
    return frame
