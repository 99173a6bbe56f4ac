"""Engines that are not ours, as variants: Candle's kernels, mistral.rs, llama.cpp. Each is an optional package.

An engine differs from our models in everything at once, so its numbers are context and never evidence on one choice
of architecture. Importing this package imports neither torch nor an engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal


@dataclass(frozen=True)
class Engine:
    """What the workbench must know of an engine before it builds a model with it.

    `modules` maps each module that must be there to the distribution that brings it. `outputs` is what `forward`
    gives: logits, or their log-softmax. An engine of the second kind also has `generate(tokens [1, T], count)`, which
    gives tokens, and that is what is timed (see `mistral_rs`). `cannot` maps what the engine cannot do ("batch",
    "chunks") to the reason: the gates leave those cases out and say so. `loads_once`: a model is kept, not built anew.
    """

    modules: Mapping[str, str]
    outputs: Literal["logits", "log-probabilities"] = "logits"
    cannot: Mapping[str, str] = field(default_factory=dict)
    loads_once: bool = False

    def missing(self) -> str | None:
        """What to install, in one line; None where all is there."""
        gone = [distribution for module, distribution in self.modules.items() if find_spec(module) is None]
        return f"not installed: pip install {' '.join(gone)}" if gone else None


CANDLE = Engine({"candle": "candle-nn"})
MISTRAL_RS = Engine(
    {"mistralrs": "mistralrs"},
    outputs="log-probabilities",
    cannot={"batch": "a request is one sequence", "chunks": "a request starts from the first token"},
    loads_once=True,  # each load leaves some ten MiB behind
)
LLAMA_CPP = Engine({"llama_cpp": "llama-cpp-python", "gguf": "gguf"})
