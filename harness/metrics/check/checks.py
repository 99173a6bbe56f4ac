"""Claims that are settled by trying: does it work, yes or no, case by case.

Each check runs in a process of its own (it imports torch, and what it tries may crash) and prints its cases as JSON:

    python -m llama_workbench.harness.metrics.check.checks --cache FOLDER --seed 0 own-unified-cache-correct
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...machine.environment import child_environment
from ...machine.lifeline import tied

if TYPE_CHECKING:
    from torch import Tensor

    from llama_workbench.variants import Model

CHECK_SECONDS = 300.0


@dataclass(frozen=True)
class Case:
    """One thing that was tried."""

    name: str
    passed: bool
    detail: str = ""


Check = Callable[[Path, int], Iterator[Case]]
"""From a cache directory and a seed."""


class CheckError(Exception):
    """A check could not be carried out; the text says why."""


def run_check(name: str, *, cache: Path, seed: int, log: Path) -> tuple[list[Case], float]:
    """The cases of a check, and how many seconds it took. Raises CheckError where it came to no end."""
    if name not in CHECKS:
        raise CheckError(f"there is no check {name!r}; there are: {', '.join(CHECKS)}")
    command = [sys.executable, "-P", "-m", __name__, "--cache", str(cache), "--seed", str(seed), name]
    begun = time.monotonic()
    try:
        with log.open("ab") as errors:
            pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors}
            done = subprocess.run(tied(command), **pipes, timeout=CHECK_SECONDS, env=child_environment(), check=False)
    except subprocess.TimeoutExpired as error:
        raise CheckError(f"no end after {CHECK_SECONDS:.0f} s") from error
    if done.returncode:
        raise CheckError(f"ends with exit code {done.returncode} (its output lies in {log.name})")
    return [Case(**case) for case in json.loads(done.stdout)], time.monotonic() - begun


# -- the checks --------------------------------------------------------------------------------------------------------


def _unified_cache_correct(cache: Path, seed: int) -> Iterator[Case]:
    """The modular code with its own shared cache, against the library: every case of the logits gate on its own."""
    import torch

    from llama_workbench import variants

    from ...worker.gates.logits import judge_logits, run_cases
    from ...worker.gates.small import SMALL_LENGTH, small_cases, small_geometries, small_weights

    for geometry, config in small_geometries().items():
        weights = small_weights(config, torch.float64)
        library = variants.get("transformers_eager").build(config, weights, max_length=SMALL_LENGTH)
        ours = variants.get("team005_hybrid").build(config, weights, max_length=SMALL_LENGTH)
        for case in small_cases(config):
            gate = judge_logits([case], run_cases(ours, [case]), run_cases(library, [case]), torch.float64)
            detail = gate.detail if not gate.passed else f"logits within {gate.max_error:.0e} of the largest"
            yield Case(f"{case.name} ({geometry})", gate.passed, detail)


def _of_gguf(function: str) -> Check:
    """A check in `gguf`, which imports torch."""

    def check(cache: Path, seed: int) -> Iterator[Case]:
        cases = getattr(import_module(".gguf", __package__), function)(cache, seed)
        return (Case(*case) for case in cases)

    return check


STREAMED = ("team006_before", "team006_after", "team005_hybrid", "team005_proposal", "candle", "fast")


def _streaming(cache: Path, seed: int) -> Iterator[Case]:
    """Each token of a generation comes after exactly one more forward, and is the library's most likely one."""
    import torch

    from llama_workbench import variants
    from llama_workbench.variants.generation import generate

    from ...worker.gates.small import SMALL_LENGTH, small_geometries, small_weights

    config = small_geometries()["plain"]
    weights = small_weights(config, torch.float64)
    prompt = torch.randint(0, config.vocab_size, (1, 9), generator=torch.Generator().manual_seed(seed))
    wanted = SMALL_LENGTH - 9
    library = variants.get("transformers_eager").build(config, weights, max_length=SMALL_LENGTH)
    with torch.inference_mode():
        expected = [int(token) for token in generate(library, prompt, wanted)]
        for name in STREAMED:
            model = variants.get(name).build(config, weights, max_length=SMALL_LENGTH)
            counted = _Counted(model)
            tokens, forwards = [], []
            for token in generate(counted, prompt, wanted):
                tokens.append(int(token))
                forwards.append(counted.forwards)
            stepwise = forwards == list(range(1, wanted + 1))
            yield Case(f"{name}: one forward a token", stepwise, f"forwards when each token came: {forwards}")
            yield Case(f"{name}: the library's tokens", tokens == expected, f"{tokens} for {expected}")


class _Counted:
    """A model that counts its forwards."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.forwards = 0

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        self.forwards += 1
        return self.model.forward(tokens, position)

    def reset(self) -> None:
        self.model.reset()


CHECKS: Mapping[str, Check] = {
    "gguf-loads": _of_gguf("check_gguf_loads"),
    "own-unified-cache-correct": _unified_cache_correct,
    "streaming": _streaming,
    "tokenizer-matches": _of_gguf("check_tokenizer_matches"),
}
"""By the name that a claim uses."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one check and print its cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="where checkpoints are kept")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("name", choices=sorted(CHECKS))
    asked = parser.parse_args(arguments)
    print(json.dumps([vars(case) for case in CHECKS[asked.name](asked.cache, asked.seed)]))


if __name__ == "__main__":
    main()
