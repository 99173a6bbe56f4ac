"""A process that times nothing and runs no foreign code. It checks whether outputs of timed calls are right.

The measuring process (`worker`) gives the number of the prompt that a call had, and leaves the output in a file. This
process cuts the prompt anew (`prompts`) and computes the right output (`reference`). A variant in the measuring process
can reach neither. Commands and answers go through a pipe as for every measuring process (`channel`).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from llama_workbench.datasets import tokenizer
from llama_workbench.datasets.checkpoints import Checkpoint, load
from llama_workbench.datasets.tokenizer import Prompts
from llama_workbench.variants.presets import presets

from ..spec.comparison import EnteredName
from ..worker.channel import serve
from ..worker.correctness import tolerance_of
from . import reference

MOST_TOKENS = 4096  # prompts of one length go through the reference together, up to so many tokens at a time


@dataclass(frozen=True)
class Output:
    """What a variant gave at one timed call."""

    variant: str
    prompt: int  # number of the prompt
    length: int  # its tokens, those of earlier calls included
    # "logits": [B, V] after the prompt; "tokens": [B, N] greedy ones that follow it; "tokens and logits": both, logits
    # after the last token
    kind: str


def wrong_logits(got: Tensor, expected: Tensor, tolerance: float) -> str | None:
    """What is wrong with logits [B, V], in words; None where they agree."""
    if got.shape != expected.shape:
        return f"a timed call gave {list(got.shape)} logits for {list(expected.shape)}"
    if not bool(torch.isfinite(got).all()):
        return "NaN or infinite logits in a timed call"
    error = float((got.double() - expected.double()).abs().max() / expected.double().abs().max())
    if not error <= tolerance:
        return f"logits of a timed call off by {error:.1e} of the largest (allowed {tolerance:.0e})"
    return None


def wrong_tokens(got: Tensor, expected: Tensor, tolerance: float) -> str | None:
    """What is wrong with greedy tokens [B, N], given the right logits [B, N, V] at each of them; None where they agree.
    A near-tie is not a fault: where the best token leads by at most the tolerance, a right variant may take the second.
    The logits follow the variant's own tokens, so the tokens after such a choice are checked as well."""
    if got.shape != expected.shape[:2]:
        return f"a timed call gave {list(got.shape)} tokens for {list(expected.shape[:2])}"
    chosen = expected.gather(-1, got[..., None])[..., 0]
    short = (expected.amax(-1) - chosen) / expected.abs().amax(-1)
    worst = int(short.argmax())
    if float(short.max()) <= tolerance:
        return None
    row, place = divmod(worst, got.shape[1])
    return (
        f"in a timed call token {place + 1} of sequence {row + 1} is {int(got[row, place])}, expected "
        f"{int(expected[row, place].argmax())}, which leads by {float(short.max()):.1e} of the largest logit"
    )


class Examiner:
    """Checks outputs. Checkpoints and texts are read once."""

    def __init__(self, hello: Mapping[str, Any]) -> None:
        self.load = cache(partial(load, cache=Path(hello["cache"])))
        self.text_ids = cache(partial(tokenizer.text_ids, cache=Path(hello["cache"])))
        torch.set_num_threads(int(hello["threads"]))
        torch.set_grad_enabled(False)

    def judge(
        self, folder: str, workload: Mapping[str, Any], draw: str, file: str, outputs: Sequence[Mapping[str, Any]]
    ) -> dict[str, str]:
        """Variant → what is wrong with its outputs. Variants with right outputs are not in it."""
        dtype = getattr(torch, workload["dtype"])
        checkpoint: Checkpoint = self.load(Path(folder), dtype=dtype)
        vocabulary = checkpoint.config.vocab_size
        text = self.text_ids(Path(folder), vocab_size=vocabulary)
        prompts = Prompts(text, batch=workload["batch"], draw=draw, repeated=workload.get("prompts") == "repeated")
        tensors = load_file(file)
        wrong: dict[str, str] = {}
        for batch in _batches(prompts, [Output(**output) for output in outputs], tensors, vocabulary):
            expected = _expected(checkpoint, batch)
            tolerance = 2 * tolerance_of(dtype, batch[0].rounding)  # both sides are rounded
            for question, logits in zip(batch, expected, strict=True):
                for output, given in question.given:
                    if reason := _wrong(given, logits, tolerance):
                        wrong.setdefault(output.variant, reason)
        return wrong


@dataclass(frozen=True)
class _Question:
    """A sequence [B, T] whose logits from position `first` on are needed, and the outputs to compare with them.
    `rounding`: of the cache of the variants that gave them."""

    sequence: Tensor
    first: int
    rounding: str
    given: list[tuple[Output, dict[str, Tensor]]]


def _expected(checkpoint: Checkpoint, questions: Sequence[_Question]) -> Sequence[Tensor]:
    """The right logits [B, N, V] of each question, from its position `first` on."""
    rows = torch.cat([question.sequence for question in questions])
    with torch.inference_mode():
        first, rounding = questions[0].first, questions[0].rounding
        logits = reference.logits(checkpoint.config, checkpoint.weights, rows, first=first, rounding=rounding)
    return logits.split(len(questions[0].sequence))


def _batches(
    prompts: Prompts, outputs: Sequence[Output], tensors: Mapping[str, Tensor], vocabulary: int
) -> Iterable[list[_Question]]:
    """Questions of one shape together. Calls of several variants on one sequence are one question."""
    questions: dict[tuple[Any, ...], _Question] = {}
    for index, output in enumerate(outputs):
        given = {part: tensors[f"{index}.{part}"] for part in output.kind.split(" and ")}
        sequence = torch.from_numpy(prompts.tokens(output.prompt, output.length))
        tokens = given.get("tokens")
        if tokens is not None and tokens.shape[0] == sequence.shape[0]:
            # Ids outside the vocabulary would make the embedding raise; `_wrong` reports them.
            before = tokens if "logits" in given else tokens[:, :-1]  # without logits the last token is only checked
            sequence = torch.cat((sequence, before.clamp(0, vocabulary - 1)), dim=1)
        ours = presets().get(EnteredName(output.variant).original)
        rounding = ours.rounding if ours else ""
        key = (output.prompt, output.length, sequence.numpy().tobytes(), rounding)
        questions.setdefault(key, _Question(sequence, output.length - 1, rounding, [])).given.append((output, given))
    by_shape: defaultdict[tuple[Any, ...], list[_Question]] = defaultdict(list)
    for question in questions.values():
        by_shape[*question.sequence.shape, question.first, question.rounding].append(question)
    for (rows, length, *_), alike in by_shape.items():
        step = max(1, MOST_TOKENS // (rows * length))
        yield from (alike[start : start + step] for start in range(0, len(alike), step))


def _wrong(given: Mapping[str, Tensor], logits: Tensor, tolerance: float) -> str | None:
    tokens, after = given.get("tokens"), given.get("logits")
    if tokens is not None:
        vocabulary = logits.shape[-1]
        if not bool(((tokens >= 0) & (tokens < vocabulary)).all()):
            return f"a timed call gave a token that is none of the {vocabulary}"
        count = logits.shape[1] - (after is not None)
        if reason := wrong_tokens(tokens, logits[:, :count], tolerance):
            return reason
    return None if after is None else wrong_logits(after, logits[:, -1], tolerance)


if __name__ == "__main__":
    serve(lambda _, hello: {"judge": Examiner(hello).judge})
    os._exit(0)  # nobody needs torch taken apart, which takes a second
