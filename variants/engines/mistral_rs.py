"""mistral.rs through its Python package: a request to an engine that computes in threads of its own.

What its interface offers decides what can be measured:

- A request is text. The tokenizer written beside the weights has a word `t17` for token 17, so that any sequence of
  tokens can be sent and nothing is added to it; reading that text is in every time.
- A request starts from the first token, so a sequence cannot be continued with tokens of ours. (The engine's prefix
  cache is off: in trials it gave sometimes more and sometimes nothing of what an earlier request had computed, so that
  a time could not be said to be that of so many tokens.)
- An answer holds tokens, and log-probabilities on demand. All of a vocabulary's (`forward`, what the gates compare)
  cost several forwards of a small model with a vocabulary of 32000; tokens alone (`generate`) are what is timed.
- Prefill is timed as a request for one token. Decode is timed as the difference of two requests that follow one
  another, for 1 + n tokens and for 1 after the same context, divided by n: the engine chooses those tokens itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..config import LlamaConfig, config_json
from . import files
from .files import EngineError

os.environ.setdefault("RUST_LOG", "error")  # read at the import: else a line for each step of loading
import mistralrs

TYPES = {
    torch.float32: mistralrs.ModelDType.F32,
    torch.bfloat16: mistralrs.ModelDType.BF16,
    torch.float16: mistralrs.ModelDType.F16,
}
ROOM = 64
"""Positions that the engine is told of beyond `max_position_embeddings`: it refuses a prompt that fills its context,
because an answer must fit too."""


def tokenizer_json(vocab_size: int) -> dict[str, object]:
    """A tokenizer that reads `t5 t17` as tokens 5 and 17, and writes them `t5t17`."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        # The engine knows few kinds of decoder; of this one only the joining matters.
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {"type": "WordLevel", "vocab": {f"t{i}": i for i in range(vocab_size)}, "unk_token": "t0"},
    }


class MistralRs:
    """One sequence at a time; `forward` as every model, and `generate`, which is what is timed. Uses no network.
    `max_length` is not needed: the engine's cache grows. Raises EngineError for a dtype that the engine does not have,
    or threads that are not those of the run."""

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int) -> None:
        files.check_threads()
        dtype = weights["model.norm.weight"].dtype
        if dtype not in TYPES:
            raise EngineError(f"mistral.rs has no {str(dtype).removeprefix('torch.')}: it computes in float32 or less")

        def write(folder: Path) -> None:
            described = config_json(config, str(dtype).removeprefix("torch."))
            described["max_position_embeddings"] += ROOM
            del described["rope_parameters"], described["dtype"]  # transformers 5's spelling; the engine reads 4's
            (folder / "config.json").write_text(json.dumps(described), encoding="utf-8")
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(config.vocab_size)), encoding="utf-8")
            (folder / "prompt.jinja").write_text("{{ messages[0]['content'] }}", encoding="utf-8")
            files.write_safetensors(folder / "model.safetensors", config, weights)

        folder = files.folder("mistralrs-2", config, weights, write)
        self.vocab_size = config.vocab_size
        # Read when a model is loaded: K and V would be float16 otherwise.
        os.environ["MISTRALRS_CPU_KV_F32"] = "1" if dtype == torch.float32 else "0"
        self.engine = mistralrs.Runner(
            mistralrs.Which.Plain(
                model_id=str(folder),
                arch=mistralrs.Architecture.Llama,
                dtype=TYPES[dtype],
                hf_cache_path=str(folder),
            ),
            max_seqs=1,
            prefix_cache_n=0,
            no_paged_attn=True,
            token_source="none",
            jinja_explicit=str(folder / "prompt.jinja"),
        )
        self.sequence: list[int] = []

    def _ask(self, prompt: list[int], count: int, top: int | None = None) -> Any:
        """The answer to `prompt`: `count` tokens, each the likeliest, and the log-probabilities of the `top` first."""
        answer = self.engine.send_chat_completion_request(
            mistralrs.ChatCompletionRequest(
                messages=[{"role": "user", "content": " ".join(f"t{token}" for token in prompt)}],
                model="default",
                max_tokens=count,
                temperature=0.0,
                logprobs=top is not None,
                top_logprobs=top,
                ignore_eos=True,
            )
        )
        usage = answer.usage
        if (usage.prompt_tokens, usage.completion_tokens) != (len(prompt), count) or usage.prompt_tokens_details:
            raise EngineError(
                f"mistral.rs read {usage.prompt_tokens} tokens ({usage.prompt_tokens_details}) and gave "
                f"{usage.completion_tokens}: expected {len(prompt)}, none of them from a cache, and {count}"
            )
        return answer.choices[0]

    def forward(self, tokens: Tensor, position: int) -> Tensor:
        """Log-probabilities [1, V] of the token after `tokens` [1, T], float64; all before them is computed again."""
        self.sequence = self.sequence[:position] + self._only_row(tokens)
        if len(self.sequence) != position + tokens.shape[1]:
            raise EngineError(f"position {position} is beyond the end of the sequence")
        out = torch.full((1, self.vocab_size), float("nan"), dtype=torch.float64)
        for entry in self._ask(self.sequence, 1, self.vocab_size).logprobs.content[0].top_logprobs:
            out[0, entry.token] = entry.logprob
        return out

    def generate(self, tokens: Tensor, count: int) -> Tensor:
        """The `count` tokens [1, count] that follow `tokens` [1, T] at position 0, each the likeliest."""
        text = self._ask(self._only_row(tokens), count).message.content
        return torch.tensor([[int(token) for token in text.split("t")[1:]]])

    def _only_row(self, tokens: Tensor) -> list[int]:
        if tokens.shape[0] != 1:
            raise EngineError(f"a batch of {tokens.shape[0]}: a request to mistral.rs is one sequence")
        return tokens[0].tolist()

    def reset(self) -> None:
        """Forget the sequence."""
        self.sequence = []


build = MistralRs
