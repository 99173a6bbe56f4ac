"""Outputs of timed calls that the examiner will judge: a few, drawn at random, in a file of tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from secrets import randbelow  # not the run's seed, which a variant could know
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from .state import DrawnOutputs


@dataclass(frozen=True)
class Kept:
    """An output and the prompt that it answers: the fields of `examiner.Output`, and its tensors by part."""

    variant: str
    prompt: int
    length: int
    tensors: dict[str, Tensor]


@dataclass
class Drawn(DrawnOutputs):
    """`most` sub-rounds of a round, each as likely as any other, and of each sample in them one call."""

    most: int
    seen: int = 0
    now: list[Kept] = field(default_factory=list)
    chosen: list[list[Kept]] = field(default_factory=list)

    def keep(self, variant: str, asked: list[tuple[int, int]], kept: list[Tensor]) -> dict[str, Tensor]:
        """Copy the output of one of a sample's calls; `asked` and `kept` have an entry for each of them."""
        call = randbelow(len(kept))
        prompt, length = asked[call]
        out = kept[call].clone()
        part = "logits" if out.is_floating_point() else "tokens"
        self.now.append(Kept(variant, prompt, length, {part: out}))
        return self.now[-1].tensors

    def end_sub_round(self) -> None:
        """Decide whether the outputs of the sub-round that is over will be checked."""
        self.seen += 1
        if len(self.chosen) < self.most:
            self.chosen.append(self.now)
        elif (place := randbelow(self.seen)) < self.most:
            self.chosen[place] = self.now
        self.now = []

    def write(self, path: Path) -> list[dict[str, Any]]:
        """Leave the drawn outputs in a file. The result is what `Examiner.judge` must know of them."""
        kept = [one for outputs in self.chosen for one in outputs]
        tensors = {f"{i}.{part}": t.cpu().contiguous() for i, one in enumerate(kept) for part, t in one.tensors.items()}
        save_file(tensors, path)
        return [
            {"variant": one.variant, "prompt": one.prompt, "length": one.length, "kind": " and ".join(one.tensors)}
            for one in kept
        ]


def joined(outputs: str, drawn: Iterable[list[dict[str, Any]]], judged: set[str]) -> list[dict[str, Any]]:
    """Put the outputs of `judged` into one file, in their order; what the examiner must know of them.

    drawn: of each side of a block, what it left in the file `outputs`.PLACE.
    """
    tensors: dict[str, Tensor] = {}
    every: list[dict[str, Any]] = []
    for place, of_side in enumerate(drawn):
        file = Path(f"{outputs}.{place}")
        if judged & {each["variant"] for each in of_side}:
            for key, tensor in load_file(file).items():
                number, _, part = key.partition(".")
                tensors[f"{len(every) + int(number)}.{part}"] = tensor
            every += of_side
        file.unlink(missing_ok=True)
    save_file(tensors, outputs)
    return every
