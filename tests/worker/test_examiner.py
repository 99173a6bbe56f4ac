"""Who judges timed calls: prompts by number, a second Llama, and outputs that are drawn after they were made."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from llama_workbench import variants
from llama_workbench.datasets import geometries, tokenizer, workloads
from llama_workbench.datasets.checkpoints import load, synthesize
from llama_workbench.datasets.tokenizer import DRAWN, Prompts
from llama_workbench.harness.examiner import reference
from llama_workbench.harness.examiner.main import Examiner, wrong_logits, wrong_tokens
from llama_workbench.harness.worker.correctness import (
    SMALL_LENGTH,
    run_cases,
    small_cases,
    small_geometries,
    small_weights,
)
from llama_workbench.harness.worker.model_gating import Drawn, reference_model

WORDS = np.arange(10, 400, dtype=np.int32)

# --- prompts ---


def test_a_number_stands_for_one_prompt_and_a_longer_one_goes_on_from_it() -> None:
    ours, theirs = (Prompts(WORDS, batch=2, draw="a") for _ in range(2))
    assert ours.tokens(5, 20).shape == (2, 20)
    assert (ours.tokens(5, 20) == theirs.tokens(5, 20)).all()
    assert (ours.tokens(5, 20)[:, :7] == theirs.tokens(5, 7)).all()
    assert (ours.tokens(5, 2) == ours.tokens(5, 20)[:, :2]).all()
    assert set(ours.tokens(5, 1000).flatten()) <= set(WORDS)  # longer than the text


def test_no_two_prompts_are_alike_nor_begin_alike() -> None:
    prompts = Prompts(WORDS, batch=1, draw="a")
    begun = Counter(prompts.tokens(number, DRAWN).tobytes() for number in range(3000))
    assert begun.most_common(1)[0][1] == 1
    other = Prompts(WORDS, batch=1, draw="b")
    assert begun.keys().isdisjoint(other.tokens(number, DRAWN).tobytes() for number in range(3000))


def test_numbers_are_given_once_and_a_workload_may_ask_for_one_prompt_only() -> None:
    prompts = Prompts(WORDS, batch=1, draw="a")
    assert [prompts.take(3), prompts.take(), prompts.take(2)] == [0, 3, 4]
    repeated = Prompts(WORDS, batch=1, draw="a", repeated=True)
    assert (repeated.tokens(1, 9) == repeated.tokens(2, 9)).all()


# --- the second Llama ---


@pytest.mark.parametrize(
    ("geometry", "rounding", "most"),
    [("plain", "", 2e-6), ("grouped", "", 2e-6), ("plain", "bfloat16", 5e-4), ("grouped", "int8", 5e-4)],
)
def test_the_reference_is_the_library_s_model(geometry: str, rounding: str, most: float) -> None:
    """At every position, from a fresh sequence; grouped: also Llama-3 scaling and a tied head."""
    config = small_geometries()[geometry]
    weights = small_weights(config, torch.float32)
    model = reference_model(config, weights, SMALL_LENGTH, rounding)
    cases = small_cases(config)
    for case, steps in zip(cases, run_cases(model, cases), strict=True):
        tokens = torch.cat([tokens for tokens, _ in case.steps], dim=1)
        found = reference.logits(config, weights, tokens, first=0, rounding=rounding)
        assert found.shape == (*tokens.shape, config.vocab_size)
        for (step, position), expected in zip(case.steps, steps, strict=True):
            got = found[:, position + step.shape[1] - 1]
            assert float((got - expected).abs().max() / expected.abs().max()) < most
        torch.testing.assert_close(reference.logits(config, weights, tokens, first=2, rounding=rounding), found[:, 2:])


# --- judging ---


def test_logits_are_right_or_it_is_said_how_they_are_not() -> None:
    expected = torch.randn(2, 9)
    assert wrong_logits(expected * 1.00001, expected, 1e-4) is None
    assert "off by" in (wrong_logits(expected * 1.01, expected, 1e-4) or "")
    assert "NaN" in (wrong_logits(expected * float("nan"), expected, 1e-4) or "")
    assert wrong_logits(expected[:1], expected, 1e-4) == "a timed call gave [1, 9] logits for [2, 9]"


def test_a_near_tie_between_tokens_is_no_fault() -> None:
    expected = torch.zeros(1, 2, 5)
    expected[0, 0, 3], expected[0, 0, 4], expected[0, 1, 1] = 1.0, 0.99995, 1.0
    assert wrong_tokens(torch.tensor([[3, 1]]), expected, 1e-4) is None
    assert wrong_tokens(torch.tensor([[4, 1]]), expected, 1e-4) is None
    assert wrong_tokens(torch.tensor([[4, 2]]), expected, 1e-4) == (
        "in a timed call token 2 of sequence 1 is 2, expected 1, which leads by 1.0e+00 of the largest logit"
    )
    assert wrong_tokens(torch.tensor([[4]]), expected, 1e-4) == "a timed call gave [1, 1] tokens for [1, 2]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesize(geometries.get("tiny"), cache=tmp_path_factory.mktemp("cache"))


class Asked:
    """What a measuring process would hand over, with right answers to begin with."""

    def __init__(self, folder: Path, workload: str, tmp_path: Path) -> None:
        self.folder, self.file = folder, tmp_path / "outputs.safetensors"
        self.work = workloads.get(workload)
        cache = folder.parent.parent
        self.examiner = Examiner({"cache": str(cache), "threads": 1})
        self.checkpoint = load(folder, cache=cache)
        ids = tokenizer.text_ids(folder, vocab_size=512, cache=cache)
        self.prompts = Prompts(ids, batch=self.work.batch, draw="x 1")
        self.outputs: list[dict[str, Any]] = []
        self.tensors: dict[str, Tensor] = {}

    def right(self, prompt: int, length: int) -> Tensor:
        tokens = torch.from_numpy(self.prompts.tokens(prompt, length))
        model = variants.get("yardstick").build(self.checkpoint.config, self.checkpoint.weights, max_length=length)
        with torch.inference_mode():
            return model.forward(tokens, 0).clone()

    def add(self, variant: str, prompt: int, length: int, **tensors: Tensor) -> None:
        index = len(self.outputs)
        self.outputs.append({"variant": variant, "prompt": prompt, "length": length, "kind": " and ".join(tensors)})
        self.tensors |= {f"{index}.{part}": tensor.clone() for part, tensor in tensors.items()}

    def judged(self, draw: str = "x 1") -> dict[str, str]:
        save_file(self.tensors, self.file)
        return self.examiner.judge(str(self.folder), self.work.model_dump(), draw, str(self.file), self.outputs)


@pytest.mark.parametrize("workload", ["prefill-tiny-t16", "prefill-tiny-t16-b3"])
def test_each_output_is_held_against_its_own_prompt(folder: Path, workload: str, tmp_path: Path) -> None:
    asked = Asked(folder, workload, tmp_path)
    for prompt, length in ((0, 16), (1, 16), (7, 5)):
        asked.add("good", prompt, length, logits=asked.right(prompt, length))
    asked.add("stale", 1, 16, logits=asked.right(0, 16))
    assert list(asked.judged()) == ["stale"]
    assert asked.judged(draw="another run's")["good"].startswith("logits of a timed call off by")


def test_tokens_are_judged_after_those_that_the_variant_chose(folder: Path, tmp_path: Path) -> None:
    asked = Asked(folder, "generate-tiny-t8-n6-b1", tmp_path)
    model = variants.get("yardstick").build(asked.checkpoint.config, asked.checkpoint.weights, max_length=20)
    prompt = torch.from_numpy(asked.prompts.tokens(3, 8))
    with torch.inference_mode():
        tokens = torch.stack(list(variants.generation.generate(model, prompt, 4)), dim=1)
        logits = model.forward(tokens[:, -1:], 11).clone()
    asked.add("good", 3, 8, tokens=tokens, logits=logits)
    asked.add("tokens alone", 3, 8, tokens=tokens)
    asked.add("other token", 3, 8, tokens=torch.cat((tokens[:, :2], (tokens[:, 2:] + 1) % 512), dim=1))
    asked.add("stale cache", 3, 8, tokens=tokens, logits=logits.roll(1, -1))
    asked.add("no word", 3, 8, tokens=tokens + 5000)
    wrong = asked.judged()
    assert wrong.keys() == {"other token", "stale cache", "no word"}
    assert "token 3 of sequence 1" in wrong["other token"]
    assert wrong["no word"] == "a timed call gave a token that is none of the 512"


# --- drawing ---


def test_any_call_of_any_sub_round_may_be_judged(tmp_path: Path) -> None:
    seen: Counter[tuple[int, int]] = Counter()
    for _ in range(2000):
        drawn = Drawn(1)
        for sub_round in range(4):
            kept = [torch.full((1, 2), float(10 * sub_round + call)) for call in range(3)]
            drawn.keep("x", [(100 * sub_round + call, 16) for call in range(3)], kept)
            drawn.end_sub_round()
        [[(asked, tensors)]] = drawn.chosen
        sub_round, call = divmod(int(tensors["logits"][0, 0]), 10)
        assert (asked["prompt"], asked["length"]) == (100 * sub_round + call, 16)
        seen[sub_round, call] += 1
    assert len(seen) == 12 and min(seen.values()) > 100  # 167 expected: five standard deviations below


def test_an_output_is_kept_as_it_was(tmp_path: Path) -> None:
    """The next sample overwrites the place that outputs are copied to."""
    drawn, place = Drawn(2), torch.ones(1, 3)
    for number in range(2):
        tensors = drawn.keep("x", [(number, 4)], [place])
        tensors["extra"] = torch.tensor([number])
        drawn.end_sub_round()
        place += 1
    entries = drawn.write(tmp_path / "out.safetensors")
    assert [(entry["prompt"], entry["kind"]) for entry in entries] == [(0, "logits and extra"), (1, "logits and extra")]
    written = load_file(tmp_path / "out.safetensors")
    assert written["0.logits"].tolist() == [[1, 1, 1]] and written["1.logits"].tolist() == [[2, 2, 2]]
