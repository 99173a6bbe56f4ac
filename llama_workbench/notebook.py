"""For notebooks and scripts: runs as data frames (`open`), and two functions compared (`compare`)."""

from __future__ import annotations

import html
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_workbench.harness.calls.source import in_no_file, written
from llama_workbench.harness.claims.model import ClaimError
from llama_workbench.harness.session.questions import FunctionQuestion, Given, Outcome
from llama_workbench.harness.store.files import RESTORE, RunError

from .harness.calls.source import Source
from .harness.plugin.progress import progress_on
from .harness.session.judging import rejudge
from .harness.store.files import CLAIMS, VERDICTS
from .harness.store.folder import RunFolder
from .harness.store.verdict_schema import Verdict
from .results import find_run

if TYPE_CHECKING:
    import pandas as pd

VERDICT_COLUMNS = ("claim", "part", "who", "title", "verdict", "reason", "claimed", "alpha", "together")
EFFECT_COLUMNS = (
    "claim", "part", "workload", "variant", "baseline", "metric", "unit", "value", "low", "high", "rounds", "seconds",
    "verdict", "cause", "reason", "notes", "machine",
)  # fmt: skip


class OpenRun:
    """A run that lies on the disk. Nothing in it is changed, and its tables are read when they are first asked for.

    path: its folder. Asking for a table raises RunError if its file is missing, damaged, or not what the run wrote; the
    text says what to do."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.path: Path = folder.path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """run.json: what was measured, on what machine, which gates passed (docs: file format)."""
        return self._folder.read_manifest()

    @cached_property
    def verdicts(self) -> pd.DataFrame:
        """One row a part of a claim: claim, part, who said it, verdict, reason, what is claimed, alpha, together.

        part: "" where a claim has one part. together: whether it holds at once with all others that say so (Holm)."""
        return _frame(VERDICT_COLUMNS, ({**vars(each), "who": ", ".join(each.who)} for each in self._judged))

    @cached_property
    def effects(self) -> pd.DataFrame:
        """One row an effect: what a part's verdict rests on.

        value: of a time the ratio t_baseline / t_variant (above 1 the variant is faster), else a value in `unit`.
        low, high: its interval; infinite where it has no end. rounds: how many. seconds: of their samples. machine:
        "" unless the run is of several."""
        rows = (
            {
                **vars(effect),
                "claim": each.claim,
                "part": each.part,
                "value": effect.ratio,
                "low": -math.inf if effect.lower is None else effect.lower,
                "unit": effect.unit or "times",
                "notes": "\n".join(effect.notes),
            }
            for each in self._judged
            for effect in each.effects
        )
        return _frame(EFFECT_COLUMNS, rows)

    @cached_property
    def samples(self) -> pd.DataFrame:
        """One row a sample: workload, variant, process, round, sub_round, tokens, repeats (calls), cpu_ns, wall_ns,
        faults, ... Times are those of all its calls together."""
        return self._folder.read_samples().frame()

    @cached_property
    def _judged(self) -> Sequence[Verdict]:
        """The verdicts that lie there; of a run that was killed before it had any, those of its finished rounds."""
        if self._folder.has(VERDICTS):
            return self._folder.read(VERDICTS)
        try:
            return rejudge(self._folder).verdicts
        except ClaimError as error:
            raise RunError(self.path / CLAIMS, str(error), RESTORE) from error

    def _summary(self) -> str:
        counts = Counter(each.verdict for each in self._judged)
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
    import pandas as pd

    return pd.DataFrame([{name: row[name] for name in columns} for row in rows], columns=list(columns))


# -- two functions -----------------------------------------------------------------------------------------------------


class Compared:
    """What a comparison of two functions came to; it shows itself in Jupyter.

    verdict: faster, slower, same or inconclusive (of the variant). ratio: how many times as fast as the baseline, with
    its interval from low to high (infinite while there are too few rounds). why: where the difference is. run: all that
    was measured."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self.verdict, self.rounds = outcome.verdict, outcome.rounds
        self.ratio, self.low, self.high = outcome.ratio, outcome.low, outcome.high

    @cached_property
    def run(self) -> OpenRun:
        """The run that measured it, as `open` gives it."""
        return open_run(self._outcome.run)

    @cached_property
    def why(self) -> str:
        """Where the difference is: "mostly in normalise (a.py:17): 5.5 of the 6.2 ms saved a call". Empty where there
        is none, or no one could look."""
        from .harness.report.causes import explanations_in, why

        try:
            explained = explanations_in(RunFolder(self._outcome.run))
        except RunError:  # the run is gone
            return ""
        return "; ".join(why(explained, self._outcome.judged.effects))

    def __repr__(self) -> str:
        return f"<{self._outcome}{f' Why: {self.why}.' if self.why else ''}>"

    def _repr_html_(self) -> str:
        """A sentence, and the interval as the pages draw it."""
        from .dashboard.export.svg import FIGURE_PX, forest_svg
        from .dashboard.views.data import Definition, claim_of

        picture = forest_svg(claim_of(self._outcome.judged, Definition(), {}), {}, width=FIGURE_PX)
        why = f"<p>Why: {html.escape(self.why)}.</p>" if self.why else ""
        return f"<p>{html.escape(str(self._outcome))}</p>{why}{picture}"


def compare_functions(
    baseline: Given,
    variant: Given,
    *,
    payload: Given,
    check: Given | None,
    budget: float,
    threads: int,
) -> Compared:
    """See `llama_workbench.compare`."""
    from rich.console import Console

    from .harness.plan.options import Options

    given = {"variant": variant, "baseline": baseline, "payload": payload, "check": check}
    with tempfile.TemporaryDirectory(prefix="workbench-functions-") as folder:
        if cells := [source for source in given.values() if callable(source) and in_no_file(source)]:
            file = Path(folder, "notebook.py")
            file.write_text(written(cells), encoding="utf-8")
            for name, source in given.items():
                if callable(source) and in_no_file(source):
                    given[name] = Source(source.__name__, str(file.resolve()), source.__name__)
        question = FunctionQuestion(**given, threads=threads)  # type: ignore[arg-type]
        with closing(progress_on(Console(file=sys.stderr))) as progress:
            result = question.measure(Options(budget_seconds=budget), progress)
    if result.interrupted:
        raise KeyboardInterrupt
    return Compared(Outcome.of(result))
