"""Whether something works, yes or no, case by case.

Each check runs in a process of its own (it imports torch, and what it tries may crash) and prints its cases as JSON:

    python -m llama_workbench.harness.slices.check.metric like-the-library CACHE SEED VARIANT
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from ...machine.environment import child_environment
from ...machine.lifeline import tied
from ...metrics.base import ExactMetric, PassContext
from ...slices import faces
from ...spec.hypotheses import Quantity, ValueHypothesis
from ...spec.regions import Range
from ...store.forms import ExactResult

CHECK_SECONDS = 300.0


Case = tuple[str, bool, str]
"""What was tried, whether it passed, and a detail."""

Check = Callable[[Path, int, str], Iterable[Case]]
"""From a cache directory, a seed and a variant (empty where it is about none) to cases."""


def run_check(name: str, variant: str, *, cache: Path, seed: int, log: Path) -> list[Case]:
    """The cases of a check. Raises ValueError with the reason where it did not come to its end."""
    if name not in CHECKS:
        raise ValueError(f"there is no check {name!r}; there are: {', '.join(CHECKS)}")
    command = [sys.executable, "-P", "-m", __name__, name, str(cache), str(seed), variant]
    try:
        with log.open("ab") as errors:
            done = subprocess.run(
                tied(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, timeout=CHECK_SECONDS,
                env=child_environment(), check=True,
            )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"no end after {CHECK_SECONDS:.0f} s") from error
    except subprocess.CalledProcessError as error:
        raise ValueError(f"ends with exit code {error.returncode} (its output lies in {log.name})") from error
    if not (cases := json.loads(done.stdout)):
        raise ValueError("the check tried nothing")
    return [(what, passed, detail) for what, passed, detail in cases]


def _like_the_library(cache: Path, seed: int, variant: str, *, chunks: bool = True) -> Iterator[Case]:
    """A variant against the library's model: every case of the logits gate on its own. chunks: else without those in
    which several tokens follow others."""
    import torch

    from llama_workbench import variants

    from ...worker.correctness import (
        SMALL_LENGTH,
        judge_logits,
        run_cases,
        small_cases,
        small_geometries,
        small_weights,
    )

    for geometry, config in small_geometries().items():
        weights = small_weights(config, torch.float64)
        library, ours = (
            variants.get(name).build(config, weights, max_length=SMALL_LENGTH)
            for name in ("transformers_eager", variant)
        )
        for case in small_cases(config):
            if not chunks and any(position > 0 and tokens.shape[1] > 1 for tokens, position in case.steps):
                continue
            gate = judge_logits([case], run_cases(ours, [case]), run_cases(library, [case]), torch.float64)
            detail = gate.detail if not gate.passed else f"logits within {gate.max_error:.0e} of the largest"
            yield f"{case.name} ({geometry})", gate.passed, detail


def _streaming(cache: Path, seed: int, variant: str) -> Iterator[Case]:
    """Each token of a generation comes after exactly one more forward, and is the library's most likely one."""
    from unittest.mock import Mock

    import torch

    from llama_workbench import variants
    from llama_workbench.variants.generation import generate

    from ...worker.correctness import SMALL_LENGTH, small_geometries, small_weights

    config = small_geometries()["plain"]
    weights = small_weights(config, torch.float64)
    prompt = torch.randint(0, config.vocab_size, (1, 9), generator=torch.Generator().manual_seed(seed))
    wanted = SMALL_LENGTH - 9
    library = variants.get("transformers_eager").build(config, weights, max_length=SMALL_LENGTH)
    with torch.inference_mode():
        expected = [int(token) for token in generate(library, prompt, wanted)]
        for name in variants.GENERATING:
            counted = Mock(wraps=variants.get(name).build(config, weights, max_length=SMALL_LENGTH))
            streamed = [(int(token), counted.forward.call_count) for token in generate(counted, prompt, wanted)]
            tokens, forwards = map(list, zip(*streamed, strict=True))
            stepwise = forwards == list(range(1, wanted + 1))
            yield f"{name}: one forward a token", stepwise, f"forwards when each token came: {forwards}"
            yield f"{name}: the library's tokens", tokens == expected, f"{tokens} for {expected}"


LIKE_THE_LIBRARY, BUT_FOR_CHUNKS = "like-the-library", "like-the-library-but-for-chunks"

CHECKS: Mapping[str, Check] = {
    LIKE_THE_LIBRARY: _like_the_library,
    BUT_FOR_CHUNKS: partial(_like_the_library, chunks=False),
    "streaming": _streaming,
    **{name: check for face in faces("checks") for name, check in face.CHECKS.items()},
}
"""By the name that a claim uses; those of other slices are in their module `checks`."""


class CheckHypothesis(ValueHypothesis):
    """Every case of the check `quantity` passes, with `variant` where it is about one."""

    quantities = CHECKS

    metric: Literal["check"]
    quantity: Quantity
    variant: str = ""

    @property
    def region(self) -> Range:
        return Range(100.0, 100.0, self.unit)

    def describe(self) -> str:
        return "every case passes"

    def fault(self) -> str:
        if (self.quantity in (LIKE_THE_LIBRARY, BUT_FOR_CHUNKS)) != bool(self.variant):
            return f'quantity = "{LIKE_THE_LIBRARY}" and "{BUT_FOR_CHUNKS}" need a variant, and no other check has one'
        return super().fault()


class CheckMetric(ExactMetric[CheckHypothesis]):
    """Its value is the percentage of cases that pass."""

    names = ("check",)
    about = "Whether something works, tried case by case; nothing was timed."
    inside = "nothing"
    hypothesis = CheckHypothesis
    title = "check"
    does = "what works and what does not"
    needs_cache = True

    def run(self, hypotheses: Sequence[CheckHypothesis], context: PassContext) -> None:
        """Run every check once."""
        checks = dict.fromkeys((hypothesis.quantity, hypothesis.variant) for hypothesis in hypotheses)
        results = []
        for index, (quantity, variant) in enumerate(checks):
            context.progress.step(f"check {quantity} {variant}".rstrip(), index / len(checks), math.nan)
            results.append(_checked(quantity, variant, context))
        self.store(results, context)


def _checked(quantity: str, variant: str, context: PassContext) -> ExactResult:
    subject, begun = ("check", quantity, "", variant, ""), time.monotonic()
    try:
        cases = run_check(quantity, variant, cache=context.cache, seed=context.seed, log=context.log("checks"))
    except ValueError as error:
        return ExactResult(*subject, math.nan, 0, reason=str(error), seconds=time.monotonic() - begun)
    failed = [f"{name}: {detail}" for name, passed, detail in cases if not passed]
    detail, seconds = "; ".join(failed) or f"all {len(cases)} cases pass", time.monotonic() - begun
    return ExactResult(*subject, 100 * (1 - len(failed) / len(cases)), len(cases), detail=detail, seconds=seconds)


METRIC = CheckMetric()


if __name__ == "__main__":
    print(json.dumps(list(CHECKS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))))
