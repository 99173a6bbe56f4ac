"""How well do counts of functions repeat? `python -m studies.count_trials 10` prints a table.

Each trial is a process of its own under callgrind, which counts the same functions; one of them under two names. It
takes a minute or two. What lies in allocators is left out, as `workbench compare` leaves it out.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from llama_workbench.cache import cache_directory
from llama_workbench.datasets.workloads import Workload
from llama_workbench.harness.calls.called import Call
from llama_workbench.harness.calls.source import parse
from llama_workbench.harness.slices.instructions.counting import ALLOCATORS, Wanted, calls_of_functions, count

CODE = """\
import re
import numpy as np
import torch
from collections import Counter
from dataclasses import dataclass

WORDS = "the cat sat on the mat and looked at another cat".split()

@dataclass
class Word:
    text: str
    size: int

def text(seed):
    return " ".join(WORDS[(seed + each) % len(WORDS)] for each in range(12))

def python(text):
    counts = Counter(Word(each, len(each)).text for each in re.findall(r"[a-z]+", text))
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))

def matrix(seed):
    return np.random.default_rng(seed).random((160, 160))

def numpy(x):
    return (np.sort(x, axis=1) - x.mean(axis=0)).std()

def tensor(seed):
    return torch.randn(128, 256)

def torched(x):
    for _ in range(8):
        x = torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (256,)))
    return x
"""

FUNCTIONS = {"python": ("text", 10e3), "numpy": ("matrix", 300e3), "torched": ("tensor", 1e6)}
"""Function → what makes its input, and about how long a call takes (ns)."""


def main(trials: int, file: Path | None = None) -> None:
    """Count, keep the counts in a file, and print by how much they differ."""
    known = [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []
    while len(known) < trials:
        known.append(one())
        if file:
            file.write_text("".join(json.dumps(each) + "\n" for each in known))
    sys.stdout.write(table(known))


def one() -> dict[str, list[float]]:
    """A trial: function → instructions of a call outside of allocators, each time that one process counted it."""
    with tempfile.TemporaryDirectory(prefix="count-trials-") as folder:
        file = Path(folder, "counted.py")
        file.write_text(CODE, encoding="utf-8")
        sources = {name: parse(f"{file}:{name}", option="x") for name in FUNCTIONS}
        copies = {f"{name}-copy": source for name, source in sources.items()}
        called = {
            name: (Call(sources[name], parse(f"{file}:{payload}", option="x")), calls_of_functions([call_ns]))
            for name, (payload, call_ns) in FUNCTIONS.items()
        }
        works = tuple(
            Workload(name=name, kind="call", geometry="", tokens=1, payload="x", description="x") for name in called
        )
        pairs = tuple((name.removesuffix("-copy"), name) for name in (*sources, *copies))
        wanted = Wanted(None, works, pairs, {}, 0, sources | copies, called)
        log = Path(folder, "log")
        records = count(wanted, cache=cache_directory(), log=log, step=_step)
        for record in records:
            if record["reason"]:
                raise SystemExit(f"{record['variant']}: {record['reason']}\n{log.read_text()[-2000:]}")
    return {
        name: [_work(each) for each in records if each["workload"] == name]
        + [
            each["again"] - each["by"].get(ALLOCATORS, 0.0)
            for each in records
            if each["workload"] == name and each["again"]
        ]
        for name in FUNCTIONS
    }


def _step(text: str, done: float, left: float) -> None:
    sys.stderr.write(f"{done:4.0%} {text}\n")


def _work(record: dict[str, float]) -> float:
    return record["instructions"] - record["by"].get(ALLOCATORS, 0.0)  # type: ignore[attr-defined]


def table(known: Sequence[dict[str, list[float]]]) -> str:
    """In Markdown: for each function, how far its counts lie apart, in one process and over processes."""
    lines = [
        "| function | instructions of a call | in one process | over processes | processes |",
        "|---|---|---|---|---|",
    ]
    for name in FUNCTIONS:
        inside = max(100 * (max(each[name]) / min(each[name]) - 1) for each in known)
        first = [each[name][0] for each in known]
        apart = 100 * (max(first) / min(first) - 1)
        lines.append(f"| {name} | {first[0]:,.0f} | {inside:.4f} % | {apart:.4f} % | {len(known)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(Path, sys.argv[2:]))
