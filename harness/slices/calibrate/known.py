"""Comparisons whose outcome is known: two files that do the same work, or one of them a known share more.

All of a comparison follows from a few words and a drawn number, so that its files can be written again, to the last
letter, when it is measured a second time.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from llama_workbench.variants.one_file import one_file

from .cases import CASES as SOURCES
from .cases import source_of
from .clothes import dressed, offered, repeating, word

FUNCTIONS, ALLOCATIONS, MODELS = "functions", "allocations", "models"
KINDS = (FUNCTIONS, ALLOCATIONS, MODELS)
"""Allocations are functions that are felt in the process: they have large blocks handed over by the system, or leave
garbage to the collector. So each side has a process of its own, and a round takes longer."""

TWINS, IDENTICAL, PLANTED = "twins", "identical", "planted"
"""The same work in other clothes; the very same text in two files; known work more on one side."""

REPEATS = {1: 100, 2: 50, 3: 33, 5: 20, 10: 10}
"""Percent more work → how often the side with less of it does it; the other does it once more."""

ALLOCATING = ("blocks", "garbage")
CASES: Mapping[str, Sequence[str]] = {
    FUNCTIONS: [case for case in SOURCES if case not in ALLOCATING],
    ALLOCATIONS: ALLOCATING,
    MODELS: ("fast", "gpt_fast", "single_file_inline"),
}
"""Of models: presets whose source is written into one file."""

PAYLOADS = ("fixed", "mixed")
WORKLOAD, LONGER = "prefill-tiny-t16", "decode-15m-c64"
"""What models are called with. The longer one has calls of some milliseconds by itself, and no work is repeated."""

WRAPPER = '''
REPEATS = 1

class Repeated:
    """A model that computes each forward so many times: at one position it writes the same into its caches again."""

    def __init__(self, model):
        self.model = model

    def forward(self, tokens, position):
        for _ in range(REPEATS):
            logits = self.model.forward(tokens, position)
        return logits

    def reset(self):
        self.model.reset()

def build(config, weights, *, max_length):
    return Repeated(once(config, weights, max_length=max_length))
'''
"""Stands behind the source of a preset, whose own build function is called `once`."""

CASE = '''
REPEATS = 1

def fixed(seed):
    """Of one length."""
    return made(random.Random(seed), LENGTH)

def mixed(seed):
    """Of a drawn length."""
    draw = random.Random(seed)
    return made(draw, draw.randint(LENGTH // 2, LENGTH + (LENGTH + 1) // 2))

def work(given):
    """What is timed: the work, so many times."""
    for _ in range(REPEATS):
        answer = once(given)
    return answer
'''
"""Stands behind the source of each of `cases`."""

KEPT = ("work", "build", *PAYLOADS)
"""Functions that are asked for by their names."""

MOVED = "moved"
"""Clothes that only a file's place shows: another name of the module, one folder deeper."""


@dataclass(frozen=True)
class KnownComparison:
    """Which two files are compared. number: what all draws follow from, and what tells it from all others."""

    kind: str
    work: str
    case: str
    percent: int  # of planted work; 0 where both do the same
    number: int

    def _draw(self, what: str) -> random.Random:
        """Random numbers of this comparison, for one purpose."""
        return random.Random(f"{what} {self.number}")

    @cached_property
    def called_with(self) -> str:
        """The payload, or the workload of models."""
        if self.kind != MODELS:
            return self._draw("payload").choice(PAYLOADS)
        return WORKLOAD if self.percent else self._draw("workload").choice((WORKLOAD, LONGER))

    @cached_property
    def repeats(self) -> int:
        """How often one call does its work, on the side that has no more."""
        if self.called_with == LONGER:
            return 1
        return REPEATS[self.percent or self._draw("repeats").choice([*REPEATS])]

    @cached_property
    def turned(self) -> bool:
        """Whether what was changed is the baseline, and what it was made from is compared with it."""
        return self._draw("order").random() < 0.5

    @property
    def log_ratio(self) -> float:
        """The truth: log t_baseline - log t_variant."""
        if not self.percent:
            return 0.0
        more = math.log1p(1 / self.repeats)
        return more if self.turned else -more

    @cached_property
    def clothes(self) -> tuple[str, ...]:
        """What the twin differs in: each that makes a difference with even odds, one at least."""
        if self.work != TWINS:
            return ()
        draw, every = self._draw("clothes"), (*offered(self._base, KEPT), MOVED)
        return tuple(each for each in every if draw.random() < 0.5) or (draw.choice(every),)

    @cached_property
    def files(self) -> dict[str, str]:
        """Path → text: both sides, the baseline first; behind them what makes the inputs of functions."""
        changed = self._base
        if self.percent:
            changed = repeating(changed, self.repeats + 1)
        if self.work == TWINS:
            changed = dressed(changed, self.clothes, self._draw("names"), KEPT)
        names = self._draw("modules")
        name, folder, inner = (f"my_{word(names)}" for _ in range(3))  # that no other module has
        place = f"{folder}/{inner}"
        sides = [(name, self._base), (place if MOVED in self.clothes else name, changed)]
        old, new = reversed(sides) if self.turned else sides
        made = {f"old/{old[0]}.py": old[1], f"new/{new[0]}.py": new[1]}
        return made | ({"inputs.py": self._base} if self.kind != MODELS else {})

    @cached_property
    def _base(self) -> str:
        if self.kind != MODELS:
            return repeating(source_of(SOURCES[self.case]) + CASE, self.repeats)
        return repeating(one_file(self.case, "once", "A model in one file.") + WRAPPER, self.repeats)

    @property
    def digest(self) -> str:
        """Of all files: two runs with another one are none of the same comparison."""
        return hashlib.sha256("\0".join(f"{path}\0{text}" for path, text in self.files.items()).encode()).hexdigest()

    @property
    def command(self) -> list[str]:
        """What `pytest --benchmark` is given in a folder with these files."""
        function = "build" if self.kind == MODELS else "work"
        old, new = (f"{path.partition('/')[0]}={path}:{function}" for path in [*self.files][:2])
        if self.kind == MODELS:
            return ["--compare", old, new, "--workloads", self.called_with]
        return ["--compare", old, new, "--call", f"inputs.py:{self.called_with}"]

    def write(self, folder: Path) -> None:
        """Put the files into a folder."""
        for path, text in self.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
