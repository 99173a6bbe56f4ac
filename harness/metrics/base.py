"""What a metric is to the rest of the harness: a hypothesis model, a pass, and a verdict.

A metric lives in one module or small package of this folder, whose METRIC is found by `registry`. Claims are written
with its hypothesis model, a plan takes from the hypotheses what they need, a run makes the pass, and `judge` gives the
verdict from what the pass left in the run folder. Nothing else in the harness knows it by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from ..evidence.effect import Effect
from ..evidence.evidence import Evidence
from ..measure.measurement import Measurement
from ..measure.participants import Progress
from ..spec.hypotheses import Hypothesis
from ..stats.confidence import Method
from ..store.folder import RunFolder

H = TypeVar("H", bound=Hypothesis)

NOT_MEASURABLE = "not measurable here"


@dataclass(frozen=True)
class PassContext:
    """What a pass works with. `cache` keeps checkpoints; logs lie below `folder`."""

    measurement: Measurement
    folder: RunFolder
    progress: Progress
    cache: Path
    seed: int

    def log(self, name: str) -> Path:
        """Where the pass's processes write what they print."""
        return self.folder.path / "log" / f"{name}.log"


@dataclass(frozen=True)
class Judged:
    """The verdict on one hypothesis with its reason, and the effects behind it."""

    verdict: str
    reason: str
    effects: tuple[Effect, ...] = ()


class Metric(ABC, Generic[H]):
    """One metric.

    `names` are the words for `metric = ...` in a claim. `title` says in words what its pass does; empty where it has
    none, because rounds of timing are all it needs. `needs_cache`: whether its pass writes into the cache.
    """

    names: ClassVar[tuple[str, ...]]
    hypothesis: ClassVar[type[Hypothesis]]
    title: ClassVar[str] = ""
    needs_cache: ClassVar[bool] = False

    @abstractmethod
    def judge(self, hypothesis: H, evidence: Evidence, *, alpha: float, method: Method) -> Judged:
        """The verdict, from a run's evidence; what `read` gave is under the first name in `evidence.passes`.

        alpha: of each interval.
        """

    def run(self, hypotheses: Sequence[H], context: PassContext) -> None:
        """Make the pass for all hypotheses at once, and write what it gives into the run folder.

        Raises WorkerFailed or MeasureError where it cannot go on; the hypotheses stay open then.
        """

    def leave_out(self, hypotheses: Sequence[H], folder: RunFolder, device: str) -> None:
        """Note in the run folder why the pass is not made for these, which are about another device."""

    def read(self, folder: RunFolder) -> Any:
        """What the pass left in a run folder, for `judge`; None where there is nothing. Raises RunError."""
        return None


def subjects(hypotheses: Sequence[Hypothesis]) -> list[tuple[str, str]]:
    """Every (workload, variant) that these look at, each once."""
    return list(dict.fromkeys(pair for hypothesis in hypotheses for pair in hypothesis.subjects()))
